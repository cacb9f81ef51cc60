"""Plugin of Airflow: each try of a task is a run of the job `DAG.TASK` in the history.

Airflow 2.10 or later calls the hooks on the start and end of a task in the process that runs the task; a tracker there
records this process and its children. Other processes (scheduler, API server) call some of the hooks too, for states
that users set by hand: they have no tracker, so nothing happens.

Airflow logs an exception of a hook; the task goes on.
"""

from __future__ import annotations

from airflow.configuration import conf
from airflow.listeners import hookimpl
from airflow.plugins_manager import AirflowPlugin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional, Union

    from resource_tracker import ResourceTracker

__all__ = ["Listener", "ResourceTrackerPlugin"]


class Listener:
    def __init__(self) -> None:
        # By task instance: `airflow dags test` runs all tasks in one process.
        self._trackers: dict[tuple[Any, ...], ResourceTracker] = {}

    @hookimpl
    def on_task_instance_running(self, task_instance: Any) -> None:
        if not conf.getboolean("resource_tracker", "enabled", fallback=True):
            return
        # Imported by the processes that run tasks only.
        from resource_tracker import ResourceTracker

        tags = {"dag": task_instance.dag_id, "run": task_instance.run_id, "try": task_instance.try_number}
        if task_instance.map_index is not None and task_instance.map_index >= 0:
            tags["map_index"] = task_instance.map_index
        job = f"{task_instance.dag_id}.{task_instance.task_id}"
        self._trackers[_key(task_instance)] = ResourceTracker(job=job, tags=tags)

    @hookimpl
    def on_task_instance_success(self, task_instance: Any) -> None:
        self._finish(task_instance, None)

    @hookimpl
    def on_task_instance_skipped(self, task_instance: Any) -> None:
        self._finish(task_instance, None)

    @hookimpl
    def on_task_instance_failed(self, task_instance: Any, error: Union[str, BaseException, None]) -> None:
        failure = error if isinstance(error, BaseException) else RuntimeError(error or "the task failed")
        self._finish(task_instance, failure)

    @hookimpl
    def before_stopping(self) -> None:
        """Finish the trackers of tasks that end in another state: deferred, or rescheduled by a sensor."""
        while self._trackers:
            self._trackers.popitem()[1].stop()

    def _finish(self, task_instance: Any, error: Optional[BaseException]) -> None:
        tracker = self._trackers.pop(_key(task_instance), None)
        if tracker is not None:
            tracker.__exit__(None if error is None else type(error), error, None)


def _key(task_instance: Any) -> tuple[Any, ...]:
    return task_instance.dag_id, task_instance.task_id, task_instance.run_id, task_instance.map_index


class ResourceTrackerPlugin(AirflowPlugin):  # type: ignore[misc]
    name = "resource_tracker"
    listeners = [Listener()]  # noqa: RUF012
