#!/usr/bin/env python3
"""Compares accuracy and cost with other trackers; prints the tables of docs/accuracy.md, about 12 minutes for all.

    benches/compare/run.py [--only TABLE]... [--update] [--tracker PROGRAM] [--python FOLDER] [--r-library FOLDER]

The tables are cpu, memory, trees, host and wrap. `--update` writes them into docs/accuracy.md, and some of their rows into the
README, if the machine was quiet. FOLDER of `--python` has the installed Python package, FOLDER of `--r-library` the R package:
`make bench-compare` builds both. The peers are installed into target/peers if missing: psutil, the original package
(resource-tracker 0.4.2), its port to Rust (the crate resource-tracker 0.1.18) and denet. All trackers take one sample a
second. The truth is the kernel's account of a cgroup that holds the job alone. Needs root and cgroup v1.
"""

from __future__ import annotations

import argparse
import atexit
import datetime
import importlib.util
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
JOBS = ROOT / "crates/cli/tests/jobs.py"
HERE = Path(__file__).parent
PAGE = ROOT / "docs/accuracy.md"
CPUACCT = Path("/sys/fs/cgroup/cpuacct")
OWN = CPUACCT / f"compare-{os.getpid()}"
PYTHON = str(Path("/usr/bin/python3").resolve())
KINDS = {
    "one busy process": "one",
    "hundreds of 20 ms children": "short_children",
    "children started by threads": "children_of_threads",
    "a worker that daemonises": "double_fork",
    "parent ignores SIGCHLD": "ignored_sigchld",
}
RUNS = 3
#: Tables that were measured beside busier programs are not written into the pages.
MOST_BUSY_PERCENT = 10
SEEDS = range(1, 6)
#: Rows of the page that the README shows, and their names there.
README_ROWS = {
    "one busy process": "CPU time: one busy process",
    "hundreds of 20 ms children": "CPU time: hundreds of 20 ms children",
    "a worker that daemonises": "CPU time: a worker that daemonises",
    "peak": "peak memory: five random jobs",
    "idle, 1 process": "cost, ms of CPU time per sample: 1 idle process",
    "idle, 100 processes": "cost, ms of CPU time per sample: 100 idle processes",
    "time, ms": "cost, ms added to the run time of `true`",
}
Rows = Iterator[tuple[str, list[str]]]


