"""Trackers in the foreground: CSV rows to a file or to standard output."""

from __future__ import annotations

import os
import sys
import time

from . import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO, Optional

__all__ = ["PidTracker", "ProcessTracker", "SystemTracker"]


class _Printer:
    """A blocking loop that writes one CSV row per interval."""

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
        self._meter: Optional[_native.Meter] = None
        try:
            self._meter = _native.Meter(self._pid, children, interval)
        except ProcessLookupError:
            self.status = "exited"
        self._stats: Optional[dict[str, Any]] = self._read()
        if autostart:
            time.sleep(max(0.0, self.start_time - time.time()))
            self.start_tracking(output_file)

    def _read(self) -> dict[str, Any]:
        raise NotImplementedError

    @property
    def stats(self) -> dict[str, Any]:
        """Totals at the constructor call or after the last row. They are read on first access."""
        if self._stats is None:
            self._stats = self._read()
        return self._stats

    def __call__(self) -> None:
        """Has no effect: the loop runs in the constructor or in `start_tracking`."""

    def diff_stats(self) -> dict[str, Any]:
        """The row from the previous sample to now."""
        if self._meter is None:
            raise ProcessLookupError(f"process {self._pid} ended before its first sample")
        self.cycle += 1
        self._stats = None
        return self._meter.row()

    def start_tracking(self, output_file: Optional[str] = None, print_header: bool = True) -> None:
        """Write one row per interval to a file or standard output, until the process ends."""
        from .helpers import render_csv_row

        file: BinaryIO = open(output_file, "wb") if output_file else _standard_output()
        # The columns of a subclass with its own rows are known only after its first row.
        is_overridden = getattr(self.diff_stats, "__func__", None) is not _Printer.diff_stats
        names = [] if is_overridden and self.status == "running" else self._header
        try:
            if print_header and names:
                file.write(render_csv_row(names))
                file.flush()
            if self._meter is not None:
                self._meter.begin(self.start_time)
            while self.status == "running":
                if self._wait():
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

    def _wait(self) -> bool:
        """Sleep until the next row is due or the process has ended, and return whether it has ended."""
        if self._meter is None:
            return True
        due = time.monotonic() + self._meter.seconds_to_next_row()
        while not self._meter.has_ended():
            left = due - time.monotonic()
            if left <= 0:
                return False
            # Short sleeps, to notice the end of the process. Python handles signals in between.
            time.sleep(min(left, 0.1))
        return True


class ProcessTracker(_Printer):
    """Print the usage of a process and its descendants as CSV until the process ends.

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

    def _read(self) -> dict[str, Any]:
        return self.get_process_stats(self.pid, self.children)


class PidTracker(ProcessTracker):
    """Deprecated name of `ProcessTracker`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        import warnings

        warnings.warn(
            "PidTracker is deprecated and will be removed in a future release. Please use ProcessTracker instead.",
            DeprecationWarning,
            stacklevel=2,
        )
        super().__init__(*args, **kwargs)


class SystemTracker(_Printer):
    """Print the usage of the machine as CSV until interrupted.

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

    def _read(self) -> dict[str, Any]:
        return self.get_system_stats()


class _TextOutput:
    """Writes rows to a `sys.stdout` that a program has replaced by a text stream."""

    def write(self, line: bytes) -> None:
        sys.stdout.write(line.decode())

    def flush(self) -> None:
        sys.stdout.flush()


def _standard_output() -> Any:
    # Flush text that was printed earlier, so that it stays above the rows.
    sys.stdout.flush()
    return getattr(sys.stdout, "buffer", None) or _TextOutput()
