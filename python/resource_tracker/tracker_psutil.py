"""The same looks under the name of the original's second implementation; psutil is not needed."""

from __future__ import annotations

from .tracker_procfs import get_process_stats, get_system_stats

__all__ = ["get_process_stats", "get_system_stats"]
