"""Track a program in the background."""

from __future__ import annotations

import os
import sys
import time
import weakref

from . import _native
from ._session import _address, _CsvFiles, _finish, _log, _paths, _session, _set_error, _sidecar, _tags  # noqa: F401
from .default_stats import DEFAULT_STATS, is_default
from .phases import Phase
from .printer import PidTracker, ProcessTracker, SystemTracker
from .tiny_data_frame import StatSpec, TinyDataFrame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType
    from typing import Any, BinaryIO, Optional, Union

    from ._session import _Path, _Paths
    from .notebook import LiveView
    from .report import Report

    _Earlier = Union[Sequence[dict[str, Any]], Mapping[str, Any]]

__all__ = ["PidTracker", "ProcessTracker", "ResourceTracker", "SystemTracker"]


class ResourceTracker:
    """Record the usage of this process (or of process `pid`) and of the machine in the background.

    Sampling runs in a native thread that never takes the GIL. With `method` "fork", "spawn" or "forkserver" it runs in
    a separate process, which goes on recording if this process is killed.

    Args:
        pid: Process to record; by default this process.
        children: Also record the descendants of the process.
        interval: Seconds between two samples, from 0.001 to 86,400.
        method: None samples in a thread of this process; "fork", "spawn" and "forkserver" in a separate process.
        autostart: Start recording now; otherwise `start()` or a `with` block starts it.
        track_processes: Record the process.
        track_system: Record the machine.
        discover_server: Describe the machine in `server_info`.
        discover_cloud: Find the cloud vendor, instance type and region in the background, for `cloud_info`.
        job: Name of the job. A run with a name is saved in the history when it stops, where the command
            `resource-tracker` and later runs of the job find it. Default: `RESOURCE_TRACKER_JOB`.
        tags: Labels of the run in the history, as a dict. `RESOURCE_TRACKER_TAGS` adds to it.
        input: Path or list of paths of the files and folders that the job reads. With their total size, the advice can
            follow the size of the input.
        store: Address of a store of many machines, which gets the run when it is saved in the history; "" for none.
            Default: `RESOURCE_TRACKER_STORE`, or `store` of the user's settings.

    >>> tracker = ResourceTracker(interval=0.05)
    >>> tracker.wait_for_samples(2)
    >>> tracker.stop()
    >>> tracker.process_metrics.columns[:4]
    ['timestamp', 'pid', 'children', 'utime']
    >>> tracker.stats()["process_memory"]["max"] > 0
    True
    """

    #: CPUs, bytes of memory and GPUs that were requested, set by the Metaflow extension in a subclass.
    _asked: Optional[Sequence[Optional[float]]] = None

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
        *,
        job: Optional[str] = None,
        tags: Optional[Mapping[str, Any]] = None,
        input: Optional[_Paths] = None,
        store: Optional[_Path] = None,
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
                job=job,
                tags=_tags(tags),
                inputs=_paths(input),
                store=_address(store),
                asked=self._asked,
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
        self.job: Optional[str] = settings["job"]
        self.tags: Mapping[str, Any] = settings["tags"]
        self.input: _Paths = settings["inputs"]
        self.store: Optional[_Path] = settings["store"]
        self._asked = settings["asked"]
        self.trackers: list[str] = [
            name
            for name, is_on in (
                ("process_tracker", settings["track_processes"]),
                ("system_tracker", settings["track_system"]),
            )
            if is_on
        ]
        # Runs when the tracker is garbage collected, at the latest at interpreter exit.
        self._view: Optional[LiveView] = None
        self._files = _CsvFiles()
        self._finalizer: weakref.finalize[..., ResourceTracker] = weakref.finalize(self, _finish, session, self._files)

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
            "job": self.job,
            "tags": _tags(self.tags),
            "inputs": _paths(self.input),
            "store": _address(self.store),
            "asked": self._asked,
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
        if self._view is not None:
            self._view.finish()
        self._warn()
        if was_running and "logging" in sys.modules:
            _log("debug", "Resource tracker stopped with %d samples", self.n_samples)

    def cleanup(self) -> None:
        """Stop and remove temporary files. The default statistics stay; the rows do not, so nothing can be saved."""
        self._session.remove_files()
        self._files.remove()
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
        _set_error(self._session, error)
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

    @property
    def process_tracker_filepath(self) -> str:
        """Path of a CSV file with `process_metrics` so far, written at each access and removed by `cleanup()`."""
        return self._csv_file("process")

    @property
    def system_tracker_filepath(self) -> str:
        """Path of a CSV file with `system_metrics` so far, written at each access and removed by `cleanup()`."""
        return self._csv_file("system")

    def _csv_file(self, name: str) -> str:
        if f"{name}_tracker" not in self.trackers:
            raise AttributeError(f"this tracker has no {name} table")
        return self._files.write(name, self._table(f"{name}_metrics"))

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
        """Return both tables joined by sample.

        Args:
            bytes: Memory, VRAM and disk space in bytes.
            human_names: Human-readable column names.
            system_prefix: Prefix of the machine's columns; by default `system_`, or `System ` with `human_names`.
            process_prefix: Prefix of the process's columns; by default `process_`, or `Process ` with `human_names`.
        """
        columns = self._session.combined(bool(bytes), bool(human_names), system_prefix, process_prefix)
        return TinyDataFrame._of(dict(columns))

    def stats(self, specs: Iterable[StatSpec] = DEFAULT_STATS) -> dict[str, dict[str, Any]]:
        """Return the default statistics, or the statistics `specs` of columns of the combined table."""
        specs = list(specs)
        if is_default(specs):
            return self._session.stats()
        rows = self.get_combined_metrics()
        if not len(rows):
            raise RuntimeError("No metrics collected (yet)")
        return rows.stats(specs)

    def mark(self, name: str) -> None:
        """Start the phase `name`, which lasts until the next mark. No effect before the start and after the stop."""
        self._session.mark(name)

    def phase(self, name: str) -> Phase:
        """Make a `with` block the phase `name`; after it, the phase that this process marked before goes on."""
        return Phase(self._session, name)

    def phases(self) -> list[dict[str, Any]]:
        """Return what each phase used so far, as the key `run.phases` of a recording; empty without marks."""
        return self._session.phases()

    def recommend_resources(self, historical_stats: _Earlier = ()) -> dict[str, int]:
        """Recommend CPUs, memory (MiB), GPUs and VRAM (MiB) for the next run.

        `historical_stats` is a list of the `stats()` of earlier runs, or `historical_stats` of a Metaflow artifact.
        """
        self.wait_for_samples(1, timeout=self.interval * 5)
        return self._session.recommend(historical_stats or ())

    def recommend_server(self, **kwargs: Any) -> Optional[dict[str, Any]]:
        """Return the cheapest server with the resources of `recommend_resources`; None if no server fits.

        The keywords `kwargs` are filters of `get_recommended_cloud_servers`; `historical_stats` is passed to
        `recommend_resources`.
        """
        from .keeper import get_recommended_cloud_servers

        resources = self.recommend_resources(kwargs.pop("historical_stats", ()))
        kwargs.pop("n", None)
        servers = get_recommended_cloud_servers(**resources, n=1, **kwargs)
        return servers[0] if servers else None

    def advise(
        self,
        *,
        slowdown: float = 5,
        earlier_runs: int = 100,
        input: Optional[_Paths] = None,
        store: Optional[_Path] = None,
        **filters: Any,
    ) -> dict[str, Any]:
        """Return the size to request for the next run, with reasons and costs, as `resource-tracker recommend --json`.

        Args:
            slowdown: How much longer a run may take with fewer CPUs, in percent.
            earlier_runs: Number of earlier runs of the job in the history that the advice is based on.
            input: Path or list of paths of the inputs of the next run.
            store: A store whose runs of the job, from other machines too, count beside those of the history.
            **filters: Filters of the servers, as in `get_recommended_cloud_servers`.

        >>> with ResourceTracker(interval=0.05) as tracker:
        ...     total = sum(range(1_000_000))
        >>> advice = tracker.advise(vendor_id="aws")
        >>> advice["request"]["cpus"], advice["request"]["memory_bytes"] > 0
        (1, True)
        """
        self.wait_for_samples(1, timeout=self.interval * 5)
        advice = self._session.advise(slowdown, earlier_runs, _paths(input), filters, _address(store))
        self._warn()
        return advice

    def as_dict(self) -> dict[str, Any]:
        """Return the facts and figures of the run, the same as in `resource-tracker list --json`.

        >>> with ResourceTracker(interval=0.05, tags={"fold": 3}) as tracker:
        ...     total = sum(range(1_000_000))
        >>> run = tracker.as_dict()
        >>> run["status"], run["tags"], run["memory_peak_bytes"] > 0
        ('finished', {'fold': '3'}, True)
        """
        return self._session.run_object()

    def explain(self) -> dict[str, Any]:
        """Return what explains the run: `verdict` (why it failed), `waiting`, `programs` and `phases`.

        >>> with ResourceTracker(interval=0.05) as tracker:
        ...     total = sum(range(5_000_000))
        >>> sorted(tracker.explain())
        ['phases', 'programs', 'verdict', 'waiting']
        """
        return self._session.explain()

    def save(self) -> str:
        """Save the recording so far in the history and return its id; saving again replaces it.

        A tracker with a job name does this by itself when it stops.
        """
        return self._session.save()

    def report(
        self,
        integration: str = "standalone",
        historical_stats: _Earlier = (),
        status_failed: bool = False,
        integration_version: Optional[str] = None,
        *,
        title: Optional[str] = None,
        names: Optional[Mapping[str, str]] = None,
        requested: Optional[str] = None,
    ) -> Report:
        """Return the report as one HTML page: usage, sizing of this run and recommendation for the next.

        Args:
            integration: The program that makes the report, for its last line.
            historical_stats: Statistics of earlier runs, as in `recommend_resources`.
            status_failed: Show the run as failed.
            integration_version: The version of that program.
            title: Name of the run; by default its job, script or command.
            names: Further identifiers of the run, by label.
            requested: The resources that were requested for the run.
        """
        from .report import Report

        self.wait_for_samples(1, timeout=self.interval * 5)
        history, named = historical_stats or (), list((names or {}).items())
        version = None if integration_version is None else str(integration_version)
        return Report(self._session.report(integration, history, bool(status_failed), version, title, named, requested))

    def live(self) -> None:
        """Show elapsed time, CPU and memory below the notebook cell, updated every second until the tracker stops."""
        from . import notebook

        if notebook.is_notebook():
            self._view = notebook.LiveView(self)
        else:
            _log("warning", "a live view needs a notebook")

    def _repr_html_(self) -> Optional[str]:
        # Notebooks show `repr` instead of None.
        return self.report()._repr_html_() if self.n_samples else None

    def snapshot(self) -> dict[str, Any]:
        """Return the recording so far as a dict that can be written as JSON."""
        import json

        snapshot: dict[str, Any] = json.loads(self.dumps())
        return snapshot

    @classmethod
    def from_snapshot(cls, snapshot: dict[str, Any]) -> ResourceTracker:
        """Load `snapshot`, a dict of `snapshot()`, as a stopped tracker."""
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
        """Load the snapshot `s`, JSON text or gzipped JSON as bytes, as a stopped tracker."""
        packed = s.encode() if isinstance(s, str) else bytes(memoryview(s))
        return cls._of(_native.Session.unpack(packed))

    def dump(self, file: Union[_Path, BinaryIO]) -> None:
        """Write the snapshot as gzipped JSON to `file`, a path or an open file; a path is replaced atomically."""
        if hasattr(file, "write"):
            file.write(self._session.packed())
        else:
            self._session.dump(os.fsdecode(file))

    def export(
        self, path: _Path, format: Optional[str] = None, *, bytes: bool = False, human_names: bool = False
    ) -> None:
        """Write the combined table to a file, atomically.

        Args:
            path: The file. An existing file is replaced.
            format: "csv", "jsonl", "parquet", or "json" for the whole recording; by default the extension of the path.
            bytes: Memory, VRAM and disk space in bytes.
            human_names: Human-readable column names.
        """
        self._session.export(os.fsdecode(path), format, bool(bytes), bool(human_names))

    @classmethod
    def load(cls, file: Union[_Path, BinaryIO]) -> ResourceTracker:
        """Load a snapshot from `file`, a path or an open file, as a stopped tracker."""
        if hasattr(file, "read"):
            return cls.loads(file.read())
        return cls._of(_native.Session.load(os.fsdecode(file)))

    @classmethod
    def _of(cls, session: _native.Session) -> ResourceTracker:
        # A subclass with its own constructor must run it.
        tracker = cls.__new__(cls) if cls.__init__ is ResourceTracker.__init__ else cls(autostart=False)
        tracker._adopt(session)
        return tracker
