"""Trackers: in the background for a program, or in the foreground as CSV."""

from __future__ import annotations

import os
import sys
import time
import weakref

from . import _native
from .tiny_data_frame import StatSpec, TinyDataFrame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Any, BinaryIO, Optional, Union

    from .report import Report

    _Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

__all__ = ["PidTracker", "ProcessTracker", "ResourceTracker", "SystemTracker"]

_METHODS = (None, "fork", "spawn", "forkserver")


def mean(values: Sequence[float]) -> Optional[float]:
    """The plain mean; None of nothing."""
    return sum(values) / len(values) if values else None


def duration(values: Sequence[float]) -> Optional[float]:
    """From the smallest to the largest; None of nothing."""
    return max(values) - min(values) if values else None


#: The default statistics. Passed to `stats`, they are computed as the rows come: by length of row, with the true peak.
DEFAULT_STATS: list[StatSpec] = [
    *(
        StatSpec(f"process_{column}", agg, round=2)
        for column in ("cpu_usage", "memory", "gpu_usage", "gpu_vram", "gpu_utilized")
        for agg in (mean, max)
    ),
    StatSpec("system_disk_space_used_gb", max, round=2),
    StatSpec("system_net_recv_bytes", sum),
    StatSpec("system_net_sent_bytes", sum),
    StatSpec("timestamp", duration, agg_name="duration"),
]


def _is_default(spec: StatSpec) -> bool:
    """Whether a figure is one of the default list, with our mean or the one of `statistics` that the original has."""
    agg = spec.agg
    if (getattr(agg, "__module__", None), getattr(agg, "__name__", None)) == ("statistics", "mean"):
        agg = mean
    return StatSpec(spec.column, agg, spec.agg_name, spec.round) in DEFAULT_STATS


