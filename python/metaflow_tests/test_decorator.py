"""The decorator without Metaflow: its errors never reach the step."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from metaflow_extensions.resource_tracker.plugins.track_resources import TrackResourcesDecorator


class Flow:
    name = "Flow"


class Graph(dict):
    def __iter__(self):
        return iter(self.values())


GRAPH = Graph(step=SimpleNamespace(name="step", type="linear", split_parents=[]))


class NoMetadata:
    @staticmethod
    def get_object(*_):
        return []


class BrokenMetadata:
    @staticmethod
    def get_object(*_):
        raise ConnectionError("no metadata service")


def _run(metadata, change=lambda deco: None, log=None, **attributes):
    """Run a task without Metaflow and return its artifact."""
    deco = TrackResourcesDecorator(attributes={"create_card": False, "interval": 0.05, **attributes})
    logger = lambda text, **_: log.append(text) if log is not None else None  # noqa: E731
    deco.step_init(None, GRAPH, "step", [deco], None, None, logger)
    flow = Flow()
    deco.task_pre_step("step", None, metadata, "1", "1", flow, GRAPH, 0, 0, None, None)
    change(deco)
    deco.task_post_step("step", flow, GRAPH, 0, 0)
    deco.task_finished("step", flow, GRAPH, True, 0, 0)
    return getattr(flow, "resource_tracker_data", None)


def test_step_initialised_twice_has_one_card() -> None:
    deco = TrackResourcesDecorator()
    decorators = [deco]
    for _ in range(2):
        deco.step_init(None, GRAPH, "twice", decorators, None, None, None)
    assert [deco.name for deco in decorators] == ["track_resources", "card"]


def test_unreadable_history_does_not_lose_the_recording() -> None:
    data = _run(BrokenMetadata)
    assert data["error"]["error_type"] == "ConnectionError"
    assert data["historical_stats"] == {"available": False, "runs_analyzed": 0}
    assert len(data["process_metrics"]) >= 1 and data["stats"]["duration"] is not None


def test_panic_of_the_tracker_is_stored_and_the_step_goes_on() -> None:
    class Panic(BaseException):
        """Like a panic of the native module."""

    def breaks(deco) -> None:
        def stop():
            raise Panic("in the middle")

        deco._tracker.stop = stop

    data = _run(NoMetadata, breaks)
    assert data["error"]["error_type"] == "Panic" and "in the middle" in data["error"]["traceback"]
    assert data["step_failed"] is False


def test_artifact_that_cannot_be_set_is_logged_in_one_line() -> None:
    log: list[str] = []
    # A parameter of the flow is a property without a setter.
    Flow.taken = property(lambda self: 1)
    assert _run(NoMetadata, log=log, artifact_name="taken") is None
    assert len(log) == 1 and "cannot be saved as an artifact: AttributeError" in log[0]


@pytest.mark.parametrize("text", ["False", "false", False, "0"])
def test_card_can_be_disabled(text: object) -> None:
    deco = TrackResourcesDecorator(attributes={"create_card": text})
    decorators = [deco]
    deco.step_init(None, GRAPH, "none", decorators, None, None, None)
    assert decorators == [deco]
