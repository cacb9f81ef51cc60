"""Track a program in the background."""

from __future__ import annotations

import os
import sys
import time
import weakref

from . import _native
from .printer import PidTracker, ProcessTracker, SystemTracker
from .tiny_data_frame import StatSpec, TinyDataFrame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType
    from typing import Any, BinaryIO, Optional, Union

    from .report import Report

    _Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

__all__ = ["PidTracker", "ProcessTracker", "ResourceTracker", "SystemTracker"]

_METHODS = (None, "fork", "spawn", "forkserver")


def mean(values: Sequence[float]) -> Optional[float]:
    """Return the arithmetic mean; None for an empty list."""
    return sum(values) / len(values) if values else None


def duration(values: Sequence[float]) -> Optional[float]:
    """Return the largest value minus the smallest; None for an empty list."""
    return max(values) - min(values) if values else None


#: The default statistics. The core computes them: means weighted by the length of rows, and peaks between rows.
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


def _is_default(specs: list[StatSpec]) -> bool:
    """Return whether this is the default list, of this package or of the original one."""

    def key(spec: StatSpec) -> tuple[Any, ...]:
        agg: Any = spec.agg
        if (getattr(agg, "__module__", None), spec.name) == ("statistics", "mean"):
            agg = mean
        return spec.column, agg, spec.name, spec.round

    *others, last = DEFAULT_STATS
    if list(map(key, specs[:-1])) != list(map(key, others)):
        return False
    given = specs[-1]
    if (given.column, given.name, given.round) != (last.column, last.name, last.round):
        return False
    # The original package has a lambda here, and lambdas are never equal: compare a result instead.
    try:
        return bool(given.agg([1.0, 3.5]) == 2.5)
    except Exception:  # not a function of two numbers, so not the default
        return False


