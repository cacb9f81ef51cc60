"""Measure the resources a batch job uses and recommend a machine for the next run.

>>> from resource_tracker import ResourceTracker
>>> with ResourceTracker(interval=0.1) as tracker:
...     total = sum(range(1_000_000))
>>> sorted(tracker.recommend_resources())
['cpu', 'gpu', 'memory', 'vram']
"""

from __future__ import annotations

from ._version import __version__
from .cloud_info import get_cloud_info
from .decorate import track_resources
from .notebook import load_ipython_extension, unload_ipython_extension
from .phases import mark
from .runs import history
from .server_info import get_server_info
from .tracker import PidTracker, ProcessTracker, ResourceTracker, SystemTracker

TYPE_CHECKING = False

__all__ = [
    "PidTracker",
    "ProcessTracker",
    "ResourceTracker",
    "SystemTracker",
    "__version__",
    "get_cloud_info",
    "get_server_info",
    "history",
    "load_ipython_extension",
    "mark",
    "track_resources",
    "unload_ipython_extension",
]

if not TYPE_CHECKING:

    def __getattr__(name):
        """Import a module of this package on first access."""
        from importlib import import_module, util

        if name.startswith("_") or util.find_spec(f"{__name__}.{name}") is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return import_module(f"{__name__}.{name}")
