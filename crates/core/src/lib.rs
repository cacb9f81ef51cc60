//! What a batch job really used, and what to run it on next time.
//!
//! One flow, each stage in its own file: sources fill a [`snapshot`](crate), two of them differ by a
//! row of the metric table, rows go to a journal, and everything people read is computed from there.
//! `ARCHITECTURE.md` in the repository draws it.

pub mod metric;
