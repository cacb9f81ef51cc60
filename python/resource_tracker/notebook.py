"""Notebooks: the cell magic `%%track_resources`, and a view of a running tracker."""

from __future__ import annotations

import os
import time
import weakref

from . import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Any, Optional

    from .tracker import ResourceTracker

__all__ = ["LiveView", "load_ipython_extension", "unload_ipython_extension"]

_MAGIC = "track_resources"
_USAGE = f"usage: %%{_MAGIC} [INTERVAL] [--live]"

#: Seconds between two updates of a live view.
_UPDATE_S = 1.0
#: Rows in a plot of a live view.
_PLOT_ROWS = 60


def load_ipython_extension(ipython: Any) -> None:
    """Register the cell magic `%%track_resources [INTERVAL] [--live]`; called by `%load_ext resource_tracker`.

    The statistics of the cell are shown below it, and its value is in `Out` as usual. Its tracker is the variable
    `resource_tracker_`. With `--live`, CPU, memory and elapsed time are shown while the cell runs.
    """

    def track_cell(line: str, cell: str) -> Any:
        # Not in tracebacks of the cell.
        __tracebackhide__ = True
        from IPython.display import display

        from .tracker import ResourceTracker

        interval, is_live = _parse_line(line)
        statements, expression = _compile_cell(ipython, cell)
        tracker = ResourceTracker(interval=interval)
        if is_live:
            tracker.live()
        try:
            with tracker:
                exec(statements, ipython.user_ns)
                value = None if expression is None else eval(expression, ipython.user_ns)
        finally:
            ipython.push({"resource_tracker_": tracker})
        if not is_live:
            display(tracker.stats())  # type: ignore[no-untyped-call]
        return value

    ipython.register_magic_function(track_cell, magic_kind="cell", magic_name=_MAGIC)


def unload_ipython_extension(ipython: Any) -> None:
    """Remove the cell magic; called by `%unload_ext resource_tracker`."""
    ipython.magics_manager.magics["cell"].pop(_MAGIC, None)


def _parse_line(line: str) -> tuple[float, bool]:
    """Return the interval, and whether the view is live."""
    from IPython.core.error import UsageError

    words = line.split()
    numbers = [word for word in words if word != "--live"]
    try:
        (interval,) = map(float, numbers or ["1"])
    except ValueError:
        raise UsageError(_USAGE) from None
    return interval, "--live" in words


def _compile_cell(ipython: Any, cell: str) -> tuple[CodeType, Optional[CodeType]]:
    """Return the statements of a cell and, if its last statement is an expression, that expression."""
    import ast
    import inspect

    from IPython.core.error import UsageError

    source = ipython.transform_cell(cell)
    # Under this name tracebacks find the source.
    name = ipython.compile.cache(source, ipython.execution_count, raw_code=cell)
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    if compile(source, name, "exec", flags=flags, dont_inherit=True).co_flags & inspect.CO_COROUTINE:
        # Printed without a traceback, which would show only this package.
        raise UsageError(f"%%{_MAGIC} does not support `await` outside of a function; use `with ResourceTracker():`")
    tree = ipython.transform_ast(ipython.compile.ast_parse(source, filename=name))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    expression = None if last is None else ipython.compile(ast.Expression(last.value), name, "eval")
    return ipython.compile(tree, name, "exec"), expression


