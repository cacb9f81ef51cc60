#!/usr/bin/env python3
"""CPU time of the tracker per second, at one sample a second: idle trees, computing trees, and a crowded machine.

    benches/cost.py [--original PYTHON]

The CPU time is the tracker's own schedstat over 10 s. Budgets: idle trees of 1, 100 and 1,000 processes 0.3, 0.6 and
3 ms; one process beside 3,000 other processes and 100 forks a second 2 ms. PYTHON has the original package, for
comparison.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = str(Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "resource-tracker")
SECONDS = 10
IDLE = "i=1; while [ $i -lt {n} ]; do sleep 60 & i=$((i+1)); done; exec sleep 60"
#: Processes that compute for a fifth of the time at most, so that the tracker finds a CPU, and keep their memory.
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
CROWD = "i=1; while [ $i -lt 3000 ]; do sleep 90 & i=$((i+1)); done; while :; do /bin/true; sleep 0.01; done"
ORIGINAL = """
import subprocess, sys, time
from resource_tracker import ProcessTracker
job = subprocess.Popen(sys.argv[1:])
time.sleep(0.5)
ProcessTracker(pid=job.pid, interval=1, output_file="/dev/null")
"""


def spent_ms(pid: int) -> float:
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in files) / 1e6


def measure(tracker: list[str], job: list[str]) -> float:
    process = subprocess.Popen([*tracker, *job], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(6 if "1000" in " ".join(job) else 3)
        before = spent_ms(process.pid)
        time.sleep(SECONDS)
        return (spent_ms(process.pid) - before) / SECONDS
    finally:
        os.killpg(process.pid, 9)
        process.wait()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--original")
    args = parser.parse_args()
    ours = [BIN, "run", "--quiet", "--offline", "--no-save", "--"]
    cases: list[tuple[str, list[str], float | None]] = []
    cases += [(f"idle, {n} processes", ["sh", "-c", IDLE.format(n=n)], most) for n, most in ((1, 0.3), (100, 0.6), (1000, 3.0))]
    cases += [(f"computing, {n} processes", [sys.executable, "-c", BUSY.format(n=n)], None) for n in (10, 100)]
    over = 0
    for name, job, most in cases:
        spent = measure(ours, job)
        line = f"{name}: {spent:.2f} ms per second"
        if args.original:
            line += f", original {measure([args.original, '-c', ORIGINAL], job):.2f} ms"
        if most is not None and spent > most:
            over, line = over + 1, line + f"  OVER BUDGET of {most} ms"
        print(line, flush=True)
    crowd = subprocess.Popen(["sh", "-c", CROWD], start_new_session=True)
    try:
        time.sleep(15)
        spent = measure(ours, ["sleep", "60"])
        print(f"one process beside 3,000 others: {spent:.2f} ms per second{'  OVER BUDGET of 2 ms' if spent > 2 else ''}")
        over += spent > 2
    finally:
        os.killpg(crowd.pid, 9)
        crowd.wait()
    return min(over, 1)


if __name__ == "__main__":
    sys.exit(main())
