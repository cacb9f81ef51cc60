#!/usr/bin/env python3
"""The summary of a synthetic fleet by this tracker and by SQL engines: equal in every figure, and how long each takes.

    tests/fleet/engines.py --tracker PROGRAM --generator PROGRAM [--runs N] [--engines duckdb,spark]

DuckDB reads the dataset before and after `fleet compact`, Spark after it, with real worker processes. Both run the queries of
the documentation. With 100,000 runs or more, the native summary must keep its budget, and its time must grow as the number
of runs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time

import queries

#: Runs a command from a small process: the peak memory of a child starts with that of the process that forks it.
MEASURE = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""
GROUPS = ["job", "user", "node", "day", "tag:team"]
COUNTS = ["runs", "recordings", "failed", "out_of_memory"]


def command(tracker: str, *words: str) -> tuple[str, float, float]:
    """Run a command of `fleet`; return its output, its duration and its peak memory in MiB."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, tracker, "fleet", *words], capture_output=True, text=True, check=True
    )
    return done.stdout, time.monotonic() - began, int(done.stderr.split()[-1]) / 1024


def duckdb_views(tracker: str, store: str, by: str):  # noqa: ANN201
    """Open the dataset by DuckDB; return the connection and the query of the summary."""
    import duckdb

    connection = duckdb.connect()
    printed = queries.printed(command(tracker, "sql", "--store", store, "--by", by)[0])
    for view in printed.views:
        connection.execute(view)
    return connection, printed.summary


def duckdb_rows(tracker: str, store: str, by: str) -> list[dict]:
    connection, query = duckdb_views(tracker, store, by)
    with connection:
        result = connection.execute(query)
        names = [column[0] for column in result.description]
        return [dict(zip(names, row)) for row in result.fetchall()]


class Spark:
    def __init__(self) -> None:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.sql.warehouse.dir", f"{tempfile.gettempdir()}/spark-warehouse")
        self.session = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
        self.session.sparkContext.setLogLevel("ERROR")

    def rows(self, tracker: str, store: str, by: str) -> list[dict]:
        printed = queries.printed(command(tracker, "sql", "--store", store, "--engine", "spark", "--by", by)[0])
        for view in printed.views:
            self.session.sql(view)
        return [row.asDict() for row in self.session.sql(printed.summary).collect()]


def compare(engine: str, by: str, expected: list[dict], found: list[dict]) -> None:
    key = lambda row: (row["key"] is not None, row["key"] or "")  # noqa: E731
    expected, found = sorted(expected, key=key), sorted(found, key=key)
    assert [row["key"] for row in expected] == [row["key"] for row in found], f"{engine}: other groups by {by}"
    for one, other in zip(expected, found):
        for name, value in one.items():
            theirs = other[name]
            if name in COUNTS or name == "key" or value is None:
                assert value == theirs, (engine, by, one["key"], name, value, theirs)
            else:
                assert math.isclose(value, theirs, rel_tol=1e-9, abs_tol=1e-9), (engine, by, one["key"], name, value, theirs)


def summary(tracker: str, store: str, by: str) -> tuple[list[dict], float, float]:
    text, seconds, mib = command(tracker, "summary", "--json", "--store", store, "--by", by)
    return queries.rows_of(text), seconds, mib


def generate(generator: str, folder: str, runs: int) -> str:
    store = os.path.join(folder, f"store-{runs}")
    subprocess.run([generator, store, str(runs)], check=True, stdout=subprocess.DEVNULL)
    return store


#: Keys of tags and the name of a folder that must not end a string, a path, a pattern or a comment.
KEYS = ["a'b", 'x") y', "back\\slash", "a.b[0]", "~/", "--;", "new\nline", "$", "ü"]
FOLDER = "a [b]*? {c} 'd'"
DECOY = "a bXX {c} 'd'"


