#!/usr/bin/env python3
"""A synthetic fleet by `resource_tracker.fleet`: each engine has the same runs and the same summary.

    tests/fleet/frames.py --generator PROGRAM [--runs N]

Runs on the installed package. Spark has two real worker processes.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import tempfile
import time

from pyspark.sql import SparkSession
from resource_tracker.fleet import Fleet
from resource_tracker.tiny_data_frame import TinyDataFrame

#: The number of rows of an engine's table.
LENGTH = {
    "arrow": len,
    "duckdb": lambda table: table.count("*").fetchall()[0][0],
    "polars": lambda table: table.collect().height,
    "spark": lambda table: table.count(),
}
GROUPS = ["job", "user", "node", "day", "tag:team"]
#: The middle of the 30 days of the generator.
SINCE = 1_772_323_200.0 + 15 * 86_400.0


def agree(what: str, one: TinyDataFrame, other: TinyDataFrame) -> None:
    assert one.columns == other.columns and len(one) == len(other) > 0, what
    rows, others = ({row["key"]: row for row in frame} for frame in (one, other))
    assert rows.keys() == others.keys(), what
    for key, row in rows.items():
        for name, value in row.items():
            found = others[key][name]
            same = math.isclose(value, found, rel_tol=1e-9, abs_tol=1e-9) if isinstance(value, float) else value == found
            assert same, (what, key, name, value, found)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--generator", required=True)
    parser.add_argument("--runs", type=int, default=2000)
    args = parser.parse_args()
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.warehouse.dir", f"{tempfile.gettempdir()}/spark-warehouse")
    spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([args.generator, folder, str(args.runs)], check=True, stdout=subprocess.DEVNULL)
        fleet = Fleet(folder)
        print(fleet.compact(), flush=True)
        runs = len(fleet.runs())
        assert 0 < len(fleet.runs(since=SINCE)) < runs < args.runs, "runs inside of others do not count"
        for engine, length in LENGTH.items():
            began = time.monotonic()
            table = fleet.runs(engine, since=SINCE, spark=spark)
            assert length(table) == len(fleet.runs(since=SINCE)), engine
            samples = fleet.samples(engine, since=SINCE, spark=spark)
            assert length(samples) == len(fleet.samples(since=SINCE)) > 0, engine
            if engine != "arrow":
                for by in GROUPS:
                    for since in (None, SINCE):
                        agree(f"{engine} by {by}", fleet.summary(by, since), fleet.summary(by, since, engine, spark=spark))
            print(f"{engine}: {time.monotonic() - began:.1f} s", flush=True)
        # Of a store that is no folder, the engines get the runs in memory.
        fleet._has_files = lambda: False  # type: ignore[method-assign]
        for engine in ("duckdb", "polars", "spark"):
            agree(f"{engine} in memory", fleet.summary("day"), fleet.summary("day", engine=engine, spark=spark))
    spark.stop()
    print(f"engines agree on {runs} runs")


if __name__ == "__main__":
    main()
