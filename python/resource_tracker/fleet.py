"""The runs of many machines in one store, read natively or by the engine of your choice.

>>> from tempfile import mkdtemp
>>> from resource_tracker import ResourceTracker
>>> store = mkdtemp()
>>> with ResourceTracker(interval=0.05, job="doctest", store=store):
...     total = sum(range(1000))
>>> fleet = Fleet(store)
>>> fleet.runs(job="doctest")["status"], fleet.summary(by="job")["runs"]
(['finished'], [1])
"""

from __future__ import annotations

import glob
import json
import os
from datetime import datetime, timezone
from typing import TYPE_CHECKING, overload

from . import _native
from .tiny_data_frame import TinyDataFrame

if TYPE_CHECKING:
    from typing import Any, Literal, Optional, Union

    from ._session import _Path

    _Since = Union[float, datetime, None]

__all__ = ["Fleet"]

_ENGINES = ("native", "arrow", "duckdb", "polars", "spark")


class Fleet:
    """The runs of many machines in a store: a folder, or another address that `run --store` takes.

    Methods that read take an `engine`, which is imported only then:

    - `"native"` needs no other package and gives a `TinyDataFrame`; times are Unix seconds.
    - `"arrow"` gives a `pyarrow.Table`, `"duckdb"` a relation, `"polars"` a lazy frame, `"spark"` a data frame of the
      session `spark`.

    DuckDB, Polars and Spark read the files of a folder by themselves, when they need them. Of other stores they get the
    wanted runs in memory. Each run counts once, and runs inside of another of these runs do not count.

    Args:
        url: Address of the store.
    """

    def __init__(self, url: _Path) -> None:
        self._fleet = _native.Fleet(os.fsdecode(url))
        self._connection: Any = None

    @property
    def url(self) -> str:
        """Address of the store."""
        return self._fleet.url

    def __repr__(self) -> str:
        return f"Fleet({self.url!r})"

    @overload
    def runs(
        self, engine: Literal["native"] = "native", since: _Since = None, job: Optional[str] = None
    ) -> TinyDataFrame: ...
    @overload
    def runs(self, engine: str, since: _Since = None, job: Optional[str] = None, *, spark: Any = None) -> Any: ...
    def runs(
        self, engine: str = "native", since: _Since = None, job: Optional[str] = None, *, spark: Any = None
    ) -> Any:
        """Return one row for each run, with the columns of `docs/dataset.md`.

        Args:
            engine: "native", "arrow", "duckdb", "polars" or "spark".
            since: Only runs that started then or later: a `datetime`, or Unix seconds.
            job: Only runs of this job.
            spark: Session of Spark for `engine="spark"`.
        """
        return self._table("runs", engine, _seconds(since), job, spark)

    @overload
    def samples(
        self, engine: Literal["native"] = "native", since: _Since = None, job: Optional[str] = None
    ) -> TinyDataFrame: ...
    @overload
    def samples(self, engine: str, since: _Since = None, job: Optional[str] = None, *, spark: Any = None) -> Any: ...
    def samples(
        self, engine: str = "native", since: _Since = None, job: Optional[str] = None, *, spark: Any = None
    ) -> Any:
        """Return the rows of the recordings of the runs that `runs` has with the same arguments.

        Args:
            engine: "native", "arrow", "duckdb", "polars" or "spark".
            since: Only runs that started then or later: a `datetime`, or Unix seconds.
            job: Only runs of this job.
            spark: Session of Spark for `engine="spark"`.
        """
        return self._table("samples", engine, _seconds(since), job, spark)

    def summary(
        self, by: str = "job", since: _Since = None, engine: str = "native", *, spark: Any = None
    ) -> TinyDataFrame:
        """Return what runs requested, used, wasted and cost, the most savings first; the same table by each engine.

        Args:
            by: Group runs by "job", "user", "node", "day" or the value of a tag ("tag:KEY").
            since: Only runs that started then or later: a `datetime`, or Unix seconds.
            engine: "native", or "duckdb", "polars" and "spark", which run the query of `sql`.
            spark: Session of Spark for `engine="spark"`.
        """
        seconds = _seconds(since)
        lines = self._read(self._fleet.summary(by, seconds)) if engine == "native" else None
        if lines is None:
            (query,) = self._statements("summary", _with_sql(engine), by)
            runs = self._table("runs", engine, seconds, None, spark)
            if engine == "duckdb":
                # The connection of the relation, which the query finds under this name.
                found = runs.query("runs", query)
                lines = [dict(zip(found.columns, row)) for row in found.fetchall()]
            elif engine == "polars":
                if by.startswith("tag:"):
                    runs = runs.with_columns(tag=_polars_tag(by[4:]))
                lines = _module("polars").SQLContext(runs=runs).execute(query).collect().to_dicts()
            else:
                runs.createOrReplaceTempView("runs")
                lines = [row.asDict() for row in spark.sql(query).collect()]
        return TinyDataFrame(data=lines)

    def sql(self, engine: str = "duckdb", by: str = "job") -> str:
        """Return views and example queries as SQL.

        Args:
            engine: "duckdb", "spark" or "trino".
            by: What the summary groups runs by.
        """
        return "".join(statement + ";\n\n" for _, statement in self._fleet.statements(engine, by))

    def push(self) -> int:
        """Store the runs of the user's history that the store does not have yet, and return their number."""
        from ._session import _log

        stored, skipped = self._fleet.push()
        for why in skipped:
            _log("warning", "%s", why)
        return stored

    def compact(self) -> dict[str, int]:
        """Merge the small files of each day, and return the number of `days`, `merged_files` and `written_files`."""
        return dict(zip(("days", "merged_files", "written_files"), self._read(self._fleet.compact())))

    def _read(self, found: Any) -> Any:
        """Warn about files that could not be read, and return what the others have."""
        from ._session import _log

        warning = self._fleet.take_warning()
        if warning is not None:
            _log("warning", "%s", warning)
        return found

    def _table(self, name: str, engine: str, since: Optional[float], job: Optional[str], spark: Any) -> Any:
        if engine == "native":
            return TinyDataFrame(data=self._read(self._fleet.rows(name, since, job)))
        if engine not in _ENGINES:
            raise ValueError(f"`engine` must be one of {', '.join(_ENGINES)}, not {engine!r}")
        if engine == "spark" and spark is None:
            raise TypeError("engine='spark' needs a session: spark=SparkSession.builder.getOrCreate()")
        if engine == "arrow" or not self._has_files():
            return self._of_arrow(self._arrow(name, since, job), engine, spark)
        runs = _of_job(self._runs(engine, since, spark), engine, job)
        return runs if name == "runs" else self._samples(runs, engine, spark)

    def _has_files(self) -> bool:
        """Whether engines can read the store by themselves: a folder with a run."""
        return os.path.isdir(os.path.join(self.url, "runs"))

    def _arrow(self, name: str, since: Optional[float], job: Optional[str]) -> Any:
        parquet = _module("pyarrow.parquet")
        content = self._read(self._fleet.parquet(name, since, job))
        return parquet.read_table(_module("pyarrow").BufferReader(content))

    def _of_arrow(self, table: Any, engine: str, spark: Any) -> Any:
        if engine == "duckdb":
            return self._duckdb().from_arrow(table)
        if engine == "polars":
            return _module("polars").from_arrow(table).lazy()
        return spark.createDataFrame(table) if engine == "spark" else table

    def _duckdb(self) -> Any:
        if self._connection is None:
            self._connection = _module("duckdb").connect()
            # As in the store, and as the other engines.
            self._connection.execute("SET TimeZone = 'UTC'")
        return self._connection

    def _runs(self, engine: str, since: Optional[float], spark: Any) -> Any:
        """The runs since then, each once, without runs inside of others of them."""
        if engine == "polars":
            runs = self._polars("runs").sort("stored_time", descending=True, nulls_last=True)
            runs = _since(runs.unique("id", keep="first", maintain_order=True), engine, since)
            return runs.join(runs.select("id"), left_on="parent", right_on="id", how="anti")
        self._create_views("runs", engine, spark)
        if engine == "duckdb":
            runs = _since(self._duckdb().sql("SELECT * EXCLUDE (copy, file) FROM all_runs"), engine, since)
            return runs.set_alias("inside").join(runs.set_alias("around"), "inside.parent = around.id", how="anti")
        runs = _since(spark.table("all_runs").drop("copy"), engine, since)
        return runs.join(runs.select(runs["id"].alias("parent")), "parent", "leftanti").select(runs.columns)

    def _samples(self, runs: Any, engine: str, spark: Any) -> Any:
        if engine == "polars":
            # While files are merged, the samples of a run are in two files.
            samples = self._polars("samples", include_file_paths="file")
            newest = samples.group_by("run_id").agg(_module("polars").col("file").min())
            samples = samples.join(newest, on=["run_id", "file"], how="semi").drop("file")
            return samples.join(runs.select("id"), left_on="run_id", right_on="id", how="semi")
        self._create_views("samples", engine, spark)
        if engine == "duckdb":
            samples = self._duckdb().sql("SELECT * EXCLUDE (file) FROM samples").set_alias("samples")
            return samples.join(runs.set_alias("wanted"), "samples.run_id = wanted.id", how="semi")
        samples = spark.table("samples").drop("file")
        return samples.join(runs.select(runs["id"].alias("run_id")), "run_id", "leftsemi")

    def _statements(self, part: str, engine: str, by: str) -> list[str]:
        return [statement for found, statement in self._fleet.statements(engine, by) if found == part]

    def _create_views(self, part: str, engine: str, spark: Any) -> None:
        for view in self._statements(part, engine, "job"):
            self._duckdb().execute(view) if engine == "duckdb" else spark.sql(view)

    def _polars(self, name: str, **options: Any) -> Any:
        return _module("polars").scan_parquet(
            os.path.join(glob.escape(self.url), name, "*", "*.parquet"),
            hive_partitioning=True,
            missing_columns="insert",
            extra_columns="ignore",
            **options,
        )


