"""Runs of many machines in one store: what is stored and when, and each engine's view of it."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from conftest import run_program
from resource_tracker import ResourceTracker, history
from resource_tracker.fleet import Fleet
from resource_tracker.tiny_data_frame import TinyDataFrame
from resource_tracker.tracker import _sidecar


@pytest.fixture
def store(home: Path) -> Path:
    return home / "store"


def record(job: str, **options: Any) -> ResourceTracker:
    """Return the finished tracker of a run."""
    with ResourceTracker(interval=0.05, job=job, discover_cloud=False, **options) as tracker:
        tracker.wait_for_samples(1)
    return tracker


def stored(store: Path) -> list[str]:
    """Return the ids of the files in `runs`."""
    return sorted(path.stem for path in store.glob("runs/*/*.parquet"))


def test_run_is_stored_when_it_is_saved(store: Path) -> None:
    first = record("train", store=store)
    assert stored(store) == [first.save()] and len(list(store.glob("samples/*/*.parquet"))) == 1
    unnamed = record("", store=str(store))
    assert len(stored(store)) == 1
    assert unnamed.save() in stored(store)
    assert Fleet(store).push() == 0, "both are in the store"
    with ResourceTracker(interval=0.05, store=store) as running:
        running.wait_for_samples(1)
        running.save()
        assert len(stored(store)) == 2, "a run is stored when it has ended"
    assert ResourceTracker.loads(first.dumps()).store is None


def test_variable_and_settings_of_the_user_name_the_store(
    home: Path, store: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    settings = home / "config" / "resource-tracker" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f'interval = 2\nstore = "{store}/of-settings"\n')
    record("train")
    assert len(stored(store / "of-settings")) == 1
    monkeypatch.setenv("RESOURCE_TRACKER_STORE", str(store / "of-variable"))
    record("train")
    assert len(stored(store / "of-variable")) == 1
    record("train", store=store / "of-argument")
    assert len(stored(store / "of-argument")) == 1
    record("train", store="")
    monkeypatch.delenv("RESOURCE_TRACKER_STORE")
    settings.write_text("store = \n")
    caplog.clear()
    record("train")
    assert f"invalid TOML in `{settings}`" in caplog.text
    assert len(history(job="train")) == 5
    assert [len(stored(store / name)) for name in ("of-settings", "of-variable", "of-argument")] == [1, 1, 1]


def test_decorated_function_and_a_run_that_fails_are_stored(store: Path) -> None:
    from resource_tracker import track_resources

    @track_resources(job="decorated", store=store, interval=0.05, discover_cloud=False)
    def work(fails: bool) -> None:
        if fails:
            raise ValueError("no data")

    work(False)
    with pytest.raises(ValueError, match="no data"):
        work(True)
    runs = Fleet(store).runs()
    assert sorted(runs["status"]) == ["failed", "finished"] and "ValueError: no data" in runs["error"]


def test_store_that_cannot_be_written_costs_nothing_and_gets_the_run_later(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # A file in place of the folder, since root may write anywhere.
    store.write_text("")
    with ResourceTracker(interval=0.05, job="train", store=store) as tracker:
        tracker.wait_for_samples(1)
        began = time.monotonic()
    assert time.monotonic() - began < 3
    assert "the run is not in the store" in caplog.text and "fleet push" in caplog.text
    assert history()["id"] == [tracker.save()]
    store.unlink()
    fleet = Fleet(store)
    assert (fleet.push(), fleet.push()) == (1, 0)
    assert fleet.runs()["id"] == history()["id"]


def test_store_that_cannot_be_used_is_a_warning_of_a_tracker_and_an_error_of_a_fleet(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(ValueError, match="ftp://runs"):
        Fleet("ftp://runs")
    record("train", store="ftp://runs")
    assert "`ftp://runs` is not a valid store address" in caplog.text
    with pytest.raises(OSError, match="switched off"):
        Fleet("s3://bucket/runs").runs()
    last = record("train", store="s3://bucket/runs")
    assert "the store `s3://bucket/runs` is not used, because the network is switched off" in caplog.text
    with pytest.raises(OSError, match="switched off"):
        last.advise(store="s3://bucket/runs")


def test_file_that_cannot_be_read_is_left_out_with_a_warning(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    record("train", store=store)
    last = record("train", store=store)
    (day,) = store.glob("runs/*")
    (day / "damaged.parquet").write_text("PAR1")
    fleet = Fleet(store)
    actions = (lambda: fleet.summary()["runs"] == [2], fleet.runs, fleet.compact, lambda: last.advise(store=store))
    for act in actions:
        caplog.clear()
        assert act()
        assert "damaged.parquet" in caplog.text, caplog.text
    assert (day / "damaged.parquet").exists()


def test_forked_child_stores_nothing(store: Path) -> None:
    program = """
        import os, sys
        from resource_tracker import ResourceTracker
        tracker = ResourceTracker(interval=0.05, job="train", store=sys.argv[1], discover_cloud=False)
        tracker.wait_for_samples(1)
        child = os.fork()
        if child == 0:
            tracker.stop()
            tracker.save()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert not os.path.exists(sys.argv[1])
    """
    run_program(program, str(store))
    assert len(stored(store)) == 1, "stored by the parent, when its interpreter exits"


def test_run_of_a_killed_program_is_stored_by_its_sidecar(store: Path) -> None:
    program = """
        import os, signal, sys
        from resource_tracker import ResourceTracker
        tracker = ResourceTracker(interval=0.05, method="spawn", job="train", store=sys.argv[1], discover_cloud=False)
        tracker.wait_for_samples(2)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    with pytest.raises(AssertionError):
        run_program(program, str(store))
    deadline = time.monotonic() + 20
    while not stored(store) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert Fleet(store).runs()["status"] == ["killed"]


