#!/usr/bin/env python3
"""Budgets of the release build of the command. Exits with 1 if a budget is exceeded.

- `run -q --no-save -- true` takes at most 5 ms longer than `true`, `run -- true` at most 10 ms (medians, in turns).
- `--help` takes at most 5 ms.
- Private memory of the tracker peaks at 4 MiB or less, with and without `-q --no-save`. Pages of the program file do
  not count: the kernel can drop them, and a second tracker shares them.
- At an interval of 0.001 s for 10 s, at most 1 % of ticks are missed, and no CPU figure is above 1.1 times the number
  of CPUs.
- The program file has at most 12 MB.
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
within_budget = True


def check(what, value, limit, unit):
    global within_budget
    good = value <= limit
    within_budget = within_budget and good
    print(f"{what:<52} {value:9.3f} {unit:<4} at most {limit:g}: {'ok' if good else 'EXCEEDED'}")


def seconds(command, environment):
    start = time.perf_counter()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def peak_private_mib(command, environment):
    """Peak of the anonymous memory and of the USS of the command itself, read until it ends."""
    child = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    anonymous_kib = uss_kib = readings = 0
    while child.poll() is None:
        try:
            lines = Path(f"/proc/{child.pid}/smaps_rollup").read_text().splitlines()[1:]
        except OSError:
            break
        fields = {line.split(":")[0]: int(line.split()[1]) for line in lines}
        anonymous_kib = max(anonymous_kib, fields["Anonymous"])
        uss_kib = max(uss_kib, fields["Private_Dirty"] + fields["Private_Clean"])
        readings += 1
    child.wait()
    assert readings > 100, f"only {readings} readings"
    return anonymous_kib / 1024, uss_kib / 1024


def main():
    cargo = os.environ.get("CARGO", "cargo")
    subprocess.run([cargo, "build", "--release", "--quiet"], cwd=ROOT, check=True)
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
        for name in ("quiet", "default"):
            private_mib, uss_mib = peak_private_mib([*commands[name][:-1], "sleep", "2.5"], environment)
            print(f"{name}: {uss_mib:.1f} MiB with pages of the program file (USS)")
            check(f"peak private memory, {name}", private_mib, 4, "MiB")
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
    sys.exit(0 if within_budget else 1)


if __name__ == "__main__":
    main()
