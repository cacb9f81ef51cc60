#!/usr/bin/env python3
"""Compares the reported memory of random jobs with the kernel's account; prints a table of ratios.

    tests/memory/run.py [--front command|python|sidecar] [--seeds N] [--first SEED] [--seconds S] [--noise] [--check]

The truth is a memory cgroup (v1 or v2) that contains only the job, polled every 2 ms: anonymous memory and mapped pages,
each page once. `--noise` runs another program beside the job that allocates and frees 500 MB twice a second. `--check`
fails if the ratios are outside the bounds of `make test`. Needs root.
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

HERE = Path(__file__).resolve().parent
JOB = HERE / "random_job.py"
PYTHON = str(Path("/usr/bin/python3").resolve())
NOISE = "import time\nwhile True:\n held = bytearray(500_000_000); time.sleep(0.1); del held; time.sleep(0.1)"
#: Runs the job inside a tracked interpreter; prints the statistics, and the CPU time of the tracker.
HOST = """
import json, sys
sys.path.insert(0, sys.argv[1])
import random_job
from resource_tracker import ResourceTracker
tracker = ResourceTracker(method=None if sys.argv[4] == "python" else "spawn", discover_cloud=False)
random_job.run(int(sys.argv[2]), float(sys.argv[3]))
tracker.stop()
memory = tracker.stats()["process_memory"]
cpu = tracker.snapshot()["extra_metrics"]
print(json.dumps({"peak": memory["max"] * 1024, "mean": memory["mean"] * 1024,
                  "cpu": sum(row["tracker_cpu"] or 0 for row in cpu), "notes": []}))
"""


class Group:
    """A memory cgroup, and the peak and mean of its memory."""

    def __init__(self, keep_cache: bool = False) -> None:
        # Pages of libraries that are in the page cache already would be charged to another group.
        if not keep_cache:
            Path("/proc/sys/vm/drop_caches").write_text("1")
        roots = [(Path("/sys/fs/cgroup/memory"), ("rss", "mapped_file")), (Path("/sys/fs/cgroup"), ("anon", "file_mapped"))]
        root, names = next(found for found in roots if (found[0] / "cgroup.procs").exists())
        self.folder, self.names = root / f"memory-truth-{os.getpid()}-{time.monotonic_ns()}", names
        self.folder.mkdir()
        self.peak, self.integral, self.begin, self.last = 0, 0.0, 0.0, 0.0
        self.stat = os.open(self.folder / "memory.stat", os.O_RDONLY)

    def enter(self, command: list[str]) -> list[str]:
        return ["sh", "-c", f'echo $$ > {self.folder}/cgroup.procs && exec "$@"', "sh", *command]

    def poll(self) -> None:
        lines = os.pread(self.stat, 8192, 0).decode().splitlines()
        values = dict(line.split() for line in lines)
        size = sum(int(values[name]) for name in self.names)
        now = time.monotonic()
        if self.peak == 0 and size > 0:
            self.begin = self.last = now
        self.integral += size * (now - self.last) if self.peak else 0
        self.peak, self.last = max(self.peak, size), now

    def mean(self) -> float:
        return self.integral / (self.last - self.begin)

    def remove(self) -> None:
        os.close(self.stat)
        for _ in range(100):
            try:
                return self.folder.rmdir()
            except OSError:
                time.sleep(0.01)


def command_of(args: argparse.Namespace, group: Group, job: list[str]) -> list[str]:
    if args.front == "command":
        return [args.tracker, "run", "-q", "--offline", "--no-save", "--json", "/dev/stderr", *args.option, "--", *group.enter([PYTHON, str(JOB), *job])]
    return group.enter([args.python, "-c", HOST, str(HERE), *job, args.front])


def reported_by(output: subprocess.CompletedProcess[str], front: str) -> dict:
    assert output.returncode == 0, output.stdout + output.stderr
    if front != "command":
        return json.loads(output.stdout.splitlines()[-1])
    # The job may have written to standard error too.
    run = json.loads(output.stderr[output.stderr.rindex('{\n  "schema_version"') :])
    figures = {"peak": run["memory_peak_bytes"], "mean": run["memory_mean_bytes"], "cpu": run["tracker"]["cpu_seconds"]}
    return {**figures, "notes": run["notes"]}


def run_beside(group: Group, command: list[str], front: str) -> dict:
    """Run a tracked command that enters the group; return reported / true peak and mean, and the tracker's CPU."""
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        environment = {**os.environ, "HOME": home, "XDG_DATA_HOME": home, "JOB_FOLDER": home, "RESOURCE_TRACKER_OFFLINE": "1"}
        start = time.monotonic()
        process = subprocess.Popen(command, stdout=out, stderr=err, env=environment)
        while process.poll() is None:
            group.poll()
            time.sleep(0.002)
        seconds = time.monotonic() - start
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read())
    reported = reported_by(subprocess.CompletedProcess([], process.returncode, *texts), front)
    group.remove()
    return {
        "true_mib": group.peak / 2**20, "peak": reported["peak"] / group.peak, "mean": reported["mean"] / group.mean(),
        "cpu": reported["cpu"] / seconds, "notes": reported["notes"],
    }  # fmt: skip


def measure(args: argparse.Namespace, seed: int) -> dict:
    group = Group(args.keep_cache)
    return run_beside(group, command_of(args, group, [str(seed), str(args.seconds)]), args.front)


def summarise(rows: list[dict]) -> dict:
    peaks = [row["peak"] for row in rows]
    return {
        "jobs": len(rows),
        "within_5_percent": sum(0.95 <= peak <= 1.05 for peak in peaks),
        "above_1.05": sum(peak > 1.05 for peak in peaks),
        "above_1.10": sum(peak > 1.10 for peak in peaks),
        "range": [round(min(peaks), 3), round(max(peaks), 3)],
        "mean_of_means": round(statistics.mean(row["mean"] for row in rows), 4),
        "tracker_cpu_percent": round(100 * statistics.mean(row["cpu"] for row in rows), 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--front", choices=["command", "python", "sidecar"], default="command")
    parser.add_argument("--tracker", default=str(HERE.parents[1] / "target/release/resource-tracker"))
    parser.add_argument("--python", default=sys.executable, help="an interpreter with the package, for the other fronts")
    parser.add_argument("--option", action="append", default=[], help="an option of `run`")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--noise", action="store_true")
    parser.add_argument("--keep-cache", action="store_true", help="count only pages that no earlier program has read")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    noise = subprocess.Popen([PYTHON, "-c", NOISE]) if args.noise else None
    rows = []
    try:
        print("seed  true MiB  peak/true  mean/true  tracker CPU %")
        for seed in range(args.first, args.first + args.seeds):
            row = measure(args, seed)
            rows.append(row)
            print(f"{seed:4}  {row['true_mib']:8.0f}  {row['peak']:9.3f}  {row['mean']:9.3f}  {100 * row['cpu']:13.2f}", flush=True)
    finally:
        if noise:
            noise.kill()
            noise.wait()
    found = summarise(rows)
    print(json.dumps(found))
    # A debug build on a busy machine takes fewer samples than the tracker that users have.
    is_good = sum(0.9 <= row["peak"] <= 1.1 for row in rows) >= 0.75 * len(rows) and found["above_1.10"] <= len(rows) / 10
    if args.check:
        print(f"{int(is_good)} passed, {int(not is_good)} failed")
    return int(args.check and not is_good)


if __name__ == "__main__":
    sys.exit(main())
