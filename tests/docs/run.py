"""Runs what the documentation shows: every block of code in README and docs, and the examples.

    run.py --bin FOLDER [--python PYTHON] [--r-library FOLDER] [--metaflow PYTHON] [--update] [PAGE...]

Each page gets a folder with `examples/train.py`, which is also its home. The blocks of a language run in order: `sh` in one
shell that ends at the first error, `python` and `r` in one interpreter each; the language that comes first on the page runs
first. `sql` is run by tests/fleet/queries.py. Of `groovy`, the shell runs the script of a Nextflow process. A block
`text title="Output"` is compared with what the block before it printed (`blocks.py`); `--update` rewrites the outputs that
differ. Other `text` has a title of `blocks.SHOWN`. Commands that cannot run here are in `ELSEWHERE`, with the test that runs
them. Also checked: a block with the name of a file in examples/ is a copy of it, relative links of all pages lead somewhere, every
block names its language, every file in examples/ is listed here.

`bin/` has stand-ins for `srun` of Slurm and for `systemd-run`, as far as the pages use them.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import blocks
import rd
import terminal
from blocks import BLOCK, ROOT, Block

PAGES = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "r").glob("README.md")),
]
LINK = re.compile(r"(?<!`)\[[^\]\n]*\]\(([^)\s]+)\)")
HERE = Path(__file__).parent
S3, INSTALL, AIRFLOW = "crates/cli/tests/fleet_s3.rs", "tests/install/run.sh", "python/airflow_tests/test_listener.py"
# Commands of the pages that this test cannot run: the file that runs them instead, and how it does.
ELSEWHERE = {
    "make test": ("Makefile", "test-docs test-fleet ##"),
    "make bench-compare": ("Makefile", "benches/compare/run.py"),
    "cargo install --locked --path crates/cli": ("tests/docs/newcomer.sh", "cargo install"),
    "cargo run --release -- run -- sh -c 'seq 1000000 | sort -R | tail -1'": ("tests/docs/newcomer.sh", '"cargo run"'),
    "pip install ./dist/*.whl": (INSTALL, "install='pip install ./dist/*.whl'"),
    "pip install .": (INSTALL, '--no-cache-dir "$dist"/resource_tracker-*.tar.gz'),
    "pip install 'metaflow==2.19.*' ./dist/*.whl": ("python/metaflow_tests/run.sh", '"metaflow==2.19.*"'),
    "R CMD INSTALL r": ("r/r.mk", "R CMD INSTALL"),
    "R CMD INSTALL resource.tracker_*.tar.gz": ("tests/r/run.sh", "R CMD check"),
    "resource-tracker list --tag run=scheduled__2026-01-01": (AIRFLOW, '"list", "--tag", f"run='),
    "resource-tracker recommend etl.extract --for kubernetes": (AIRFLOW, '"recommend", "etl.extract", "--for", "kubernetes"'),
    "export AWS_ENDPOINT_URL_S3=https://minio.example.org AWS_PROFILE=team": ("crates/cli/tests/support/s3.rs", "AWS_ENDPOINT_URL_S3"),
    "resource-tracker fleet summary --store s3://fleet/runs": (S3, '"fleet", "summary"'),
    "resource-tracker fleet pull --store s3://fleet/runs --since 30d runs": (S3, '"fleet", "pull"'),
    "resource-tracker fleet summary --store runs --offline": (S3, '"--offline", "--store", "copy"'),
    "resource-tracker fleet summary --store s3://team-runs/prod --since 30d": (S3, '"fleet", "summary"'),
    "resource-tracker fleet report --store s3://team-runs/prod --since 30d -o fleet.html": (S3, '"fleet", "report"'),
    "resource-tracker fleet compact --store s3://team-runs/prod": (S3, '"fleet", "compact"'),
}
# Pages with commands of Metaflow's environment.
NEED_METAFLOW = {"index.md", "integrations.md", "metaflow-step.md"}
# The page whose blocks of Python are the cells of examples/notebook.ipynb.
NOTEBOOK_PAGE = "notebooks.md"
LANGUAGES = {"sh", "python", "r", "toml", "text", "groovy", "sql"}
# Blocks of these languages are files, and have a title.
FILE_LANGUAGES = {"bash", "yaml", "dockerfile", "json"}
# Examples that this test cannot run.
NOT_RUN = {"Dockerfile"}
# What Slurm sets for the batch script.
SLURM = {
    "SLURM_JOB_ID": "42",
    "SLURM_JOB_NAME": "train",
    "SLURM_JOB_ACCOUNT": "vision",
    "SLURM_CPUS_PER_TASK": "8",
    "SLURM_MEM_PER_NODE": "32768",
}

failures: list[str] = []
is_used = dict.fromkeys(ELSEWHERE, False)


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


def without_elsewhere(block: Block) -> Block:
    """Return the block without the commands that are run elsewhere."""
    commands = {line: line.split("#")[0].strip() for line in block.body.splitlines(keepends=True)}
    for command in ELSEWHERE.keys() & commands.values():
        is_used[command] = True
    kept = (line for line in block.body.splitlines(keepends=True) if commands[line] not in ELSEWHERE)
    return dataclasses.replace(block, body="".join(kept))


def check_elsewhere(is_complete: bool) -> None:
    for command, (file, subject) in ELSEWHERE.items():
        if subject not in (ROOT / file).read_text():
            fail(f"ELSEWHERE: `{file}` does not contain `{subject}`, so it does not run `{command}`")
        if is_complete and not is_used[command]:
            fail(f"ELSEWHERE: no page has the command `{command}`")


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
        if block.language == "text" and block.title not in {"Output", *blocks.SHOWN}:
            fail(f"{name}: no test runs the `text` block `{block.body[:40]}`: give it its language, or a title of blocks.SHOWN")
        if block.language == "json":
            json.loads(block.body)
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
    cells = [(number, without_elsewhere(block)) for number, block in enumerate(found) if block.title is None]
    cells = [(number, block) for number, block in cells if block.body]
    if page.name == NOTEBOOK_PAGE:
        shutil.copy(ROOT / "examples/notebook.ipynb", home)
        if [block.body for block in found if block.language == "python"] != notebook_cells(home / "notebook.ipynb"):
            fail(f"{name}: its blocks of Python are not the cells of examples/notebook.ipynb")
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
            is_notebook = page.name == NOTEBOOK_PAGE and language == "python"
            code = blocks.cells(of_language) if is_notebook else blocks.program(language, of_language)
            text = run(f"{name} ({language})", interpreter, home, variables, code)
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
        paths = [str(HERE / "bin"), str(arguments.bin), *([str(arguments.python.parent)] if arguments.python else []), os.environ["PATH"]]
        # This environment has Metaflow and Snakemake.
        paths += [str(arguments.metaflow.parent)] if arguments.metaflow else []
        return {
            "PATH": ":".join(paths),
            "HOME": str(home),
            "LC_ALL": "C.UTF-8",
            "BROWSER": "true",
            "USERNAME": "docs",
            "METAFLOW_DEFAULT_DATASTORE": "local",
            "PYTHONUNBUFFERED": "1",
            "RESOURCE_TRACKER_OFFLINE": "1",
            "R_LIBS": str(arguments.r_library or ""),
        }

    for page in arguments.pages or PAGES:
        run_page(page, interpreters, arguments, environment)
    check_elsewhere(is_complete=not arguments.pages)
    if not arguments.pages:
        generated(arguments)
        examples(arguments, environment)
    print(f"{len(arguments.pages or PAGES)} pages, {len(failures)} failures")
    return 1 if failures else 0


def generated(arguments: argparse.Namespace) -> None:
    """Check or write the pages that are generated from the installed packages, and the picture of the README's output."""
    pages = {"images/terminal.svg": terminal.picture(ROOT / "README.md")}
    if arguments.python:
        command = [str(arguments.python), str(Path(__file__).with_name("reference.py"))]
        pages["python-api.md"] = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    if arguments.r_library:
        pages["r-reference.md"] = rd.page(ROOT / "r/man")
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
    variables = {**environment(home), "METAFLOW_HOME": str(home)}
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
            # Run by the page about notebooks, which has the same cells.
            case ".ipynb":
                pass
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
    """Return the commands of a Kubernetes job or of a workflow of GitHub as a shell script; volumes are folders in `home`."""
    program = (
        "import json, shlex, sys, yaml\nfound = yaml.safe_load(open(sys.argv[1]))\n"
        "pod = found.get('spec', {}).get('template', {}).get('spec', {})\n"
        "steps = [step for job in found.get('jobs', {}).values() for step in job['steps']]\n"
        "lines = []\n"
        "for one in pod.get('containers', []):\n"
        "    lines += [f\"export {env['name']}={shlex.quote(env['value'])}\" for env in one['env'] if 'value' in env]\n"
        "    lines.append(' '.join(one['command'] + one['args']))\n"
        "print('\\n'.join(lines + [step['run'] for step in steps if 'run' in step]))\n"
    )
    text = subprocess.run([str(python), "-c", program, str(example)], stdout=subprocess.PIPE, text=True, check=True).stdout
    lines = [line for line in text.splitlines() if not line.startswith("pip install ")]
    commands = [re.sub(r"(?<=[ =])/(out|runs)\b", f"{home}/\\1", line) for line in lines]
    assert any("resource-tracker run" in line for line in commands), f"{example}: no command was found"
    return "mkdir out runs\n" + "\n".join(commands)


def flow(python: Path, example: Path, name: str, home: Path, environment: dict[str, str]) -> None:
    """Run a flow. A flow whose file name starts with `failing` must fail."""
    variables = {**environment, "METAFLOW_HOME": str(home)}
    command = [str(python), str(example), "--no-pylint", "run"]
    if example.stem.startswith("failing"):
        command = ["sh", "-c", '! "$@"', "sh", *command]
    run(name, command, home, variables)


def notebook_cells(path: Path) -> list[str]:
    cells = json.loads(path.read_text())["cells"]
    return ["".join(cell["source"]) + "\n" for cell in cells if cell["cell_type"] == "code"]


if __name__ == "__main__":
    sys.exit(main())
