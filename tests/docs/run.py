"""Runs what the documentation shows: every block of code in README and docs, and the examples.

    run.py --bin FOLDER [--python PYTHON] [--r-library FOLDER] [--metaflow PYTHON] [--update] [PAGE...]

Each page gets a folder with `examples/train.py`, which is also its home. The blocks of a language run in order: `sh` in one
shell that ends at the first error, `python` and `r` in one interpreter each; the language that comes first on the page runs
first. `sql` is run by tests/fleet/queries.py. Of `groovy`, the shell runs the script of a Nextflow process. A block
`text title="Output"` is compared with what the block before it printed (`blocks.py`); `--update` rewrites the outputs that
differ. Other `text` is not run. Also checked: a block with the name of a file in examples/ is a copy of it, relative links of
all pages lead somewhere, every block names its language, every file in examples/ is listed here.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import blocks
from blocks import BLOCK, ROOT, Block

PAGES = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "r").glob("README.md")),
]
LINK = re.compile(r"(?<!`)\[[^\]\n]*\]\(([^)\s]+)\)")
# Commands of the pages that this test cannot run, and where they are run instead.
ELSEWHERE = {
    "make test": "runs this test",
    "R CMD INSTALL r/": "tests/r/run.sh",
    "R CMD build r/": "tests/r/run.sh",
    "R CMD INSTALL resource.tracker_*.tar.gz": "tests/r/run.sh",
    "export AWS_ENDPOINT_URL_S3=https://minio.example.org AWS_PROFILE=team": "crates/cli/tests/fleet_bucket.rs",
    "resource-tracker fleet summary --store s3://fleet/runs": "crates/cli/tests/fleet_bucket.rs",
    "resource-tracker fleet pull --store s3://fleet/runs --since 30d runs": "crates/cli/tests/fleet_bucket.rs",
    "resource-tracker fleet summary --store runs --offline": "crates/cli/tests/fleet_bucket.rs",
    "cargo run --release -- run -- sh -c 'seq 1000000 | sort -R | tail -1'": "`make newcomer`",
}
# Pages with commands of Metaflow's environment.
NEED_METAFLOW = {"integrations.md", "metaflow-step.md"}
LANGUAGES = {"sh", "python", "r", "toml", "text", "groovy", "sql"}
# Blocks of these languages are files, and have a title.
FILE_LANGUAGES = {"bash", "yaml", "dockerfile"}
# Examples that this test cannot run.
NOT_RUN = {"Dockerfile"}
# What Slurm sets for the batch script.
SLURM = {"SLURM_JOB_ID": "42", "SLURM_CPUS_PER_TASK": "8", "SLURM_MEM_PER_NODE": "32768"}

failures: list[str] = []


def fail(what: str) -> None:
    failures.append(what)
    print(f"FAILED {what}")


def execute(command: list[str], folder: Path, environment: dict[str, str], text: str | None = None) -> tuple[int, str]:
    done = subprocess.run(
        command, cwd=folder, env=environment, input=text, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300
    )
    return done.returncode, done.stdout


def run(what: str, command: list[str], folder: Path, environment: dict[str, str], text: str | None = None) -> str:
    """Run a program that must succeed; return what it printed."""
    status, printed = execute(command, folder, environment, text)
    if status == 0:
        print(f"ok     {what}")
    else:
        fail(f"{what}: exit {status}\n{printed[-3000:]}")
    return printed if status == 0 else ""


def is_elsewhere(code: str) -> bool:
    commands = [line.split("#")[0].strip() for line in code.strip().splitlines()]
    return all(command in ELSEWHERE for command in commands)


def links(page: Path) -> None:
    text = BLOCK.sub("", page.read_text())
    for target in LINK.findall(text):
        path = target.split("#")[0]
        if path and "://" not in path and not (page.parent / path).exists():
            fail(f"{page.relative_to(ROOT)}: link to `{target}` leads nowhere")


def check_kinds(name: str, found: list[Block]) -> None:
    for language in sorted({block.language for block in found} - LANGUAGES - FILE_LANGUAGES):
        fail(f"{name}: unknown language of a block: `{language}`")
    for block in found:
        if block.language in FILE_LANGUAGES and block.title is None:
            fail(f"{name}: a block of `{block.language}` has no title, the name of its file")
    for before, block in zip([None, *found], found):
        if block.title == "Output" and (before is None or before.title or before.language not in {"sh", "python", "r"}):
            fail(f"{name}: the output `{block.body[:40]}` does not follow a block of code that is run")


def run_page(page: Path, interpreters: dict[str, list[str] | None], arguments: argparse.Namespace, environment) -> None:  # noqa: ANN001
    """Run the blocks of a page, and compare or update the outputs that it shows."""
    name = str(page.relative_to(ROOT))
    links(page)
    found = blocks.read(page)
    check_kinds(name, found)
    home = Path(tempfile.mkdtemp())
    # The job of most pages.
    shutil.copy(ROOT / "examples/train.py", home)
    for file, text in blocks.files(found).items():
        (home / file).write_text(text)
    printed: dict[int, str] = {}
    cells = [(number, block) for number, block in enumerate(found) if block.title is None and not is_elsewhere(block.body)]
    for language in dict.fromkeys(block.language for _, block in cells if block.language in interpreters):
        of_language = [(number, block) for number, block in cells if block.language == language]
        interpreter = interpreters[language]
        variables = environment(home)
        if page.name in NEED_METAFLOW and arguments.metaflow:
            variables["PATH"] = f"{arguments.metaflow.parent}:{variables['PATH']}"
        if page.name == "metaflow.md" and language == "python" and arguments.metaflow:
            flow_page(arguments.metaflow, [block.body for _, block in of_language], name, environment)
        elif interpreter is None or (page.name in NEED_METAFLOW and not arguments.metaflow):
            print(f"--     {name}: {language} blocks are not run: no interpreter was given")
        else:
            text = run(f"{name} ({language})", interpreter, home, variables, blocks.program(language, of_language))
            printed |= blocks.outputs(text.replace(str(home), "~"))
    for block in (block for block in found if block.language == "groovy"):
        run(f"{name} (script of a process)", interpreters["sh"], home, environment(home), nextflow_script(block.body))
    shutil.rmtree(home)

    outdated = [(block, text) for block in found if (text := blocks.example(block.title)) not in (None, block.body)]
    for number, block in enumerate(found):
        if block.title == "Output" and number - 1 in printed and not blocks.is_same(block.body, printed[number - 1]):
            outdated.append((block, printed[number - 1]))
    if arguments.update and outdated:
        page.write_text(blocks.replaced(page.read_text(), outdated))
        print(f"       {name}: {len(outdated)} blocks updated")
    for block, output in [] if arguments.update else outdated:
        shown, real = "\n".join(blocks.masked(block.body)), "\n".join(blocks.masked(output))
        fail(f"{name}: the block `{block.title}` is out of date: run with --update\n--- shown\n{shown}\n--- real\n{real}")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=lambda folder: Path(folder).resolve(), required=True)
    parser.add_argument("--python", type=lambda path: Path(os.path.abspath(path)))
    parser.add_argument("--r-library", type=lambda folder: Path(folder).resolve())
    parser.add_argument("--metaflow", type=lambda path: Path(os.path.abspath(path)))
    parser.add_argument("--update", action="store_true", help="write the generated pages and the outputs that differ anew")
    parser.add_argument("pages", nargs="*", type=lambda path: Path(path).resolve(), help="run these pages only")
    arguments = parser.parse_args()
    interpreters = {
        "sh": ["sh", "-eu"],
        "python": [str(arguments.python), "-"] if arguments.python else None,
        "r": ["Rscript", "-"] if arguments.r_library else None,
    }

    def environment(home: Path) -> dict[str, str]:
        paths = [str(arguments.bin), *([str(arguments.python.parent)] if arguments.python else []), os.environ["PATH"]]
        # This environment has Metaflow and Snakemake.
        paths += [str(arguments.metaflow.parent)] if arguments.metaflow else []
        return {
            "PATH": ":".join(paths),
            "HOME": str(home),
            "LC_ALL": "C.UTF-8",
            "BROWSER": "true",
            "PYTHONUNBUFFERED": "1",
            "RESOURCE_TRACKER_OFFLINE": "1",
            "R_LIBS": str(arguments.r_library or ""),
        }

    for page in arguments.pages or PAGES:
        run_page(page, interpreters, arguments, environment)
    if not arguments.pages:
        generated(arguments)
        examples(arguments, environment)
    print(f"{len(arguments.pages or PAGES)} pages, {len(failures)} failures")
    return 1 if failures else 0


def generated(arguments: argparse.Namespace) -> None:
    """Check or write the pages that are generated from the installed packages."""
    pages = {}
    if arguments.python:
        command = [str(arguments.python), str(Path(__file__).with_name("reference.py"))]
        pages["python-api.md"] = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    if arguments.r_library:
        text = "# R reference\n\nGenerated from the package's help pages; `?ResourceTracker` in R shows the same.\n"
        for page in sorted((ROOT / "r/man").glob("*.Rd")):
            program = f"tools::Rd2txt('{page}', options = list(underline_titles = FALSE, width = 100))"
            shown = subprocess.run(["Rscript", "-e", program], stdout=subprocess.PIPE, text=True, check=True).stdout
            text += f"\n## {page.stem}\n\n```text\n{shown.strip()}\n```\n"
        pages["r-reference.md"] = text
    for name, text in pages.items():
        path = ROOT / "docs" / name
        if arguments.update:
            path.write_text(text)
        elif path.read_text() != text:
            fail(f"docs/{name} is out of date: run `make generate-docs`")


def nextflow_script(code: str) -> str:
    """Return the script of a Nextflow process with values in place of its variables. Nextflow cannot be installed here."""
    values = {"sample": "a", "reads": "a.txt", "task.process": "SORT"}
    script = re.search(r'"""\n(.*?)"""', code, re.DOTALL).group(1).replace("\\\\", "\\")
    script = re.sub(r"\$\{([\w.]+)\}", lambda variable: values[variable.group(1)], script)
    return f"seq 9 > a.txt\n{script}\n[ $(head -1 a.sorted) = 9 ]\nresource-tracker list --job SORT --tag sample=a | grep -q finished\n"


def flow_page(python: Path, codes: list[str], name: str, environment) -> None:  # noqa: ANN001
    """Run the first block as a flow, then the other blocks, which read the results of the flow."""
    flow_text, *others = codes
    home = Path(tempfile.mkdtemp())
    (home / "flow.py").write_text(flow_text)
    flow(python, home / "flow.py", f"{name} (its flow)", home, environment(home))
    variables = {**environment(home), "USERNAME": "docs", "METAFLOW_HOME": str(home), "METAFLOW_DEFAULT_DATASTORE": "local"}
    run(f"{name} (python)", [str(python), "-"], home, variables, "\n".join(others))
    shutil.rmtree(home)


def examples(arguments: argparse.Namespace, environment) -> None:  # noqa: ANN001
    folder = ROOT / "examples"
    for example in sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        name = str(example.relative_to(ROOT))
        home = Path(tempfile.mkdtemp())
        match example.suffix:
            case ".py" if example.parent.name == "metaflow":
                if arguments.metaflow:
                    flow(arguments.metaflow, example, name, home, environment(home))
            case ".py" if arguments.python:
                run(name, [str(arguments.python), str(example)], home, environment(home))
            case ".R" if arguments.r_library:
                run(name, ["Rscript", str(example)], home, environment(home))
            case ".ipynb" if arguments.python:
                notebook(arguments.python, example, name, home, environment(home))
            case ".sh":
                run(name, ["sh", str(example)], home, environment(home))
            case ".sbatch":
                shutil.copy(folder / "train.py", home)
                run(name, ["bash", str(example)], home, {**environment(home), **SLURM})
            case ".yaml" | ".yml":
                if arguments.metaflow:
                    shutil.copy(folder / "train.py", home)
                    (home / "test_train.py").write_text("def test_train():\n    import train\n")
                    run(name, ["sh", "-eu"], home, environment(home), yaml_commands(arguments.metaflow, example, home))
            case _ if example.name not in NOT_RUN and example.suffix not in {".py", ".R", ".ipynb"}:
                fail(f"{name} is neither run by this test nor listed in NOT_RUN")
        shutil.rmtree(home)


def yaml_commands(python: Path, example: Path, home: Path) -> str:
    """Return the commands of a Kubernetes job or of a workflow of GitHub as a shell script; the volume is the folder `home`."""
    program = (
        "import json, sys, yaml\nfound = yaml.safe_load(open(sys.argv[1]))\n"
        "pod = found.get('spec', {}).get('template', {}).get('spec', {})\n"
        "steps = [step for job in found.get('jobs', {}).values() for step in job['steps']]\n"
        "lines = [' '.join(one['command'] + one['args']) for one in pod.get('containers', [])]\n"
        "print('\\n'.join(lines + [step['run'] for step in steps if 'run' in step]))\n"
    )
    text = subprocess.run([str(python), "-c", program, str(example)], stdout=subprocess.PIPE, text=True, check=True).stdout
    commands = [line.replace("/out/", f"{home}/") for line in text.splitlines() if not line.startswith("pip install ")]
    assert any("resource-tracker run" in line for line in commands), f"{example}: no command was found"
    return "\n".join(commands)


def flow(python: Path, example: Path, name: str, home: Path, environment: dict[str, str]) -> None:
    """Run a flow. A flow whose file name starts with `failing` must fail."""
    variables = {**environment, "USERNAME": "docs", "METAFLOW_HOME": str(home), "METAFLOW_DEFAULT_DATASTORE": "local"}
    command = [str(python), str(example), "--no-pylint", "run"]
    if example.stem.startswith("failing"):
        command = ["sh", "-c", '! "$@"', "sh", *command]
    run(name, command, home, variables)


def notebook(python: Path, example: Path, name: str, home: Path, environment: dict[str, str]) -> None:
    """Run the cells in order, in one interpreter with the magics of IPython."""
    program = (
        "import json, sys\nfrom IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\n"
        "for cell in json.load(open(sys.argv[1]))['cells']:\n"
        "    if cell['cell_type'] == 'code':\n"
        "        shell.run_cell(''.join(cell['source'])).raise_error()\n"
    )
    run(name, [str(python), "-c", program, str(example)], home, environment)


if __name__ == "__main__":
    sys.exit(main())
