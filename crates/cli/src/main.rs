//! The `resource-tracker` command.
fn main() {}