def load(path: str) -> ModuleType:
    """Import a program of another folder."""
    spec = importlib.util.spec_from_file_location(f"bench_{Path(path).stem}", ROOT / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


memory_test, cost, host = load("tests/memory/run.py"), load("benches/cost.py"), load("python/benches/bench.py")


class Trackers:
    """The command of this project, and the peers that can be installed."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        venv, self.port = ROOT / "target/peers", ROOT / "target/peers/port/bin/resource-tracker"
        self.python = str(venv / "bin/python")
        # A package that cannot be installed is left out of the tables.
        if not venv.exists():
            subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
            for package in ("psutil", "resource-tracker==0.4.2", "denet"):
                subprocess.run([self.python, "-m", "pip", "install", "--quiet", package], check=False)
        if not self.port.exists():
            root = ["--root", str(self.port.parents[1]), "--target-dir", str(venv / "port-build")]
            subprocess.run(["cargo", "install", "--quiet", "--locked", *root, "resource-tracker@0.1.18"], check=False, cwd="/")
        if self.port.exists():
            os.environ |= {"PORT": str(self.port), "PORT_VERSION": "0.1.18"}
        versions = json.loads(output([self.python, str(HERE / "peers.py"), "list"]))
        self.peers = list(versions)
        self.titles = ["this", *(f"{name} {version}" for name, version in versions.items())]
        self.run = [arguments.tracker, "run", "-q", "--offline", "--no-save"]

    def wrapper(self, name: str, json_to: list[str]) -> list[str]:
        return [*self.run, *json_to, "--"] if name == "this" else [self.python, str(HERE / "peers.py"), name]

    def names(self) -> list[str]:
        return ["this", *self.peers]


def output(command: list[str], **options: object) -> str:
    """Return the last line that a program printed to standard output."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{command}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout.splitlines()[-1]


def spread(values: list[float], digits: int = 2) -> str:
    """Return the median and the range."""
    if not values:
        return "fails"
    low, middle, high = (f"{value + 0.0:.{digits}f}" for value in (min(values), statistics.median(values), max(values)))
    return middle if low == high else f"{middle} ({low}–{high})"


def cpu(trackers: Trackers) -> Rows:
    def ratio(name: str, kind: str) -> float:
        group = OWN / "job"
        group.mkdir()
        try:
            job = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", PYTHON, str(JOBS), kind, "3"]
            command = [*trackers.wrapper(name, ["--json", "/dev/stderr"]), *job]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
            if name == "this":
                found = json.loads(done.stderr[done.stderr.rindex('{\n  "schema_version"') :])["cpu_seconds"]
            else:
                found = json.loads(done.stdout.splitlines()[-1])["cpu"]
            return found / (int((group / "cpuacct.usage").read_text()) / 1e9)
        finally:
            group.rmdir()

    for title, kind in KINDS.items():
        yield title, [spread([ratio(name, kind) for _ in range(RUNS)]) for name in trackers.names()]


def memory(trackers: Trackers) -> Rows:
    def ratios(name: str) -> list[dict]:
        found = []
        for seed in SEEDS:
            group = memory_test.Group()
            job = group.enter([PYTHON, str(memory_test.JOB), str(seed), "3"])
            front = "command" if name == "this" else "peer"
            found.append(memory_test.run_beside(group, [*trackers.wrapper(name, ["--json", "/dev/stderr"]), *job], front))
        return found

    found = [ratios(name) for name in trackers.names()]
    for figure in ("peak", "mean"):
        yield figure, [spread([row[figure] for row in rows]) for rows in found]
    within = [sum(0.95 <= row["peak"] <= 1.05 for row in rows) for rows in found]
    yield "peaks within 5 % of the truth", [f"{count} of {len(SEEDS)}" for count in within]


def trees(trackers: Trackers) -> Rows:
    """Windows of a second have one sample each."""
    commands = {
        "this": [*trackers.run, "--"],
        "psutil": trackers.wrapper("psutil", []),
        "original": [trackers.python, "-c", cost.ORIGINAL],
        "Rust port": [str(trackers.port), "-i", "1", "--"],
        "denet": trackers.wrapper("denet", []),
    }
    for kind, job in (("idle", ["sh", "-c", cost.IDLE]), ("computing", [sys.executable, "-c", cost.BUSY])):
        for count in (1, 10, 100):
            command = [*job[:-1], job[-1].format(n=count)]
            spent = [cost.measure(commands[name], command, 1, windows=4) for name in trackers.names()]
            yield f"{kind}, {count} process{'es' if count > 1 else ''}", [spread(values) for values in spent]


def in_process(trackers: Trackers) -> Rows:
    """The slowdown is the difference between a loop with and without the tracker, in the same process."""
    program, folder = str(HERE / "host.py"), trackers.arguments.python
    hosts: dict[str, tuple[list[str], dict[str, str]]] = {
        "this": ([sys.executable, program, "this"], {"PYTHONPATH": folder}),
        "this, in R": (["Rscript", str(HERE / "host.R")], {"R_LIBS": trackers.arguments.r_library}),
        **{name: ([trackers.python, program, name], {}) for name in trackers.peers if name != "Rust port"},
    }
    cells: dict[str, list[str]] = {"loop slower by, %": [], "memory added, MiB": []}
    for command, variables in hosts.values():
        found = []
        for _ in range(RUNS):
            environment = {**os.environ, **variables, "RESOURCE_TRACKER_OFFLINE": "1"}
            found.append(json.loads(output([*command, "3"], env=environment)))
        cells["loop slower by, %"].append(spread([host.lost(one["tracked"]) - host.lost(one["alone"]) for one in found]))
        cells["memory added, MiB"].append(spread([one["added_kib"] / 1024 for one in found], 1))
    yield from cells.items()


def wrap(trackers: Trackers) -> Rows:
    """Commands take turns. Time and CPU time are those beyond bare `true`."""

    def spent(command: list[str]) -> tuple[float, float]:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, _, usage = os.wait4(process.pid, 0)
        return (time.perf_counter() - start) * 1e3, (usage.ru_utime + usage.ru_stime) * 1e3

    commands = {name: trackers.wrapper(name, []) for name in trackers.names()}
    if "Rust port" in commands:
        commands["Rust port"] = [str(trackers.port), "-i", "1", "-o", "/dev/null", "--"]
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ["true", *commands]}
    for _ in range(10):
        for name, times in found.items():
            times.append(spent([*commands.get(name, []), "true"]))
    for column, title in enumerate(("time, ms", "CPU time, ms")):
        bare = statistics.median(times[column] for times in found["true"])
        yield title, [spread([times[column] - bare for times in found[name]], 1) for name in commands]


