"""A Python program that tracks itself: `host.py NAME SECONDS`. `host.R` is the same in R.

Prints the times of equal pieces of work without and with the tracker, and the memory that the tracker added, in KiB (PSS of the
program and of the processes that the tracker started). The tracker takes one sample per second.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path


def with_this():
    from resource_tracker import ResourceTracker

    return ResourceTracker(discover_cloud=False)


def with_original():
    from resource_tracker import ResourceTracker

    return ResourceTracker(discover_server=False, discover_cloud=False)


def with_psutil():
    """The common psutil loop, in a thread."""
    import psutil

    import peers

    def loop():
        spent, root = {}, psutil.Process()
        while True:
            peers.tree_of(root, spent)
            time.sleep(1)

    threading.Thread(target=loop, daemon=True).start()


def with_denet():
    import denet

    monitor = denet.ProcessMonitor.from_pid(os.getpid(), 1000, 1000, quiet=True)
    threading.Thread(target=monitor.run, daemon=True).start()


def spins(seconds):
    end, found = time.perf_counter() + seconds, []
    while time.perf_counter() < end:
        before, total = time.perf_counter(), 0
        for number in range(5_000):
            total += number
        found.append(time.perf_counter() - before)
    return found


def memory_kib():
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    files = [Path(f"/proc/{pid}/smaps_rollup") for pid in ("self", *children)]
    return sum(int(line.split()[1]) for file in files for line in file.read_text().splitlines() if line.startswith("Pss:"))


if __name__ == "__main__":
    seconds = float(sys.argv[2])
    alone, before = spins(seconds), memory_kib()
    tracker = globals()[f"with_{sys.argv[1]}"]()
    spins(0.5)
    tracked = spins(seconds)
    print("\n" + json.dumps({"alone": alone, "tracked": tracked, "added_kib": memory_kib() - before}), flush=True)
    if tracker:
        tracker.stop()
    # The threads of the peers do not end by themselves.
    os._exit(0)