def is_notebook() -> bool:
    """Return whether this is the kernel of a notebook. A terminal would print each update of a view on a new line."""
    import sys

    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class LiveView:
    """Elapsed time, CPU and memory of a tracker below a notebook cell, updated by a thread while the tracker runs."""

    def __init__(self, tracker: ResourceTracker) -> None:
        import contextvars
        import threading

        from IPython.display import display

        self._tracker = weakref.ref(tracker)
        self._pid = os.getpid()
        # A signal handler may stop the tracker during an update.
        self._lock = threading.RLock()
        self._is_final = False
        self._handle = display(_content(tracker), raw=True, display_id=True)  # type: ignore[no-untyped-call]
        # The kernel finds the cell of an output through a context variable.
        run = contextvars.copy_context().run
        threading.Thread(target=run, args=(self._follow,), name="resource-tracker-live", daemon=True).start()

    def _follow(self) -> None:
        spent = time.thread_time()
        while self._update():
            now = time.thread_time()
            # Reading the rows of a long run takes longer: at most 1 % of one CPU.
            time.sleep(max(_UPDATE_S, 100 * (now - spent)))
            spent = now

    def finish(self) -> None:
        """Show the last figures. A forked child has no view."""
        if os.getpid() == self._pid:
            self._update()

    def _update(self) -> bool:
        """Show the figures of now; return whether more will follow."""
        with self._lock:
            tracker = self._tracker()
            if tracker is None or self._is_final:
                return False
            self._is_final = tracker.state not in (None, "running")
            try:
                self._handle.update(_content(tracker), raw=True)
            except Exception:  # the notebook has gone; the job goes on
                self._is_final = True
            return not self._is_final


def _content(tracker: ResourceTracker) -> dict[str, str]:
    """Return the figures of a tracker as HTML and as text."""
    figures = []
    if tracker.start_time is not None:
        figures.append(("Elapsed", _native.human_duration((tracker.stop_time or time.time()) - tracker.start_time), ""))
    figures += _latest(tracker) if tracker.state in (None, "running") else _summary(tracker)
    text = ", ".join(f"{name} {value}" for name, value, _ in figures)
    html = "".join(f"<span>{name} <b>{value}</b>{plot}</span>" for name, value, plot in figures)
    style = "display:flex;flex-wrap:wrap;gap:.2em 2em;align-items:center;font:13px/2 system-ui,sans-serif"
    return {"text/plain": text, "text/html": f'<div style="{style};font-variant-numeric:tabular-nums">{html}</div>'}


def _latest(tracker: ResourceTracker) -> list[tuple[str, str, str]]:
    """Return CPU and memory of the last row, with a plot of the rows before it."""
    has_process = "process_tracker" in tracker.trackers
    table = tracker._session.table("process_metrics" if has_process else "system_metrics")
    figures = []
    memory = "memory" if has_process else "memory_used"
    for name, column, show in (("CPU", "cpu_usage", _cpus), ("Memory", memory, _native.human_memory)):
        cells = table[column].slice(slice(-_PLOT_ROWS, None)).to_list() if column in table else []
        known = [cell for cell in cells if cell is not None]
        if known:
            figures.append((name, show(known[-1]), _plot(known)))
    return figures


def _summary(tracker: ResourceTracker) -> list[tuple[str, str, str]]:
    """Return the mean CPU usage and the memory peak of a run that has ended."""
    try:
        stats = tracker.stats()
    except RuntimeError:  # no rows
        return []
    mean, peak = stats.get("process_cpu_usage", {}).get("mean"), stats.get("process_memory", {}).get("max")
    figures = [("Mean CPU", mean, _cpus), ("Peak memory", peak, _native.human_memory)]
    return [(name, show(value), "") for name, value, show in figures if value is not None]


def _cpus(cpus: float) -> str:
    return f"{cpus:.2f} CPUs"


def _plot(cells: list[float]) -> str:
    """Return a line plot from 0 to the largest cell, as high as a line of text."""
    if len(cells) < 2:
        return ""
    top = max(cells) or 1.0
    points = " ".join(f"{x},{1 - cell / top:.3f}" for x, cell in enumerate(cells))
    return (
        '<svg width="120" height="20" style="vertical-align:middle;margin-left:.6em;overflow:visible" '
        f'viewBox="0 0 {_PLOT_ROWS - 1} 1" preserveAspectRatio="none" aria-hidden="true"><polyline points="{points}" '
        'fill="none" stroke="currentColor" vector-effect="non-scaling-stroke"/></svg>'
    )
