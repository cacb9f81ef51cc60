"""Track a function."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any, Optional, Protocol, TypeVar, overload

    from typing_extensions import Concatenate, ParamSpec

    from ._session import _Path, _Paths
    from .tracker import ResourceTracker

    _P = ParamSpec("_P")
    _Q = ParamSpec("_Q")
    _R = TypeVar("_R")
    _R_co = TypeVar("_R_co", covariant=True)
    _Self = TypeVar("_Self")

    class _Tracked(Protocol[_P, _R_co]):
        """A decorated function; as a method it is bound like any other function."""

        resource_tracker: Optional[ResourceTracker]

        def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R_co: ...
        @overload
        def __get__(self, instance: None, owner: Optional[type] = ..., /) -> _Tracked[_P, _R_co]: ...
        @overload
        def __get__(
            self: _Tracked[Concatenate[_Self, _Q], _R_co], instance: _Self, owner: Optional[type] = ..., /
        ) -> Callable[_Q, _R_co]: ...

    class _Decorator(Protocol):
        def __call__(self, function: Callable[_P, _R], /) -> _Tracked[_P, _R]: ...

else:

    def overload(function):
        """Replace `typing.overload`: the import of `typing` takes longer than starting a tracker."""
        return function


__all__ = ["track_resources"]


@overload
def track_resources(function: Callable[_P, _R]) -> _Tracked[_P, _R]: ...
@overload
def track_resources(  # noqa: F811
    function: None = None,
    *,
    on_finish: Optional[Callable[..., Any]] = None,
    pid: Optional[int] = None,
    children: bool = True,
    interval: float = 1,
    method: Optional[str] = None,
    autostart: bool = True,
    track_processes: bool = True,
    track_system: bool = True,
    discover_server: bool = True,
    discover_cloud: bool = True,
    job: Optional[str] = None,
    tags: Optional[Mapping[str, Any]] = None,
    input: Optional[_Paths] = None,
    store: Optional[_Path] = None,
) -> _Decorator: ...
def track_resources(  # noqa: F811
    function: Optional[Callable[..., Any]] = None,
    *,
    on_finish: Optional[Callable[..., Any]] = None,
    **options: Any,
) -> Callable[..., Any]:
    """Record each call of a function. The tracker of the last call is the function's attribute `resource_tracker`.

    `on_finish` is called with the tracker after each call, including calls that raise. If it takes two arguments, the
    second is the exception; None after a call that returns. A failure of `on_finish` is logged as a warning. Other
    keywords are arguments of `ResourceTracker`. Coroutines and generators are recorded from the first step to the end.
    A call that raises is a failed run.

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
            failure: Optional[BaseException] = None
            try:
                with tracker:
                    yield
            except BaseException as error:
                failure = error
                raise
            finally:
                # A recursive call has replaced the attribute.
                tracked.resource_tracker = tracker  # type: ignore[attr-defined]
                if on_finish is not None:
                    _call(on_finish, tracker, failure)
                # Its traceback refers to this frame.
                del failure

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


def _call(on_finish: Callable[..., Any], tracker: ResourceTracker, error: Optional[BaseException]) -> None:
    """Call `on_finish`. Its failure must not replace the result of the function."""
    from ._session import _log

    # A closed generator has not failed.
    error = None if isinstance(error, GeneratorExit) else error
    try:
        on_finish(tracker, error) if _takes_error(on_finish) else on_finish(tracker)
    except Exception as failure:
        _log("warning", "on_finish failed: %s: %s", type(failure).__name__, failure)


def _takes_error(on_finish: Callable[..., Any]) -> bool:
    """Return whether the second argument is the exception. An optional one is if it is called `error`."""
    import inspect

    try:
        parameters = list(inspect.signature(on_finish).parameters.values())
    except (TypeError, ValueError):  # some functions written in C have no signature
        return False
    if parameters and parameters[0].kind is inspect.Parameter.VAR_POSITIONAL:
        return True
    if len(parameters) < 2:
        return False
    second = parameters[1]
    if second.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD):
        return second.default is inspect.Parameter.empty or second.name == "error"
    return second.kind is inspect.Parameter.VAR_POSITIONAL
