"""`step` and `track_resources` as `metaflow` exports them, so that they can stand in either order.

Metaflow's own `step` must stand closest to the function, and forgets what a decorator below it did. Every name in this
module becomes one of `metaflow`'s.
"""

from __future__ import annotations


def track_resources(function=None, **attributes):
    """Records what a step uses; see the documentation of resource-tracker.

    `interval`: seconds between samples. `artifact_name`: where the step keeps what was recorded. `create_card`: whether
    the step gets the card `tracked_resources`.
    """
    from metaflow.decorators import _base_step_decorator
    from metaflow_extensions.resource_tracker.plugins.track_resources import TrackResourcesDecorator

    if function is None:
        return lambda function: track_resources(function, **attributes)
    if hasattr(function, "__code__") and not hasattr(function, "is_step"):
        # No step yet: `step` below sees to it.
        function.track_resources_attributes = attributes
        return function
    return _base_step_decorator(TrackResourcesDecorator, function, **attributes)


def step(f=None, **options):
    """Marks a method as a step, as Metaflow's own `step` does; `@track_resources` may stand below it."""
    from metaflow import decorators

    if f is None:
        return lambda f: step(f, **options)
    attributes = getattr(f, "__dict__", {}).pop("track_resources_attributes", None)
    marked = decorators.step(f, **options)
    return marked if attributes is None else track_resources(marked, **attributes)
