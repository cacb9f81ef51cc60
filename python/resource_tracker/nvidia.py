"""Usage of GPUs, under the names of the original package. NVML is read directly, so no process is started."""

from __future__ import annotations

from . import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, Optional

__all__ = ["process_nvidia_smi", "process_nvidia_smi_pmon", "start_nvidia_smi", "start_nvidia_smi_pmon"]

_FIGURES = ("gpu_usage", "gpu_vram", "gpu_utilized")


def start_nvidia_smi() -> None:
    """Return None: there is no process to start."""


def start_nvidia_smi_pmon() -> None:
    """Return None: there is no process to start."""


def process_nvidia_smi(nvidia_process: Any = None) -> dict[str, Any]:
    """Return the usage of all GPUs: `gpu_usage`, `gpu_vram` (MiB) and `gpu_utilized`.

    >>> sorted(process_nvidia_smi(start_nvidia_smi()))
    ['gpu_usage', 'gpu_utilized', 'gpu_vram']
    """
    stats = _native.system_stats()
    return {name: stats[name] for name in _FIGURES}


def process_nvidia_smi_pmon(nvidia_process: Any = None, pids: Optional[Iterable[int]] = None) -> dict[str, Any]:
    """Return the GPU usage of processes, by default of all: the figures of `process_nvidia_smi` and the GPUs in use.

    >>> process_nvidia_smi_pmon(start_nvidia_smi_pmon(), pids=set())["gpu_utilized_indexes"]
    set()
    """
    # All processes descend from the first one.
    found = [_native.process_stats(pid, pids is None) for pid in ([1] if pids is None else pids)]
    indexes = set().union(*(stats["gpu_utilized_indexes"] for stats in found))
    totals: dict[str, Any] = {}
    for name in _FIGURES:
        cells = [stats[name] for stats in found]
        totals[name] = None if None in cells else sum(cells)
    if totals["gpu_utilized"] is not None:
        totals["gpu_utilized"] = len(indexes)
    return {**totals, "gpu_utilized_indexes": indexes}
