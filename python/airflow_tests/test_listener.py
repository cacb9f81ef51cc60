"""A DAG is run by Airflow, and its tasks are runs of the history."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def airflow_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of Airflow with a database and the DAG. `runs` empties its history."""
    home = tmp_path_factory.mktemp("airflow")
    shutil.copytree(Path(__file__).with_name("dags"), home / "dags")
    run(home, "airflow", "db", "migrate")
    return home


def environment(home: Path, **settings: str) -> dict[str, str]:
    return {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "HOME": str(home),
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "RESOURCE_TRACKER_OFFLINE": "1",
        **settings,
    }


def run(home: Path, *command: str, status: int = 0, **settings: str) -> str:
    done = subprocess.run(command, env=environment(home, **settings), capture_output=True, text=True, timeout=300)
    assert done.returncode == status, f"exit {done.returncode}\n{done.stdout[-5000:]}\n{done.stderr[-5000:]}"
    return done.stdout + done.stderr


def runs(home: Path) -> list[dict[str, Any]]:
    """Return the runs of the history, oldest first, and remove them."""
    listed: list[dict[str, Any]] = json.loads(run(home, "resource-tracker", "list", "--json"))["runs"][::-1]
    for entry in listed:
        entry["shown"] = run(home, "resource-tracker", "show", entry["id"])
        entry["figures"] = json.loads(run(home, "resource-tracker", "show", "--json", entry["id"]))
        assert entry["id"] in run(home, "resource-tracker", "list", "--tag", f"run={entry['tags']['run']}")
        if entry["job"] == "etl.extract":
            assert "memory:" in run(home, "resource-tracker", "recommend", "etl.extract", "--for", "kubernetes")
    shutil.rmtree(home / ".local")
    return listed


def check(listed: list[dict[str, Any]]) -> None:
    found = sorted((entry["job"], entry["tags"].get("map_index"), entry["status"]) for entry in listed)
    expected = [
        ("etl.extract", None, "finished"),
        ("etl.load", None, "failed"),
        ("etl.part", "0", "finished"),
        ("etl.part", "1", "finished"),
        ("etl.skip", None, "finished"),
    ]
    assert sorted(found, key=str) == sorted(expected, key=str)
    for entry in listed:
        assert entry["tags"]["dag"] == "etl" and entry["tags"]["try"] == "1"
        assert entry["tags"]["run"].startswith("manual__")
    by_job = {entry["job"]: entry for entry in listed}
    assert "failed with ValueError: no data" in by_job["etl.load"]["shown"]
    # One second of CPU time in the process of the task, and 300 MiB in its child.
    figures = by_job["etl.extract"]["figures"]
    assert 0.9 < figures["cpu_seconds"] < 3
    assert figures["memory_peak_bytes"] > 300 << 20


def test_tasks_in_one_process(airflow_home: Path) -> None:
    output = run(airflow_home, "airflow", "dags", "test", "etl", status=1)
    assert "error calling listener" not in output
    check(runs(airflow_home))


def test_setting_switches_the_plugin_off(airflow_home: Path) -> None:
    off = {"AIRFLOW__RESOURCE_TRACKER__ENABLED": "False"}
    run(airflow_home, "airflow", "dags", "test", "etl", status=1, **off)
    assert json.loads(run(airflow_home, "resource-tracker", "list", "--json"))["runs"] == []


def test_other_ends_of_a_task(airflow_home: Path) -> None:
    program = """
from types import SimpleNamespace
from airflow_resource_tracker import Listener

def start(task_id):
    task = SimpleNamespace(dag_id="dag", task_id=task_id, run_id="run", try_number=2, map_index=-1)
    listener.on_task_instance_running(task)
    return task

listener = Listener()
listener.on_task_instance_failed(start("text"), error="Task received SIGTERM signal")
listener.on_task_instance_failed(start("unknown"), error=None)
start("deferred")
listener.before_stopping()
# The state of a task that ran in another process.
listener.on_task_instance_success(SimpleNamespace(dag_id="dag", task_id="elsewhere", run_id="run", map_index=-1))
"""
    run(airflow_home, sys.executable, "-c", program)
    shown = {entry["job"]: (entry["status"], entry["shown"].splitlines()[0]) for entry in runs(airflow_home)}
    assert set(shown) == {"dag.text", "dag.unknown", "dag.deferred"}
    assert "failed with RuntimeError: Task received SIGTERM signal after" in shown["dag.text"][1]
    assert "failed with RuntimeError: the task failed after" in shown["dag.unknown"][1]
    assert shown["dag.deferred"][0] == "finished"
