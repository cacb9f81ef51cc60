"""Phases of a program, beside what the program measured itself."""

import json
import os
import subprocess
import sys
import threading
import time

import pytest
from conftest import run_program
from resource_tracker import ResourceTracker

THREE_PHASES = """
import json, time
from resource_tracker import ResourceTracker

# Other interpreters share the libraries of this one.
def memory_kib():
    return next(int(line.split()[1]) for line in open("/proc/self/smaps_rollup") if line.startswith("Pss:"))

# The CPU time of this thread: that of the process has the tracker's thread too.
def use(cpu_s, idle_s, mib):
    began, cpu = time.monotonic(), time.thread_time()
    pages = bytearray(mib << 20)
    for at in range(0, len(pages), 4096): pages[at] = 1
    time.sleep(idle_s)
    while time.thread_time() - cpu < cpu_s: pass
    highest = memory_kib()
    del pages
    return [time.monotonic() - began, time.thread_time() - cpu, highest]

tracker = ResourceTracker(discover_cloud=False, METHOD)
truth = {}
with tracker.phase("load"):
    truth["load"] = use(0.6, 1.6, 400)
tracker.mark("train")
truth["train"] = use(2.2, 0, 250)
with tracker.phase("save"):
    truth["save"] = use(0.4, 2, 200)
tracker.stop()
print(json.dumps([truth, tracker.phases(), ResourceTracker.loads(tracker.dumps()).phases()]))
"""


@pytest.mark.parametrize("method", ["method=None", "method='spawn'"])
def test_usage_of_three_phases_is_what_the_program_measured(method):
    truth, phases, saved = json.loads(run_program(THREE_PHASES.replace("METHOD", method)))
    assert saved == phases
    found = {phase["name"]: phase for phase in phases}
    for name, (seconds, cpu_s, peak_kib) in truth.items():
        phase = found[name]
        # Beside 5 %: what Python does at the marks.
        assert phase["seconds"] == pytest.approx(seconds, rel=0.05, abs=0.05)
        assert phase["cpu_seconds"] == pytest.approx(cpu_s, rel=0.05, abs=0.015), name
        assert phase["memory_peak_kib"] == pytest.approx(peak_kib, rel=0.05, abs=0), name
    assert [phase["times"] for phase in phases if phase["name"] == "train"] == [2], "goes on after `save`"


def test_threads_and_forked_children_mark(tmp_path):
    with ResourceTracker(interval=0.05, discover_cloud=False) as tracker:
        thread = threading.Thread(target=lambda: tracker.mark("thread"))
        thread.start()
        thread.join()
        time.sleep(0.1)
        child = os.fork()
        if child == 0:
            with tracker.phase("child"):
                time.sleep(0.2)
            os._exit(0)
        os.waitpid(child, 0)
        tracker.mark("parent")
    phases = {phase["name"]: phase for phase in tracker.phases()}
    assert {"thread", "child", "parent"} <= set(phases)
    assert 0.15 < phases["child"]["seconds"] < 2
    assert phases["thread"]["times"] == 2, "the child goes back to the phase that it knows"


def test_flood_of_marks_is_summarised():
    with ResourceTracker(interval=0.1, discover_cloud=False) as tracker:

        def flood(worker):
            for number in range(2500):
                tracker.mark(f"phase {worker}-{number % 30}")

        threads = [threading.Thread(target=flood, args=[worker]) for worker in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    phases = tracker.phases()
    assert len(phases) <= 51
    assert sum(phase["seconds"] for phase in phases) == pytest.approx(tracker.stop_time - tracker.start_time, abs=0.1)


def test_program_marks_the_run_around_it(tmp_path):
    recording = tmp_path / "run.json.gz"
    program = "import resource_tracker; resource_tracker.mark('load'); resource_tracker.mark('train')"
    tracker = [sys.executable, "-m", "resource_tracker"]
    run = [*tracker, "run", "--quiet", "--offline", "--output", str(recording), "--", sys.executable, "-c", program]
    subprocess.run(run, check=True, timeout=60)
    shown = subprocess.run([*tracker, "show", "--json", str(recording)], check=True, capture_output=True, text=True)
    assert [phase["name"] for phase in json.loads(shown.stdout)["phases"]] == ["start", "load", "train"]


def test_mark_has_no_effect_before_the_start_and_after_the_stop(tmp_path):
    tracker = ResourceTracker(autostart=False, interval=0.05, discover_cloud=False)
    tracker.mark("early")
    tracker.start()
    tracker.wait_for_samples(1)
    tracker.stop()
    tracker.mark("late")
    assert tracker.phases() == []


def test_block_that_raises_ends_its_phase():
    with ResourceTracker(interval=0.05, discover_cloud=False) as tracker:
        with pytest.raises(ValueError), tracker.phase("outer"), tracker.phase("inner"):
            raise ValueError
        assert tracker._session.mark("next") == "start"
    assert [phase["times"] for phase in tracker.phases()] == [2, 2, 1, 1], sys.version
