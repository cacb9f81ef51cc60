"""Which module's names `metaflow` exports beside its own."""

toplevel = "either_order"
