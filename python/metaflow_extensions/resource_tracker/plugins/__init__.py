"""What Metaflow finds here: a step decorator. The card beside it is found by its folder."""

STEP_DECORATORS_DESC = [("track_resources", ".track_resources.TrackResourcesDecorator")]
