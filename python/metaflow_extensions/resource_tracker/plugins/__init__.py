"""Registers the step decorator with Metaflow. Metaflow finds the card by its folder."""

STEP_DECORATORS_DESC = [("track_resources", ".track_resources.TrackResourcesDecorator")]
