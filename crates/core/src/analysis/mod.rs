//! Conclusions from the figures of a run: pure functions over statistics, limits and servers.

pub mod allocation;
pub mod compare;
pub mod cost;
pub mod metaflow;
pub mod recommend;
