"""Track a function or a notebook cell."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Optional

    from .tracker import ResourceTracker

__all__ = ["load_ipython_extension", "track_resources"]


def track_resources(
    function: Optional[Callable[..., Any]] = None,
    *,
    on_finish: Optional[Callable[[ResourceTracker], Any]] = None,
    **options: Any,
) -> Callable[..., Any]:
    """Record each call of a function. The tracker of the last call is the function's attribute `resource_tracker`.

    `on_finish` is called with the tracker after each call, including calls that raise. Other keywords are arguments
    of `ResourceTracker`. Coroutines and generators are recorded from the first step to the end.

    >>> @track_resources(interval=0.05)
    ... def work(n):
    ...     return sum(range(n))
    >>> work(1000)
    499500
    >>> work.resource_tracker.n_samples >= 1
    True
    """
    import contextlib
    import functools
    import inspect
    import sys

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @contextlib.contextmanager
        def recording() -> Iterator[None]:
            from .tracker import ResourceTracker

            tracker = tracked.resource_tracker = ResourceTracker(**options)  # type: ignore[attr-defined]
            try:
                yield
            finally:
                tracker.stop()
                # A recursive call has replaced the attribute.
                tracked.resource_tracker = tracker  # type: ignore[attr-defined]
                if on_finish is not None:
                    on_finish(tracker)

        tracked: Callable[..., Any]
        if inspect.iscoroutinefunction(function):

            async def tracked(*args: Any, **kwargs: Any) -> Any:
                with recording():
                    return await function(*args, **kwargs)

        elif inspect.isasyncgenfunction(function):

            async def tracked(*args: Any, **kwargs: Any) -> Any:
                with recording():
                    # `yield from` does not exist in asynchronous generators.
                    inner = function(*args, **kwargs)
                    # At its end an event loop closes all generators it has seen start. It must see only the outer one.
                    hooks = sys.get_asyncgen_hooks()
                    sys.set_asyncgen_hooks(None, None)
                    try:
                        step = inner.asend(None)
                    finally:
                        sys.set_asyncgen_hooks(*hooks)
                    while True:
                        try:
                            item = await step
                        except StopAsyncIteration:
                            return
                        try:
                            step = inner.asend((yield item))
                        except BaseException as error:  # GeneratorExit too
                            step = inner.athrow(error)

        elif inspect.isgeneratorfunction(function):

            def tracked(*args: Any, **kwargs: Any) -> Any:
                with recording():
                    return (yield from function(*args, **kwargs))

        else:

            def tracked(*args: Any, **kwargs: Any) -> Any:
                with recording():
                    return function(*args, **kwargs)

        tracked = functools.wraps(function)(tracked)
        tracked.resource_tracker = None  # type: ignore[attr-defined]
        return tracked

    return decorate if function is None else decorate(function)


def load_ipython_extension(ipython: Any) -> None:
    """Register the cell magic `%%track_resources [INTERVAL]`; called by `%load_ext resource_tracker`.

    The statistics of the cell are shown below it. Its tracker is the variable `resource_tracker_`.
    """

    def track_cell(line: str, cell: str) -> dict[str, Any]:
        from .tracker import ResourceTracker

        tracker = ResourceTracker(interval=float(line)) if line.strip() else ResourceTracker()
        try:
            # A failing cell must also fail in `nbconvert --execute`.
            ipython.run_cell(cell).raise_error()
        finally:
            tracker.stop()
            ipython.push({"resource_tracker_": tracker})
        return tracker.stats()

    ipython.register_magic_function(track_cell, magic_kind="cell", magic_name="track_resources")
