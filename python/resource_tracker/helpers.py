"""Functions that programs written for the original package import."""

from __future__ import annotations

import os

from . import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

__all__ = [
    "aggregate_stats",
    "cleanup_files",
    "cleanup_processes",
    "get_tracker_implementation",
    "get_zfs_pools_space",
    "is_partition",
    "is_procfs_available",
    "is_psutil_available",
    "render_csv_row",
]


def aggregate_stats(stats: list[dict[str, Any]]) -> dict[str, Any]:
    """Combine the statistics of several runs: averages of means and durations, maxima of maxima and sums.

    >>> aggregate_stats([{"x": {"mean": 1.0, "max": 4.0}}, {"x": {"mean": 2.0, "max": 3.0}}])
    {'x': {'mean': 1.5, 'max': 4.0}}
    """
    return _native.aggregate_stats(stats)


def is_partition(disk_name: str) -> bool:
    """Return whether a block device is a partition.

    >>> is_partition("vda1"), is_partition("nvme0n1p2"), is_partition("nvme0n1")
    (True, True, False)
    """
    return _native.is_partition(disk_name)


def render_csv_row(row: Iterable[Any], quoting: int = 2) -> bytes:
    r"""Return one CSV line. `quoting` is a constant of the csv module; QUOTE_NONNUMERIC by default.

    >>> render_csv_row(["a", 1, 2.5, None])
    b'"a",1,2.5,\n'
    """
    import csv
    import io

    line = io.StringIO()
    # QUOTE_NONNUMERIC writes None as a quoted string; a missing cell must be empty.
    cells = list(row)
    if quoting == csv.QUOTE_NONNUMERIC and None in cells:
        return b",".join(b"" if cell is None else render_csv_row([cell])[:-1] for cell in cells) + b"\n"
    csv.writer(line, quoting=quoting, lineterminator="\n").writerow(cells)  # type: ignore[arg-type]
    return line.getvalue().encode()


def is_psutil_available() -> bool:
    """Return whether psutil is installed. This package does not need it."""
    from importlib.util import find_spec

    return find_spec("psutil") is not None


def is_procfs_available() -> bool:
    """Return whether `/proc` is readable."""
    return os.path.exists("/proc/self/stat")


def get_tracker_implementation() -> tuple[Callable[..., dict[str, Any]], Callable[[], dict[str, Any]]]:
    """Return the functions `get_process_stats` and `get_system_stats`."""
    from .tracker_procfs import get_process_stats, get_system_stats

    return get_process_stats, get_system_stats


def get_zfs_pools_space() -> dict[str, dict[str, int]]:
    """Return total, used and free bytes of each ZFS pool.

    >>> isinstance(get_zfs_pools_space(), dict)
    True
    """
    return _native.zfs_pools()


def cleanup_files(files: Iterable[str]) -> None:
    """Remove files; ignore files that do not exist."""
    for file in files:
        try:
            os.unlink(file)
        except OSError:
            pass


def cleanup_processes(processes: Iterable[Any]) -> None:
    """Terminate `multiprocessing` processes; kill them after one second."""
    for process in processes:
        try:
            if process.is_alive():
                process.terminate()
                process.join(timeout=1)
            if process.is_alive():
                process.kill()
                process.join(timeout=1)
            process.close()
        except (OSError, ValueError):
            pass
