"""Statistics of earlier runs of a step, read from their artifacts."""

from __future__ import annotations

import threading
import time

#: Number of earlier runs that a recommendation uses.
RUNS = 5
#: Time limit for reading earlier runs. Runs that were not read in time are left out.
BUDGET_S = 1.0
#: Tasks of a wide foreach are read in batches of this size, with a check of the time limit between two batches.
AT_ONCE = 64


def past_stats(flow_datastore, metadata, flow_name, run_id, step_name, end_step, artifact_name, has_many=True):
    """Return the statistics of the last successful runs, newest first, with all tasks of a run combined.

    `has_many`: the step may have many tasks, so they are listed first and then read in batches.
    """
    found, failed = [], []
    arguments = (flow_datastore, metadata, flow_name, run_id, step_name, end_step, artifact_name, has_many)

    def read():
        try:
            found.extend(_runs(time.monotonic() + BUDGET_S, *arguments))
        except BaseException as error:
            failed.append(error)

    # In a thread, so that a service that does not answer cannot block the step.
    reader = threading.Thread(target=read, name="resource-tracker-past", daemon=True)
    reader.start()
    reader.join(BUDGET_S)
    if failed:
        raise failed[0]
    return list(found)


def _runs(deadline, flow_datastore, metadata, flow_name, run_id, step_name, end_step, artifact_name, has_many):
    from resource_tracker.helpers import aggregate_stats

    runs = metadata.get_object("flow", "run", {}, None, flow_name) or []
    others = [run for run in runs if _id(run) != str(run_id)]
    found = 0
    for run in sorted(others, key=lambda run: run.get("ts_epoch", 0), reverse=True):
        if found == RUNS or time.monotonic() > deadline:
            break
        together = [end_step] if has_many else [end_step, step_name]
        tasks = flow_datastore.get_task_datastores(run_id=_id(run), steps=together)
        if not any(task.step_name == end_step and "_success" in task and task["_success"] for task in tasks):
            continue
        if has_many:
            tasks = _many(flow_datastore, metadata, flow_name, _id(run), step_name, deadline)
        stats = []
        for task in tasks:
            if task.step_name == step_name and artifact_name in task:
                stats += _stats_of(task[artifact_name])
        if stats:
            found += 1
            yield aggregate_stats(stats)


def _many(flow_datastore, metadata, flow_name, run_id, step_name, deadline):
    """Return the tasks of a step; none if reading all of them exceeds the time limit."""
    tasks = metadata.get_object("step", "task", {}, None, flow_name, run_id, step_name) or []
    paths = ["/".join((run_id, step_name, str(task.get("task_name") or task["task_id"]))) for task in tasks]
    found = []
    for at in range(0, len(paths), AT_ONCE):
        if at and time.monotonic() > deadline:
            return []
        found += flow_datastore.get_task_datastores(pathspecs=paths[at : at + AT_ONCE])
    return found


def _id(run):
    return str(run.get("run_id") or run["run_number"])


def _stats_of(artifact):
    """Return a list of one or no statistics, from an artifact of this package or of the original one.

    Later versions of the original package store only a snapshot.
    """
    from resource_tracker import ResourceTracker, _native

    if not isinstance(artifact, dict) or artifact.get("step_failed"):
        return []
    stats = _native.stats_of_step(artifact.get("stats"))
    if stats is None and isinstance(artifact.get("tracker"), dict):
        try:
            stats = ResourceTracker.from_snapshot(artifact["tracker"]).stats()
        except (RuntimeError, ValueError):
            # Nothing was recorded, or the format is unknown.
            return []
    return [stats] if stats else []
