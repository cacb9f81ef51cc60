//! Conclusions from the figures of a run: pure functions over statistics, limits and servers.

pub mod allocation;
pub mod compare;
pub mod cost;
pub mod metaflow;
pub mod recommend;
pub mod rounding;
#[cfg_attr(
    not(feature = "internals"),
    expect(dead_code, unused_imports, reason = "the fronts do not use it yet")
)]
pub mod sizing;
