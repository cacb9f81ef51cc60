#!/usr/bin/env python3
"""Cases in which processes share memory: prints reported / true peak of ten runs each, and fails outside 0.95 to 1.05.

    tests/memory/cases.py [--runs N] [--python PYTHON]

PYTHON has the package and numpy. The truth is a memory cgroup, as in run.py. Needs root.
"""

from __future__ import annotations

import argparse
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
COMMAND = "import os, sys, textwrap, time; exec(textwrap.dedent(sys.argv[1]))"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--tracker", default=str(Path(__file__).resolve().parents[2] / "target/release/resource-tracker"))
    args = parser.parse_args()
    failed = 0
    for name, program in PROGRAMS.items():
        for front in ("command", "python"):
            tracked = [args.tracker, "run", "--offline", "--no-save", "--json", "--"] if front == "command" else []
            host = COMMAND if front == "command" else HOST
            ratios = []
            for _ in range(args.runs):
                # Pages of libraries that are in the page cache already would be charged to another group.
                Path("/proc/sys/vm/drop_caches").write_text("1")
                group = run.Group()
                job = tracked + group.enter([args.python, "-c", host, program])
                ratios.append(run.run_beside(group, job, front)["peak"])
            is_good = all(0.95 <= ratio <= 1.05 for ratio in ratios)
            failed += not is_good
            print(f"{name}, {front}: {min(ratios):.3f}–{max(ratios):.3f}{'' if is_good else '  OUT OF BOUNDS'}", flush=True)
    print(f"{2 * len(PROGRAMS) - failed} passed, {failed} failed")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
