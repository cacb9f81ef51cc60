"""Single looks at a process or the machine, read from `/proc` where there is one."""

from __future__ import annotations

import os

from . import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

__all__ = ["get_process_stats", "get_system_stats"]


def get_process_stats(pid: Optional[int] = None, children: bool = True) -> dict[str, Any]:
    """Totals so far of a process (this one by default) and, with `children`, of its descendants.

    >>> stats = get_process_stats()
    >>> stats["memory"] > 0
    True
    """
    return _native.process_stats(os.getpid() if pid is None else pid, bool(children))


def get_system_stats() -> dict[str, Any]:
    """Levels of the machine and totals since it was started, disk by disk and mount by mount.

    >>> sorted(get_system_stats())[:3]
    ['disk_space_free_gb', 'disk_space_total_gb', 'disk_space_used_gb']
    """
    return _native.system_stats()
