"""Blocks of code of a page, and the comparison of shown output with real output.

A block after `text title="Output"` is the output of the block before it. It is compared after volatile parts are masked:
numbers with their units, durations, dates, ids and paths. A line `…` of the page stands for any number of lines. Lines that
depend on what else the machine does are not compared.

A block with a title of `SHOWN` is neither run nor compared. A block of another title is a file of this name: it is written
before the page is run, and not run itself. If examples/ has a file of this name, the block must be the same.
"""

from __future__ import annotations

import re
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
MARKER = "@@ block "
# Titles of diagrams, and of what the generated references show.
SHOWN = {"Layout", "Usage", "Examples"}

# Whether these lines are printed, or what they say, depends on the machine and its load.
VOLATILE = re.compile(r"^\s*time  |^(resource-tracker: )?warning: |^(machine|limits|cloud|CPU time)  ")
UNIT = r"(?:[KMGT]i?B|B|[mµ]?s|min|h|d|%|GiB h|CPU h)"
MASKS = [
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"(?<![\w.])(?:[0-9a-f]{12}|[0-9a-f]{6})\b"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?)?(?: UTC)?"), "DATE"),
    (re.compile(r"(?<![\w.])(?:~|/[\w.@+-]+)(?:/[\w.@+-]+)+"), "PATH"),
    (re.compile(r"\b(under|over|almost) (?=[\d$])"), ""),
    (re.compile(rf"[-+]?\$?(?:\d[\d.,]*)(?:e[-+]?\d+)?(?: ?{UNIT}\b|%)?"), "N"),
    (re.compile(rf"\bN(?: ?{UNIT})?(?:[ \u00a0]+N)*"), "N"),
    (re.compile(r"\bCPUs\b"), "CPU"),
    # The source of the CPU time, and the mark of a real change.
    (re.compile(r" \((perf|perf in part|cgroup|processes)\)$| \*$"), ""),
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r"-{3,}|={3,}|_{3,}"), "---"),
]


@dataclass(frozen=True)
class Block:
    """A fenced block: `body` without the indentation of a tab or list, at `span` of the page."""

    language: str
    title: str | None
    body: str
    indent: str
    span: tuple[int, int]


def read(page: Path) -> list[Block]:
    found = []
    for match in BLOCK.finditer(page.read_text()):
        indent, info, body = match.groups()
        language, _, rest = info.strip().partition(" ")
        title = re.search(r'title="([^"]*)"', rest)
        found.append(Block(language, title.group(1) if title else None, textwrap.dedent(body), indent, match.span(3)))
    return found


def files(blocks: list[Block]) -> dict[str, str]:
    return {block.title: block.body for block in blocks if block.title not in {None, "Output", *SHOWN}}


def example(title: str | None) -> str | None:
    """Return the text of the file of this name in examples/, if there is one."""
    return next((path.read_text() for path in (ROOT / "examples").rglob(title)), None) if title else None


def masked(text: str) -> list[str]:
    lines = []
    for line in text.strip("\n").splitlines():
        if VOLATILE.search(line):
            continue
        for pattern, replacement in MASKS:
            line = pattern.sub(replacement, line)
        lines.append(line.strip())
    return lines


def is_same(shown: str, real: str) -> bool:
    """Whether the page shows what was printed. `…` alone on a line is any number of lines.

    >>> is_same("memory  7.09 MiB peak\\nreport  train-42.html", "memory  812 KiB peak\\nreport  train-43.html")
    True
    >>> is_same("killed after 3.2 s\\n…\\nnext: retry", "killed after 1 min 4 s\\nwhy\\nhow\\nnext: retry")
    True
    >>> is_same("memory  7.09 MiB peak", "memory  7.09 MiB mean")
    False
    >>> is_same("one\\ntwo", "one\\ntwo\\nthree")
    False
    """
    parts = [r"(?:[^\n]*\n)*?" if line == "…" else re.escape(line) + r"\n" for line in masked(shown)]
    return re.fullmatch("".join(parts), "".join(f"{line}\n" for line in masked(real))) is not None


def replaced(text: str, new: list[tuple[Block, str]]) -> str:
    """Return the page with new outputs."""
    for block, output in sorted(new, key=lambda pair: pair[0].span, reverse=True):
        start, end = block.span
        text = text[:start] + textwrap.indent(output.strip("\n") + "\n", block.indent, lambda line: line != "\n") + text[end:]
    return text


def program(language: str, blocks: list[tuple[int, Block]]) -> str:
    """Return one program of the blocks; it prints a marker with the number of each block before the block."""
    show = {"sh": "printf '\\n%s\\n' '{}'\n", "python": 'print("\\n{}", flush=True)\n', "r": 'cat("\\n{}\\n")\n'}[language]
    return "\n".join(show.format(f"{MARKER}{number}") + with_status(language, block.body) for number, block in blocks)


def cells(blocks: list[tuple[int, Block]]) -> str:
    """Return a program that runs the blocks as the cells of a notebook, in one interpreter with the magics of IPython."""
    start = "from IPython.core.interactiveshell import InteractiveShell\nshell = InteractiveShell.instance()\n"
    cell = "print('\\n{}', flush=True)\nshell.run_cell({!r}, store_history=True).raise_error()\n"
    return start + "".join(cell.format(f"{MARKER}{number}", block.body) for number, block in blocks)


def with_status(language: str, code: str) -> str:
    """Let `COMMAND  # exit status 3` of a shell block exit with status 3, and the block continue.

    >>> with_status("sh", "false  # exit status 1")
    'if false; then exit 99; else [ $? -eq 1 ]; fi'
    """
    if language != "sh":
        return code
    return re.sub(r"^((?:.*\\\n)*.+?) +# exit status (\d+)$", r"if \1; then exit 99; else [ $? -eq \2 ]; fi", code, flags=re.MULTILINE)


def outputs(printed: str) -> dict[int, str]:
    """Return what each block printed, by its number."""
    parts = re.split(rf"^{MARKER}(\d+)\n", printed, flags=re.MULTILINE)
    return {int(number): text for number, text in zip(parts[1::2], parts[2::2], strict=True)}


# For shell scripts: blocks.py PAGE LANGUAGE [START] prints the blocks of this language that start with START.
if __name__ == "__main__":
    page, language, *start = sys.argv[1:]
    chosen = [block.body for block in read(Path(page)) if block.language == language and block.body.startswith("".join(start))]
    if not chosen:
        sys.exit(f"error: `{page}` has no such block")
    print("".join(chosen), end="")