def test_tracker_inside_of_a_tracked_run_is_stored_and_does_not_count(store: Path) -> None:
    program = f"""
from resource_tracker import ResourceTracker
with ResourceTracker(interval=0.05, job="inner", store={str(store)!r}, discover_cloud=False): pass
"""
    command = [_sidecar(), "run", "-q", "--job", "outer", "--store", str(store), "--", sys.executable, "-c", program]
    subprocess.run(command, check=True, timeout=60)
    assert len(stored(store)) == 2
    fleet = Fleet(store)
    assert fleet.runs()["job"] == ["outer"] and fleet.summary()["runs"] == [1]


@pytest.fixture
def fleet(store: Path) -> Fleet:
    """Runs of two jobs and users; one run is in two files, as while files are merged."""
    for job, team in (("train", "vision"), ("train", "x y's"), ("test", None)):
        record(job, store=store, tags={"team": team} if team else {})
    (day,) = store.glob("runs/*")
    one = next(iter(day.iterdir()))
    shutil.copy(one, day / "merged-0000000000000001.parquet")
    samples = store / "samples" / day.name
    shutil.copy(samples / one.name, samples / "merged-0000000000000001.parquet")
    return Fleet(store)


def rows(engine: str, table: Any, spark: Any = None) -> dict[str, list[Any]]:
    """Return the columns of an engine's table."""
    if engine == "native":
        return {name: table[name] for name in table.columns}
    if engine == "duckdb":
        table = table.to_arrow_table()
    elif engine == "polars":
        table = table.collect().to_arrow()
    elif engine == "spark":
        table = table.toArrow()
    return dict(table.to_pydict())


ENGINES = ["native", "arrow", "duckdb", "polars"]


