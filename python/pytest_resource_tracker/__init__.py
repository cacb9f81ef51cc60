"""Plugin of pytest: CPU time and peak memory of each test, and budgets for them.

pytest imports this module in every session, so it imports the tracker only for `--track-resources`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Optional

    import pytest

_FIGURES = ("cpu_seconds", "memory_peak_bytes", "duration_seconds")
_SHOWN_TESTS = 20
_MARKER = (
    "resources(max_memory='4GiB', max_duration='10min', max_cpu_time='5min', ...): budgets of a test, checked with "
    "--track-resources. Names and units are those of `resource-tracker check --max`."
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("resource-tracker", "resources of tests")
    group.addoption(
        "--track-resources",
        action="store_true",
        help="Measure CPU time and peak memory of each test, and check the budgets of @pytest.mark.resources.",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)
    if config.getoption("track_resources"):
        config.pluginmanager.register(_tracker(), "resource-tracker-tests")


def _tracker() -> object:
    import os

    import pytest
    from resource_tracker._native import Session

    class Tracker:
        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
            """Measure a test without its fixtures, in the process that runs it: with pytest-xdist a worker."""
            budgets = _budgets(item)
            session = Session(
                pid=os.getpid(),
                children=True,
                interval=1,
                method=None,
                autostart=False,
                track_processes=True,
                track_system=True,
                discover_server=False,
                discover_cloud=False,
                # Tests are no runs of the job in `RESOURCE_TRACKER_JOB`.
                job="",
                resets_peak=True,
            )
            try:
                # Before the test runs, an invalid budget is an error.
                session.check(budgets)
            except ValueError as error:
                pytest.fail(f"invalid budget in @pytest.mark.resources: {error}", pytrace=False)
            session.start()
            try:
                result = yield
            finally:
                session.stop()
                checked = session.check(budgets)
                session.remove_files()
                # A test that is run again has the figures of its last run.
                item.user_properties[:] = [pair for pair in item.user_properties if pair[0] not in _FIGURES]
                item.user_properties += [(key, checked["figures"][key]) for key in _FIGURES]
            broken = [check["message"] for check in checked["checks"] if not check["is_kept"]]
            if broken:
                pytest.fail("\n".join(broken), pytrace=False)
            return result

        def pytest_terminal_summary(self, terminalreporter: Any) -> None:
            tests = {}
            for reports in terminalreporter.stats.values():
                for report in reports:
                    figures = dict(getattr(report, "user_properties", ()))
                    if _FIGURES[0] in figures:
                        tests[report.nodeid] = [figures[key] for key in _FIGURES]
            if not tests:
                return
            # The tests that need the most memory first.
            lines = sorted(tests.items(), key=lambda test: -(test[1][1] or 0))
            shown = lines if terminalreporter.verbosity > 0 else lines[:_SHOWN_TESTS]
            terminalreporter.section("resources")
            terminalreporter.line(f"{'CPU time':>12}{'memory peak':>15}{'time':>12}  test")
            for name, (cpu_seconds, memory_bytes, seconds) in shown:
                memory = "unknown" if memory_bytes is None else f"{memory_bytes / (1 << 20):.1f} MiB"
                terminalreporter.line(f"{_seconds(cpu_seconds):>12}{memory:>15}{_seconds(seconds):>12}  {name}")
            if len(shown) < len(lines):
                terminalreporter.line(f"{len(lines) - len(shown)} more tests with less memory; -v shows all tests")

    return Tracker()


def _budgets(item: pytest.Item) -> list[str]:
    """Return the budgets of a test as the command takes them. The marker closest to the test wins."""
    marks = list(item.iter_markers("resources"))
    limits: dict[str, Any] = {}
    for mark in reversed(marks):
        limits.update(mark.kwargs)
    named = [f"{name.removeprefix('max_').replace('_', '-')}={limit}" for name, limit in limits.items()]
    return [*(str(text) for mark in marks for text in mark.args), *named]


def _seconds(value: Optional[float]) -> str:
    return "unknown" if value is None else f"{value:.3f} s"
