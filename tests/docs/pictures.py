#!/usr/bin/env python3
"""Makes the pictures of docs/images from real runs: `pictures.py PROGRAM`, with the command of a release build.

They are charts of recordings. Run it on a quiet machine. `terminal.svg` is made from the README by run.py.
"""

from __future__ import annotations

import gzip
import html
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import terminal

IMAGES = Path(__file__).resolve().parents[2] / "docs/images"
PROGRAM = str(Path(sys.argv[1]).resolve())
TICKS = os.sysconf("SC_CLK_TCK")

SHORT_CHILDREN = """
import subprocess, sys, time
end = time.monotonic() + 12
while time.monotonic() < end:
    subprocess.run([sys.executable, "-S", "-c", "sum(range(1500000))"])
"""
SHARED = """
import os, time
data = bytearray(os.urandom(1 << 20) * 300)
time.sleep(3)
workers = []
for number in range(4):
    pid = os.fork()
    if pid == 0:
        sum(data[:50_000_000:4096])
        data[: 20 << 20] = bytes(20 << 20)
        time.sleep(9 - 2 * number)
        os._exit(0)
    workers.append(pid)
    time.sleep(2)
for pid in workers:
    os.waitpid(pid, 0)
"""
SPIKES = """
import time
kept = bytearray(b"x") * (100 << 20)
for size in (150, 300, 450, 250):
    time.sleep(2.2)
    spike = bytearray(b"x") * (size << 20)
    time.sleep(0.05)
    del spike
time.sleep(1.5)
"""


def environment(home: str) -> dict[str, str]:
    return {"PATH": f"{Path(PROGRAM).parent}:/usr/bin:/bin", "HOME": home, "LC_ALL": "C.UTF-8", "RESOURCE_TRACKER_OFFLINE": "1"}


def recorded(program: str, watch: bool = False) -> tuple[dict, list[tuple[float, float]]]:
    """Run a Python program under the tracker. Return its recording, and CPU use as a poller of processes sees it."""
    with tempfile.TemporaryDirectory() as home:
        file = Path(home) / "run.json.gz"
        command = [PROGRAM, "run", "--quiet", "--no-save", "-o", str(file), "--", sys.executable, "-S", "-c", program]
        running = subprocess.Popen(command, env=environment(home))
        seen: list[tuple[float, float]] = []
        if watch:
            watcher = threading.Thread(target=poll, args=(running, seen))
            watcher.start()
            watcher.join()
        running.wait()
        return json.loads(gzip.decompress(file.read_bytes())), seen


def poll(tracker: subprocess.Popen, seen: list[tuple[float, float]]) -> None:
    """Add up, once a second, the CPU time of the processes that are alive: the loop that monitors often have."""
    before: dict[tuple[int, str], int] = {}
    last = time.time()
    while tracker.poll() is None:
        now = time.time()
        alive, parents = {}, {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                pid, fields = int(stat.parent.name), stat.read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            parents[pid] = int(fields[1])
            alive[pid, fields[19]] = int(fields[11]) + int(fields[12])
        members, grown = {tracker.pid}, True
        while grown:
            new = {pid for pid, parent in parents.items() if parent in members} - members
            members |= new
            grown = bool(new)
        job = {key: ticks for key, ticks in alive.items() if key[0] in members - {tracker.pid}}
        if before:
            used = sum(ticks - before.get(key, 0) for key, ticks in job.items())
            seen.append((now, used / TICKS / (now - last)))
        before, last = job or before, now
        time.sleep(1)


def points(recording: dict, table: str, column: str, scale: float) -> list[tuple[float, float]]:
    start = recording["metadata"]["start_time"]
    return [(row["timestamp"] - start, row[column] * scale) for row in recording[table] if row.get(column) is not None]


def chart(name: str, unit: str, series: list[tuple[str, str, list[tuple[float, float]]]]) -> None:
    """Write lines over time, each with its name in the same colour above the chart."""
    width, height, left, top, bottom = 560.0, 300.0, 56.0, 30 + 22 * len(series), 36.0
    end = max(moment for *_, line in series for moment, _ in line)
    highest = max(value for *_, line in series for _, value in line) * 1.1
    step = next(size for size in (0.25, 0.5, 1, 50, 100, 200, 500, 1000) if highest / size <= 5)

    def x(moment: float) -> float:
        return left + moment / end * (width - left - 16)

    def y(value: float) -> float:
        return height - bottom - value / highest * (height - bottom - top)

    body = ["<rect width='100%' height='100%' rx='8' fill='#fff'/>"]
    for number in range(int(highest / step) + 1):
        value = number * step
        body.append(f"<path d='M{left} {y(value):.1f}H{width - 16}' stroke='#d5dce2'/>")
        body.append(f"<text x='{left - 8}' y='{y(value) + 5:.1f}' text-anchor='end' fill='#3d4852'>{value:g}</text>")
    for number in range(0, int(end) + 1, 2):
        body.append(f"<text x='{x(number):.1f}' y='{height - 12}' text-anchor='middle' fill='#3d4852'>{number} s</text>")
    for number, (label, colour, line) in enumerate(series):
        path = " ".join(f"{'L' if place else 'M'}{x(moment):.1f} {y(value):.1f}" for place, (moment, value) in enumerate(line))
        body.append(f"<path d='{path}' fill='none' stroke='{colour}' stroke-width='2.5'/>")
        body.append(f"<path d='M{left} {20 + 22 * number}h22' stroke='{colour}' stroke-width='4'/>")
        body.append(f"<text x='{left + 30}' y='{25 + 22 * number}' fill='#1b2329'>{html.escape(label)}, {unit}</text>")
    write(name, width, height, f"<g font-family='system-ui,sans-serif' font-size='15'>{''.join(body)}</g>")


def write(name: str, width: float, height: float, body: str) -> None:
    (IMAGES / name).write_text(terminal.svg(width, height, body))
    print(IMAGES / name)


def main() -> None:
    recording, seen = recorded(SHORT_CHILDREN, watch=True)
    start = recording["metadata"]["start_time"]
    counted = points(recording, "process_metrics", "cpu_usage", 1)
    polled = [(moment - start, value) for moment, value in seen if moment - start <= counted[-1][0]]
    chart("cpu-short-children.svg", "CPUs", [("resource-tracker", "#0b6e99", counted), ("a poller of live processes", "#c2410c", polled)])
    shared, _ = recorded(SHARED)
    memory = points(shared, "process_metrics", "memory", 1 / 1024)
    rss = points(shared, "extra_metrics", "rss", 1 / 1024)
    chart("memory-shared.svg", "MiB", [("memory: shared pages once", "#0b6e99", memory), ("sum of RSS", "#c2410c", rss)])
    spikes, _ = recorded(SPIKES)
    memory = points(spikes, "process_metrics", "memory", 1 / 1024)
    peaks = points(spikes, "extra_metrics", "memory_peak", 1 / 1024)
    lines = [("memory_peak: highest in the row", "#0b6e99", peaks), ("memory: at the end of the row", "#c2410c", memory)]
    chart("memory-peak.svg", "MiB", lines)


if __name__ == "__main__":
    main()
