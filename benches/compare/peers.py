"""Runs a job under another tracker: `peers.py NAME JOB…`. `peers.py list` prints the installed trackers and their versions.

The last line of the output has what the tracker reported: the CPU seconds of the job, and the peak and mean of its memory
in bytes. Each tracker takes one sample per second.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path


def figures(cpu: float, memory: list[float]) -> dict:
    """What tests/memory/run.py reads. A tracker without a sample has reported 0."""
    return {"cpu": cpu, "peak": max(memory, default=0), "mean": statistics.mean(memory or [0]), "notes": []}


def tree_of(root, spent: dict) -> int:
    """Return the PSS of the live processes of a tree, and keep the CPU time of each in `spent`."""
    import psutil

    memory = 0
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in [root, *root.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                times = process.cpu_times()
                spent[(process.pid, process.create_time())] = times.user + times.system
                memory += process.memory_full_info().pss
    return memory


def with_psutil(job: list[str]) -> dict:
    """A common psutil loop: read the tree once a second and add up the last value of each process."""
    import psutil

    child = subprocess.Popen(job)
    root, spent, memory = psutil.Process(child.pid), {}, []
    while True:
        memory.append(tree_of(root, spent))
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(1)
            return figures(sum(spent.values()), memory)


def with_original(job: list[str]) -> dict:
    """The original package observes the job, since its own processes would be part of the tree of this one."""
    from resource_tracker import ResourceTracker

    child = subprocess.Popen(job)
    tracker = ResourceTracker(pid=child.pid, interval=1, discover_server=False, discover_cloud=False)
    child.wait()
    # The original package raises errors if there is no sample.
    with contextlib.suppress(Exception):
        tracker.stop()
    with contextlib.suppress(Exception):
        rows = tracker.process_metrics
        return figures(sum(rows["utime"]) + sum(rows["stime"]), [kib * 1024 for kib in rows["memory"]])
    return figures(0, [])


def with_port(job: list[str]) -> dict:
    """The Rust port writes one JSON row per line."""
    with tempfile.NamedTemporaryFile("r") as file:
        subprocess.run([os.environ["PORT"], "--interval", "1", "--output", file.name, "--", *job], check=True)
        rows = [json.loads(line)["cpu"] for line in Path(file.name).read_text().splitlines()]
    memory = [row["process_pss_mib"] * 2**20 for row in rows if row["process_pss_mib"] is not None]
    return figures(sum(row["process_utime_secs"] + row["process_stime_secs"] for row in rows), memory)


def with_denet(job: list[str]) -> dict:
    """CPU usage of each sample times the time since the previous sample; memory is the sum of RSS."""
    import denet

    _, monitor = denet.execute_with_monitoring(job, base_interval_ms=1000, max_interval_ms=1000, quiet=True)
    samples = [(sample["ts_ms"], sample["aggregated"]) for sample in map(json.loads, monitor.get_samples())]
    cpu = sum(one["cpu_usage"] / 100 * (at - before) / 1000 for (before, _), (at, one) in zip(samples, samples[1:]))
    return figures(cpu, [one["mem_rss_kb"] * 1024 for _, one in samples])


PEERS = {"psutil": with_psutil, "original": with_original, "Rust port": with_port, "denet": with_denet}


def installed() -> dict[str, str]:
    found = {"Rust port": os.environ.get("PORT_VERSION", "")}
    for name, package in (("psutil", "psutil"), ("original", "resource-tracker"), ("denet", "denet")):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(package)
    return {name: found[name] for name in PEERS if found.get(name)}


if __name__ == "__main__":
    name, job = sys.argv[1], sys.argv[2:]
    print("\n" + json.dumps(installed() if name == "list" else PEERS[name](job)))
