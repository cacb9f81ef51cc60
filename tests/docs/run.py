"""Runs what the documentation shows: every block of code in README and docs, and the examples.

    run.py --bin FOLDER [--python PYTHON] [--r-library FOLDER] [--metaflow PYTHON]

Each file gets an empty folder and an empty home, its blocks in order: `sh` in one shell that ends at the first error,
`python` and `r` in one interpreter each; `sql` is run by tests/fleet/queries.py. Of `groovy`, the shell runs the script of a Nextflow process. `text` is output, or
a file that cannot be run here. Also checked: relative links of all pages lead somewhere, every block names its language,
every file in examples/ is listed here.
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

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "r").glob("README.md")),
]
BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!`)\[[^\]\n]*\]\(([^)\s]+)\)")
# Commands of the pages that this test cannot run, and where they are run instead.
ELSEWHERE = {
    "make test": "runs this test",
    "R CMD INSTALL r/": "tests/r/run.sh",
    "R CMD build r/": "tests/r/run.sh",
    "R CMD INSTALL resource.tracker_*.tar.gz": "tests/r/run.sh",
    "cargo install --locked --path crates/cli": "`make newcomer`, and the browser and Python tests build the same program",
}
LANGUAGES = {"sh", "python", "r", "toml", "text", "groovy", "sql"}
# Examples that need a cluster, a container image or a GPU. They are not run; the syntax of `*.sbatch` is checked.
NOT_RUN = {"slurm.sbatch", "Dockerfile", "kubernetes-job.yaml", "github-actions.yml"}

failures: list[str] = []


def fail(what: str) -> None:
    failures.append(what)
    print(f"FAILED {what}")


def run(what: str, command: list[str], folder: Path, environment: dict[str, str], text: str | None = None) -> None:
    done = subprocess.run(
        command, cwd=folder, env=environment, input=text, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300
    )
    if done.returncode == 0:
        print(f"ok     {what}")
    else:
        fail(f"{what}: exit {done.returncode}\n{done.stdout[-3000:]}")


def blocks(page: Path) -> list[tuple[str, str]]:
    return [(language.strip(), code) for language, code in BLOCK.findall(page.read_text())]


def is_elsewhere(code: str) -> bool:
    commands = [line.split("#")[0].strip() for line in code.strip().splitlines()]
    return all(command in ELSEWHERE for command in commands)


def links(page: Path) -> None:
    text = BLOCK.sub("", page.read_text())
    for target in LINK.findall(text):
        path = target.split("#")[0]
        if path and "://" not in path and not (page.parent / path).exists():
            fail(f"{page.relative_to(ROOT)}: link to `{target}` leads nowhere")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=lambda folder: Path(folder).resolve(), required=True)
    parser.add_argument("--python", type=lambda path: Path(os.path.abspath(path)))
    parser.add_argument("--r-library", type=lambda folder: Path(folder).resolve())
    parser.add_argument("--metaflow", type=lambda path: Path(os.path.abspath(path)))
    parser.add_argument("--update", action="store_true", help="write the generated pages anew")
    arguments = parser.parse_args()
    interpreters = {
        "sh": ["sh", "-eu"],
        "python": [str(arguments.python), "-"] if arguments.python else None,
        "r": ["Rscript", "-"] if arguments.r_library else None,
    }

    def environment(home: Path) -> dict[str, str]:
        paths = [str(arguments.bin), *([str(arguments.python.parent)] if arguments.python else []), os.environ["PATH"]]
        # This environment has Snakemake.
        paths += [str(arguments.metaflow.parent)] if arguments.metaflow else []
        return {
            "PATH": ":".join(paths),
            "HOME": str(home),
            "LC_ALL": "C.UTF-8",
            "BROWSER": "true",
            "RESOURCE_TRACKER_OFFLINE": "1",
            "R_LIBS": str(arguments.r_library or ""),
        }

    generated(arguments)
    for page in PAGES:
        links(page)
        name = str(page.relative_to(ROOT))
        found = blocks(page)
        for language in sorted({language for language, _ in found} - LANGUAGES):
            fail(f"{name}: unknown language of a block: `{language}`")
        for code in (code for language, code in found if language == "groovy"):
            home = Path(tempfile.mkdtemp())
            run(f"{name} (script of a process)", interpreters["sh"], home, environment(home), nextflow_script(code))
            shutil.rmtree(home)
        for language, interpreter in interpreters.items():
            code = "\n".join(code for of, code in found if of == language and not is_elsewhere(code))
            if not code:
                continue
            if page.name == "metaflow.md" and language == "python":
                if arguments.metaflow:
                    flow_page(arguments.metaflow, found, name, environment)
                continue
            if interpreter is None or (page.name == "integrations.md" and not arguments.metaflow):
                print(f"--     {name}: {language} blocks are not run: no interpreter was given")
                continue
            home = Path(tempfile.mkdtemp())
            run(f"{name} ({language})", interpreter, home, environment(home), code)
            shutil.rmtree(home)

    examples(arguments, environment)
    print(f"{len(PAGES)} pages, {len(failures)} failures")
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


def flow_page(python: Path, found: list[tuple[str, str]], name: str, environment) -> None:  # noqa: ANN001
    """Run the first block as a flow, then the other blocks, which read the results of the flow."""
    flow_text, *others = [code for language, code in found if language == "python"]
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
                run(f"{name} (syntax)", ["bash", "-n", str(example)], home, environment(home))
            case _ if example.name not in NOT_RUN and example.suffix not in {".py", ".R", ".ipynb"}:
                fail(f"{name} is neither run by this test nor listed in NOT_RUN")
        shutil.rmtree(home)


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