def hostile(tracker: str, store: str, folder: str, spark: Spark | None) -> None:
    """Any key of a tag, any folder, lines with equal sums, and files of other programs."""
    import duckdb

    connection = duckdb.connect()
    place = os.path.join(folder, FOLDER)
    day = "date=2026-03-01"
    (file,) = connection.execute(f"SELECT min(file) FROM glob('{store}/runs/*/*.parquet')").fetchone()
    connection.execute(f"CREATE TABLE run AS SELECT * FROM read_parquet('{file}', hive_partitioning = false) LIMIT 1")
    equal = {"distributed": "NULL::VARCHAR", "parent": "NULL::VARCHAR", "savings_usd": "0e0", "cpu_hours_wasted": "1e0"}

    def write(into: str, name: str, **cells: str) -> str:
        """Copy the run with other cells, to a file that has its name later: DuckDB takes a path for a pattern."""
        path = os.path.join(into, "runs", day, f"{name}.parquet")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        cells = {"id": f"'{name}'", **equal, **cells}
        chosen = ", ".join(f"{cell} AS {column}" for column, cell in cells.items())
        known = {row[0] for row in connection.execute("DESCRIBE run").fetchall()} & set(cells)
        plain = os.path.join(folder, "plain.parquet")
        connection.execute(f"COPY (SELECT * EXCLUDE ({', '.join(known)}), {chosen} FROM run) TO '{plain}' (FORMAT parquet)")
        os.replace(plain, path)
        return path

    def cells(number: int) -> dict[str, str]:
        tags = json.dumps({key: f"{key} {number}" for key in KEYS} if number else {})
        return {"job": ["NULL::VARCHAR", "'b'", "'a'"][number], "tags": "'" + tags.replace("'", "''") + "'"}

    files = [write(place, str(number), **cells(number)) for number in range(3)]
    write(os.path.join(folder, DECOY), "decoy", job="'decoy'")
    # The views of samples need a file.
    samples = os.path.dirname(file).replace("/runs/", "/samples/")
    os.makedirs(os.path.join(place, "samples", day), exist_ok=True)
    shutil.copy(os.path.join(samples, min(os.listdir(samples))), os.path.join(place, "samples", day))
    engines = {"duckdb": lambda by: duckdb_rows(tracker, place, by)}
    if spark:
        engines["spark"] = lambda by: spark.rows(tracker, place, by)
    for by in ["job", *(f"tag:{key}" for key in KEYS)]:
        expected = [None, "a", "b"] if by == "job" else [None, f"{by[4:]} 1", f"{by[4:]} 2"]
        rows = summary(tracker, place, by)[0]
        assert [row["key"] for row in rows] == expected, (by, rows)
        for engine, found in engines.items():
            assert [row["key"] for row in found(by)] == expected, (engine, by)
    # A file that has more than this version knows stays as it is. Times in other units are the same times.
    before = summary(tracker, place, "day")[0]
    write(place, "0", **cells(0), of_later="7::INTEGER", start_time="start_time::TIMESTAMP_MS")
    write(place, "1", **cells(1), of_later="[1, 2]", start_time="start_time::TIMESTAMP_NS")
    write(place, "2", **cells(2), of_later="1.5::FLOAT")
    since = command(tracker, "summary", "--json", "--store", place, "--by", "day", "--since", "2000-01-01")[0]
    assert queries.rows_of(since) == before and before[0]["recordings"] == 3, since
    command(tracker, "compact", "--store", place)
    assert all(os.path.exists(path) for path in files) and summary(tracker, place, "day")[0] == before
    print(f"{len(KEYS)} hostile keys and a hostile folder by {', '.join(engines)}", flush=True)


def during_compact(tracker: str, generator: str, folder: str, runs: int) -> None:
    """Query the views of DuckDB while `fleet compact` merges and removes: a query counts each run once, or misses a file."""
    import duckdb

    store = generate(generator, folder, runs)
    connection, _ = duckdb_views(tracker, store, "job")
    count = "SELECT (SELECT count(*) FROM all_runs), (SELECT count(DISTINCT id) FROM all_runs), (SELECT count(*) FROM samples)"
    expected = connection.execute(count).fetchone()
    assert expected[:2] == (runs, runs), expected
    done, failed = 0, 0
    with subprocess.Popen([tracker, "fleet", "compact", "--store", store], stdout=subprocess.DEVNULL) as compact:
        while compact.poll() is None:
            try:
                found = connection.execute(count).fetchone()
            except duckdb.IOException as error:
                assert "No such file" in str(error) or "Cannot open file" in str(error), error
                failed += 1
            else:
                assert found == expected, f"while files are merged: {found}, not {expected}"
                done += 1
    assert compact.returncode == 0 and done > 0, (compact.returncode, done)
    assert connection.execute(count).fetchone() == expected
    connection.close()
    print(f"during compact: {done} queries of DuckDB counted {runs} runs, {failed} missed a file", flush=True)


