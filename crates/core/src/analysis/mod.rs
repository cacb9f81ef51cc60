//! Conclusions from the figures of a run: pure functions over statistics, limits and servers.

pub mod allocation;
pub mod check;
pub mod compare;
pub mod cost;
pub mod figures;
pub mod interval;
pub mod metaflow;
pub mod recommend;
pub mod requests;
pub mod rounding;
pub mod sizing;
pub mod stood_out;
pub mod verdict;
pub mod waits;
