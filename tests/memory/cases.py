#!/usr/bin/env python3
"""Cases in which processes share memory: prints reported / true peak of ten runs each, and fails outside 0.95 to 1.05.

    tests/memory/cases.py [--runs N] [--python PYTHON] [--r-library FOLDER]

PYTHON has the package and numpy; FOLDER has the R package. The truth is a memory cgroup, as in run.py. Needs root.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import run

#: Programs that a tracker in the same interpreter observes. `tracker` is started before them.
PROGRAMS = {
    "400 MiB shared by 8 forked readers": """
        import mmap
        memory = mmap.mmap(-1, 400 << 20)
        memory[::4096] = b"x" * len(range(0, 400 << 20, 4096))
        for _ in range(8):
            if os.fork() == 0:
                memory[::4096]
                time.sleep(2)
                os._exit(0)
        for _ in range(8):
            os.wait()
    """,
    "np.memmap of 240 MB in Pool(4)": """
        import numpy as np, tempfile
        from multiprocessing import get_context
        path = tempfile.mktemp(dir=os.environ["JOB_FOLDER"])
        np.memmap(path, dtype="f8", mode="w+", shape=30_000_000)[:] = 1.0
        values = np.memmap(path, dtype="f8", mode="r")
        def work(part):
            total = values.sum()
            time.sleep(0.5)
            return total
        with get_context("fork").Pool(4) as pool:
            pool.map(work, range(8))
        os.remove(path)
    """,
    "SharedMemory of 200 MB in 3 workers": """
        from multiprocessing import get_context, shared_memory
        shared = shared_memory.SharedMemory(create=True, size=200_000_000)
        shared.buf[::4096] = b"x" * len(range(0, 200_000_000, 4096))
        def work(part):
            shared.buf[::4096].tobytes()
            time.sleep(0.5)
        with get_context("fork").Pool(3) as pool:
            pool.map(work, range(6))
        shared.close()
        shared.unlink()
    """,
    "pool of 4 with maxtasksperchild=1 over a 400 MB parent": """
        from multiprocessing import get_context
        held = bytearray(400_000_000)
        def work(part):
            mine = bytearray(20_000_000)
            time.sleep(0.1)
        with get_context("fork").Pool(4, maxtasksperchild=1) as pool:
            pool.map(work, range(60), chunksize=1)
    """,
    "600 MiB for 0.3 s between two samples": """
        time.sleep(2.3 - time.time() % 1)
        held = bytearray(600 << 20)
        time.sleep(0.1)
        del held
        time.sleep(0.7)
    """,
}
HOST = """
import json, os, sys, textwrap, time
from resource_tracker import ResourceTracker
tracker = ResourceTracker(discover_cloud=False)
exec(textwrap.dedent(sys.argv[1]))
tracker.stop()
memory = tracker.stats()["process_memory"]
print(json.dumps({"peak": memory["max"] * 1024, "mean": memory["mean"] * 1024, "cpu": 0, "notes": []}))
"""
#: Workers of `makeCluster` are not children of the session.
R_PROGRAMS = {
    "four makeCluster workers of 480 MB": """
        tracker <- ResourceTracker$new(discover_cloud = FALSE)
        cluster <- parallel::makeCluster(4)
    """,
    "four makeCluster workers of 480 MB, older than the tracker": """
        cluster <- parallel::makeCluster(4)
        tracker <- ResourceTracker$new(discover_cloud = FALSE)
    """,
}
R_HOST = """
library(resource.tracker)
%s
parallel::clusterCall(cluster, function() { held <<- raw(480e6); Sys.sleep(2) })
suppressWarnings(tracker$stop())
memory <- tracker$stats()$process_memory
parallel::stopCluster(cluster)
cat(sprintf('{"peak": %%f, "mean": %%f, "cpu": 0, "notes": []}\\n', memory$max * 1024, memory$mean * 1024))
"""
COMMAND = "import os, sys, textwrap, time; exec(textwrap.dedent(sys.argv[1]))"


def check(name: str, front: str, runs: int, tracked: list[str], job: list[str]) -> bool:
    """Run a case several times; print the range of reported / true peaks, and return whether all are good."""
    ratios = []
    for _ in range(runs):
        group = run.Group()
        ratios.append(run.run_beside(group, tracked + group.enter(job), front)["peak"])
    is_good = all(0.95 <= ratio <= 1.05 for ratio in ratios)
    print(f"{name}, {front}: {min(ratios):.3f}–{max(ratios):.3f}{'' if is_good else '  OUT OF BOUNDS'}", flush=True)
    return is_good


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--r-library")
    parser.add_argument("--tracker", default=str(Path(__file__).resolve().parents[2] / "target/release/resource-tracker"))
    args = parser.parse_args()
    tracked = [args.tracker, "run", "-q", "--offline", "--no-save", "--json", "/dev/stderr", "--"]
    results = []
    for name, program in PROGRAMS.items():
        results.append(check(name, "command", args.runs, tracked, [args.python, "-c", COMMAND, program]))
        results.append(check(name, "python", args.runs, [], [args.python, "-c", HOST, program]))
    if args.r_library:
        os.environ["R_LIBS"] = args.r_library
        for name, program in R_PROGRAMS.items():
            results.append(check(name, "R", args.runs, [], ["Rscript", "-e", R_HOST % program]))
    print(f"{sum(results)} passed, {results.count(False)} failed")
    return int(not all(results))


if __name__ == "__main__":
    sys.exit(main())
