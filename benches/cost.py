#!/usr/bin/env python3
"""CPU time of trackers per second, at one sample a second: idle trees, computing trees, and a crowded machine.

    benches/cost.py [--before PROGRAM] [--original PYTHON] [--port PROGRAM] [--seconds S]

The CPU time is the tracker's own schedstat. Budgets: idle trees of 1, 100 and 1,000 processes 0.3, 0.6 and 3 ms, one process
beside 3,000 other processes and 100 forks a second 2 ms. They were set on a machine where `/proc/self/stat` is read in
2.7 µs; how much slower this machine is, is printed. For comparison: PROGRAM of `--before` is another build of this tracker, PYTHON has the
original package, and PROGRAM of `--port` is its port to Rust.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = str(Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "resource-tracker")
#: Time of one reading of /proc/self/stat on the machine that the budgets were set for.
REFERENCE_US = 2.7
IDLE = "i=1; while [ $i -lt {n} ]; do sleep 90 & i=$((i+1)); done; exec sleep 90"
#: Processes that compute for a small part of the time, so that the tracker finds a CPU, and keep their memory.
BUSY = """
import os, time
for _ in range({n} - 1):
    if os.fork() == 0:
        break
while True:
    end = time.process_time() + 0.001
    while time.process_time() < end:
        pass
    time.sleep(0.2)
"""
CROWD = "i=1; while [ $i -lt 3000 ]; do sleep 300 & i=$((i+1)); done; while :; do /bin/true; sleep 0.01; done"
ORIGINAL = """
import subprocess, sys, time
from resource_tracker import ProcessTracker
job = subprocess.Popen(sys.argv[1:])
time.sleep(0.5)
ProcessTracker(pid=job.pid, interval=1, output_file="/dev/null")
"""


def slowness() -> float:
    """Return how much slower this machine reads kernel files than the reference; 1 at least."""
    start, count = time.thread_time(), 2000
    for _ in range(count):
        file = os.open("/proc/self/stat", os.O_RDONLY)
        os.read(file, 4096)
        os.close(file)
    return max(1.0, (time.thread_time() - start) / count * 1e6 / REFERENCE_US)


def spent_ms(pid: int) -> float:
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in files) / 1e6


def family(pid: int) -> list[int]:
    """Return a process and its descendants. Some trackers start the job in a process group of its own."""
    children = [int(child) for file in Path(f"/proc/{pid}/task").glob("*/children") for child in file.read_text().split()]
    return [pid, *(member for child in children for member in family(child))]


def measure(tracker: list[str], job: list[str], seconds: float, windows: int = 1) -> list[float]:
    """Return the tracker's CPU time, ms per second, in windows of so many seconds after the start."""
    process = subprocess.Popen([*tracker, *job], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(6 if "1000" in " ".join(job) else 3)
        spent = [spent_ms(process.pid)]
        for _ in range(windows):
            time.sleep(seconds)
            spent.append(spent_ms(process.pid))
        return [(after - before) / seconds for before, after in zip(spent, spent[1:])]
    finally:
        for pid in family(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        process.wait()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--before")
    parser.add_argument("--original")
    parser.add_argument("--port")
    parser.add_argument("--seconds", type=float, default=10)
    args = parser.parse_args()
    run = ["run", "--quiet", "--offline", "--no-save", "--"]
    trackers = {"this": [BIN, *run]}
    if args.before:
        trackers["before"] = [args.before, *run]
    if args.original:
        trackers["original"] = [args.original, "-c", ORIGINAL]
    if args.port:
        trackers["port"] = [args.port, "-i", "1", "--"]
    idle = [(f"idle, {n} processes", ["sh", "-c", IDLE.format(n=n)], most) for n, most in ((1, 0.3), (100, 0.6), (1000, 3.0))]
    busy = [(f"computing, {n} processes", [sys.executable, "-c", BUSY.format(n=n)], None) for n in (10, 100)]
    factor, over = slowness(), 0
    print(f"ms of CPU time per second; this machine is {factor:.1f} times slower than the reference")
    print(f"{'':32}{''.join(f'{name:>10}' for name in trackers)}    budget")

    def compare(name: str, job: list[str], most: float | None) -> None:
        nonlocal over
        spent = [measure(tracker, job, args.seconds)[0] for tracker in trackers.values()]
        budget = "" if most is None else f"{most:10.2f}"
        is_over = most is not None and spent[0] > most
        over += is_over
        print(f"{name:32}{''.join(f'{one:10.2f}' for one in spent)}{budget}{'  OVER' if is_over else ''}", flush=True)

    for case in idle + busy:
        compare(*case)
    crowd = subprocess.Popen(["sh", "-c", CROWD], start_new_session=True)
    try:
        time.sleep(15)
        compare("one process beside 3,000 others", ["sleep", "60"], 2.0)
    finally:
        os.killpg(crowd.pid, 9)
        crowd.wait()
    return min(over, 1)


if __name__ == "__main__":
    sys.exit(main())
