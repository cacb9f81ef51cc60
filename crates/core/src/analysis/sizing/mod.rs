//! The size to request for the next run of a job: CPUs by predicted time, memory by the history of the job.
//!
//! In:  the CPU profile of a run; past runs of the job with peak memory, duration, input size and ending.
//! Out: [`CpuAdvice`], [`MemoryAdvice`] and [`what_if`], each with the figures behind it and a sentence that says why.
//! Not here: the rules of the original tracker (`recommend`), servers and prices (`market`).

mod cpu;
mod earlier;
mod line;
pub mod memory;
pub mod past_run;
pub mod replay;
pub mod rule;
mod what_if;

pub use cpu::{CpuAdvice, SLOWDOWN, advise_cpu};
pub use earlier::EarlierRuns;
pub use memory::{LAST_RUNS, MemoryAdvice, MemorySizing};
pub use past_run::PastRun;
pub use what_if::{WhatIf, what_if};

#[cfg(test)]
mod tests;
