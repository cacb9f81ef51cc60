"""Recordings exchanged with the original package, in both directions.

Run inside a virtual environment that has it: original.py INTEROP_PROGRAM DIRECTORY
Ends with status 1 at the first difference, and says how many values were compared.
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
    """Equal as numbers; what one calls missing, the other must too."""
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
    """All but the means, which here weigh rows by their length, and the duration, which counts from the start."""
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
    """The means, rows by their length, and the duration from the start: of rows as irregular as the machine made them."""
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


# Ours, loaded there.
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

# Theirs, loaded here.
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

# And back: what went through us is still theirs to load.
again = directory / "again.json"
again.write_text(json.dumps(answer["snapshot"]))
tracker_again = ResourceTracker.loads(again.read_text())
same_rows(answer["snapshot"]["process_metrics"], tracker_again.process_metrics.to_dict(), "their rows through us")

print(f"recordings exchanged with the original package: {compared} values equal")
