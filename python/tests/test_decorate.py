"""The decorator `track_resources` and the cell magic."""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import Any

import pytest
from conftest import run_program
from resource_tracker import track_resources


def test_decorated_function_is_tracked() -> None:
    finished = []

    @track_resources(interval=0.05, on_finish=finished.append)
    def work(fail: bool = False) -> str:
        """Documented."""
        if fail:
            raise KeyError("x")
        return "done"

    assert work.resource_tracker is None  # type: ignore[attr-defined]
    assert work() == "done" and work.__name__ == "work" and work.__doc__ == "Documented."
    with pytest.raises(KeyError):
        work(fail=True)
    assert len(finished) == 2 and all(tracker.n_samples >= 1 and not tracker.running for tracker in finished)

    @track_resources
    def plain() -> int:
        return 1

    assert plain() == 1 and plain.resource_tracker.n_samples == 1  # type: ignore[attr-defined]


def test_coroutines_and_generators_are_tracked_to_the_end() -> None:

    track = track_resources(interval=0.02)

    @track
    async def coroutine() -> int:
        await asyncio.sleep(0.2)
        return 7

    @track
    def generator() -> Any:
        time.sleep(0.2)
        sent = yield 1
        return sent

    @track
    async def stream() -> Any:
        for number in range(2):
            await asyncio.sleep(0.1)
            yield number

    async def drain() -> list[int]:
        return [number async for number in stream()]

    assert inspect.iscoroutinefunction(coroutine) and asyncio.run(coroutine()) == 7
    running = generator()
    assert next(running) == 1
    with pytest.raises(StopIteration, match="answer"):
        running.send("answer")
    assert asyncio.run(drain()) == [0, 1]
    for function in (coroutine, generator, stream):
        assert function.resource_tracker.stats()["timestamp"]["duration"] >= 0.2, function


def test_send_throw_and_close_reach_an_asynchronous_generator() -> None:

    seen: list[Any] = []

    @track_resources(interval=0.02)
    async def stream() -> Any:
        try:
            seen.append((yield 1))
            try:
                yield 2
            except KeyError:
                yield "handled"
            yield 3
        finally:
            await asyncio.sleep(0.01)
            seen.append("closed")

    async def steps() -> None:
        running = stream()
        assert await running.__anext__() == 1
        assert await running.asend("sent") == 2
        assert await running.athrow(KeyError("x")) == "handled"
        await running.aclose()
        assert seen == ["sent", "closed"]
        with pytest.raises(StopAsyncIteration):
            await running.__anext__()
        failing = stream()
        await failing.__anext__()
        with pytest.raises(ZeroDivisionError):
            await failing.athrow(ZeroDivisionError())

    asyncio.run(steps())
    assert seen == ["sent", "closed", "closed"] and not stream.resource_tracker.running

    async def leave_open() -> None:
        errors: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        left = stream()
        await left.__anext__()
        await asyncio.get_running_loop().shutdown_asyncgens()
        assert errors == []

    asyncio.run(leave_open())
    assert seen[3:] == ["closed"] and not stream.resource_tracker.running


def test_recursive_function_keeps_the_tracker_of_the_outermost_call() -> None:
    @track_resources(interval=0.02)
    def work(depth: int) -> None:
        time.sleep(0.05)
        if depth:
            work(depth - 1)

    work(3)
    assert work.resource_tracker.stats()["timestamp"]["duration"] >= 0.2  # type: ignore[attr-defined]


#: A shell that records what it shows.
SHELL = """
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "resource_tracker")
    def run(cell):
        with capture_output(display=False) as shown:
            return shell.run_cell(cell, store_history=True), shown.stdout + shown.stderr
"""


def test_notebook_cell_is_tracked_and_keeps_its_value() -> None:
    pytest.importorskip("IPython")
    program = """
    done, shown = run("%%track_resources 0.05\\nvalue = sum(range(10))\\nvalue + 1")
    assert done.success and done.result == 46 and shell.user_ns["Out"][1] == 46, done
    assert "process_memory" in shown and shell.user_ns["value"] == 45
    assert shell.user_ns["resource_tracker_"].n_samples >= 1
    done, shown = run("%%track_resources\\n%time other = 1\\nfor n in range(2): pass")
    assert done.success and done.result is None and shell.user_ns["n"] == 1 and shell.user_ns["other"] == 1, shown
    done, shown = run("%%track_resources\\n# only a comment")
    assert done.success, shown
    """
    run_program(SHELL + program)


def test_failing_cell_is_a_failed_run_with_one_traceback() -> None:
    pytest.importorskip("IPython")
    program = """
    done, shown = run("%%track_resources\\nx = 0\\n1 / x")
    assert isinstance(done.error_in_exec, ZeroDivisionError), done
    assert shown.count("Traceback (most recent call last)") == 1 and "1 / x" in shown, shown
    tracker = shell.user_ns["resource_tracker_"]
    assert tracker.snapshot()["run"]["error"] == "ZeroDivisionError: division by zero"
    """
    run_program(SHELL + program)


def test_cell_with_await_is_refused_before_it_runs() -> None:
    pytest.importorskip("IPython")
    program = """
    done, shown = run("%%track_resources\\nhas_run = True\\nimport asyncio\\nawait asyncio.sleep(0)")
    assert type(done.error_in_exec).__name__ == "UsageError" and "`await`" in shown and len(shown) < 120, shown
    assert "has_run" not in shell.user_ns
    """
    run_program(SHELL + program)


def test_cell_magic_can_be_unloaded() -> None:
    pytest.importorskip("IPython")
    program = """
    shell.run_line_magic("unload_ext", "resource_tracker")
    assert shell.find_cell_magic("track_resources") is None
    shell.run_line_magic("load_ext", "resource_tracker")
    assert shell.find_cell_magic("track_resources") is not None
    """
    run_program(SHELL + program)
