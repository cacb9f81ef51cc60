"""Journals of programs that were killed, or ended without cleanup, become recordings when the history is read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import run_program
from resource_tracker import ResourceTracker
from resource_tracker.tracker import _sidecar


def _killed_host(scratch: Path) -> Path:
    """The journal of a killed program that had a tracker in a thread."""
    program = """if True:
        from resource_tracker import ResourceTracker
        tracker = ResourceTracker(interval=0.05)
        tracker.wait_for_samples(3)
        print("ready", flush=True)
        input()
    """
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as host:
        assert host.stdout is not None and host.stdout.readline() == b"ready\n"
        (journal,) = scratch.iterdir()
        host.send_signal(signal.SIGKILL)
    assert journal.exists()
    return journal


def test_journal_of_a_killed_host_becomes_a_recording_when_the_history_is_listed(scratch: Path) -> None:
    journal = _killed_host(scratch)
    others = scratch / "resource-tracker-1-0123456789ab.journal"
    others.write_text("no journal")
    with ResourceTracker(interval=0.05) as tracker:
        tracker.wait_for_samples(2)
    tracker.cleanup()
    assert sorted(scratch.iterdir()) == sorted([journal, others]), "a tracker in a program recovers nothing"
    listed = subprocess.run([_sidecar(), "list"], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert journal.stem.rsplit("-", 1)[1] in listed
    assert list(scratch.iterdir()) == [others], "a file that is not a journal stays"
    data = Path(os.environ["XDG_DATA_HOME"]) / "resource-tracker"
    (recording,) = data.glob("*.json.gz")
    loaded = ResourceTracker.load(recording)
    assert len(loaded.process_metrics) >= 3
    run = loaded.snapshot()["run"]
    assert run["status"] == "tracker_died" and run["command"][1] == "-c", run
    assert recording.name.split(".")[0] in journal.name


@pytest.mark.parametrize("method", [None, "spawn"])
def test_stopped_recording_of_a_program_that_exits_at_once_is_detached(scratch: Path, method: str | None) -> None:
    program = """
        import os, sys
        from resource_tracker import ResourceTracker
        with ResourceTracker(interval=0.05, method=sys.argv[1] or None) as tracker:
            tracker.wait_for_samples(2)
        os._exit(0)
    """
    run_program(program, method or "")
    # A sidecar writes its journal in the history.
    assert len(list(scratch.iterdir())) == (1 if method is None else 0)
    listed = subprocess.run([_sidecar(), "list", "--json"], stdout=subprocess.PIPE, text=True, check=True).stdout
    (run,) = json.loads(listed)["runs"]
    assert run["status"] == "detached", run
    assert list(scratch.iterdir()) == []


def test_journal_of_a_running_host_is_left_alone(scratch: Path) -> None:
    with ResourceTracker(interval=0.05) as tracker:
        tracker.wait_for_samples(1)
        listed = subprocess.run([_sidecar(), "list", "--json"], stdout=subprocess.PIPE, text=True, check=True)
        assert json.loads(listed.stdout)["runs"] == []
        samples = tracker.n_samples
        tracker.wait_for_samples(samples + 2)
        assert len(list(scratch.iterdir())) == 1
