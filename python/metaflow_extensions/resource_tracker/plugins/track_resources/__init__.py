"""`@track_resources`: records the resource usage of a step as an artifact and a card.

An error of the tracker never fails or delays the step. It is stored in the artifact and shown on the card.
"""

from __future__ import annotations

import contextlib
import functools

from metaflow.decorators import StepDecorator
from metaflow.flowspec import INTERNAL_ARTIFACTS_SET

from . import package

CARD = "tracked_resources"


class TrackResourcesDecorator(StepDecorator):
    """
    Records CPU, memory, storage, network and GPU usage of a step and of the machine.

    Parameters
    ----------
    interval : float, default 1
        Seconds between two samples.
    artifact_name : str, default "resource_tracker_data"
        Artifact of the step with the recording.
    create_card : bool, default True
        Add the card `tracked_resources` to the step.
    """

    name = "track_resources"
    defaults = {"interval": 1, "artifact_name": "resource_tracker_data", "create_card": True}  # noqa: RUF012

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._tracker = None
        self._error = None
        self._card = None
        self._logger = None
        self._where = None
        self._asked = None

    def step_init(self, flow, graph, step_name, decorators, environment, flow_datastore, logger):
        self._logger = logger
        self._flow_datastore = flow_datastore
        with self._guard():
            # The artifact differs between branches; `merge_artifacts` in a join must ignore it.
            INTERNAL_ARTIFACTS_SET.add(self.attributes["artifact_name"])
        with self._guard():
            self._asked = _asked(decorators)
        # Options of `--with` are strings.
        if str(self.attributes["create_card"]).lower() not in ("false", "0", "none"):
            with self._guard():
                self._add_card(step_name, decorators)

    def _add_card(self, step_name, decorators):
        """Add the card once, even if the step is initialised several times."""
        from metaflow.plugins.cards.card_decorator import CardDecorator

        cards = [deco for deco in decorators if isinstance(deco, CardDecorator)]
        self._card = next((card for card in cards if card.attributes["type"] == CARD), None)
        if self._card is not None:
            return
        options = {"artifact_name": self.attributes["artifact_name"], "requested": _requested(decorators)}
        # `statically_defined`: Metaflow passes other decorators to tasks as text, where this method runs again.
        self._card = CardDecorator(attributes={"type": CARD, "options": options}, statically_defined=True)
        self._card.external_init()
        # Metaflow is iterating over this list, and reaches the new card next.
        decorators.append(self._card)
        # The first card of a step counts the cards, possibly before this one was added.
        CardDecorator._register_event(f"step-init-{step_name}")
        CardDecorator._set_card_counts_per_step(step_name, len(cards) + 1)

    def add_to_package(self):
        """Add this package, including its native module, to the code package."""
        from metaflow.packaging_sys import ContentType

        with self._guard():
            for path, place in package.files():
                yield path, place, ContentType.CODE_CONTENT

    def task_pre_step(
        self,
        step_name,
        task_datastore,
        metadata,
        run_id,
        task_id,
        flow,
        graph,
        retry_count,
        max_user_code_retries,
        ubf_context,
        inputs,
    ):
        self._where = (metadata, flow.name, run_id, step_name)
        with self._guard():
            tracker = package.import_tracker()
            asking = type(tracker.__name__, (tracker,), {"_asked": self._asked})
            self._tracker = asking(interval=float(self.attributes["interval"]))
            from resource_tracker import mark

            # The step is a phase of the run around the flow, if there is one.
            mark(step_name)
        if self._tracker is None:
            self._log_error("this step runs untracked")

    def task_decorate(self, step_func, flow, graph, retry_count, max_user_code_retries, ubf_context):
        if self._tracker is None:
            return step_func

        @functools.wraps(step_func)
        def tracked(*inputs):
            try:
                return step_func(*inputs)
            except (KeyboardInterrupt, SystemExit):
                # Metaflow calls `task_exception` only for subclasses of `Exception`.
                self._finish(flow, graph, failed=True)
                raise

        return tracked

    def task_post_step(self, step_name, flow, graph, retry_count, max_user_code_retries):
        self._finish(flow, graph, failed=False)

    def task_exception(self, exception, step_name, flow, graph, retry_count, max_user_code_retries):
        self._finish(flow, graph, failed=True)
        return False

    def task_finished(self, step_name, flow, graph, is_task_ok, retry_count, max_user_code_retries):
        # Metaflow creates cards only for successful tasks. A failed task gets its card here, after its last attempt.
        if is_task_ok or self._card is None or retry_count < max_user_code_retries:
            return
        with self._guard():
            card = self._card
            card.card_creator.create(
                mode="render",
                final=True,
                card_uuid=card._card_uuid,
                user_set_card_id=card._user_set_card_id,
                runtime_card=card._is_runtime_card,
                decorator_attributes=card.attributes,
                card_options=card.card_options,
                logger=card._logger,
            )

    def _finish(self, flow, graph, failed):
        """Stop the recording and store it on the flow as an artifact."""
        if self._where is None:
            return
        data = {}
        if self._tracker is not None:
            with self._guard():
                self._tracker.stop()
                snapshot = self._fill(data)
                past = []
                with self._guard():
                    past = self._past(graph)
                data.update(_history(past), tracker=snapshot)
            with self._guard():
                self._tracker.cleanup()
        data["step_failed"] = failed
        if self._error is not None:
            data["error"] = self._error
        try:
            setattr(flow, self.attributes["artifact_name"], data)
        except Exception:  # for example, a parameter has the same name
            with self._guard():
                raise
            self._log_error("the recording cannot be saved as an artifact")

    def _log_error(self, what):
        """Write one line to the log of the step."""
        error = self._error or {"error_type": "error", "error_message": "unknown"}
        with contextlib.suppress(Exception):
            text = f"[@track_resources] {what}: {error['error_type']}: {error['error_message']}"
            self._logger(text, timestamp=False, bad=True)

    def _fill(self, data):
        from resource_tracker import _native
        from resource_tracker.artifact import Table
        from resource_tracker.snapshot import Snapshot

        tracker = self._tracker
        data["process_metrics"] = Table.of(tracker.process_metrics)
        data["system_metrics"] = Table.of(tracker.system_metrics)
        data["cloud_info"] = tracker.cloud_info
        data["server_info"] = tracker.server_info
        data["stats"] = _native.step_stats(tracker.stats())
        return Snapshot.of(tracker)

    def _past(self, graph):
        from .past import past_stats

        metadata, flow_name, run_id, step_name = self._where
        end_step = next((node.name for node in graph if node.type == "end"), "end")
        artifact_name = self.attributes["artifact_name"]
        has_many = bool(graph[step_name].split_parents)
        return past_stats(
            self._flow_datastore, metadata, flow_name, run_id, step_name, end_step, artifact_name, has_many
        )

    @contextlib.contextmanager
    def _guard(self):
        """Keep errors of the tracker away from the step, and store the first one."""
        try:
            yield
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # a panic of the native module is not an `Exception`
            import traceback

            if self._error is None:
                self._error = {
                    "error_type": type(error).__name__,
                    "error_message": str(error),
                    "traceback": traceback.format_exc(),
                }


def _history(past):
    from resource_tracker import _native

    return {"historical_stats": _native.step_history(past), "past_stats": past}


def _wanted(decorators):
    """Yield the name of each resource decorator of the step, and what the user set there."""
    for deco in decorators:
        if deco.name in ("resources", "batch", "kubernetes"):
            given = getattr(deco, "_user_defined_attributes", set())
            wanted = {key: deco.attributes.get(key) for key in ("cpu", "memory", "gpu") if key in given}
            if wanted:
                yield deco.name, wanted


def _requested(decorators):
    """Return the resource decorators of the step as source text; None if there are none."""
    texts = []
    for name, wanted in _wanted(decorators):
        texts.append(f"@{name}({', '.join(f'{key}={value}' for key, value in wanted.items())})")
    return " ".join(texts) or None


def _asked(decorators):
    """Return CPUs, bytes of memory and GPUs that were requested for the step; None for each that was not."""

    def highest(key, unit):
        amounts = [float(wanted[key]) * unit for _, wanted in _wanted(decorators) if wanted.get(key) is not None]
        # Of several decorators, the highest amount counts for Metaflow.
        return max(amounts, default=None)

    return [highest("cpu", 1), highest("memory", 1 << 20), highest("gpu", 1)]
