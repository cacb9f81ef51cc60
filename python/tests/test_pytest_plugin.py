"""The plugin of pytest, on small projects that are run in processes of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from conftest import run_program

PROJECT = """
    import pytest

    @pytest.mark.resources(max_memory="150MiB")
    def test_large():
        assert len(b"x" * (200 << 20))

    @pytest.mark.resources(max_memory="1GiB", max_duration="10min", max_cpu_time="5min")
    def test_within_its_budgets():
        assert len(b"x" * (60 << 20))

    def test_without_budget():
        pass
"""


def run_tests(folder: Path, text: str, *arguments: str, python: str = sys.executable) -> str:
    """Run the tests of a file with pytest and return the output, with the exit status as last line."""
    (folder / "test_project.py").write_text(textwrap.dedent(text))
    done = subprocess.run(
        [python, "-m", "pytest", "-p", "no:cacheprovider", "--strict-markers", "-rA", *arguments, "test_project.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return f"{done.stdout}{done.stderr}\nexit {done.returncode}"


def outcomes(output: str) -> dict[str, str]:
    """Return the outcome of each test that the short summary lists."""
    found = re.findall(r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL) \S*?::(.*?)(?: - .*)?$", output, re.MULTILINE)
    return {name: outcome for outcome, name in found}


def figures(output: str) -> dict[str, tuple[float, float]]:
    """Return CPU seconds and MiB of each test in the section of the terminal summary."""
    found = re.findall(r"^ +([\d.]+) s +([\d.]+) MiB +[\d.]+ s  \S*?::(.*)$", output, re.MULTILINE)
    return {name: (float(cpu), float(memory)) for cpu, memory, name in found}


def test_only_the_test_over_its_budget_fails(tmp_path: Path) -> None:
    output = run_tests(tmp_path, PROJECT, "--track-resources", "--junit-xml=junit.xml")
    assert outcomes(output) == {
        "test_large": "FAILED",
        "test_within_its_budgets": "PASSED",
        "test_without_budget": "PASSED",
    }, output
    assert re.search(r"^memory peak \d+ MiB exceeds the budget of 150 MiB by [\d.]+ MiB$", output, re.MULTILINE), output
    memory = {name: memory for name, (_, memory) in figures(output).items()}
    # A peak of a few milliseconds below that of an earlier test is seen too.
    assert 200 < memory["test_large"] < 300
    assert memory["test_within_its_budgets"] > memory["test_without_budget"] + 45
    assert list(memory) == ["test_large", "test_within_its_budgets", "test_without_budget"]
    cases = ElementTree.parse(tmp_path / "junit.xml").iter("testcase")
    properties = {
        case.get("name"): {entry.get("name"): float(entry.get("value", "")) for entry in case.iter("property")}
        for case in cases
    }
    assert len(properties) == 3
    for name, found in properties.items():
        assert set(found) == {"cpu_seconds", "memory_peak_bytes", "duration_seconds"}, name
        assert found["memory_peak_bytes"] > 1 << 20 and found["duration_seconds"] >= 0


def test_without_the_option_no_budget_counts_and_no_tracker_is_imported(tmp_path: Path) -> None:
    check = """
    def test_modules():
        import sys

        assert not [name for name in sys.modules if name.startswith("resource_tracker")]
    """
    output = run_tests(tmp_path, textwrap.dedent(PROJECT) + textwrap.dedent(check))
    assert set(outcomes(output).values()) == {"PASSED"} and "exit 0" in output, output
    assert len(outcomes(output)) == 4 and "memory peak" not in output


def test_kinds_of_tests(tmp_path: Path) -> None:
    text = """
    import multiprocessing
    import subprocess
    import sys
    import time
    import unittest

    import pytest

    @pytest.fixture
    def held():
        return b"x" * (100 << 20)

    @pytest.mark.resources(max_memory="80MiB")
    def test_fixture(held):
        pass

    @pytest.mark.resources(max_cpu_time=0.2)
    class TestClass:
        def test_inherited(self):
            end = time.process_time() + 0.4
            while time.process_time() < end:
                pass

        @pytest.mark.resources(max_cpu_time="1h")
        def test_own_budget(self):
            self.test_inherited()

        def test_idle(self):
            pass

    class TestUnit(unittest.TestCase):
        @pytest.mark.resources(max_duration="100ms")
        def test_slow(self):
            time.sleep(0.3)

    @pytest.mark.parametrize("mib", [1, 200])
    @pytest.mark.resources(max_memory="150MiB")
    def test_size(mib):
        b"x" * (mib << 20)

    @pytest.mark.resources(max_memory="150MiB")
    def test_child():
        program = "import time; held = b'x' * (200 << 20); time.sleep(0.5)"
        subprocess.run([sys.executable, "-c", program], check=True)

    @pytest.mark.skip
    def test_skipped():
        pass

    def test_skips_itself():
        pytest.skip("later")

    @pytest.mark.xfail
    @pytest.mark.resources(max_memory="1MiB")
    def test_known_to_be_large():
        pass

    @pytest.mark.resources(max_memory="1MiB")
    def test_failing():
        raise ValueError("its own error")

    @pytest.mark.resources(max_memory="1MiB")
    def test_small_budget():
        pass
    """
    output = run_tests(tmp_path, text, "--track-resources")
    expected = {
        "test_fixture": "FAILED",
        "TestClass::test_inherited": "FAILED",
        "TestClass::test_own_budget": "PASSED",
        "TestClass::test_idle": "PASSED",
        "TestUnit::test_slow": "FAILED",
        "test_size[1]": "PASSED",
        "test_size[200]": "FAILED",
        "test_child": "FAILED",
        "test_known_to_be_large": "XFAIL",
        "test_failing": "FAILED",
        "test_small_budget": "FAILED",
    }
    assert outcomes(output) == expected, output
    assert "2 skipped" in output
    assert "ValueError: its own error" in output
    # No budget is checked in a test that fails by itself; xfail shows no message.
    assert len(re.findall(r"^memory peak .* exceeds the budget of 1.00 MiB", output, re.MULTILINE)) == 1, output
    found = figures(output)
    assert set(found) == {*expected, "test_skips_itself"}
    assert found["TestClass::test_inherited"][0] > 0.3 and found["TestClass::test_idle"][0] < 0.2


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ("max_memory='4 apples'", "`4 apples` is not a size with a unit"),
        ("max_speed=3", "unknown budget `speed`; known are duration, cpu-time"),
        ("'4GiB'", "expected NAME=LIMIT, for example memory=4GiB"),
    ],
)
def test_invalid_budget_is_an_error_before_the_test_runs(tmp_path: Path, budget: str, message: str) -> None:
    text = f"""
    import pytest

    @pytest.mark.resources({budget})
    def test_one():
        open("has-run", "w").close()
    """
    output = run_tests(tmp_path, text, "--track-resources")
    assert outcomes(output) == {"test_one": "FAILED"}
    assert f"invalid budget in @pytest.mark.resources: {message}" in output
    assert not (tmp_path / "has-run").exists()


def test_each_worker_of_xdist_measures_its_own_tests(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    output = run_tests(tmp_path, PROJECT, "--track-resources", "-n", "2", "--junit-xml=junit.xml")
    assert outcomes(output)["test_large"] == "FAILED" and "2 passed" in output, output
    found = figures(output)
    assert len(found) == 3 and found["test_without_budget"][1] < 150 < found["test_large"][1]
    assert (tmp_path / "junit.xml").read_text().count('name="memory_peak_bytes"') == 3


def test_many_tests_are_listed_with_verbose_output_only(tmp_path: Path) -> None:
    text = "import pytest\n@pytest.mark.parametrize('n', range(25))\ndef test_one(n): pass\n"
    output = run_tests(tmp_path, text, "--track-resources")
    assert len(figures(output)) == 20 and "5 more tests with less memory; -v shows all tests" in output
    assert len(figures(run_tests(tmp_path, text, "--track-resources", "-v"))) == 25


def test_tests_are_not_runs_of_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESOURCE_TRACKER_JOB", "suite")
    assert "exit 1" in run_tests(tmp_path, PROJECT, "--track-resources")
    assert not (tmp_path / "data" / "resource-tracker").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems cannot reset it")
def test_peak_of_an_earlier_test_is_reset(tmp_path: Path) -> None:
    program = """
        import os
        from resource_tracker._native import Session

        def marks(resets_peak):
            len(b"x" * (200 << 20))
            session = Session(
                pid=os.getpid(), children=True, interval=1, method=None, autostart=False, track_processes=True,
                track_system=False, discover_server=False, discover_cloud=False, resets_peak=resets_peak,
            )
            session.start()
            with open("/proc/self/status") as status:
                (mark,) = [int(line.split()[1]) >> 10 for line in status if line.startswith("VmHWM")]
            session.stop()
            return mark

        print(marks(False), marks(True))
    """
    kept, reset = map(int, run_program(program).split())
    assert kept > 200 > 150 > reset


def test_wheel_in_an_empty_environment(tmp_path: Path) -> None:
    wheel = os.environ.get("RESOURCE_TRACKER_WHEEL")
    assert wheel, "RESOURCE_TRACKER_WHEEL must name the wheel"
    python = str(tmp_path / "venv" / "bin" / "python")
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", wheel, "pytest"], check=True)
    output = run_tests(tmp_path, PROJECT, "--track-resources", python=python)
    assert [name for name, outcome in outcomes(output).items() if outcome == "FAILED"] == ["test_large"], output
