#!/usr/bin/env python3
"""Predicted against measured time of jobs under a CPU quota. Exits with 1 if the median error is above 10 %.

    benches/what_if.py [--interval S]

Runs each job without a quota with the release build of the command, predicts its time with 0.5, 1, 1.5 and 2 CPUs from
the recording (`crates/core/examples/what_if.rs`), and measures it under a CFS quota of as many CPUs. The error counts
for quotas at least 5 % below the highest usage of a row; the other quotas are listed. Needs root, and a cgroup v1 or v2
with the controller `cpu`. Takes about 2 minutes; other work on the machine disturbs the times.

A row that contains computing and waiting of more than a period of the quota (0.1 s) is predicted too fast, because the
waiting counts as time in which the job could compute. A shorter interval helps.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RELEASE = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
QUOTAS = [0.5, 1.0, 1.5, 2.0]
PERIOD_US = 100_000
MAX_ERROR = 0.10

#: `spin(s)` does work that takes s seconds of CPU time on an idle machine, `parallel(s, n)` in n processes at once.
#: `write(n)` writes n blocks of 64 KiB through to the disk, in place.
TOOLS = """
import hashlib, os, sys, time
def spin(seconds):
    for _ in range(round(seconds * RATE)):
        hashlib.sha256(BLOCK).digest()
BLOCK = b"x" * 20_000
def parallel(seconds, processes):
    for _ in range(processes):
        if os.fork() == 0:
            spin(seconds)
            os._exit(0)
    for _ in range(processes):
        os.wait()
def write(blocks):
    block = os.urandom(SIZE)
    file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_DSYNC)
    for number in range(blocks):
        os.pwrite(file, block, number % FILE_BLOCKS * SIZE)
SIZE, FILE_BLOCKS = 65536, 1024
"""
JOBS = {
    "single-threaded": "spin(4)",
    "two parallel phases": "parallel(2, 2); time.sleep(1); parallel(1.5, 2)",
    "mixed": "spin(2); time.sleep(1); parallel(1.5, 2); write(6000); spin(1)",
    "disk-bound": "write(25_000)",
}


def rate() -> float:
    """Return how many blocks this machine hashes in a second."""
    names: dict = {"RATE": 1}
    exec(TOOLS, names)
    start = time.process_time()
    names["spin"](20_000)
    return 20_000 / (time.process_time() - start)


class Quota:
    """A cgroup with a CPU quota; without a number of CPUs, no cgroup."""

    def __init__(self, cpus: float | None) -> None:
        self.cpus = cpus
        v1, v2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
        self.is_v1 = (v1 / "cpu.cfs_quota_us").exists()
        self.folder = (v1 if self.is_v1 else v2) / f"what-if-{os.getpid()}"

    def __enter__(self) -> list[str]:
        """Return the start of a command line that enters the cgroup."""
        if self.cpus is None:
            return []
        if not self.is_v1:
            (self.folder.parent / "cgroup.subtree_control").write_text("+cpu")
        self.folder.mkdir()
        quota_us = round(self.cpus * PERIOD_US)
        if self.is_v1:
            (self.folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (self.folder / "cpu.cfs_quota_us").write_text(str(quota_us))
        else:
            (self.folder / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
        return ["sh", "-c", 'echo $$ >"$0/cgroup.procs"; exec "$@"', str(self.folder)]

    def __exit__(self, *_: object) -> None:
        if self.cpus is not None:
            self.folder.rmdir()


def measure(program: str, quota: float | None, interval: float, folder: Path) -> tuple[Path, float]:
    """Run a job, and return its recording and its time in seconds."""
    recording = folder / "run.json.gz"
    record = ["run", "--quiet", "--offline", "--force", "-i", str(interval), "-o", str(recording)]
    # The tracker itself stays outside of the cgroup.
    with Quota(quota) as enter:
        line = [*enter, sys.executable, "-c", program, str(folder / "written")]
        environment = {**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder)}
        subprocess.run([str(RELEASE / "resource-tracker"), *record, "--", *line], check=True, env=environment)
    return recording, predict(recording, [])["duration_seconds"]


def predict(recording: Path, cpus: list[float]) -> dict:
    line = [str(RELEASE / "examples" / "what_if"), str(recording), *map(str, cpus)]
    return json.loads(subprocess.check_output(line))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--interval", type=float, default=1, help="seconds between two rows")
    interval = parser.parse_args().interval
    cargo = os.environ.get("CARGO", "cargo")
    subprocess.run([cargo, "build", "--release", "--quiet"], cwd=ROOT, check=True)
    example = ["-p", "resource-tracker", "--example", "what_if"]
    subprocess.run([cargo, "build", "--release", "--quiet", *example], cwd=ROOT, check=True)
    errors, started, blocks_per_s = [], time.monotonic(), rate()
    print(f"{'job':22}{'quota':>10}{'predicted':>12}{'measured':>12}{'error':>10}")
    with tempfile.TemporaryDirectory(dir=RELEASE) as name:
        # The first write allocates the blocks of the file, and takes longer.
        measure(f"{TOOLS}\nwrite(FILE_BLOCKS)", None, interval, Path(name))
        for job in JOBS:
            program = f"RATE = {blocks_per_s}\n{TOOLS}\n{JOBS[job]}"
            recording, seconds = measure(program, None, interval, Path(name))
            run = predict(recording, QUOTAS)
            used = f"mean {run['mean_cores']:.2f}, highest {run['max_cores']:.2f} CPUs"
            print(f"{job:22}{'none':>10}{'':12}{seconds:10.2f} s  {used}", flush=True)
            for quota, predicted in zip(QUOTAS, run["predicted_seconds"]):
                _, seconds = measure(program, quota, interval, Path(name))
                error = predicted / seconds - 1
                is_below = quota < 0.95 * run["max_cores"]
                if is_below:
                    errors.append(abs(error))
                note = "" if is_below else "  not below the usage"
                print(f"{'':22}{quota:10.1f}{predicted:10.2f} s{seconds:10.2f} s{error:+10.1%}{note}", flush=True)
    median = statistics.median(errors)
    print(f"median error of {len(errors)} quotas below the usage: {median:.1%}, at most {MAX_ERROR:.0%}")
    print(f"took {time.monotonic() - started:.0f} s")
    return 0 if median <= MAX_ERROR else 1


if __name__ == "__main__":
    sys.exit(main())