class ResourceTracker:
    """What this program (or process `pid`) and the machine use, recorded in the background.

    Sampling runs in a native thread that never takes the interpreter's lock; with a `method` it runs in a process of
    its own, which goes on recording when this one is killed.

    >>> tracker = ResourceTracker(interval=0.05)
    >>> tracker.wait_for_samples(2)
    >>> tracker.stop()
    >>> tracker.process_metrics.columns[:4]
    ['timestamp', 'pid', 'children', 'utime']
    >>> tracker.stats()["process_memory"]["max"] > 0
    True
    """

    def __init__(
        self,
        pid: Optional[int] = None,
        children: bool = True,
        interval: float = 1,
        method: Optional[str] = None,
        autostart: bool = True,
        track_processes: bool = True,
        track_system: bool = True,
        discover_server: bool = True,
        discover_cloud: bool = True,
    ) -> None:
        if method not in _METHODS:
            raise ValueError(f"cannot find context for {method!r}; known are 'fork', 'spawn' and 'forkserver'")
        self._adopt(
            _native.Session(
                pid=os.getpid() if pid is None else pid,
                children=bool(children),
                interval=interval,
                method=method,
                autostart=bool(autostart),
                track_processes=bool(track_processes),
                track_system=bool(track_system),
                discover_server=bool(discover_server),
                discover_cloud=bool(discover_cloud),
                companion=None if method is None else _companion(),
            )
        )
        if autostart:
            self.start()

    def _adopt(self, session: _native.Session) -> None:
        self._session = session
        settings = session.settings
        self.pid: int = settings["pid"]
        self.children: bool = settings["children"]
        self.interval: float = settings["interval"]
        self.method: Optional[str] = settings["method"]
        self.autostart: bool = settings["autostart"]
        self.discover_server: bool = settings["discover_server"]
        self.discover_cloud: bool = settings["discover_cloud"]
        self.trackers: list[str] = [
            name
            for name, is_on in (
                ("process_tracker", settings["track_processes"]),
                ("system_tracker", settings["track_system"]),
            )
            if is_on
        ]
        # When nobody holds the tracker any more, and at the interpreter's end at the latest.
        self._finalizer = weakref.finalize(self, session.remove_files)

    def start(self) -> None:
        """Starts recording; an error when it runs already, or has been stopped."""
        self._session.start()
        self._warn()

    def stop(self) -> None:
        """Makes the last row and ends the sampler; the data stay. Once more does nothing."""
        was_running = self.running
        self._session.stop()
        self._warn()
        if was_running:
            _log("debug", "Resource tracker stopped with %d samples", self.n_samples)

    def cleanup(self) -> None:
        """Stops, and removes temporary files: the default statistics stay, rows do not."""
        self._session.remove_files()

    def _warn(self) -> None:
        for level, note in self._session.take_notes():
            _log(level, "%s", note)

    def __enter__(self) -> ResourceTracker:
        if not self.running and self.stop_time is None:
            self.start()
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        """Whether samples are taken."""
        return self._session.running

    @property
    def state(self) -> Optional[str]:
        """`running`, `exited` when the tracked process has ended, or `stopped`; None before the start."""
        return self._session.state

    @property
    def n_samples(self) -> int:
        """Samples so far."""
        return self._session.rows

    @property
    def start_time(self) -> Optional[float]:
        """When the baseline was read, Unix seconds."""
        return self._session.start_time

    @property
    def stop_time(self) -> Optional[float]:
        """When recording was stopped, Unix seconds."""
        return self._session.stop_time

    @property
    def process_metrics(self) -> TinyDataFrame:
        """A row per sample of the tracked process and its descendants."""
        return self._table("process_metrics")

    @property
    def system_metrics(self) -> TinyDataFrame:
        """A row per sample of the machine."""
        return self._table("system_metrics")

    @property
    def extra_metrics(self) -> TinyDataFrame:
        """What goes beyond the two tables above: peaks, pressure, limits, our own cost, every GPU."""
        return self._table("extra_metrics")

    def _table(self, name: str) -> TinyDataFrame:
        columns = self._session.table(name)
        frame = TinyDataFrame._of(dict(columns))
        return frame if len(frame) else TinyDataFrame(data=[])

    @property
    def server_info(self) -> Optional[dict[str, Any]]:
        """The machine, and whether it seems to be this job's alone; None when it is not to be looked at."""
        return self._session.server_info()

    @property
    def cloud_info(self) -> Optional[dict[str, Any]]:
        """The cloud; None when it is not to be looked for, or not found out yet."""
        return self._session.cloud_info()

    def wait_for_samples(self, n: int = 1, timeout: float = 5) -> None:
        """Returns when there are `n` samples; an error when the time is up, or when no more will come."""
        began = time.monotonic()
        while (pause := self._session.wait_on(n, time.monotonic() - began, timeout)) is not None:
            # Python's own sleep, so that signals and cooperative threads get their turn.
            time.sleep(pause)

    def get_combined_metrics(
        self,
        bytes: bool = False,
        human_names: bool = False,
        system_prefix: Optional[str] = None,
        process_prefix: Optional[str] = None,
    ) -> TinyDataFrame:
        """Both tables side by side, in bytes and with names for people on demand."""
        columns = self._session.combined(bool(bytes), bool(human_names), system_prefix, process_prefix)
        return TinyDataFrame._of(dict(columns))

    def stats(self, specs: Sequence[StatSpec] = DEFAULT_STATS) -> dict[str, dict[str, Any]]:
        """The default statistics, or any figures over the columns of the combined table.

        A figure of the default list is the default one, whatever stands beside it.
        """
        default = self._session.stats()
        if specs is DEFAULT_STATS:
            return default

        def from_t0(agg: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
            def agg_from_t0(times: list[Any]) -> Any:
                # The first row began before its timestamp: one interval, or as long as we know that it was.
                value = agg(times)
                return default["timestamp"]["duration"] if value == duration(times) else value + self.interval

            return agg_from_t0

        stats: dict[str, dict[str, Any]] = {}
        rows: Optional[TinyDataFrame] = None
        for spec in specs:
            name = spec.agg_name or str(getattr(spec.agg, "__name__", spec.agg))
            if _is_default(spec):
                # The table that it is about may be off.
                if spec.column in default:
                    stats.setdefault(spec.column, {})[name] = default[spec.column][name]
                continue
            if rows is None:
                rows = self.get_combined_metrics()
                if not len(rows):
                    raise RuntimeError("No metrics collected (yet)")
            if (spec.column, name) == ("timestamp", "duration"):
                spec = StatSpec(spec.column, from_t0(spec.agg), name, spec.round)
            stats.setdefault(spec.column, {}).update(rows.stats([spec])[spec.column])
        return stats

    def recommend_resources(self, historical_stats: Sequence[dict[str, Any]] = ()) -> dict[str, int]:
        """CPUs, memory (MB), GPUs and VRAM (MB) for the next run."""
        self.wait_for_samples(1, timeout=self.interval * 5)
        return self._session.recommend(list(historical_stats or ()))

    def recommend_server(self, **kwargs: Any) -> Optional[dict[str, Any]]:
        """The cheapest server that has what `recommend_resources` says; None when there is none.

        Keywords are filters, as of `get_recommended_cloud_servers`; `historical_stats` goes to the recommendation.
        """
        from .keeper import get_recommended_cloud_servers

        resources = self.recommend_resources(kwargs.pop("historical_stats", ()))
        kwargs.pop("n", None)
        servers = get_recommended_cloud_servers(**resources, n=1, **kwargs)
        return servers[0] if servers else None

    def report(
        self,
        integration: str = "standalone",
        historical_stats: Sequence[dict[str, Any]] = (),
        status_failed: bool = False,
        *,
        title: Optional[str] = None,
        names: Optional[Mapping[str, str]] = None,
        requested: Optional[str] = None,
    ) -> Report:
        """One HTML page: what ran, whether it had the right size, what it used, and what to run it on next time.

        `title` is what to call the run, `names` what else names it, and `requested` what it had asked for this time.
        """
        from .report import Report

        self.wait_for_samples(1, timeout=self.interval * 5)
        named = list((names or {}).items())
        history = list(historical_stats or ())
        return Report(self._session.report(integration, history, bool(status_failed), title, named, requested))

    def snapshot(self) -> dict[str, Any]:
        """All of the recording as it is now, as a dict that JSON can hold."""
        import json

        snapshot: dict[str, Any] = json.loads(self.dumps())
        return snapshot

    @classmethod
    def from_snapshot(cls, snapshot: dict[str, Any]) -> ResourceTracker:
        """A tracker that has recorded what a snapshot holds."""
        import json

        from .snapshot import Snapshot

        if isinstance(snapshot, Snapshot) and snapshot.packed is not None:
            return cls._of(_native.Session.unpack(snapshot.packed))
        try:
            text = json.dumps(snapshot)
        except (TypeError, ValueError) as error:
            raise ValueError(f"cannot load: {error}") from error
        return cls.loads(text)

    def dumps(self) -> str:
        """The snapshot as JSON."""
        return self._session.dumps()

    @classmethod
    def loads(cls, s: Union[str, bytes, bytearray]) -> ResourceTracker:
        """A tracker that has recorded what a snapshot's JSON holds."""
        if isinstance(s, (bytes, bytearray)):
            return cls._of(_native.Session.unpack(bytes(s)))
        return cls._of(_native.Session.loads(s))

    def dump(self, file: _Path) -> None:
        """The snapshot as a gzipped file, whole or not at all."""
        self._session.dump(os.fsdecode(file))

    @classmethod
    def load(cls, file: _Path) -> ResourceTracker:
        """A tracker that has recorded what a snapshot's file holds."""
        return cls._of(_native.Session.load(os.fsdecode(file)))

    @classmethod
    def _of(cls, session: _native.Session) -> ResourceTracker:
        tracker = cls.__new__(cls)
        tracker._adopt(session)
        return tracker


class _Printer:
    """A blocking loop that writes a CSV row at each interval."""

    _pid: Optional[int] = None

    def _init(
        self,
        start_time: Optional[float],
        interval: float,
        children: bool,
        autostart: bool,
        output_file: Optional[str],
    ) -> None:
        self.status = "running"
        self.interval = interval
        self.cycle = 0
        self.start_time = time.time() if start_time is None else start_time
        self._children = children
        self._meter = self._baseline()
        self._stats: Optional[dict[str, Any]] = self._look()
        if autostart:
            time.sleep(max(0.0, self.start_time - time.time()))
            self.start_tracking(output_file)

    def _baseline(self) -> _native.Meter:
        return _native.Meter(self._pid, self._children, self.interval)

    def _look(self) -> dict[str, Any]:
        raise NotImplementedError

    @property
    def stats(self) -> dict[str, Any]:
        """Totals so far, of the constructor or the last row; read when asked for, since that costs more than a row."""
        if self._stats is None:
            self._stats = self._look()
        return self._stats

    def __call__(self) -> None:
        """Does nothing: the loop runs in the constructor, or by `start_tracking`."""

    def diff_stats(self) -> dict[str, Any]:
        """The row from the last look to now."""
        self.cycle += 1
        self._stats = None
        return self._meter.row()

    def start_tracking(self, output_file: Optional[str] = None, print_header: bool = True) -> None:
        """Writes a row at each interval to a file or standard output, until the process ends."""
        from .helpers import render_csv_row

        file: BinaryIO = open(output_file, "wb") if output_file else sys.stdout.buffer
        try:
            if print_header:
                file.write(render_csv_row(self._header))
                file.flush()
            first = time.monotonic() + self.start_time - time.time()
            line = 0
            if not self._meter.has_ended():
                # What was used before is in no row.
                self._meter = self._baseline()
            while self.status == "running":
                # A line that has passed is skipped, not queued.
                line = max(line, int((time.monotonic() - first) // self.interval)) + 1
                if self._wait(first + self.interval * line):
                    self.status = "exited"
                file.write(render_csv_row(self.diff_stats().values()))
                file.flush()
        finally:
            if output_file:
                file.close()

    @property
    def _header(self) -> list[str]:
        table = "system_metrics" if self._pid is None else "process_metrics"
        return [metric["column"] for metric in _native.metrics() if metric["table"] in ("timestamp", table)]

    def _wait(self, until: float) -> bool:
        """Sleeps; whether the process has ended meanwhile."""
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))
            if self._meter.has_ended():
                return True
        return self._meter.has_ended()


class ProcessTracker(_Printer):
    """Rows of a process and its descendants, printed as CSV until it ends.

    >>> tracker = ProcessTracker(autostart=False)
    >>> tracker.diff_stats()["memory"] > 0
    True
    """

    def __init__(
        self,
        pid: Optional[int] = None,
        start_time: Optional[float] = None,
        interval: float = 1,
        children: bool = True,
        autostart: bool = True,
        output_file: Optional[str] = None,
        csv_file_path: Optional[str] = None,
    ) -> None:
        from .helpers import get_tracker_implementation

        self.get_process_stats, _ = get_tracker_implementation()
        self.pid = self._pid = os.getpid() if pid is None else pid
        self.children = bool(children)
        self._init(start_time, interval, self.children, autostart, output_file or csv_file_path)

    def _look(self) -> dict[str, Any]:
        return self.get_process_stats(self.pid, self.children)


class PidTracker(ProcessTracker):
    """The old name of `ProcessTracker`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        import warnings

        warnings.warn(
            "PidTracker is deprecated and will be removed in a future release. Please use ProcessTracker instead.",
            DeprecationWarning,
            stacklevel=2,
        )
        super().__init__(*args, **kwargs)


class SystemTracker(_Printer):
    """Rows of the machine, printed as CSV until interrupted.

    >>> SystemTracker(autostart=False).diff_stats()["memory_used"] > 0
    True
    """

    def __init__(
        self,
        start_time: Optional[float] = None,
        interval: float = 1,
        autostart: bool = True,
        output_file: Optional[str] = None,
        csv_file_path: Optional[str] = None,
    ) -> None:
        from .helpers import get_tracker_implementation

        _, self.get_system_stats = get_tracker_implementation()
        self._init(start_time, interval, False, autostart, output_file or csv_file_path)

    def _look(self) -> dict[str, Any]:
        return self.get_system_stats()


def _companion() -> str:
    """The command that came with this package: where its wheel put it, else the first on PATH."""
    from importlib import metadata

    try:
        for file in metadata.files("resource-tracker") or ():
            if file.name in ("resource-tracker", "resource-tracker.exe"):
                path = os.path.realpath(str(file.locate()))
                if os.access(path, os.X_OK):
                    return path
    except metadata.PackageNotFoundError:
        pass
    import shutil

    found = shutil.which("resource-tracker")
    if found is None:
        raise RuntimeError("a `method` needs the command `resource-tracker`, which is not installed")
    return found


def _log(level: str, message: str, *arguments: Any) -> None:
    # Imported when there is something to say: it takes longer than all else together.
    import logging

    logger = logging.getLogger("resource_tracker")
    if not logger.handlers:
        # What no handler takes, Python prints.
        logger.addHandler(logging.NullHandler())
    getattr(logger, level)(message, *arguments)
