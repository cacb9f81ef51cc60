"""History of a step: artifacts of this and the original package, and many runs."""

from __future__ import annotations

import base64
import pickle
import threading
import time

import pytest
from resource_tracker import ResourceTracker
from resource_tracker.snapshot import Snapshot


class Task(dict):
    """Stand-in for a task datastore of Metaflow."""

    def __init__(self, step_name: str, **artifacts: object) -> None:
        super().__init__({name: value for name, value in artifacts.items() if value is not None})
        self.step_name = step_name


def _past(runs: dict[str, list[object]], failed: tuple[str, ...] = (), has_many: bool = True):
    """`past_stats` over artifacts by run, oldest first; each run is a list of its tasks' artifacts."""
    from metaflow_extensions.resource_tracker.plugins.track_resources.past import past_stats

    class Metadata:
        @staticmethod
        def get_object(kind, below, filters, attempt, *path):
            if kind == "flow":
                return [{"run_number": run, "ts_epoch": at} for at, run in enumerate(runs)]
            return [{"task_id": number} for number in range(len(runs[path[1]]))]

    class Datastore:
        @staticmethod
        def get_task_datastores(run_id=None, steps=None, pathspecs=None):
            if pathspecs is None:
                others = [Task("step", kept=artifact) for artifact in runs[run_id]] if "step" in steps else []
                return [Task("end", _success=run_id not in failed), *others]
            return [Task("step", kept=runs[run][int(task)]) for run, _, task in (path.split("/") for path in pathspecs)]

    return past_stats(Datastore, Metadata, "Flow", "now", "step", "end", "kept", has_many)


def _artifact(cpu: float, memory: float) -> dict[str, object]:
    return {"stats": {"cpu_usage": {"mean": cpu}, "memory_usage": {"max": memory}}, "step_failed": False}


@pytest.mark.parametrize("has_many", [True, False])
def test_history_is_the_last_five_successful_runs_newest_first(has_many: bool) -> None:
    runs = {str(n): [_artifact(n, 100 * n)] for n in range(1, 10)}
    past = _past({**runs, "now": [_artifact(99, 99)]}, ("8",), has_many)
    assert [stats["process_cpu_usage"]["mean"] for stats in past] == [9, 7, 6, 5, 4]


def test_tasks_of_a_run_are_combined() -> None:
    (stats,) = _past({"1": [_artifact(1, 300), _artifact(3, 200), {"error": {}}, None]})
    assert stats["process_cpu_usage"]["mean"] == 2 and stats["process_memory"]["max"] == 300


def test_silent_service_is_abandoned_after_the_time_limit() -> None:
    from metaflow_extensions.resource_tracker.plugins.track_resources.past import BUDGET_S, past_stats

    answered = threading.Event()

    class Silent:
        @staticmethod
        def get_object(*question):
            answered.wait(60)
            return []

    began = time.monotonic()
    assert past_stats(None, Silent, "Flow", "now", "step", "end", "kept") == []
    assert BUDGET_S <= time.monotonic() - began < 30
    answered.set()


def test_error_of_the_service_is_raised() -> None:
    from metaflow_extensions.resource_tracker.plugins.track_resources.past import past_stats

    class Broken:
        @staticmethod
        def get_object(*question):
            raise ConnectionError("no route")

    with pytest.raises(ConnectionError, match="no route"):
        past_stats(None, Broken, "Flow", "now", "step", "end", "kept")


def test_run_with_too_many_tasks_for_the_time_limit_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from metaflow_extensions.resource_tracker.plugins.track_resources import past

    wide = {"1": [_artifact(1, 300)] * 200}
    assert len(_past(wide)) == 1
    moments = iter([0.0, 0.0, 0.5, 2.0, 2.0, 2.0])
    monkeypatch.setattr(past.time, "monotonic", lambda: next(moments))
    assert _past(wide) == []


def test_artifacts_of_the_original_package_are_read() -> None:
    with ResourceTracker(interval=0.05) as tracker:
        tracker.wait_for_samples(2)
    # Later releases store only a snapshot, earlier ones statistics under these names.
    late = {"step_failed": False, "tracker": tracker.snapshot(), "historical_stats": []}
    early = {"stats": {"cpu_usage": {"mean": 1.42, "max": 6.11}, "memory_usage": {"max": 591621.0}, "duration": 9.89}}
    newest, oldest = _past({"1": [early], "2": [late]})
    assert newest == tracker.stats()
    assert oldest["timestamp"]["duration"] == 9.89


def test_runs_without_a_known_artifact_are_left_out() -> None:
    assert _past({"1": [None], "2": [{"tracker": {"no": "snapshot"}}], "3": ["text"], "4": [{"stats": {}}]}) == []


def test_frame_of_the_original_package_unpickles() -> None:
    # Made by release 0.4.2: pickle.dumps(TinyDataFrame({"a": [1, 2], "b": ["x", "y"]}), 4)
    packed = (
        "gASVdAAAAAAAAACMIHJlc291cmNlX3RyYWNrZXIudGlueV9kYXRhX2ZyYW1llIwNVGlueURhdGFGcmFtZZSTlCmBlH2UKIwFX2RhdGGUXZQo"
        "XZQoSwFLAmVdlCiMAXiUjAF5lGVljAdjb2x1bW5zlF2UKIwBYZSMAWKUZXViLg=="
    )
    frame = pickle.loads(base64.b64decode(packed))
    assert frame.to_dict() == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]


def test_snapshot_is_a_dict_and_pickles_small() -> None:
    import copy
    import json

    with ResourceTracker(interval=0.01) as tracker:
        tracker.wait_for_samples(20)
    plain = tracker.snapshot()
    for view in (dict, copy.deepcopy, lambda it: json.loads(json.dumps(it)), lambda it: it.copy(), lambda it: {**it}):
        snapshot = pickle.loads(pickle.dumps(Snapshot.of(tracker)))
        assert snapshot.packed is not None, "not unpacked yet"
        assert view(snapshot) == plain
    snapshot = Snapshot.of(tracker)
    snapshot["note"] = "changed"
    assert pickle.loads(pickle.dumps(snapshot))["note"] == "changed"
    assert ResourceTracker.from_snapshot(snapshot).stats() == tracker.stats()
    assert len(pickle.dumps(Snapshot.of(tracker))) < len(pickle.dumps(plain)) / 3
