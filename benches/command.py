#!/usr/bin/env python3
"""Budgets of the command, on the release build: what a run costs beside the bare command.

`run -q --no-save -- true` at most 5 ms longer than `true`, the default `run -- true` at most 10 ms (medians, in turns);
the tracker's peak memory under 6 MiB in both; `--help` within 5 ms; at an interval of 0.001 s for 10 s under 1 % of
ticks missed and no CPU figure above 1.1 times the number of CPUs; the program under 12 MB. Ends non-zero otherwise.
"""

import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "resource-tracker"
kept = True


def check(what, value, limit, unit):
    global kept
    good = value <= limit
    kept = kept and good
    print(f"{what:<52} {value:9.3f} {unit:<4} at most {limit:g}: {'kept' if good else 'EXCEEDED'}")


def seconds(command, environment):
    start = time.perf_counter()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def peak_kib(command, environment):
    """VmHWM of the command itself, read until it ends."""
    child = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak = 0
    while child.poll() is None:
        try:
            lines = Path(f"/proc/{child.pid}/status").read_text().splitlines()
        except OSError:
            break
        peak = max([peak] + [int(line.split()[1]) for line in lines if line.startswith("VmHWM")])
    child.wait()
    return peak


def main():
    subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT, check=True)
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "HOME": home, "XDG_DATA_HOME": home}
        commands = {
            "true": ["true"],
            "quiet": [BIN, "run", "-q", "--no-save", "--", "true"],
            "default": [BIN, "run", "--", "true"],
            "help": [BIN, "--help"],
        }
        times = {name: [] for name in commands}
        for _ in range(200):
            for name, command in commands.items():
                times[name].append(seconds(command, environment) * 1e3)
        medians = {name: statistics.median(values) for name, values in times.items()}
        print("medians of 200, in ms:", {name: round(value, 2) for name, value in medians.items()})
        check("run -q --no-save -- true, longer than true", medians["quiet"] - medians["true"], 5, "ms")
        check("run -- true, longer than true", medians["default"] - medians["true"], 10, "ms")
        check("--help", medians["help"], 5, "ms")
        check("peak memory, run -q --no-save", peak_kib([BIN, "run", "-q", "--no-save", "--", "sleep", "2.5"], environment) / 1024, 6, "MiB")
        check("peak memory, run", peak_kib([BIN, "run", "--", "sleep", "2.5"], environment) / 1024, 6, "MiB")
        recording = Path(home) / "fast.json.gz"
        subprocess.run([BIN, "run", "-q", "-i", "0.001", "-o", recording, "--", "sleep", "10"], env=environment, check=True)
        data = json.loads(gzip.decompress(recording.read_bytes()))
        missed = sum(row["missed_ticks"] for row in data["extra_metrics"])
        rows = len(data["extra_metrics"])
        print(f"at 0.001 s for 10 s: {rows} rows, {missed:.0f} ticks missed")
        check("ticks missed at 0.001 s", 100 * missed / (rows + missed), 1, "%")
        figures = [row["cpu_usage"] or 0 for table in ("process_metrics", "system_metrics") for row in data[table]]
        check("largest CPU figure at 0.001 s", max(figures), 1.1 * os.cpu_count(), "")
        check("size of the program", BIN.stat().st_size / 1e6, 12, "MB")
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
