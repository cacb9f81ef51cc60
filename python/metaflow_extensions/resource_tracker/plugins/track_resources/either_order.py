"""`step` and `track_resources` as exported by `metaflow`, usable in either order.

Metaflow's own `step` must be the innermost decorator, and drops the effect of decorators below it.
"""

from __future__ import annotations


def track_resources(function=None, **attributes):
    """Record the resource usage of a step; see the documentation of resource-tracker.

    `interval`: seconds between samples. `artifact_name`: artifact of the step with the recording. `create_card`: add
    the card `tracked_resources` to the step.
    """
    from metaflow.decorators import _base_step_decorator
    from metaflow_extensions.resource_tracker.plugins.track_resources import TrackResourcesDecorator

    if function is None:
        return lambda function: track_resources(function, **attributes)
    if hasattr(function, "__code__") and not hasattr(function, "is_step"):
        # Not a step yet: `step` below adds the decorator.
        function.track_resources_attributes = attributes
        return function
    return _base_step_decorator(TrackResourcesDecorator, function, **attributes)


def step(f=None, **options):
    """Mark a method as a step like Metaflow's `step`; `@track_resources` may be below it."""
    from metaflow import decorators

    if f is None:
        return lambda f: step(f, **options)
    attributes = getattr(f, "__dict__", {}).pop("track_resources_attributes", None)
    marked = decorators.step(f, **options)
    return marked if attributes is None else track_resources(marked, **attributes)
