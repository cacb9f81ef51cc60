//! The public entry points: run a command, attach to a process, a session inside Python or R, the sidecar process.

mod advise;
pub mod command;
pub mod info;
pub mod inputs;
pub mod meter;
pub mod plan;
#[cfg(feature = "parquet")]
mod push;
pub mod session;
pub mod shared;
pub mod sidecar;
pub mod start_up;
pub mod tracker;
