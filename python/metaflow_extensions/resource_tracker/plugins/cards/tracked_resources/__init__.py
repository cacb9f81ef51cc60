"""The card `tracked_resources`: the report of a step, or the reason why there is no report."""

from __future__ import annotations

import contextlib

from metaflow.plugins.cards.card_modules.card import MetaflowCard
from metaflow_extensions.resource_tracker.plugins.track_resources import package


class TrackedResourcesCard(MetaflowCard):
    """Resource usage of the step and recommendation for the next run."""

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
            # Import the package first: unpickling the artifact needs its classes.
            package.import_tracker()
        try:
            data = task[self._options.get("artifact_name", "resource_tracker_data")].data
        except KeyError:
            return _notice(title, names, "The step ended before its recording could be saved.", "")
        error = data.get("error")
        if error is not None and "tracker" not in data:
            message = f"{error['error_type']}: {error['error_message']}"
            return _notice(title, names, f"The step ran untracked. {message}", error["traceback"])

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
        except RuntimeError as error:
            return _notice(title, names, f"{error}.", "")
        return str(report)


def _notice(title, names, problem, details):
    """Return a page made without the native module, which may be missing."""
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
