"""The card `tracked_resources`: the report of what a step used, or why there is none."""

from __future__ import annotations

import contextlib

from metaflow.plugins.cards.card_modules.card import MetaflowCard
from metaflow_extensions.resource_tracker.plugins.track_resources import package


class TrackedResourcesCard(MetaflowCard):
    """What the step used, and what to ask for next time."""

    type = "tracked_resources"

    def __init__(self, options=None, **_):
        self._options = options or {}

    def render(self, task):
        flow, run, step, task_id = task.pathspec.split("/")[:4]
        names = {"Flow": flow, "Step": step, "Run ID": run, "Task": task_id}
        if task.current_attempt:
            names["Attempt"] = str(task.current_attempt + 1)
        title = f"{flow} / {step}"
        with contextlib.suppress(ImportError):
            # Before the artifact, which is made of its classes.
            package.import_tracker()
        try:
            data = task[self._options.get("artifact_name", "resource_tracker_data")].data
        except KeyError:
            return _notice(title, names, "The step ended before its figures could be kept.", "")
        error = data.get("error")
        if error is not None and "tracker" not in data:
            said = f"{error['error_type']}: {error['error_message']}"
            return _notice(title, names, f"The step ran untracked. {said}", error["traceback"])

        if error is not None:
            names["Tracker"] = f"{error['error_type']}: {error['error_message']}"
        tracker = package.import_tracker().from_snapshot(data["tracker"])
        try:
            report = tracker.report(
                integration="Metaflow",
                historical_stats=data.get("past_stats", []),
                status_failed=data["step_failed"],
                title=title,
                names=names,
                requested=self._options.get("requested"),
            )
        except RuntimeError as nothing:
            return _notice(title, names, f"{nothing}.", "")
        return str(report)


def _notice(title, names, problem, details):
    """A page without the native module, which may be what is missing."""
    from html import escape

    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in names.items())
    shown = f"<pre>{escape(details)}</pre>" if details else ""
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>body{{font:16px/1.5 sans-serif;margin:2em auto;max-width:50em}}"
        f'pre{{overflow:auto}}</style></head><body><main><h1>{escape(title)}</h1><p class="problem">{escape(problem)}'
        f"</p><dl>{facts}</dl>{shown}</main></body></html>\n"
    )


CARDS = [TrackedResourcesCard]
