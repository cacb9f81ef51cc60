"""Runs that fail: their status and error in the history, and what `on_finish` is told."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import textwrap
from typing import Any, Optional

import pytest
from resource_tracker import ResourceTracker, track_resources
from resource_tracker.tracker import _sidecar
from test_jobs import runs


def ending(tracker: ResourceTracker) -> tuple[str, Optional[str]]:
    """Return status and error of a recording."""
    run = tracker.snapshot()["run"]
    return run["status"], run.get("error")


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("no data"), ("failed", "ValueError: no data")),
        (KeyError(), ("failed", "KeyError")),
        (Unprintable(), ("failed", "Unprintable")),
        (KeyboardInterrupt(), ("failed", "KeyboardInterrupt")),
        (SystemExit(3), ("failed", "SystemExit: 3")),
        (SystemExit("bad"), ("failed", "SystemExit: bad")),
        (SystemExit(0), ("finished", None)),
        (SystemExit(), ("finished", None)),
        (GeneratorExit(), ("finished", None)),
    ],
)
def test_block_that_raises_is_a_failed_run(error: BaseException, expected: tuple[str, Optional[str]]) -> None:
    with pytest.raises(type(error)), ResourceTracker(interval=0.05, job="train") as tracker:
        raise error
    assert ending(tracker) == expected
    assert runs()[0]["status"] == expected[0]
    shown = subprocess.run([_sidecar(), "show", "last"], capture_output=True, text=True, timeout=60).stdout
    assert (f"failed with {expected[1]} after" if expected[1] else "finished after") in shown
    header = tracker.report().split("</header>")[0]
    assert (">Failed<" if expected[1] else ">Finished<") in header
    assert expected[1] is None or f"<code>{expected[1]}</code>" in header


def test_error_is_stored_without_secrets_and_at_limited_length() -> None:
    with pytest.raises(OSError), ResourceTracker(interval=0.05) as tracker:
        raise OSError("cannot reach postgres://joe:x1@db:5432/a " + "x" * 100_000)
    status, error = ending(tracker)
    assert status == "failed" and error is not None and len(error) < 5000
    assert error.startswith("OSError: cannot reach postgres://joe:***@db:5432/a xxx")


def test_failure_is_known_to_the_sidecar() -> None:
    with pytest.raises(ValueError), ResourceTracker(interval=0.05, job="train", method="spawn") as tracker:
        raise ValueError("no data")
    assert ending(tracker) == ("failed", "ValueError: no data") and runs()[0]["status"] == "failed"


def test_decorated_call_that_raises_is_a_failed_run() -> None:
    told: list[Any] = []
    track = track_resources(interval=0.05, on_finish=lambda tracker, error: told.append((ending(tracker), error)))

    @track
    def plain() -> None:
        raise ValueError("plain")

    @track
    async def coroutine() -> None:
        raise ValueError("coroutine")

    @track
    def generator() -> Any:
        yield 1
        raise ValueError("generator")

    @track
    async def stream() -> Any:
        yield 1
        raise ValueError("stream")

    async def drain() -> None:
        async for _ in stream():
            pass

    for call in (plain, lambda: asyncio.run(coroutine()), lambda: list(generator()), lambda: asyncio.run(drain())):
        with pytest.raises(ValueError):
            call()
    assert [str(error) for _, error in told] == ["plain", "coroutine", "generator", "stream"]
    assert [status for status, _ in told] == [("failed", f"ValueError: {error}") for _, error in told]

    told.clear()
    closed = generator()
    next(closed)
    closed.close()
    assert told == [(("finished", None), None)]


def test_on_finish_gets_as_many_arguments_as_it_takes() -> None:
    told: list[Any] = []

    def with_option(tracker: ResourceTracker, path: str = "report.html") -> None:
        told.append(path)

    def with_optional_error(tracker: ResourceTracker, error: Any = "none given") -> None:
        told.append(error)

    for on_finish in (with_option, with_optional_error, lambda *arguments: told.append(arguments[1:]), told.append):
        track_resources(interval=0.05, on_finish=on_finish)(lambda: None)()
    assert told[:3] == ["report.html", None, (None,)] and isinstance(told[3], ResourceTracker)


def test_failing_on_finish_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    def on_finish(tracker: ResourceTracker) -> None:
        raise OSError("disk full")

    track = track_resources(interval=0.05, on_finish=on_finish)
    with caplog.at_level(logging.WARNING, "resource_tracker"):
        assert track(lambda: 7)() == 7
    assert [record.getMessage() for record in caplog.records] == ["on_finish failed: OSError: disk full"]

    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError) as raised:
        track(fail)()
    assert raised.value.__context__ is None


@pytest.mark.parametrize(
    ("last_line", "status"), [("1 / 0", "failed"), ("", "finished"), ("sys.ps1 = '>'; 1 / 0", "finished")]
)
def test_unhandled_exception_fails_the_run(last_line: str, status: str) -> None:
    program = f"""
        import sys
        from resource_tracker import ResourceTracker
        tracker = ResourceTracker(interval=0.05, job="script")
        try:
            [][0]
        except IndexError:
            pass
        {last_line}
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60)
    assert done.stderr.count("ZeroDivisionError") == ("1 / 0" in last_line), done.stderr
    (run,) = runs()
    assert (run["job"], run["status"]) == ("script", status)
