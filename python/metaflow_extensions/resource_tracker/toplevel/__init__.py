"""Names the module that changes names of the module `metaflow`."""

toplevel = "exports"
