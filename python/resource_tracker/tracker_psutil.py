"""Single readings of a process or the machine on any operating system; psutil is not needed."""

from __future__ import annotations

import os

from . import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

__all__ = ["get_process_stats", "get_system_stats"]


def get_process_stats(pid: Optional[int] = None, children: bool = True) -> dict[str, Any]:
    """Return the totals so far of a process (this one by default) and, with `children`, of its descendants.

    >>> stats = get_process_stats()
    >>> stats["memory"] > 0
    True
    """
    return _native.process_stats(os.getpid() if pid is None else pid, bool(children), "sysinfo")


def get_system_stats() -> dict[str, Any]:
    """Return the current levels of the machine and its totals since boot, by disk and by mount point.

    >>> sorted(get_system_stats())[:3]
    ['disk_space_free_gb', 'disk_space_total_gb', 'disk_space_used_gb']
    """
    return _native.system_stats("sysinfo")
