"""Names the module whose names `metaflow` exports in addition to its own."""

toplevel = "either_order"
