//! Recommended resources for the next run, with the figures behind them and their reliability.
//!
//! In:  the statistics of a run and of earlier runs. Out: [`Resources`] by the rules of the original tracker, for programs
//!      that were written for it; [`Advice`], by our own rules, for everything that people read.
//! Not here: the rules of the advice (`sizing`), servers with these resources and their prices (`cost`).

mod advice;
mod findings;
mod limits;
mod warnings;

use serde::Serialize;
use thiserror::Error;

use crate::analysis::rounding::round_memory;
pub use advice::{Advice, AdviceOptions};
pub use warnings::Warning;

use crate::market::catalog::Query;
use crate::store::stats::{Stats, StatsError};

use crate::analysis::rounding::round_count;

/// Recommended memory as a multiple of the peak.
const HEADROOM: f64 = 1.2;

/// The reason why no recommendation is possible.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RecommendError {
    /// There are no statistics, or the statistics of earlier runs do not match.
    #[error(transparent)]
    Stats(#[from] StatsError),
    #[error("process tracking was off")]
    NoProcess,
    #[error("`{column}` was not measured")]
    Unmeasured { column: &'static str },
}

impl RecommendError {
    /// What the user can do about the error; `None` if nothing.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Stats(error) => error.hint(),
            Self::NoProcess => Some("record with process tracking on to get a recommendation"),
            Self::Unmeasured { .. } => Some("`resource-tracker info` shows which sources work here"),
        }
    }
}

/// The resources that a job needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Resources {
    pub cpu: u32,
    /// In MiB.
    #[serde(rename = "memory")]
    pub memory_mb: u32,
    pub gpu: u32,
    /// In MiB.
    #[serde(rename = "vram")]
    pub vram_mb: u32,
}

impl Resources {
    /// Rounds a size in MiB as the original package does.
    pub fn round_memory(mb: f64) -> u32 {
        round_memory(mb)
    }
}

impl From<&Resources> for Query {
    /// A search for servers with at least these resources.
    fn from(needs: &Resources) -> Self {
        Self::new(f64::from(needs.cpu), f64::from(needs.memory_mb))
            .with_gpu(f64::from(needs.gpu), f64::from(needs.vram_mb))
    }
}

/// The recommendation from a run and earlier runs, by the rules of the original tracker.
pub fn recommend_resources(stats: &Stats, history: &[Stats]) -> Result<Resources, RecommendError> {
    if !stats.has("process_cpu_usage") && !stats.has("process_memory") {
        return Err(RecommendError::NoProcess);
    }
    let stats = Stats::combine(std::iter::once(stats).chain(history))?;
    let need = |column: &'static str, aggregate| {
        stats.get(column, aggregate).ok_or(RecommendError::Unmeasured { column })
    };
    // A recorder without GPU support writes no GPU figures: no GPU is recommended.
    let (gpu_mean, gpu_max) = (stats.get("process_gpu_usage", "mean"), stats.get("process_gpu_usage", "max"));
    let vram_max_mib = stats.get("process_gpu_vram", "max").filter(|peak| *peak > 0.0);
    let gpu = match gpu_mean {
        Some(mean) if mean > 0.0 => round_count(gpu_max.unwrap_or(0.0)).max(1),
        Some(_) => 0,
        // A MIG instance reports memory but no usage.
        None => u32::from(vram_max_mib.is_some()),
    };
    Ok(Resources {
        cpu: round_count(need("process_cpu_usage", "mean")?).max(1),
        memory_mb: round_memory(need("process_memory", "max")? * HEADROOM / 1024.0),
        gpu,
        vram_mb: vram_max_mib.map_or(0, |peak| round_memory(peak * HEADROOM)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stats(cpu_mean: f64, memory_max_kib: f64, gpu: (f64, f64), vram_max_mib: f64) -> Stats {
        let mut stats = Stats::default();
        stats.set("process_cpu_usage", "mean", Some(cpu_mean));
        stats.set("process_memory", "max", Some(memory_max_kib));
        stats.set("process_gpu_usage", "mean", Some(gpu.0));
        stats.set("process_gpu_usage", "max", Some(gpu.1));
        stats.set("process_gpu_vram", "max", Some(vram_max_mib));
        stats
    }

    fn resources(stats: &Stats) -> (u32, u32, u32, u32) {
        let Resources { cpu, memory_mb, gpu, vram_mb } = recommend_resources(stats, &[]).unwrap();
        (cpu, memory_mb, gpu, vram_mb)
    }

    #[test]
    fn recommendation_follows_the_rules_of_the_original() {
        // From the R documentation of the original: 1.12 CPUs and 798,130 kB give 1 CPU and 1024 MB.
        assert_eq!(resources(&stats(1.12, 798_130.0, (0.0, 0.0), 0.0)), (1, 1024, 0, 0));
        assert_eq!(resources(&stats(0.02, 1.0, (0.0, 0.9), 0.0)), (1, 128, 0, 0));
        assert_eq!(resources(&stats(7.6, 3_000_000.0, (0.01, 0.2), 10.0)), (8, 4096, 1, 128));
        assert_eq!(resources(&stats(3.0, 0.0, (1.5, 3.7), 20_000.0)), (3, 128, 4, 24_576));
    }

    #[test]
    fn half_cpus_and_gpus_are_rounded_to_even_as_in_python() {
        let cpu = |mean| resources(&stats(mean, 1.0, (0.0, 0.0), 0.0)).0;
        assert_eq!([cpu(0.5), cpu(1.5), cpu(2.5), cpu(3.5)], [1, 2, 2, 4]);
        assert_eq!(resources(&stats(1.0, 1.0, (0.1, 2.5), 0.0)).2, 2);
    }

    #[test]
    fn earlier_runs_are_part_of_the_recommendation() {
        let now = stats(1.0, 100_000.0, (0.0, 0.0), 0.0);
        let history = [stats(4.0, 900_000.0, (0.2, 1.0), 100.0), stats(4.0, 1.0, (0.0, 0.0), 0.0)];
        assert_eq!(
            recommend_resources(&now, &history).unwrap(),
            Resources { cpu: 3, memory_mb: 2048, gpu: 1, vram_mb: 128 }
        );
        let mut odd = Stats::default();
        odd.set("process_memory", "p95", Some(1.0));
        assert!(matches!(recommend_resources(&now, &[odd]), Err(RecommendError::Stats(_))));
    }

    #[test]
    fn figures_that_were_not_measured_give_an_error() {
        assert_eq!(recommend_resources(&Stats::default(), &[]), Err(RecommendError::NoProcess));
        let mut unmeasured = stats(1.0, 1.0, (0.0, 0.0), 0.0);
        unmeasured.set("process_memory", "max", None);
        assert_eq!(
            recommend_resources(&unmeasured, &[]).unwrap_err().to_string(),
            "`process_memory` was not measured"
        );
    }

    proptest! {
        /// Recommended memory covers the peak plus 20 %, and grows with it.
        #[test]
        fn recommended_memory_covers_the_peak(a in 0.0_f64..1e9, b in 0.0_f64..1e9) {
            let (low, high) = if a < b { (a, b) } else { (b, a) };
            let memory = |peak_kib| resources(&stats(1.0, peak_kib, (0.0, 0.0), 0.0)).1;
            prop_assert!(memory(low) <= memory(high));
            prop_assert!(f64::from(memory(high)) >= high * 1.2 / 1024.0);
        }
    }
}
