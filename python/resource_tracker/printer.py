"""Trackers in the foreground: rows as CSV, in a file or on standard output."""

from __future__ import annotations

import os
import sys
import time

from . import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO, Optional

__all__ = ["PidTracker", "ProcessTracker", "SystemTracker"]

#: A first line that is nearer than so many seconds has no row, as on the grid of all trackers.
_ROOM = 0.05


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
        self._meter: Optional[_native.Meter] = None
        try:
            self._meter = _native.Meter(self._pid, self._children, self.interval)
        except ProcessLookupError:
            self.status = "exited"
        self._stats: Optional[dict[str, Any]] = self._look()
        if autostart:
            time.sleep(max(0.0, self.start_time - time.time()))
            self.start_tracking(output_file)

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
        if self._meter is None:
            raise ProcessLookupError(f"process {self._pid} had ended before it was looked at")
        self.cycle += 1
        self._stats = None
        return self._meter.row()

    def start_tracking(self, output_file: Optional[str] = None, print_header: bool = True) -> None:
        """Writes a row at each interval to a file or standard output, until the process ends."""
        from .helpers import render_csv_row

        file: BinaryIO = open(output_file, "wb") if output_file else _standard_output()
        # A class with rows of its own has a header only once there is one of them.
        is_ours = getattr(self.diff_stats, "__func__", None) is _Printer.diff_stats
        names = self._header if is_ours or self.status != "running" else []
        try:
            if print_header and names:
                file.write(render_csv_row(names))
                file.flush()
            first = time.monotonic() + self.start_time - time.time()
            line = 0
            if self._meter is not None and not self._has_ended():
                # What was used before is in no row.
                self._meter.start_anew()
            while self.status == "running":
                # A line that has passed is skipped, not queued; so is a first one that is too near.
                passed = time.monotonic() - first + (0 if line else min(_ROOM, self.interval))
                line = max(line, int(passed // self.interval)) + 1
                if self._wait(first + self.interval * line):
                    self.status = "exited"
                row = self.diff_stats()
                if not names:
                    names = list(row)
                    if print_header:
                        file.write(render_csv_row(names))
                file.write(render_csv_row(map(row.get, names)))
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
            if self._has_ended():
                return True
        return self._has_ended()

    def _has_ended(self) -> bool:
        return self._meter is None or self._meter.has_ended()


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


class _AsText:
    """Standard output where something else than a file has taken its place."""

    def write(self, line: bytes) -> None:
        sys.stdout.write(line.decode())

    def flush(self) -> None:
        sys.stdout.flush()


def _standard_output() -> Any:
    # What was printed before stands before.
    sys.stdout.flush()
    return getattr(sys.stdout, "buffer", None) or _AsText()