def _since(runs: Any, engine: str, since: Optional[float]) -> Any:
    if since is None:
        return runs
    column, constant = _expressions(engine)
    return runs.filter(column("start_time") >= constant(datetime.fromtimestamp(since, timezone.utc)))


def _of_job(runs: Any, engine: str, job: Optional[str]) -> Any:
    if job is None:
        return runs
    column, constant = _expressions(engine)
    return runs.filter(column("job") == constant(job))


def _expressions(engine: str) -> tuple[Any, Any]:
    """The functions of an engine that name a column and a constant."""
    if engine == "duckdb":
        return _module("duckdb").ColumnExpression, _module("duckdb").ConstantExpression
    module = _module("polars" if engine == "polars" else "pyspark.sql.functions")
    return module.col, module.lit


def _polars_tag(key: str) -> Any:
    """Return the expression for the value of a tag; JSON paths cannot have all keys."""
    polars = _module("polars")

    def values(tags: Any) -> Any:
        found = [json.loads(one).get(key) if one else None for one in tags]
        return polars.Series(found, dtype=polars.String)

    return polars.col("tags").map_batches(values, return_dtype=polars.String)


def _with_sql(engine: str) -> str:
    if engine not in ("duckdb", "polars", "spark"):
        raise ValueError(f"`engine` of a summary must be native, duckdb, polars or spark, not {engine!r}")
    return engine


def _seconds(since: _Since) -> Optional[float]:
    return since.timestamp() if isinstance(since, datetime) else since


def _module(name: str) -> Any:
    """Import a module of an engine."""
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise ImportError(f"this engine needs the package `{package}`: pip install {package}", name=package) from error
