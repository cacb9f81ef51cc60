"""A program that a type checker accepts in strict mode; checked by test_types.py."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime

from resource_tracker import ResourceTracker, history, track_resources
from resource_tracker.fleet import Fleet
from resource_tracker.tiny_data_frame import StatSpec, TinyDataFrame


@track_resources
def plain(n: int, *, scale: float = 1.0) -> float:
    return n * scale


def done(tracker: ResourceTracker, error: BaseException | None) -> None: ...


@track_resources(interval=0.5, on_finish=done, job="train", tags={"a": 1}, input="x")
async def load(name: str) -> bytes:
    return name.encode()


@track_resources()
def numbers(n: int) -> Iterator[int]:
    yield from range(n)


class Model:
    @track_resources
    def fit(self, rows: int) -> str:
        return str(rows)


value: float = plain(3, scale=2.0)
tracker = plain.resource_tracker
if tracker is not None:
    advice = tracker.advise(slowdown=10, vendor_id="aws")
    ident: str = tracker.save()
    tracker.export("x.csv")
    path: str = tracker.process_tracker_filepath
    size = tracker.recommend_resources(historical_stats={"available": False, "runs_analyzed": 0})
    cpus: int = size["cpu"]
    page: str = tracker.report("Metaflow", integration_version="2.19").save("x.html")
    frame: TinyDataFrame = tracker.process_metrics
    frame.columns = [name.upper() for name in frame.columns]
    spec = StatSpec("MEMORY", max, round=2)
    column, agg, agg_name, digits = spec
    largest = frame.stats([spec, spec._replace(agg=min)])[column]
data: bytes = asyncio.run(load("x"))
total: int = sum(numbers(3))
text: str = Model().fit(3)
jobs = history(job="x")["job"]
fleet = Fleet("runs")
failed: TinyDataFrame = fleet.runs(since=datetime(2026, 3, 12), job="x")
lazy = fleet.samples("polars", job="x").collect()
hours: list[float] = fleet.summary("tag:team", engine="duckdb")["cpu_hours_used"]
stored: int = fleet.push() + fleet.compact()["merged_files"]
