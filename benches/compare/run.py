#!/usr/bin/env python3
"""Compares accuracy and cost with other trackers; prints the table of the README.

    benches/compare/run.py [--peers PYTHON] [--port PROGRAM]

PYTHON is an interpreter with psutil, the original package (resource-tracker 0.4.2) and denet, or some of them; by default
a virtual environment in target/peers. PROGRAM is the original's port to Rust (the crate resource-tracker 0.1.18), by
default in target/port. Both are installed if missing. All trackers take one sample a second. The true CPU time comes from
a cpuacct cgroup that contains only the job, the cost of the tracker from a cgroup that contains only the tracker. Needs
root and cgroup v1.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "resource-tracker"
JOBS = ROOT / "crates/cli/tests/jobs.py"
PEERS = Path(__file__).with_name("peers.py")
GROUPS = Path("/sys/fs/cgroup/cpuacct")
PYTHON = str(Path("/usr/bin/python3").resolve())
KINDS = [
    ("one busy process", "one"),
    ("hundreds of 20 ms children", "short_children"),
    ("children started by threads", "children_of_threads"),
    ("a worker that daemonises", "double_fork"),
    ("parent ignores SIGCHLD", "ignored_sigchld"),
]
ROUNDS = 3


class Group:
    """A cpuacct cgroup."""

    def __init__(self, name: str) -> None:
        self.folder = GROUPS / f"compare-{os.getpid()}-{name}"
        self.folder.mkdir()

    def enter(self, command: list[str]) -> list[str]:
        return ["sh", "-c", f'echo $$ > {self.folder}/cgroup.procs && exec "$@"', "sh", *command]

    def cpu_s(self) -> float:
        return int((self.folder / "cpuacct.usage").read_text()) / 1e9

    def remove(self) -> None:
        self.folder.rmdir()


def ours(job: list[str]) -> tuple[list[str], object]:
    def reported(text: str) -> float | None:
        return json.loads(text[text.rindex('{\n  "schema_version"') :])["cpu_seconds"]

    return [str(BIN), "run", "-q", "--offline", "--no-save", "--json", "/dev/stderr", "--", *job], reported


def peer(python: str, name: str):
    def wrap(job: list[str]):
        def reported(text: str) -> float | None:
            return json.loads(text[text.rindex('{\n  "schema_version"') :])["cpu_seconds"]

        return [python, str(PEERS), name, *job], reported

    return wrap


def port(program: str):
    """The Rust port writes one JSON row per line; the first row is from before the job."""

    def wrap(job: list[str]):
        def reported(_: str) -> float | None:
            rows = [json.loads(line)["cpu"] for line in rows_file.read_text().splitlines()]
            return sum(row["process_utime_secs"] + row["process_stime_secs"] for row in rows)

        rows_file.unlink(missing_ok=True)
        return [program, "--interval", "1", "--output", str(rows_file), "--", *job], reported

    rows_file = ROOT / "target/port-rows.jsonl"
    return wrap


def measure(tracker, job: list[str]) -> tuple[float | None, float, float]:
    """Return the reported CPU seconds of the job, its true CPU seconds, and the CPU seconds of the tracker."""
    truth, own = Group("job"), Group("tracker")
    try:
        command, reported = tracker(truth.enter(job))
        done = subprocess.run(
            own.enter(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120
        )
        found = reported(done.stdout) if done.returncode == 0 else None
        return found, truth.cpu_s(), own.cpu_s()
    finally:
        truth.remove()
        own.remove()


def ported(given: str | None) -> str | None:
    """Return the path of the Rust port, which is installed if missing; None if it cannot be installed."""
    program = Path(given) if given else ROOT / "target/port/bin/resource-tracker"
    if not program.exists():
        wanted = [
            "cargo",
            "install",
            "--quiet",
            "--locked",
            "--root",
            str(ROOT / "target/port"),
            "resource-tracker@0.1.18",
        ]
        subprocess.run(wanted, check=False, cwd="/")
    return str(program) if program.exists() else None


def environment(given: str | None) -> str:
    """Return an interpreter that has the other trackers installed."""
    if given:
        return given
    venv = ROOT / "target/peers"
    python = venv / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        for package in ("psutil", "resource-tracker==0.4.2", "denet"):
            # A package that cannot be installed is left out of the table.
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", package], check=False)
    return str(python)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers")
    parser.add_argument("--port")
    given = parser.parse_args()
    python, program = environment(given.peers), ported(given.port)
    known = subprocess.run([python, str(PEERS), "list"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    trackers = {"this": ours}
    for name in known:
        trackers[name] = peer(python, name)
        if name == "original" and program:
            trackers["its Rust port"] = port(program)
    print(f"| reported / true CPU time | {' | '.join(trackers)} |")
    print(f"|---|{'---|' * len(trackers)}")
    for title, kind in KINDS:
        cells = []
        for tracker in trackers.values():
            ratios = []
            for _ in range(ROUNDS):
                found, true, _ = measure(tracker, [PYTHON, str(JOBS), kind, "3"])
                if found is not None:
                    ratios.append(found / true)
            cells.append(f"{min(ratios):.2f}–{max(ratios):.2f}" if ratios else "fails")
        print(f"| {title}, 3 s | {' | '.join(cells)} |", flush=True)
    for title, job, seconds in (
        ("CPU of the tracker, ms for each second of an idle job", ["sleep", "10"], 10),
        ("the same with 100 children", [PYTHON, str(JOBS), "idle_children", "10"], 10),
    ):
        cells = []
        for tracker in trackers.values():
            spent = [measure(tracker, job)[2] for _ in range(ROUNDS)]
            # The cost of starting, measured with an empty job, is subtracted.
            start = [measure(tracker, ["true"])[2] for _ in range(ROUNDS)]
            cells.append(f"{max(0.0, statistics.median(spent) - statistics.median(start)) / seconds * 1e3:.2f}")
        print(f"| {title} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
