"""Size of this machine, and the limits of the container."""

from __future__ import annotations

from . import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["get_gpu_info", "get_server_info", "get_total_memory_mb"]


def get_server_info() -> dict[str, Any]:
    """Return operating system, CPUs, memory, GPUs, and the limits of the container if there is one.

    >>> get_server_info()["vcpus"] >= 1
    True
    """
    return _native.server_info()


def get_total_memory_mb() -> float:
    """Return the memory of the machine in MiB, to two decimals.

    >>> get_total_memory_mb() > 64
    True
    """
    memory_mb: float = _native.server_info()["memory_mb"]
    return memory_mb


def get_gpu_info() -> dict[str, Any]:
    """Return the number, memory and names of the GPUs.

    >>> sorted(get_gpu_info())
    ['count', 'gpu_names', 'memory_mb']
    """
    info = _native.server_info()
    return {"count": info["gpu_count"], "memory_mb": info["gpu_memory_mb"], "gpu_names": info["gpu_names"]}
