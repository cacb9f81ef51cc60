"""Real flows with the local datastore, offline: artifact and card of each kind of step."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import conftest
from metaflow.cards import get_cards
from metaflow.plugins.cards.exception import CardNotPresentException
from resource_tracker import ResourceTracker
from resource_tracker.tiny_data_frame import TinyDataFrame

#: Documented keys of the artifact, and further keys for later runs and the card.
DOCUMENTED = ["process_metrics", "system_metrics", "cloud_info", "server_info", "stats", "historical_stats"]
KEYS = [*DOCUMENTED, "past_stats", "tracker", "step_failed"]
STATS = ["cpu_usage", "memory_usage", "gpu_usage", "gpu_vram", "gpu_utilized", "disk_usage", "traffic", "duration"]
NO_HISTORY = {"available": False, "runs_analyzed": 0}


def _cards(task):
    return [card for card in get_cards(task) if card.type == "tracked_resources"]


def _has_cards(task) -> bool:
    try:
        return len(get_cards(task)) > 0
    except CardNotPresentException:
        return False


def _has_a_row_per_grid_point(data) -> bool:
    """Compare rows and missed ticks with the duration. Those of the last row follow from its length."""
    rows, interval = data["tracker"]["extra_metrics"], data["tracker"]["metadata"]["interval"]
    points = len(rows) + sum(row["missed_ticks"] for row in rows) + rows[-1]["elapsed"] // interval
    # The count may be one higher if the first grid point comes right after the start. It may be one lower if that grid
    # point was too near, or if the row before the last was late. Half a point more, because durations are rounded.
    return -1.5 <= points - data["stats"]["duration"] / interval <= 2.5


def _text(html: str) -> str:
    return re.sub(r"<(style|script).*?</\1>|<[^>]*>", " ", html, flags=re.S)


def test_tracked_steps_are_phases_of_the_run_around_the_flow(tmp_path) -> None:
    recording = tmp_path / "flow.json.gz"
    tracker = [str(Path(sys.executable).with_name("resource-tracker"))]
    around = [*tracker, "run", "--quiet", "--output", str(recording), "--"]
    # In a datastore of its own: other tests count the runs of this flow.
    store = {**os.environ, "METAFLOW_DATASTORE_SYSROOT_LOCAL": str(tmp_path)}
    done = conftest.command("each", "run", around=around, env=store)
    assert done.returncode == 0, done.stderr
    shown = subprocess.run([*tracker, "show", "--json", str(recording)], capture_output=True, text=True, check=True)
    phases = {phase["name"]: phase for phase in json.loads(shown.stdout)["phases"]}
    assert list(phases) == ["start", "part", "join"]
    # Eight tasks that sleep for a second; Metaflow runs some of them at once.
    assert phases["part"]["times"] == 1 and phases["part"]["seconds"] > 1
    # The part of the last task.
    assert phases["part"]["memory_peak_kib"] > 7 * 16 * 1024


def test_minimal_flow_has_the_documented_artifact_and_card(flows, cards) -> None:
    assert flows.run("seed")[1].returncode == 0
    task = flows.task("seed", "my_sleeping_data")
    data = task["resource_tracker_data"].data
    assert list(data) == KEYS
    assert isinstance(data["process_metrics"], TinyDataFrame) and len(data["process_metrics"].columns) == 12
    assert isinstance(data["system_metrics"], TinyDataFrame) and len(data["system_metrics"].columns) == 21
    rows = len(data["process_metrics"])
    assert list(data["stats"]) == STATS and data["step_failed"] is False
    assert data["stats"]["duration"] > 3
    assert rows == len(data["system_metrics"]) and _has_a_row_per_grid_point(data)
    # The pages of the `bytearray` are never written and take no memory: this is the memory of the interpreter.
    assert 20_000 < data["stats"]["memory_usage"]["max"] < 800_000
    assert data["historical_stats"] == NO_HISTORY and data["past_stats"] == []
    assert sorted(data["cloud_info"]) == ["discovery_time", "instance_type", "region", "vendor"]
    assert data["server_info"]["vcpus"] >= 1
    tracker = ResourceTracker.from_snapshot(data["tracker"])
    assert tracker.interval == 1 and tracker.process_metrics == data["process_metrics"]
    (card,) = get_cards(task)
    assert card.type == "tracked_resources"
    html = card.get()
    shown = _text(html)
    run_id = flows.run("seed")[0]
    for word in ("ResourceTrackingFlow", "my_sleeping_data", run_id, "Finished", "@resources(cpu=1, memory="):
        assert word in shown, word
    assert "from <code>Metaflow</code>" in html
    # The card has the advice that `advise()` and the command give.
    advice = tracker.advise()
    reasons = [advice["cpu"]["why"], advice["memory"]["why"], *(warning["message"] for warning in advice["warnings"])]
    for text in (advice["requests"]["metaflow"], *reasons):
        assert text in unescape(shown), text
    cards("seed", html, title="ResourceTrackingFlow / my_sleeping_data", status="Finished", run=run_id)


def test_documented_example_prints_the_documented_keys(flows) -> None:
    from metaflow import Flow

    flows.run("seed")
    artifact = Flow("ResourceTrackingFlow").latest_run.data.resource_tracker_data
    assert list(artifact)[: len(DOCUMENTED)] == DOCUMENTED
    text = repr({key: artifact[key] for key in DOCUMENTED})
    assert "'process_metrics': TinyDataFrame with" in text and "First row as a dict: {'timestamp':" in text


def test_second_run_uses_the_first_as_history(flows, cards) -> None:
    first = flows.task("seed", "my_sleeping_data")["resource_tracker_data"].data
    task = flows.task("seed", "my_sleeping_data", 2)
    data = task["resource_tracker_data"].data
    history = data["historical_stats"]
    assert history["available"] is True and history["runs_analyzed"] == 1
    assert history["avg_cpu_mean"] == first["stats"]["cpu_usage"]["mean"]
    assert history["max_memory_max"] == first["stats"]["memory_usage"]["max"]
    assert history["avg_duration"] == first["stats"]["duration"]
    assert list(history) == [
        *["available", "runs_analyzed", "avg_cpu_mean", "max_memory_max", "avg_gpu_mean", "max_vram_max"],
        *["max_gpu_count", "avg_duration"],
    ]
    # The recommendation uses both runs.
    html = _cards(task)[0].get()
    assert "the highest peak of 2 runs" in _text(html)
    tracker = ResourceTracker.from_snapshot(data["tracker"])
    needs = tracker.recommend_resources(historical_stats=data["past_stats"])
    assert f"@resources(cpu={needs['cpu']}, memory={needs['memory']})" in _text(html)
    cards(
        "second", html, title="ResourceTrackingFlow / my_sleeping_data", status="Finished", run=flows.run("seed", 2)[0]
    )


def test_failed_step_has_artifact_and_card(flows, cards) -> None:
    run_id, done = flows.run("failing")
    assert done.returncode == 1 and "on purpose" in done.stdout + done.stderr
    task = flows.task("failing", "start")
    assert not task.successful
    data = task["resource_tracker_data"].data
    assert list(data) == KEYS and data["step_failed"] is True
    assert data["stats"]["duration"] >= 0.3
    (card,) = _cards(task)
    html = card.get()
    assert "Failed" in _text(html)
    cards("failed", html, title="FailingFlow / start", status="Failed", run=run_id)


def test_step_that_exits_its_process_has_artifact_and_card(flows, cards) -> None:
    run_id, done = flows.run("exiting")
    assert done.returncode != 0
    task = flows.task("exiting", "start")
    data = task["resource_tracker_data"].data
    assert list(data) == KEYS and data["step_failed"] is True
    (card,) = _cards(task)
    cards("exited", card.get(), title="ExitingFlow / start", status="Failed", run=run_id)


def test_failed_runs_are_not_in_the_history(flows) -> None:
    flows.run("failing")
    task = flows.task("failing", "start", 2)
    assert task["resource_tracker_data"].data["historical_stats"] == NO_HISTORY


def test_foreach_and_join_keep_their_own_artifacts(flows, cards) -> None:
    from metaflow import Step

    run_id, done = flows.run("each")
    assert done.returncode == 0, done.stdout + done.stderr
    tasks = list(Step(f"EachFlow/{run_id}/part"))
    assert len(tasks) == 8
    peaks = []
    for task in tasks:
        data = task["resource_tracker_data"].data
        assert list(data) == KEYS and ResourceTracker.from_snapshot(data["tracker"]).interval == 0.05
        assert len(data["process_metrics"]) >= 6, "the interval of the decorator"
        peaks.append(data["stats"]["memory_usage"]["max"])
        (card,) = get_cards(task)
        assert card.type == "tracked_resources"
    assert max(peaks) - min(peaks) > 6 * 16 * 1024
    html = _cards(tasks[0])[0].get()
    assert "Requested for this run: @resources(cpu=2, memory=4096)" in " ".join(_text(html).split())
    cards("part", html, title="EachFlow / part", status="Finished", run=run_id)
    # The join keeps its own artifact, although every merged branch has an artifact of the same name.
    joined = flows.task("each", "join")["resource_tracker_data"].data
    assert list(joined) == KEYS and joined["tracker"]["metadata"]["interval"] == 1
    # The join has two cards: the card of its own, with its content, and `tracked_resources`.
    found = {card.type: card for card in get_cards(flows.task("each", "join"))}
    assert sorted(found) == ["default", "tracked_resources"]
    contents = [base64.b64decode(text) for text in re.findall(r'"([A-Za-z0-9+/]{400,}=*)"', found["default"].get())]
    assert any(b"of the step's own" in content for content in contents)


def test_history_of_a_foreach_combines_its_tasks(flows) -> None:
    from metaflow import Step
    from metaflow.datastore import FlowDataStore
    from metaflow.plugins.datastores.local_storage import LocalStorage
    from metaflow.plugins.metadata_providers.local import LocalMetadataProvider
    from metaflow_extensions.resource_tracker.plugins.track_resources.past import past_stats

    tasks = list(Step(f"EachFlow/{flows.run('each')[0]}/part"))
    each = [task["resource_tracker_data"].data["stats"] for task in tasks]
    root = str(conftest.HOME / ".metaflow")
    datastore = FlowDataStore("EachFlow", None, storage_impl=LocalStorage, ds_root=root)
    (past,) = past_stats(datastore, LocalMetadataProvider, "EachFlow", "next", "part", "end", "resource_tracker_data")
    assert past["process_memory"]["max"] == max(stats["memory_usage"]["max"] for stats in each)
    mean = sum(stats["duration"] for stats in each) / 8
    assert abs(past["timestamp"]["duration"] - mean) < 0.01


def test_successful_retry_has_its_own_artifact(flows, cards) -> None:
    run_id, done = flows.run("steps")
    assert done.returncode == 0, done.stdout + done.stderr
    task = flows.task("steps", "shaky")
    assert task.current_attempt == 1
    data = task["resource_tracker_data"].data
    assert list(data) == KEYS and data["step_failed"] is False
    (card,) = _cards(task)
    cards("retried", card.get(), title="StepsFlow / shaky", status="Finished", run=run_id)
    from metaflow import Task

    first = Task(task.pathspec, attempt=0)
    assert first["resource_tracker_data"].data["step_failed"] is True


def test_short_step_with_another_artifact_name_and_without_card(flows) -> None:
    task = flows.task("steps", "short")
    data = task["of_short"].data
    assert list(data) == KEYS
    assert 0.2 <= data["stats"]["duration"] < 10
    identity = data["tracker"]["run"]["identity"]
    assert (identity["asked_cpus"], identity["asked_memory_bytes"]) == (2, 512 << 20) and "asked_gpus" not in identity
    assert len(data["process_metrics"]) > 1 and _has_a_row_per_grid_point(data)
    assert not _has_cards(task)


def test_caught_step_is_shown_as_failed(flows, cards) -> None:
    task = flows.task("steps", "caught")
    data = task["of_caught"].data
    assert task.successful is False and task["problem"].data is not None
    assert list(data) == KEYS and data["step_failed"] is True
    (card,) = _cards(task)
    cards("caught", card.get(), title="StepsFlow / caught", status="Failed", run=flows.run("steps")[0])


def test_tracker_that_cannot_start_leaves_the_step_unharmed(flows, cards) -> None:
    task = flows.task("steps", "untracked")
    assert task.successful and task["ran"].data is True
    data = task["of_untracked"].data
    assert list(data) == ["step_failed", "error"]
    error = data["error"]
    assert sorted(error) == ["error_message", "error_type", "traceback"]
    assert error["error_type"] == "ValueError" and "interval" in error["error_message"]
    log = flows.run("steps")[1].stdout
    assert len(re.findall(r"\[@track_resources\] this step runs untracked: ValueError", log)) == 1
    (card,) = _cards(task)
    html = card.get()
    assert "The step ran untracked" in html and "interval" in html
    cards("untracked", html, title="StepsFlow / untracked", status="", run=flows.run("steps")[0])


def test_options_of_with_on_the_command_line_are_used(flows) -> None:
    """`--with` passes attributes as text."""
    id_file = conftest.HOME / "with.id"
    spec = "track_resources:interval=0.02,create_card=False,artifact_name=everywhere"
    done = conftest.command("seed", "--with", spec, "run", "--run-id-file", str(id_file))
    assert done.returncode == 0, done.stderr
    from metaflow import Step

    task = Step(f"ResourceTrackingFlow/{id_file.read_text()}/start").task
    assert task["everywhere"].data["tracker"]["metadata"]["interval"] == 0.02
    assert not _has_cards(task)