class ResourceTracker:
    """Record the usage of this process (or of process `pid`) and of the machine in the background.

    Sampling runs in a native thread that never takes the GIL. With `method` "fork", "spawn" or "forkserver" it runs in
    a separate process, which goes on recording if this process is killed.

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
        self._adopt(
            _session(
                pid=os.getpid() if pid is None else pid,
                children=bool(children),
                interval=interval,
                method=method,
                autostart=bool(autostart),
                track_processes=bool(track_processes),
                track_system=bool(track_system),
                discover_server=bool(discover_server),
                discover_cloud=bool(discover_cloud),
            )
        )
        if autostart:
            self.start()

    def _adopt(self, session: _native.Session) -> None:
        if hasattr(self, "_finalizer"):
            self._finalizer.detach()
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
        # Runs when the tracker is garbage collected, at the latest at interpreter exit.
        self._finalizer: weakref.finalize[[], ResourceTracker] = weakref.finalize(self, session.remove_files)

    def _settings(self) -> dict[str, Any]:
        return {
            "pid": self.pid,
            "children": bool(self.children),
            "interval": self.interval,
            "method": self.method,
            "autostart": bool(self.autostart),
            "track_processes": "process_tracker" in self.trackers,
            "track_system": "system_tracker" in self.trackers,
            "discover_server": bool(self.discover_server),
            "discover_cloud": bool(self.discover_cloud),
        }

    def start(self) -> None:
        """Start recording with the current attributes. RuntimeError if the tracker is running or was stopped.

        If the system refuses a thread or an open file, a warning is logged and nothing is recorded.
        """
        if self.state is None and (wanted := self._settings()) != self._session.settings:
            self._adopt(_session(**wanted))
        self._session.start()
        workers = sys.modules.get("multiprocessing.process")
        if workers is not None and workers.parent_process() is not None:
            # Worker processes of multiprocessing skip `atexit`.
            from multiprocessing.util import Finalize

            Finalize(self, self._finalizer, exitpriority=0)
        self._warn()

    def stop(self) -> None:
        """Take the last sample and stop the sampler. The data stay. Calling it again has no effect."""
        was_running = self.running
        self._session.stop()
        self._warn()
        if was_running and "logging" in sys.modules:
            _log("debug", "Resource tracker stopped with %d samples", self.n_samples)

    def cleanup(self) -> None:
        """Stop and remove temporary files. The default statistics stay; the rows do not, so nothing can be saved."""
        self._session.remove_files()
        self._warn()

    def _warn(self) -> None:
        for level, note in self._session.take_notes():
            _log(level, "%s", note)

    def __enter__(self) -> ResourceTracker:
        # A tracker whose process has ended in the meantime (`exited`) has its rows.
        if self.state in (None, "stopped"):
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
        """Whether the tracker is recording."""
        return self._session.running

    @property
    def state(self) -> Optional[str]:
        """`running`, `exited` (the tracked process has ended) or `stopped`; None before the start."""
        return self._session.state

    @property
    def n_samples(self) -> int:
        """Number of samples so far."""
        return self._session.rows

    @property
    def start_time(self) -> Optional[float]:
        """Unix time of the baseline."""
        return self._session.start_time

    @property
    def stop_time(self) -> Optional[float]:
        """Unix time of the stop."""
        return self._session.stop_time

    @property
    def process_metrics(self) -> TinyDataFrame:
        """Samples of the tracked process and its descendants, one per row."""
        return self._table("process_metrics")

    @property
    def system_metrics(self) -> TinyDataFrame:
        """Samples of the machine, one per row."""
        return self._table("system_metrics")

    @property
    def extra_metrics(self) -> TinyDataFrame:
        """Further columns: peaks, pressure, limits, the cost of the tracker, each GPU."""
        return self._table("extra_metrics")

    def _table(self, name: str) -> TinyDataFrame:
        columns = self._session.table(name)
        frame = TinyDataFrame._of(dict(columns))
        return frame if len(frame) else TinyDataFrame(data=[])

    @property
    def server_info(self) -> Optional[dict[str, Any]]:
        """Facts about the machine, and whether the job seems to have it alone; None if discovery is off."""
        return self._session.server_info()

    @property
    def cloud_info(self) -> Optional[dict[str, Any]]:
        """Cloud vendor, instance type and region; None if discovery is off or unfinished."""
        return self._session.cloud_info()

    def wait_for_samples(self, n: int = 1, timeout: float = 5) -> None:
        """Wait for `n` samples. RuntimeError after `timeout` seconds, or at once if the tracker has stopped."""
        began = time.monotonic()
        while (pause := self._session.wait_on(n, time.monotonic() - began, timeout)) is not None:
            # `time.sleep` lets signal handlers and cooperative threads run.
            time.sleep(pause)

    def get_combined_metrics(
        self,
        bytes: bool = False,
        human_names: bool = False,
        system_prefix: Optional[str] = None,
        process_prefix: Optional[str] = None,
    ) -> TinyDataFrame:
        """Return both tables joined by sample, optionally in bytes or with human-readable column names."""
        columns = self._session.combined(bool(bytes), bool(human_names), system_prefix, process_prefix)
        return TinyDataFrame._of(dict(columns))

    def stats(self, specs: Iterable[StatSpec] = DEFAULT_STATS) -> dict[str, dict[str, Any]]:
        """Return the default statistics, or custom statistics of columns of the combined table."""
        specs = list(specs)
        if _is_default(specs):
            return self._session.stats()
        rows = self.get_combined_metrics()
        if not len(rows):
            raise RuntimeError("No metrics collected (yet)")
        return rows.stats(specs)

    def recommend_resources(self, historical_stats: Sequence[dict[str, Any]] = ()) -> dict[str, int]:
        """Recommend CPUs, memory (MB), GPUs and VRAM (MB) for the next run."""
        self.wait_for_samples(1, timeout=self.interval * 5)
        return self._session.recommend(historical_stats or ())

    def recommend_server(self, **kwargs: Any) -> Optional[dict[str, Any]]:
        """Return the cheapest server with the resources of `recommend_resources`; None if no server fits.

        Keywords are filters of `get_recommended_cloud_servers`. `historical_stats` is passed to `recommend_resources`.
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
        """Return the report as one HTML page: usage, sizing of this run and recommendation for the next.

        `title` is the name of the run, `names` are further identifiers, `requested` are the resources requested for
        this run.
        """
        from .report import Report

        self.wait_for_samples(1, timeout=self.interval * 5)
        named = list((names or {}).items())
        history = historical_stats or ()
        return Report(self._session.report(integration, history, bool(status_failed), title, named, requested))

    def snapshot(self) -> dict[str, Any]:
        """Return the recording so far as a dict that can be written as JSON."""
        import json

        snapshot: dict[str, Any] = json.loads(self.dumps())
        return snapshot

    @classmethod
    def from_snapshot(cls, snapshot: dict[str, Any]) -> ResourceTracker:
        """Load a snapshot as a stopped tracker."""
        import json

        from .snapshot import Snapshot

        if isinstance(snapshot, Snapshot) and snapshot.packed is not None:
            return cls._of(_native.Session.unpack(snapshot.packed))
        if not isinstance(snapshot, dict):
            raise ValueError(f"cannot load: a snapshot is a dict, not of type `{type(snapshot).__name__}`")
        try:
            text = json.dumps(snapshot)
        except (TypeError, ValueError) as error:
            raise ValueError(f"cannot load: {error}") from error
        return cls.loads(text)

    def dumps(self) -> str:
        """Return the snapshot as JSON text."""
        return self._session.dumps()

    @classmethod
    def loads(cls, s: Union[str, bytes, bytearray]) -> ResourceTracker:
        """Load a snapshot from JSON text, or gzipped JSON as bytes, as a stopped tracker."""
        packed = s.encode() if isinstance(s, str) else bytes(memoryview(s))
        return cls._of(_native.Session.unpack(packed))

    def dump(self, file: Union[_Path, BinaryIO]) -> None:
        """Write the snapshot as gzipped JSON, atomically to a path or to an open file."""
        if hasattr(file, "write"):
            file.write(self._session.packed())
        else:
            self._session.dump(os.fsdecode(file))

    @classmethod
    def load(cls, file: Union[_Path, BinaryIO]) -> ResourceTracker:
        """Load a snapshot from a path or an open file as a stopped tracker."""
        if hasattr(file, "read"):
            return cls.loads(file.read())
        return cls._of(_native.Session.load(os.fsdecode(file)))

    @classmethod
    def _of(cls, session: _native.Session) -> ResourceTracker:
        # A subclass with its own constructor must run it.
        tracker = cls.__new__(cls) if cls.__init__ is ResourceTracker.__init__ else cls(autostart=False)
        tracker._adopt(session)
        return tracker


def _session(*, method: Optional[str], **settings: Any) -> _native.Session:
    if method not in _METHODS:
        raise ValueError(f"cannot find context for {method!r}; use None, 'fork', 'spawn' or 'forkserver'")
    return _native.Session(method=method, sidecar=None if method is None else _sidecar(), **settings)


def _sidecar() -> str:
    """Return the path of the command installed by this package's wheel, else its name, to be found on PATH."""
    try:
        from importlib import metadata

        for file in metadata.files("resource-tracker") or ():
            if file.name in ("resource-tracker", "resource-tracker.exe"):
                path = os.path.realpath(str(file.locate()))
                if os.access(path, os.X_OK):
                    return path
    except Exception:  # the wheel is not installed, or no file can be opened: the core warns and samples in a thread
        pass
    return "resource-tracker"


def _log(level: str, message: str, *arguments: Any) -> None:
    try:
        # Imported on demand: the import takes longer than starting a tracker.
        import logging
    except Exception:  # a host process without free file descriptors must not fail here
        return

    logger = logging.getLogger("resource_tracker")
    if not logger.handlers:
        # Without a handler Python prints warnings to stderr.
        logger.addHandler(logging.NullHandler())
    getattr(logger, level)(message, *arguments)
