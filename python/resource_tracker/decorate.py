"""Tracking a function, or a cell of a notebook."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Optional

    from .tracker import ResourceTracker

__all__ = ["load_ipython_extension", "track_resources"]


def track_resources(
    function: Optional[Callable[..., Any]] = None,
    *,
    on_finish: Optional[Callable[[ResourceTracker], Any]] = None,
    **options: Any,
) -> Callable[..., Any]:
    """Records each call of a function; the last call's tracker is the function's attribute `resource_tracker`.

    `on_finish` is called with the tracker after each call, also one that failed; options are `ResourceTracker`'s.

    >>> @track_resources(interval=0.05)
    ... def work(n):
    ...     return sum(range(n))
    >>> work(1000)
    499500
    >>> work.resource_tracker.n_samples >= 1
    True
    """
    import functools

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def tracked(*args: Any, **kwargs: Any) -> Any:
            from .tracker import ResourceTracker

            tracker = ResourceTracker(**options)
            tracked.resource_tracker = tracker  # type: ignore[attr-defined]
            try:
                return function(*args, **kwargs)
            finally:
                tracker.stop()
                if on_finish is not None:
                    on_finish(tracker)

        tracked.resource_tracker = None  # type: ignore[attr-defined]
        return tracked

    return decorate if function is None else decorate(function)


def load_ipython_extension(ipython: Any) -> None:
    """`%load_ext resource_tracker` gives notebooks `%%track_resources [INTERVAL]`.

    The cell's statistics are shown below it, and its tracker is the variable `resource_tracker_`.
    """

    def track_cell(line: str, cell: str) -> dict[str, Any]:
        from .tracker import ResourceTracker

        tracker = ResourceTracker(interval=float(line)) if line.strip() else ResourceTracker()
        try:
            ipython.run_cell(cell)
        finally:
            tracker.stop()
            ipython.push({"resource_tracker_": tracker})
        return tracker.stats()

    ipython.register_magic_function(track_cell, magic_kind="cell", magic_name="track_resources")