TABLES: dict[str, tuple[str, Callable[[Trackers], Rows]]] = {
    "cpu": ("reported / true CPU time", cpu),
    "memory": ("reported / true memory", memory),
    "trees": ("CPU time, ms per sample", trees),
    "host": ("inside Python and R", in_process),
    "wrap": ("beyond `true` alone", wrap),
}


def machine() -> str:
    model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    name = f"{model[1] if model else platform.machine()}, {os.cpu_count()} CPUs, {gib:.1f} GiB"
    return f"{name}; Linux {platform.release()}; {datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}"


def leave() -> None:
    (CPUACCT / "cgroup.procs").write_text(str(os.getpid()))
    OWN.rmdir()


class Others:
    """CPU time of the programs that do not belong to this comparison. OWN contains the comparison."""

    def __init__(self) -> None:
        self.start, self.spent = time.monotonic(), self.read()

    def read(self) -> float:
        return (int((CPUACCT / "cpuacct.usage").read_text()) - int((OWN / "cpuacct.usage").read_text())) / 1e9

    def percent(self) -> float:
        return 100 * (self.read() - self.spent) / (time.monotonic() - self.start) / os.cpu_count()


def replace(path: Path, name: str, lines: list[str]) -> None:
    """Replace what is between two markers of a page."""
    text = path.read_text()
    pattern = rf"(<!-- table {name} -->\n).*?(\n<!-- end -->)"
    new, count = re.subn(pattern, lambda found: found[1] + "\n".join(lines) + found[2], text, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"{path}: {count} markers of the table `{name}`")
    path.write_text(new)


def update_readme(titles: list[str]) -> None:
    """Write rows of the page into the README, without their ranges, once the page has all of them."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    rows = {line.split("|")[1].strip(): line for line in lines}
    if README_ROWS.keys() <= rows.keys():
        chosen = [f"| {title} |{rows[name].split('|', 2)[2]}" for name, title in README_ROWS.items()]
        short = [re.sub(r" \([-\d.–]+\)", "", line) for line in chosen]
        replace(ROOT / "README.md", "accuracy", [f"| figure | {' | '.join(titles)} |", "|---|" + "---|" * len(titles), *short])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=list(TABLES), metavar="TABLE")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--tracker", default=cost.BIN)
    parser.add_argument("--python", default=str(ROOT / "target/compare"))
    parser.add_argument("--r-library", default=str(ROOT / "target/r/release"))
    trackers = Trackers(parser.parse_args())
    OWN.mkdir()
    atexit.register(leave)
    (OWN / "cgroup.procs").write_text(str(os.getpid()))
    left_out = []
    for name in trackers.arguments.only or TABLES:
        title, measure = TABLES[name]
        titles = trackers.titles
        if name == "host":
            titles = ["this, in Python", "this, in R", *(one for one in titles[1:] if not one.startswith("Rust port"))]
        lines = [f"| {title} | {' | '.join(titles)} |", "|---|" + "---|" * len(titles)]
        print(*lines, sep="\n", flush=True)
        others = Others()
        for row, cells in measure(trackers):
            lines.append(f"| {row} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
        busy = others.percent()
        lines += ["", f"{machine()}. Other programs used {busy:.0f} % of the CPUs meanwhile."]
        print(lines[-1], end="\n\n", flush=True)
        if trackers.arguments.update and busy > MOST_BUSY_PERCENT:
            left_out.append(name)
        elif trackers.arguments.update:
            replace(PAGE, name, lines)
            update_readme(trackers.titles)
    if left_out:
        sys.exit(f"not written, since the machine was not quiet: {', '.join(left_out)}")


if __name__ == "__main__":
    main()