@pytest.mark.parametrize("engine", ENGINES)
def test_engine_has_each_run_once(fleet: Fleet, engine: str) -> None:
    if engine != "native":
        pytest.importorskip({"arrow": "pyarrow"}.get(engine, engine))
        pytest.importorskip("pyarrow")
    expected = fleet.runs()
    assert len(expected) == 3
    runs = rows(engine, fleet.runs(engine))
    assert sorted(runs["id"]) == sorted(expected["id"]) and set(expected.columns) == set(runs)
    for name in ("job", "duration_seconds", "cpu_hours_used", "is_failed", "tags"):
        assert sorted(zip(runs["id"], runs[name])) == sorted(zip(expected["id"], expected[name])), name
    assert len(rows(engine, fleet.runs(engine, job="train"))["id"]) == 2
    last = max(expected["start_time"])
    assert len(rows(engine, fleet.runs(engine, since=last))["id"]) == 1
    moment = datetime.fromtimestamp(last, timezone.utc)
    assert len(rows(engine, fleet.runs(engine, since=moment, job="test"))["id"]) == 1
    assert len(rows(engine, fleet.runs(engine, since=datetime(2100, 1, 1)))["id"]) == 0
    samples = rows(engine, fleet.samples(engine, job="test"))
    (of_test,) = fleet.runs(job="test")["id"]
    assert set(samples["run_id"]) == {of_test} and len(samples["process_memory"]) >= 1
    samples = rows(engine, fleet.samples(engine))
    assert set(samples["run_id"]) == set(expected["id"]) and set(samples) - {"date"} == set(fleet.samples().columns)
    assert len(set(zip(samples["run_id"], samples["timestamp"]))) == len(samples["run_id"]), "each sample once"


def agree(one: TinyDataFrame, other: TinyDataFrame) -> None:
    assert one.columns == other.columns and len(one) == len(other)
    for name in one.columns:
        for ours, theirs in zip(one[name], other[name]):
            same = ours == theirs if not isinstance(ours, float) else math.isclose(ours, theirs, rel_tol=1e-9)
            assert same, (name, ours, theirs)


@pytest.mark.parametrize("engine", ["duckdb", "polars"])
@pytest.mark.parametrize("by", ["job", "user", "node", "day", "tag:team"])
def test_summary_is_the_same_by_each_engine(fleet: Fleet, engine: str, by: str) -> None:
    pytest.importorskip(engine)
    native = fleet.summary(by)
    assert sum(native["runs"]) == 3 and "cpu_hours_wasted" in native.columns
    agree(native, fleet.summary(by, engine=engine))
    last = max(fleet.runs()["start_time"])
    agree(fleet.summary(by, since=last), fleet.summary(by, since=last, engine=engine))


def test_compact_keeps_every_run(fleet: Fleet, store: Path) -> None:
    before, samples = fleet.summary(), len(fleet.samples())
    assert fleet.compact() == {"days": 1, "merged_files": 8, "written_files": 2}
    assert len(stored(store)) == 1 and fleet.summary() == before and len(fleet.samples()) == samples
    assert fleet.compact()["merged_files"] == 0


def test_empty_store_has_all_columns(store: Path) -> None:
    fleet = Fleet(store)
    assert {"id", "job", "savings_usd"} <= set(fleet.runs().columns) and len(fleet.runs()) == 0
    assert len(fleet.samples()) == 0 and len(fleet.summary()) == 0
    for engine in ENGINES[1:]:
        pytest.importorskip({"arrow": "pyarrow"}.get(engine, engine))
        assert rows(engine, fleet.runs(engine))["id"] == []
    assert len(fleet.summary(engine="duckdb")) == 0


def test_errors_name_what_is_missing(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    for engine, package in (("duckdb", "duckdb"), ("polars", "polars"), ("arrow", "pyarrow")):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)
            if engine == "arrow":
                patch.setitem(sys.modules, "pyarrow.parquet", None)
            with pytest.raises(ImportError, match=f"pip install {package}"):
                Fleet(fleet.url).runs(engine)
    with pytest.raises(TypeError, match="spark="):
        fleet.runs("spark")
    with pytest.raises(ValueError, match="pandas"):
        fleet.runs("pandas")
    with pytest.raises(ValueError, match="arrow"):
        fleet.summary(engine="arrow")
    with pytest.raises(ValueError, match="colour"):
        fleet.summary("colour")


