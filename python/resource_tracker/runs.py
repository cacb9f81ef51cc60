"""The history of runs."""

from __future__ import annotations

from . import _native
from .tiny_data_frame import TinyDataFrame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

__all__ = ["history"]


def history(job: Optional[str] = None, tag: Optional[str] = None) -> TinyDataFrame:
    """Return the runs of the history, newest first: one row per run, from all fronts.

    Args:
        job: Only runs of this job.
        tag: Only runs with this tag: `KEY` or `KEY=VALUE`.

    >>> from resource_tracker import ResourceTracker
    >>> with ResourceTracker(interval=0.05, job="doctest"):
    ...     total = sum(range(1000))
    >>> runs = history(job="doctest")
    >>> runs["status"][0], runs["duration_seconds"][0] > 0
    ('finished', True)
    """
    return TinyDataFrame(data=_native.history(job, tag))
