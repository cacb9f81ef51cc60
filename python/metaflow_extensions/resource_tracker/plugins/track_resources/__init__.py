"""`@track_resources`: what a step used, as an artifact of the step and as a card.

The step comes first: whatever goes wrong here is written into the artifact and shown on the card, and the step neither
fails nor waits.
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
    Records what a step uses: CPU, memory, storage, network and GPUs of its processes and of the machine.

    Parameters
    ----------
    interval : float, default 1
        Seconds between two samples.
    artifact_name : str, default "resource_tracker_data"
        Where the step keeps what was recorded.
    create_card : bool, default True
        Whether the step gets the card `tracked_resources`.
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

    def step_init(self, flow, graph, step_name, decorators, environment, flow_datastore, logger):
        self._logger = logger
        self._flow_datastore = flow_datastore
        with self._guard():
            # Each branch has an artifact of its own: a join that merges all others must not stumble over it.
            INTERNAL_ARTIFACTS_SET.add(self.attributes["artifact_name"])
        # An option of `--with` comes as text.
        if str(self.attributes["create_card"]).lower() not in ("false", "0", "none"):
            with self._guard():
                self._add_card(step_name, decorators)

    def _add_card(self, step_name, decorators):
        """One card of ours, however often a step is initialised."""
        from metaflow.plugins.cards.card_decorator import CardDecorator

        cards = [deco for deco in decorators if isinstance(deco, CardDecorator)]
        self._card = next((card for card in cards if card.attributes["type"] == CARD), None)
        if self._card is not None:
            return
        options = {"artifact_name": self.attributes["artifact_name"], "requested": _requested(decorators)}
        # As if it stood in the source: Metaflow hands all others on to tasks as text, where we come again anyway.
        self._card = CardDecorator(attributes={"type": CARD, "options": options}, statically_defined=True)
        self._card.external_init()
        # Metaflow is going through this very list, and comes to the new card next.
        decorators.append(self._card)
        # The first card of a step has counted them, and may have done so before ours came.
        CardDecorator._register_event(f"step-init-{step_name}")
        CardDecorator._set_card_counts_per_step(step_name, len(cards) + 1)

    def add_to_package(self):
        """The package, its native module included, goes where the step goes."""
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
            self._tracker = package.import_tracker()(interval=float(self.attributes["interval"]))
        if self._tracker is None:
            self._say("this step runs untracked")

    def task_decorate(self, step_func, flow, graph, retry_count, max_user_code_retries, ubf_context):
        if self._tracker is None:
            return step_func

        @functools.wraps(step_func)
        def tracked(*inputs):
            try:
                return step_func(*inputs)
            except (KeyboardInterrupt, SystemExit):
                # No `Exception`, so that none of the hooks below hears of it.
                self._finish(flow, graph, failed=True)
                raise

        return tracked

    def task_post_step(self, step_name, flow, graph, retry_count, max_user_code_retries):
        self._finish(flow, graph, failed=False)

    def task_exception(self, exception, step_name, flow, graph, retry_count, max_user_code_retries):
        self._finish(flow, graph, failed=True)
        return False

    def task_finished(self, step_name, flow, graph, is_task_ok, retry_count, max_user_code_retries):
        # Metaflow makes cards of tasks that succeeded; of one that failed it is wanted all the more. An attempt that
        # is followed by another leaves the card to that one.
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
        """Ends the recording, and leaves it on the flow as an artifact."""
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
        except Exception:  # a parameter of that name, say
            with self._guard():
                raise
            self._say("what was recorded cannot be kept as an artifact")

    def _say(self, what):
        """One line in the log of the step."""
        error = self._error or {"error_type": "error", "error_message": "not known"}
        with contextlib.suppress(Exception):
            text = f"[@track_resources] {what}: {error['error_type']}: {error['error_message']}"
            self._logger(text, timestamp=False, bad=True)

    def _fill(self, data):
        from resource_tracker import _native
        from resource_tracker.snapshot import Snapshot

        tracker = self._tracker
        data["process_metrics"] = tracker.process_metrics
        data["system_metrics"] = tracker.system_metrics
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
        """Keeps what goes wrong here from the step; the first of it is told."""
        try:
            yield
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # a panic of the native module is no `Exception`
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


def _requested(decorators):
    """What the step asked for, as its author could have written it; None where it did not."""
    asked = []
    for deco in decorators:
        if deco.name in ("resources", "batch", "kubernetes"):
            given = getattr(deco, "_user_defined_attributes", set())
            wanted = [(key, deco.attributes.get(key)) for key in ("cpu", "memory", "gpu") if key in given]
            if wanted:
                asked.append(f"@{deco.name}({', '.join(f'{key}={value}' for key, value in wanted)})")
    return " ".join(asked) or None
