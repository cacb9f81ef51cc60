"""Exchanges recordings with the original package in both directions.

    original.py INTEROP_PROGRAM DIRECTORY

Runs in a virtual environment with the original package. Fails at the first difference; prints how many values were
compared.
"""

import json
import math
import subprocess
import sys
import time
from pathlib import Path

from resource_tracker import ResourceTracker

program, directory = sys.argv[1], Path(sys.argv[2])
compared = 0


def same(ours, theirs, what):
    """Assert that both are equal numbers, or both missing."""
    global compared
    compared += 1
    if ours is None or theirs is None or theirs == "":
        assert ours is None and theirs in (None, ""), f"{what}: {ours!r} here, {theirs!r} there"
    else:
        assert math.isclose(ours, theirs, rel_tol=1e-12), f"{what}: {ours!r} here, {theirs!r} there"


def same_rows(ours, theirs, what):
    assert len(ours) == len(theirs) > 0, f"{what}: {len(ours)} rows here, {len(theirs)} there"
    for number, (our_row, their_row) in enumerate(zip(ours, theirs)):
        assert list(our_row) == list(their_row), f"{what}: {list(our_row)} here, {list(their_row)} there"
        for column, value in our_row.items():
            same(value, their_row[column], f"{what} row {number} {column}")


def read(path):
    return json.loads(subprocess.run([program, "read", path], check=True, stdout=subprocess.PIPE).stdout)


def exact_stats(ours, theirs, what):
    """Compare maxima and sums. Means and duration differ: this package weights rows by length, from the start on."""
    assert list(ours) == list(theirs), f"{what}: {list(ours)} here, {list(theirs)} there"
    for column, aggregates in ours.items():
        assert list(aggregates) == list(theirs[column]), f"{what} {column}"
        for name, value in aggregates.items():
            if name in ("max", "sum"):
                same(value, theirs[column][name], f"{what} {column} {name}")


def close_stats(ours, theirs, what, tolerance):
    for column, aggregates in ours.items():
        for name in ("mean", "duration"):
            if name in aggregates:
                our, their = aggregates[name], theirs[column][name]
                assert math.isclose(our, their, rel_tol=tolerance, abs_tol=0.05), f"{what} {column} {name}: {our}, {their}"


def own_stats(ours, snapshot, what):
    """Check means weighted by the length of rows, and the duration from the start."""
    rows, moment = snapshot["process_metrics"], snapshot["metadata"]["start_time"]
    lengths = []
    for row in rows:
        lengths.append(row["timestamp"] - moment)
        moment = row["timestamp"]
    assert min(lengths) > 0, f"{what}: {lengths}"
    assert math.isclose(ours["timestamp"]["duration"], sum(lengths), abs_tol=0.0051), f"{what}: {ours['timestamp']}, {lengths}"
    for column, aggregates in ours.items():
        if "mean" in aggregates:
            values = [row[column.removeprefix("process_")] for row in rows]
            mean = sum(value * length for value, length in zip(values, lengths)) / sum(lengths)
            assert math.isclose(aggregates["mean"], mean, rel_tol=1e-6, abs_tol=0.0051), f"{what} {column}: {aggregates}, {mean}"


# A recording of this package, loaded by the original.
ours = directory / "ours.json.gz"
subprocess.run([program, "write", ours], check=True)
answer = read(ours)
tracker = ResourceTracker.load(str(ours))
same_rows(answer["snapshot"]["process_metrics"], tracker.process_metrics.to_dict(), "our process rows")
same_rows(answer["snapshot"]["system_metrics"], tracker.system_metrics.to_dict(), "our system rows")
same_rows(answer["combined_bytes"], tracker.get_combined_metrics(bytes=True).to_dict(), "our combined table")
exact_stats(answer["stats"], tracker.stats(), "our statistics")
close_stats(answer["stats"], tracker.stats(), "our statistics", 0.02)
assert tracker.server_info["vcpus"] == 8 and tracker.cloud_info["vendor"] == "aws"
assert tracker.recommend_resources()["memory"] > 0

# A recording of the original, loaded by this package.
tracker = ResourceTracker(interval=0.25, discover_cloud=False)
block = bytearray(50_000_000)
end = time.time() + 3
while time.time() < end:
    sum(range(10_000))
tracker.stop()
theirs = directory / "theirs.json.gz"
tracker.dump(str(theirs))
answer = read(theirs)
snapshot = tracker.snapshot()
same_rows(answer["snapshot"]["process_metrics"], snapshot["process_metrics"], "their process rows")
same_rows(answer["snapshot"]["system_metrics"], snapshot["system_metrics"], "their system rows")
same_rows(answer["combined_bytes"], tracker.get_combined_metrics(bytes=True).to_dict(), "their combined table")
exact_stats(answer["stats"], tracker.stats(), "their statistics")
own_stats(answer["stats"], snapshot, "their statistics")
for key, value in snapshot["metadata"].items():
    if key not in ("stop_time", "duration"):
        assert answer["snapshot"]["metadata"][key] == value, f"metadata {key}"
assert answer["snapshot"]["server_info"] == snapshot["server_info"]

# The original loads its own recording after this package has read and written it.
again = directory / "again.json"
again.write_text(json.dumps(answer["snapshot"]))
tracker_again = ResourceTracker.loads(again.read_text())
same_rows(answer["snapshot"]["process_metrics"], tracker_again.process_metrics.to_dict(), "their rows, read back")

print(f"recordings exchanged with the original package: {compared} values equal")
