"""Job name, tags and input of a run, its place in the history, and the advice for the next run."""

from __future__ import annotations

import inspect
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import run_program
from resource_tracker import ResourceTracker
from resource_tracker.tracker import _sidecar


def command(*arguments: str) -> Any:
    """Return the JSON that the command of the wheel prints."""
    done = subprocess.run([_sidecar(), *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout)


def runs() -> list[dict[str, Any]]:
    """Return the runs of the history, newest first."""
    listed: list[dict[str, Any]] = command("list", "--json")["runs"]
    return listed


def test_run_with_a_job_name_is_saved_in_the_history(tmp_path: Path) -> None:
    data = tmp_path / "data.bin"
    data.write_bytes(b"x" * 1000)
    with ResourceTracker(interval=0.05, job="train", tags={"fold": 3}, input=data) as tracker:
        tracker.wait_for_samples(1)
    (run,) = runs()
    assert (run["job"], run["tags"], run["status"]) == ("train", {"fold": "3"}, "finished")
    assert run["input_bytes"] == 1000
    assert tracker.save() == run["id"] and len(runs()) == 1
    loaded = ResourceTracker.loads(tracker.dumps())
    assert (loaded.job, loaded.tags) == ("train", {"fold": "3"})


def test_run_without_a_job_name_is_saved_on_demand() -> None:
    with ResourceTracker(interval=0.05) as tracker:
        tracker.wait_for_samples(1)
    assert runs() == []
    assert tracker.save() == runs()[0]["id"] and runs()[0]["job"] is None


@pytest.mark.parametrize("method", [None, "spawn"])
def test_job_tags_and_input_can_be_set_before_the_start(tmp_path: Path, method: str) -> None:
    paths = [tmp_path / "one", tmp_path / "two"]
    for path in paths:
        path.write_bytes(b"x" * 10)
    tracker = ResourceTracker(interval=0.05, autostart=False, method=method)
    assert (tracker.job, tracker.tags, tracker.input) == (None, {}, [])
    tracker.job, tracker.tags, tracker.input = "later", {"a": "b"}, paths
    tracker.start()
    assert (tracker.job, tracker.tags, tracker.input) == ("later", {"a": "b"}, [str(path) for path in paths])
    tracker.stop()
    (run,) = runs()
    assert (run["job"], run["tags"], run["input_bytes"]) == ("later", {"a": "b"}, 20)


def test_job_and_tags_of_the_environment_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESOURCE_TRACKER_JOB", "nightly")
    monkeypatch.setenv("RESOURCE_TRACKER_TAGS", "team=vision")
    with ResourceTracker(interval=0.05, tags={"fold": "1"}):
        pass
    assert runs()[0]["job"] == "nightly" and runs()[0]["tags"] == {"fold": "1", "team": "vision"}


def test_advice_is_based_on_earlier_runs_and_input(tmp_path: Path) -> None:
    for _ in range(3):
        with ResourceTracker(interval=0.05, job="train") as tracker:
            tracker.wait_for_samples(1)
    advice = tracker.advise()
    assert advice["runs"] == 3 and advice["request"]["memory_bytes"] > 0 and advice["memory"]["why"]
    assert {"cpu", "warnings", "findings", "servers", "what_if", "requests", "cost"} <= set(advice)
    assert tracker.advise(earlier_runs=1)["runs"] == 2
    server = tracker.advise(vendor_id="hcloud", slowdown=20)["servers"]["anywhere"]
    assert server["vendor_id"] == "hcloud"
    with pytest.raises(TypeError, match="colour"):
        tracker.advise(colour="red")
    for slowdown in (-1, float("nan"), 1e6):
        with pytest.raises(ValueError, match="slowdown"):
            tracker.advise(slowdown=slowdown)
    with pytest.raises(OSError, match="missing"):
        tracker.advise(input=tmp_path / "missing")
    with pytest.raises(RuntimeError):
        ResourceTracker(track_processes=False, interval=0.05).advise()


def test_other_threads_run_while_the_advice_waits_for_the_network() -> None:
    # A server that accepts connections and never answers.
    program = """
        import os, socket, threading, time
        server = socket.create_server(("127.0.0.1", 0))
        os.environ.pop("RESOURCE_TRACKER_OFFLINE", None)
        os.environ["RESOURCE_TRACKER_KEEPER_URL"] = f"http://127.0.0.1:{server.getsockname()[1]}"
        from resource_tracker import ResourceTracker
        tracker = ResourceTracker(interval=0.05, discover_cloud=False)
        tracker.wait_for_samples(1)
        done = threading.Event()
        threading.Thread(target=lambda: (tracker.advise(), done.set())).start()
        server.accept()
        rows = tracker.n_samples
        assert not done.is_set(), "the tracker can be read while the request waits"
        done.wait(20)
        assert done.is_set()
    """
    run_program(program)


def test_help_documents_every_parameter() -> None:
    for function in (ResourceTracker, ResourceTracker.advise):
        documented = inspect.getdoc(function) or ""
        names = [name for name in inspect.signature(function).parameters if name != "self"]
        assert len(names) > 3
        for name in names:
            assert f"    {name}: " in documented or f"    **{name}: " in documented, name
