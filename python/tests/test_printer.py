"""Trackers in the foreground that print CSV rows."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import PROCESS, SYSTEM, run_program
from resource_tracker import PidTracker, ProcessTracker, SystemTracker
from resource_tracker.tiny_data_frame import TinyDataFrame


def test_diff_stats_of_a_process() -> None:
    tracker = ProcessTracker(autostart=False, interval=0.1)
    assert (tracker.status, tracker.cycle, tracker.pid) == ("running", 0, os.getpid())
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    row = tracker.diff_stats()
    assert list(row) == PROCESS.split()
    assert row["utime"] + row["stime"] >= 0.09
    assert isinstance(row["memory"], int) and tracker.cycle == 1
    assert tracker() is None


def test_stats_attribute_holds_totals() -> None:
    process, system = ProcessTracker(autostart=False), SystemTracker(autostart=False)
    assert set(process.stats) == set(process.get_process_stats(os.getpid(), True))
    assert set(system.stats) == set(system.get_system_stats())
    before = process.stats
    assert before["utime"] == pytest.approx(sum(os.times()[:4:2]), abs=0.1)
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    assert process.stats is before, "totals of the constructor call"
    row = process.diff_stats()
    spent = sum(process.stats[name] - before[name] for name in ("utime", "stime"))
    assert spent == pytest.approx(row["utime"] + row["stime"], abs=0.05)
    system.diff_stats()
    assert system.stats["disk_spaces"] and system.stats["utime"] > 0


def _process_until(path: Path, lines: int) -> subprocess.Popen[bytes]:
    """Start a process that is killed once the file has this many lines."""
    child = subprocess.Popen(["sleep", "60"])

    def end() -> None:
        while child.poll() is None and not (path.exists() and path.read_bytes().count(b"\n") >= lines):
            time.sleep(0.01)
        child.kill()
        child.wait()

    threading.Thread(target=end, daemon=True).start()
    return child


def test_process_tracker_prints_until_the_process_ends(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    child = _process_until(path, 5)
    tracker = ProcessTracker(pid=child.pid, interval=0.1, output_file=str(path))
    assert tracker.status == "exited"
    frame = TinyDataFrame(csv_file_path=str(path))
    assert frame.columns == PROCESS.split() and len(frame) >= 4
    assert path.read_text().startswith('"timestamp","pid","children"')


def test_system_tracker_prints_to_standard_output() -> None:
    program = "from resource_tracker import SystemTracker; SystemTracker(interval=0.05)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        process.kill()
    assert lines[0] == ",".join(f'"{name}"' for name in SYSTEM.split()) + "\n"
    assert len(lines[2].split(",")) == len(SYSTEM.split())


def test_first_printed_row_has_a_cpu_rate() -> None:
    program = "from resource_tracker import SystemTracker; SystemTracker(interval=0.1)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        process.kill()
    assert float(lines[1].split(",")[SYSTEM.split().index("cpu_usage")]) >= 0


def test_rows_follow_text_printed_earlier() -> None:
    program = "from resource_tracker import SystemTracker; print('before'); SystemTracker(interval=0.05)"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        process.kill()
    assert lines[0] == "before\n" and lines[1].startswith('"timestamp"')


def test_rows_follow_a_redirected_standard_output() -> None:
    program = """
    import contextlib, io, os, signal, threading, time
    from resource_tracker import SystemTracker
    text = io.StringIO()
    def interrupt():
        while text.getvalue().count("\\n") < 2:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
    with contextlib.redirect_stdout(text), contextlib.suppress(KeyboardInterrupt):
        threading.Thread(target=interrupt).start()
        SystemTracker(interval=0.1)
    print(text.getvalue().splitlines()[0])
    """
    assert run_program(program).startswith('"timestamp","processes"')


def test_passed_grid_points_are_skipped(tmp_path: Path) -> None:
    child = subprocess.Popen(["sleep", "3"])
    threading.Thread(target=child.wait, daemon=True).start()
    path, began = tmp_path / "rows.csv", time.monotonic()
    ProcessTracker(pid=child.pid, interval=0.2, start_time=time.time() - 100, output_file=str(path))
    most = (time.monotonic() - began) / 0.2 + 3
    assert 3 <= len(TinyDataFrame(csv_file_path=str(path))) <= most, "500 grid points have passed"


def test_usage_before_start_tracking_is_in_no_row(tmp_path: Path) -> None:
    busy = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ntime.sleep(1)"
    child = subprocess.Popen([sys.executable, "-c", busy], stdout=subprocess.PIPE)
    tracker = ProcessTracker(pid=child.pid, interval=0.2, autostart=False)
    assert child.stdout is not None and child.stdout.readline() == b"\n"
    threading.Thread(target=child.wait, daemon=True).start()
    path = tmp_path / "rows.csv"
    tracker.start_tracking(str(path))
    frame = TinyDataFrame(csv_file_path=str(path))
    assert sum(frame["utime"]) + sum(frame["stime"]) < 0.25
    child.stdout.close()


def test_csv_file_path_is_an_alias_of_output_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    child = _process_until(path, 2)
    ProcessTracker(pid=child.pid, interval=0.05, csv_file_path=str(path))
    assert len(TinyDataFrame(csv_file_path=str(path))) >= 1
    tracker = SystemTracker(autostart=False)
    assert list(tracker.diff_stats()) == SYSTEM.split()


@pytest.mark.parametrize("print_header", [True, False])
def test_header_matches_rows_of_a_subclass(tmp_path: Path, print_header: bool) -> None:
    class Mine(ProcessTracker):
        def diff_stats(self) -> dict[str, Any]:
            row = {**super().diff_stats(), "mine": self.cycle}
            self.status = "stopped" if self.cycle == 3 else "running"
            return row if self.cycle != 2 else {**row, "once": 1}

    path = tmp_path / "rows.csv"
    Mine(interval=0.05, autostart=False).start_tracking(str(path), print_header)
    header, *lines = path.read_text().splitlines() if print_header else ["", *path.read_text().splitlines()]
    assert header == (",".join(f'"{name}"' for name in [*PROCESS.split(), "mine"]) if print_header else "")
    assert [line.split(",")[-1] for line in lines] == ["1", "2", "3"]
    assert {line.count(",") for line in lines} == {len(PROCESS.split())}


def test_pid_tracker_is_deprecated() -> None:
    with pytest.warns(DeprecationWarning, match="ProcessTracker"):
        PidTracker(autostart=False)


def test_ended_process_has_no_rows(tmp_path: Path) -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    path = tmp_path / "rows.csv"
    tracker = ProcessTracker(pid=child.pid, interval=0.05, output_file=str(path))
    assert tracker.status == "exited" and tracker.cycle == 0
    assert path.read_text().count("\n") == 1, "the header"
    with pytest.raises(ProcessLookupError, match=str(child.pid)):
        tracker.diff_stats()


def test_loop_reuses_the_counters_of_the_constructor() -> None:
    program = """
        import os, threading
        from resource_tracker import ProcessTracker

        def counters():
            links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
            return sum("perf_event" in os.readlink(link) for link in links if os.path.lexists(link))

        stop = threading.Event()
        for _ in range(9):
            threading.Thread(target=stop.wait).start()
        class Counting(ProcessTracker):
            def diff_stats(self):
                row = super().diff_stats()
                if self.cycle == 3:
                    print(before, counters())
                    self.status = "stopped"
                    stop.set()
                return row

        tracker = Counting(interval=0.05, autostart=False)
        before = counters()
        tracker.start_tracking(os.devnull)
    """
    assert run_program(program) == "10 10\n"