def test_advice_counts_the_runs_of_other_machines(home: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        record("train", store=store)
    of_other = set(history()["id"])
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "other"))
    assert len(history()) == 0
    record("train", store=store)
    last = record("train", store=store)
    assert (last.advise()["runs"], last.advise(store=store)["runs"]) == (2, 4)
    assert last.advise(store=store, earlier_runs=1)["runs"] == 2
    # One home with all runs gives the same advice.
    for path in (home / "data").rglob("*"):
        if path.is_file():
            shutil.copy(path, home / "other" / path.relative_to(home / "data"))
    assert of_other < set(history()["id"])
    assert last.advise() == last.advise(store=store)
    with pytest.raises(ValueError, match="ftp"):
        last.advise(store="ftp://runs")


def test_engines_are_not_imported_with_the_package() -> None:
    program = """
        import sys, resource_tracker
        assert not {"resource_tracker.fleet", "pyarrow", "polars", "duckdb", "pyspark"} & set(sys.modules)
        from resource_tracker.fleet import Fleet
        Fleet("store").runs()
        assert not {"pyarrow", "polars", "duckdb", "pyspark"} & set(sys.modules)
    """
    run_program(program)


def test_address_may_be_any_path(home: Path) -> None:
    store = home / "a 'quoted' [s]tore*? {x}"
    # The pattern would match this folder.
    record("other", store=home / "a 'quoted' store.. {x}")
    record("train", store=os.fsencode(store))
    for engine in ("duckdb", "polars"):
        pytest.importorskip(engine)
        assert rows(engine, Fleet(store).runs(engine))["job"] == ["train"]
        assert len(rows(engine, Fleet(store).samples(engine))["run_id"]) >= 1


@pytest.mark.parametrize("key", ["a'b", 'x") y', "back\\slash", "a.b[0]", "~/", "--;", "$", "ü"])
def test_key_of_a_tag_may_have_any_characters(store: Path, key: str) -> None:
    for value in ("one", "two", None):
        record("train", store=store, tags={key: value} if value else {})
    fleet = Fleet(store)
    native = fleet.summary(f"tag:{key}")
    assert {"one", "two", None} == set(native["key"])
    for engine in ("duckdb", "polars"):
        pytest.importorskip(engine)
        agree(native, fleet.summary(f"tag:{key}", engine=engine))


def test_sql_has_views_summary_and_questions_for_each_engine(fleet: Fleet) -> None:
    for engine in ("duckdb", "spark", "trino"):
        text = fleet.sql(engine, by="tag:a;\nDROP")
        assert "all_runs" in text and "WITH numbered" in text and text.count("\n-- Which") >= 4, text
    tables = fleet.sql("trino")
    for name in ("runs", "samples"):
        table = tables.partition(f"CREATE TABLE IF NOT EXISTS {name}_files")[2].partition(";")[0]
        columns = getattr(fleet, name)().columns
        assert len(columns) > 50 and all(f'  "{column}" ' in table for column in columns), (name, table)


def test_lines_with_equal_sums_have_one_order(store: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    pytest.importorskip("polars")
    for job in ("b", "a", "c"):
        record(job, store=store)
    for number, path in enumerate(sorted(store.glob("runs/*/*.parquet"))):
        job = "NULL::VARCHAR" if number == 1 else "job"
        cells = f"* REPLACE (0e0 AS savings_usd, 1e0 AS cpu_hours_wasted, {job} AS job)"
        other = store / "other"
        query = f"SELECT {cells} FROM read_parquet('{path}', hive_partitioning = false)"
        duckdb.sql(f"COPY ({query}) TO '{other}' (FORMAT parquet)")
        other.replace(path)
    fleet = Fleet(store)
    keys = fleet.summary()["key"]
    assert keys[0] is None and keys[1:] == sorted(keys[1:]) and len(keys) == 3
    for engine in ("duckdb", "polars"):
        assert fleet.summary(engine=engine)["key"] == keys, engine
