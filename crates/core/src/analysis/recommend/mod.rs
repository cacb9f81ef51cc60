//! Recommended resources for the next run, with the figures behind them and their reliability.
//!
//! In:  the statistics of a run and of earlier runs; for the advice also its summary, limits and exit.
//! Out: [`Resources`] by the rules of the original tracker; [`Advice`], which adds the figures behind them, a
//!      [`Warning`] for each unreliable figure and a [`Finding`] for each possible improvement.
//! Not here: servers with these resources and their prices (`cost`).

mod findings;
mod limits;
mod warnings;

use serde::Serialize;
use thiserror::Error;

pub use crate::analysis::rounding::round_memory;
pub use findings::Finding;
pub use limits::Limits;
pub(crate) use limits::server_number;
pub use warnings::Warning;

use crate::market::catalog::Query;
use crate::metric::Metric;
use crate::store::recording::Run;
use crate::store::stats::{Stats, StatsError};
use crate::store::summary::Summary;

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

/// The figures behind a recommendation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Basis {
    /// Number of runs, this run included.
    pub runs: usize,
    /// Duration of this run.
    pub duration_s: Option<f64>,
    /// Mean CPU usage over all runs.
    pub cpu_mean_cores: Option<f64>,
    /// Highest CPU usage in one sample of this run.
    pub cpu_max_cores: Option<f64>,
    /// Peak memory over all runs.
    pub memory_peak_kib: Option<f64>,
    /// Mean GPU usage over all runs.
    pub gpu_mean: Option<f64>,
    /// Peak VRAM over all runs.
    pub vram_peak_mib: Option<f64>,
}

/// A recommendation with its basis and reliability.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// The result of `recommend_resources`.
    pub resources: Resources,
    pub basis: Basis,
    pub warnings: Vec<Warning>,
    pub findings: Vec<Finding>,
}

impl Advice {
    /// The resources to request: the recommendation, with more memory after an OOM kill.
    pub fn to_ask(&self) -> Resources {
        let after_oom_kill = self.warnings.iter().find_map(|warning| match warning {
            Warning::KilledForMemory { ask_mb, .. } => Some(*ask_mb),
            _ => None,
        });
        Resources { memory_mb: after_oom_kill.unwrap_or(0).max(self.resources.memory_mb), ..self.resources }
    }
}

/// The recommendation with its basis and reliability.
pub fn advise(
    summary: &Summary,
    history: &[Stats],
    limits: Limits,
    run: Option<&Run>,
) -> Result<Advice, RecommendError> {
    let stats = summary.stats()?;
    let resources = recommend_resources(&stats, history)?;
    let combined = Stats::combine(std::iter::once(&stats).chain(history))?;
    let basis = Basis {
        runs: 1 + history.len(),
        duration_s: summary.duration_s(),
        cpu_mean_cores: combined.get("process_cpu_usage", "mean"),
        cpu_max_cores: summary.of(Metric::ProcessCpu).max(),
        memory_peak_kib: combined.get("process_memory", "max"),
        gpu_mean: combined.get("process_gpu_usage", "mean"),
        vram_peak_mib: combined.get("process_gpu_vram", "max"),
    };
    let warnings = warnings::warnings(summary, &stats, limits, run);
    Ok(Advice { resources, basis, warnings, findings: findings::findings(summary, &limits) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Row;
    use crate::store::summary::Scope;
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

    fn summary(cells: &[(Metric, f64)], duration_s: f64) -> Summary {
        let scope = Scope { process: true, system: true, start_time: Some(0.0), interval_s: 1.0 };
        let mut row = Row::default();
        let base =
            [(Metric::Timestamp, duration_s), (Metric::ProcessCpu, 1.0), (Metric::ProcessMemory, 1024.0)];
        for (metric, value) in
            base.iter().chain(&[(Metric::ProcessGpu, 0.0), (Metric::ProcessVram, 0.0)]).chain(cells)
        {
            row.set(*metric, Some(*value));
        }
        let mut summary = Summary::new(scope);
        summary.add(&row);
        summary
    }

    #[test]
    fn each_unreliable_figure_has_a_warning() {
        let limits = Limits { cpu_cores: Some(4.0), memory_mb: Some(1000.0), gpus: None };
        let good =
            advise(&summary(&[], 60.0), &[], limits, Some(&Run { coverage: Some(0.99), ..Run::default() }))
                .unwrap();
        assert_eq!((good.warnings, good.basis.runs, good.basis.duration_s), (vec![], 1, Some(60.0)));
        assert_eq!(Ok(good.resources), recommend_resources(&summary(&[], 60.0).stats().unwrap(), &[]));

        let weak = [
            (Metric::ProcessCpu, 3.9),
            (Metric::MemoryPeak, 990.0 * 1024.0),
            (Metric::Throttled, 2.0),
            (Metric::ProcessUtime, 8.0),
            (Metric::ProcessStime, 2.0),
            (Metric::CpuSeen, 7.0),
            (Metric::ProcessGpu, 0.004),
        ];
        let weak = advise(&summary(&weak, 2.0), &[], limits, None).unwrap();
        assert_eq!(
            weak.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [
                "the run took only 2.0 s and may not be representative",
                "peak memory reached the limit (990 of 1000 MiB): the job may need more memory",
                "mean CPU usage reached the limit (3.9 of 4.0 CPUs): the job may run faster with more CPUs",
                "the CPU limit throttled the job for 2.0 s",
                "only 70 % of the CPU time is attributed to processes of the job: memory is a lower bound",
            ]
        );
    }

    #[test]
    fn gpu_use_that_rounds_to_zero_is_reported() {
        let mut job = summary(&[(Metric::ProcessGpu, 0.9)], 20.0);
        let mut idle = Row::default();
        idle.set(Metric::ProcessGpu, Some(0.0));
        for _ in 0..5000 {
            job.add(&idle);
        }
        let advice =
            advise(&job, &[], Limits::default(), Some(&Run { coverage: Some(1.0), ..Run::default() }))
                .unwrap();
        assert_eq!(advice.resources.gpu, 0);
        assert!(advice.warnings.contains(&Warning::GpuBarelyUsed { max_gpus: 0.9 }));
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
