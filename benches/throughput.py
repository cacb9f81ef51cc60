#!/usr/bin/env python3
"""Throughput and stalls of a job that maps and unmaps memory beside a large heap, with and without the tracker.

    benches/throughput.py [--pairs N] [--gib N] [--seconds S]

Untracked and tracked runs alternate. Budget: the tracked median is at most 0.5 % lower, or not lower than untracked runs
differ among themselves.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = str(Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "resource-tracker")
JOB = """
import json, mmap, sys, time
gib, seconds = float(sys.argv[1]), float(sys.argv[2])
size = int(gib * (1 << 30))
heap = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, size, 64 << 20):
    upto = min(at + (64 << 20), size)
    heap[at:upto:4096] = b"x" * len(range(at, upto, 4096))
count, stalls, last = 0, [], time.perf_counter()
end = last + seconds
while last < end:
    part = mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    part[::4096] = b"y" * 256
    part.close()
    now = time.perf_counter()
    stalls.append(now - last)
    count, last = count + 1, now
print(json.dumps([count / seconds, max(stalls) * 1000, sum(stall > 0.01 for stall in stalls)]))
"""


def measure(prefix: list[str], gib: float, seconds: float) -> list[float]:
    command = [*prefix, sys.executable, "-c", JOB, str(gib), str(seconds)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--gib", type=float, default=8)
    parser.add_argument("--seconds", type=float, default=8)
    args = parser.parse_args()
    trackers = {"untracked": [], "tracked": [BIN, "run", "--quiet", "--offline", "--no-save", "--"]}
    runs: dict[str, list[list[float]]] = {name: [] for name in trackers}
    for _ in range(args.pairs):
        for name, prefix in trackers.items():
            runs[name].append(measure(prefix, args.gib, args.seconds))
            rate, worst, stalls = runs[name][-1]
            print(f"{name:10} {rate:10.1f} mappings per second, worst stall {worst:6.1f} ms, {stalls} over 10 ms", flush=True)
    rates = {name: [run[0] for run in found] for name, found in runs.items()}
    untracked = statistics.median(rates["untracked"])
    loss = 1 - statistics.median(rates["tracked"]) / untracked
    spread = (max(rates["untracked"]) - min(rates["untracked"])) / untracked
    is_good = loss <= max(0.005, spread)
    print(f"loss {100 * loss:.2f} %, untracked runs differ by {100 * spread:.2f} %{'' if is_good else '  OVER BUDGET'}")
    return int(not is_good)


if __name__ == "__main__":
    sys.exit(main())