def growth(tracker: str, generator: str, folder: str, runs: int, larger: str) -> None:
    """Compare time and memory with those of a tenth of the runs, on compacted datasets; the best of five."""
    smaller = generate(generator, folder, runs // 10)
    command(tracker, "compact", "--store", smaller)
    found = []
    for store, count in [(smaller, runs // 10), (larger, runs)]:
        measured = [summary(tracker, store, "job")[1:] for _ in range(5)]
        began = time.monotonic()
        duckdb_rows(tracker, store, "job")
        duckdb_s = time.monotonic() - began
        found.append(min(measured))
        print(f"{count:>7} runs: native {found[-1][0]:.3f} s, {found[-1][1]:.0f} MiB; DuckDB {duckdb_s:.2f} s", flush=True)
    (small_s, _), (large_s, large_mib) = found
    assert large_s < 3 and large_mib < 200, f"over budget: {large_s:.2f} s, {large_mib:.0f} MiB"
    # Starting the program counts for the smaller one too.
    assert large_s < 15 * small_s, f"grows faster than the runs: {small_s:.3f} s, {large_s:.3f} s"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tracker", required=True)
    parser.add_argument("--generator", required=True)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--engines", default="duckdb")
    args = parser.parse_args()
    engines = args.engines.split(",")
    with tempfile.TemporaryDirectory() as folder:
        store = generate(args.generator, folder, args.runs)
        answers = {}
        for state in ["before compact", "after compact"]:
            # DuckDB opens each of many small files several times.
            is_slow = state == "before compact" and args.runs > 10_000
            for by in GROUPS[:1] if is_slow else GROUPS:
                rows, seconds, mib = summary(args.tracker, store, by)
                if state == "before compact":
                    assert seconds < 60, f"{seconds:.1f} s before compact"
                assert answers.setdefault(by, rows) == rows or state == "after compact"
                compare("compacted", by, answers[by], rows)
                if by == "job":
                    print(f"{state}: {args.runs} runs, native {seconds:.2f} s, {mib:.0f} MiB", flush=True)
                began = time.monotonic()
                compare("duckdb", by, rows, duckdb_rows(args.tracker, store, by))
                if by == "job":
                    print(f"{state}: DuckDB {time.monotonic() - began:.2f} s", flush=True)
            if state == "before compact":
                print(command(args.tracker, "compact", "--store", store)[0].strip(), flush=True)
        during_compact(args.tracker, args.generator, folder, 300)
        connection, _ = duckdb_views(args.tracker, store, "job")
        of_engine = {name: queries.printed(command(args.tracker, "sql", "--store", store, "--engine", name)[0]) for name in ["duckdb", "spark", "trino"]}
        queries.check(of_engine["duckdb"], connection, answers.__getitem__)
        queries.check_trino(of_engine["trino"], connection)
        hostile(args.tracker, store, folder, None)
        if args.runs >= 100_000:
            growth(args.tracker, args.generator, folder, args.runs, store)
        if "spark" in engines:
            spark = Spark()
            for by in GROUPS:
                began = time.monotonic()
                compare("spark", by, answers[by], spark.rows(args.tracker, store, by))
                print(f"Spark by {by} {time.monotonic() - began:.2f} s", flush=True)
            queries.check_spark(of_engine["spark"], of_engine["duckdb"], spark.session, connection)
            shutil.rmtree(os.path.join(folder, FOLDER))
            hostile(args.tracker, store, folder, spark)
            spark.session.stop()
        connection.close()
    print(f"engines agree on {len(GROUPS)} groupings of {args.runs} runs: native, {', '.join(engines)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
