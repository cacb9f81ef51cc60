"""Runs a job under another tracker: `peers.py NAME JOB…`. `peers.py list` prints the installed trackers.

Prints the CPU seconds of the job as JSON. Each tracker takes one sample per second.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import subprocess
import sys


def with_psutil(job: list[str]) -> float:
    """A common psutil loop: read the tree once a second and add up the last value of each process."""
    import psutil

    child = subprocess.Popen(job)
    spent: dict[tuple[int, float], float] = {}
    root = psutil.Process(child.pid)
    while True:
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in [root, *root.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                    times = process.cpu_times()
                    process.memory_full_info()
                    spent[(process.pid, process.create_time())] = times.user + times.system
        try:
            child.wait(1)
        except subprocess.TimeoutExpired:
            continue
        return sum(spent.values())


def with_original(job: list[str]) -> float:
    """The original package, with the job as a child process."""
    from resource_tracker import ResourceTracker

    tracker = ResourceTracker(interval=1, discover_server=False, discover_cloud=False)
    subprocess.run(job, check=True)
    tracker.stop()
    try:
        metrics = tracker.process_metrics
    except Exception:  # noqa: BLE001 - raised without a sample
        return 0.0
    return sum(metrics["utime"]) + sum(metrics["stime"]) if len(metrics) else 0.0


def with_denet(job: list[str]) -> float:
    """CPU usage of each sample times the time since the previous sample."""
    import denet

    _, monitor = denet.execute_with_monitoring(job, base_interval_ms=1000, max_interval_ms=1000, quiet=True)
    total, before = 0.0, None
    for sample in map(json.loads, monitor.get_samples()):
        if before is not None:
            total += sample["aggregated"]["cpu_usage"] / 100 * (sample["ts_ms"] - before) / 1000
        before = sample["ts_ms"]
    return total


PEERS = {"psutil": with_psutil, "original": with_original, "denet": with_denet}
MODULES = {"psutil": "psutil", "original": "resource_tracker", "denet": "denet"}

if __name__ == "__main__":
    name, job = sys.argv[1], sys.argv[2:]
    if name == "list":
        print(*[peer for peer, module in MODULES.items() if importlib.util.find_spec(module)])
    else:
        print(json.dumps({"cpu_seconds": PEERS[name](job)}))
