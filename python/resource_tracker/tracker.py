"""The tracker of a program, in its background."""

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


def _is_default(specs: list[StatSpec]) -> bool:
    """Whether this is the default list, also with the functions that the original's has."""

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
    # The original has a lambda here, which equals no other: what it does says what it is.
    try:
        return bool(given.agg([1.0, 3.5]) == 2.5)
    except Exception:  # made for something else than two numbers, so none of ours
        return False


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
        # When nobody holds the tracker any more, and at the interpreter's end at the latest.
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
        """Starts recording, by the attributes as they are now; an error when it runs already, or has been stopped."""
        if self.state is None and (wanted := self._settings()) != self._session.settings:
            self._adopt(_session(**wanted))
        self._session.start()
        workers = sys.modules.get("multiprocessing.process")
        if workers is not None and workers.parent_process() is not None:
            # Workers end without the interpreter's end.
            from multiprocessing.util import Finalize

            Finalize(self, self._finalizer, exitpriority=0)
        self._warn()

    def stop(self) -> None:
        """Makes the last row and ends the sampler; the data stay. Once more does nothing."""
        was_running = self.running
        self._session.stop()
        self._warn()
        if was_running and "logging" in sys.modules:
            _log("debug", "Resource tracker stopped with %d samples", self.n_samples)

    def cleanup(self) -> None:
        """Stops, and removes temporary files: the default statistics stay, rows do not."""
        self._session.remove_files()
        self._warn()

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

    def stats(self, specs: Iterable[StatSpec] = DEFAULT_STATS) -> dict[str, dict[str, Any]]:
        """The default statistics, or any figures over the columns of the combined table."""
        specs = list(specs)
        if _is_default(specs):
            return self._session.stats()
        rows = self.get_combined_metrics()
        if not len(rows):
            raise RuntimeError("No metrics collected (yet)")
        return rows.stats(specs)

    def recommend_resources(self, historical_stats: Sequence[dict[str, Any]] = ()) -> dict[str, int]:
        """CPUs, memory (MB), GPUs and VRAM (MB) for the next run."""
        self.wait_for_samples(1, timeout=self.interval * 5)
        return self._session.recommend(historical_stats or ())

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
        history = historical_stats or ()
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

    def dump(self, file: Union[_Path, BinaryIO]) -> None:
        """The snapshot as a gzipped file, whole or not at all; or into one that is open."""
        if hasattr(file, "write"):
            file.write(self._session.packed())
        else:
            self._session.dump(os.fsdecode(file))

    @classmethod
    def load(cls, file: Union[_Path, BinaryIO]) -> ResourceTracker:
        """A tracker that has recorded what a snapshot's file holds, by its path or opened."""
        if hasattr(file, "read"):
            return cls.loads(file.read())
        return cls._of(_native.Session.load(os.fsdecode(file)))

    @classmethod
    def _of(cls, session: _native.Session) -> ResourceTracker:
        # A class made of this one has attributes of its own to set.
        tracker = cls.__new__(cls) if cls.__init__ is ResourceTracker.__init__ else cls(autostart=False)
        tracker._adopt(session)
        return tracker


def _session(*, method: Optional[str], **settings: Any) -> _native.Session:
    if method not in _METHODS:
        raise ValueError(f"cannot find context for {method!r}; known are 'fork', 'spawn' and 'forkserver'")
    return _native.Session(method=method, companion=None if method is None else _companion(), **settings)


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
    try:
        # Imported when there is something to say: it takes longer than all else together.
        import logging
    except Exception:  # a host may have no descriptor left, or no library: no reason to fail it
        return

    logger = logging.getLogger("resource_tracker")
    if not logger.handlers:
        # What no handler takes, Python prints.
        logger.addHandler(logging.NullHandler())
    getattr(logger, level)(message, *arguments)
