//! What to run the job on next time, and how far to trust that.
//!
//! In:  the statistics of a run and of earlier ones; for the advice also its running figures.
//! Out: [`Resources`] to the letter of the contract; beside them [`Advice`], the figures they rest on
//!      and a [`Warning`] for each that is weak. The advice never changes the resources.
//! Not here: which server has them and what it costs (`catalog`).

mod gpu;

use serde::Serialize;
use thiserror::Error;

pub use gpu::{Allowed, Finding};

use crate::catalog::Query;
use crate::metric::Metric;
use crate::recording::Run;
use crate::stats::{Stats, StatsError, aggregate_stats};
use crate::summary::Summary;

/// Memory is recommended with this much above the peak.
const HEADROOM: f64 = 1.2;

/// Memory sizes below whole GB.
const SMALL_MB: [u32; 5] = [128, 256, 512, 1024, 2048];

/// A run shorter than this says little about the next.
const SHORT_RUN_S: f64 = 10.0;

/// From this share of a limit on, the limit and not the job decided the figure.
const AT_LIMIT: f64 = 0.95;

/// What a job that was killed for memory should get, of what it had: what it wanted is not known.
const MORE_AFTER_A_KILL: f64 = 2.0;

/// From this share of the run's time on, being held back by a CPU limit shows in its mean.
const THROTTLED_SHARE: f64 = 0.01;

/// Below this share of the CPU time seen, something of the job was missed.
const GOOD_COVERAGE: f64 = 0.95;

/// Why nothing can be recommended.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RecommendError {
    /// There are no statistics, or those of earlier runs do not combine.
    #[error(transparent)]
    Stats(#[from] StatsError),
    /// The job itself was not recorded.
    #[error("the process table is off, so there is nothing to recommend from")]
    NoProcess,
    /// A figure that the recommendation rests on.
    #[error("`{column}` was never measured, so there is nothing to recommend from")]
    Unmeasured {
        /// The column.
        column: &'static str,
    },
}

impl RecommendError {
    /// What the reader can do about it, if anything.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Stats(error) => error.hint(),
            Self::NoProcess => Some("record with process tracking on"),
            Self::Unmeasured { .. } => Some("`resource-tracker info` says which sources work here"),
        }
    }
}

/// What the job needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Resources {
    /// CPUs.
    pub cpu: u32,
    /// Memory in MB.
    #[serde(rename = "memory")]
    pub memory_mb: u32,
    /// GPUs.
    pub gpu: u32,
    /// GPU memory in MB.
    #[serde(rename = "vram")]
    pub vram_mb: u32,
}

impl From<&Resources> for Query {
    /// Servers that have as much.
    fn from(needs: &Resources) -> Self {
        Self::new(f64::from(needs.cpu), f64::from(needs.memory_mb))
            .with_gpu(f64::from(needs.gpu), f64::from(needs.vram_mb))
    }
}

/// The contract's recommendation from a run and the ones before it.
///
/// # Errors
///
/// When the statistics have no process table, or history holds what does not combine.
pub fn recommend_resources(stats: &Stats, history: &[Stats]) -> Result<Resources, RecommendError> {
    if !stats.has("process_cpu_usage") && !stats.has("process_memory") {
        return Err(RecommendError::NoProcess);
    }
    let stats = aggregate_stats(std::iter::once(stats).chain(history))?;
    let need = |column: &'static str, aggregate| {
        stats.get(column, aggregate).ok_or(RecommendError::Unmeasured { column })
    };
    // GPU figures that are missing are those of a recorder without GPU support: nothing was used.
    let (gpu_mean, gpu_max) = (stats.get("process_gpu_usage", "mean"), stats.get("process_gpu_usage", "max"));
    let vram_max_mib = stats.get("process_gpu_vram", "max").filter(|peak| *peak > 0.0);
    let gpu = match gpu_mean {
        Some(mean) if mean > 0.0 => whole(gpu_max.unwrap_or(0.0).round_ties_even()).max(1),
        Some(_) => 0,
        // How busy it was is not known (MIG), but not that it was needed.
        None => u32::from(vram_max_mib.is_some()),
    };
    Ok(Resources {
        cpu: whole(need("process_cpu_usage", "mean")?.round_ties_even()).max(1),
        memory_mb: round_memory(need("process_memory", "max")? * HEADROOM / 1024.0),
        gpu,
        vram_mb: vram_max_mib.map_or(0, |peak| round_memory(peak * HEADROOM)),
    })
}

/// Up to 128, 256, 512, 1024, 2048 MB, then to whole GB.
#[must_use]
pub fn round_memory(mb: f64) -> u32 {
    let small = SMALL_MB.into_iter().find(|size| mb <= f64::from(*size));
    small.unwrap_or_else(|| whole((mb / 1024.0).ceil()).saturating_mul(1024))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rounded by the caller; `as` stops at the ends, and takes what is no number for 0"
)]
fn whole(value: f64) -> u32 {
    value as u32
}

/// What the run had to live with, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// CPUs it could use: the tightest of container limit, affinity and machine.
    pub cpu_cores: Option<f64>,
    /// Memory it could use: the tighter of container limit and machine.
    pub memory_mb: Option<f64>,
    /// GPUs it could use; `None` where there was none for it.
    pub gpus: Option<Allowed>,
}

/// Why a figure is weak.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "warning", rename_all = "snake_case")]
pub enum Warning {
    /// The kernel killed the job, or a part of it, because memory ran out.
    KilledForMemory {
        /// The most it was seen to hold.
        peak_mb: f64,
        /// What there was, where that is known.
        limit_mb: Option<f64>,
        /// What to try next: an estimate, for nobody knows what it would have come to.
        ask_mb: u32,
        /// By the job's own group; else by the machine's count.
        certain: bool,
    },
    /// Too short to be typical.
    ShortRun {
        /// Length of the run.
        duration_s: f64,
    },
    /// The job filled the memory there was.
    MemoryLimitReached {
        /// Its peak.
        peak_mb: f64,
        /// What there was.
        limit_mb: f64,
    },
    /// The job kept busy all CPUs there were.
    CpuLimitReached {
        /// Its mean use.
        mean_cores: f64,
        /// What there was.
        limit_cores: f64,
    },
    /// A CPU limit held the job back.
    Throttled {
        /// For how long, summed over CPUs.
        throttled_s: f64,
    },
    /// Part of the job's CPU time was not seen in its processes.
    LowCoverage {
        /// Share that was.
        coverage: f64,
    },
    /// A GPU was used so little that the mean shows as 0, and none is recommended.
    GpuBarelyUsed {
        /// Most of the GPUs used at once.
        max_gpus: f64,
    },
    /// No GPU figure at all.
    GpuUnmeasured,
}

impl std::fmt::Display for Warning {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::KilledForMemory { peak_mb, limit_mb, ask_mb, certain } => {
                let likely = if *certain { "" } else { " most likely" };
                write!(formatter, "it was{likely} killed for memory, at {peak_mb:.0}")?;
                limit_mb.map_or(Ok(()), |limit_mb| write!(formatter, " of {limit_mb:.0}"))?;
                write!(formatter, " MB: try {ask_mb} MB, an estimate")
            }
            Self::ShortRun { duration_s } => {
                write!(formatter, "the run took only {duration_s:.1} s, and may not be typical")
            }
            Self::MemoryLimitReached { peak_mb, limit_mb } => write!(
                formatter,
                "the job reached the memory limit ({peak_mb:.0} of {limit_mb:.0} MB), and may need more"
            ),
            Self::CpuLimitReached { mean_cores, limit_cores } => write!(
                formatter,
                "the job kept {mean_cores:.1} of {limit_cores:.1} CPUs busy, and may use more where there are more"
            ),
            Self::Throttled { throttled_s } => {
                write!(formatter, "the CPU limit held the job back for {throttled_s:.1} s")
            }
            Self::LowCoverage { coverage } => {
                write!(formatter, "only {:.0} % of the CPU time was seen in processes", coverage * 100.0)
            }
            Self::GpuBarelyUsed { max_gpus } => {
                write!(formatter, "a GPU was used, up to {max_gpus:.2}, but too little to show in the mean")
            }
            Self::GpuUnmeasured => write!(formatter, "GPU use was not measured"),
        }
    }
}

/// The figures that a recommendation rests on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Basis {
    /// Runs that were counted in, this one included.
    pub runs: usize,
    /// Length of this run.
    pub duration_s: Option<f64>,
    /// Mean CPU use over the runs.
    pub cpu_mean_cores: Option<f64>,
    /// Most CPUs used over a row of this run.
    pub cpu_max_cores: Option<f64>,
    /// Peak memory over the runs.
    pub memory_peak_kib: Option<f64>,
    /// Mean GPU use over the runs.
    pub gpu_mean: Option<f64>,
    /// Peak GPU memory over the runs.
    pub vram_peak_mib: Option<f64>,
}

/// A recommendation with its reasons.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// Exactly what [`recommend_resources`] says.
    pub resources: Resources,
    /// From what.
    pub basis: Basis,
    /// Where that is weak.
    pub warnings: Vec<Warning>,
    /// What else the run shows that one can do something about.
    pub findings: Vec<Finding>,
}

impl Advice {
    /// What to ask for: the recommendation, with more memory where the run was killed for want of it.
    #[must_use]
    pub fn to_ask(&self) -> Resources {
        let after_a_kill = self.warnings.iter().find_map(|warning| match warning {
            Warning::KilledForMemory { ask_mb, .. } => Some(*ask_mb),
            _ => None,
        });
        Resources { memory_mb: after_a_kill.unwrap_or(0).max(self.resources.memory_mb), ..self.resources }
    }
}

/// The recommendation, why, and how far to trust it.
///
/// # Errors
///
/// Those of [`recommend_resources`], and [`StatsError::NoMetrics`] before the first row.
pub fn advise(
    summary: &Summary,
    history: &[Stats],
    limits: Limits,
    run: Option<&Run>,
) -> Result<Advice, RecommendError> {
    let stats = summary.stats()?;
    let resources = recommend_resources(&stats, history)?;
    let combined = aggregate_stats(std::iter::once(&stats).chain(history))?;
    let basis = Basis {
        runs: 1 + history.len(),
        duration_s: summary.duration_s(),
        cpu_mean_cores: combined.get("process_cpu_usage", "mean"),
        cpu_max_cores: summary.of(Metric::ProcessCpu).max(),
        memory_peak_kib: combined.get("process_memory", "max"),
        gpu_mean: combined.get("process_gpu_usage", "mean"),
        vram_peak_mib: combined.get("process_gpu_vram", "max"),
    };
    let warnings = warnings(summary, &stats, limits, run);
    Ok(Advice { resources, basis, warnings, findings: gpu::findings(summary, &limits) })
}

/// What is weak about this run's figures.
fn warnings(summary: &Summary, stats: &Stats, limits: Limits, run: Option<&Run>) -> Vec<Warning> {
    let coverage = run.and_then(|run| run.coverage).or_else(|| summary.coverage());
    let short = summary.duration_s().filter(|duration_s| *duration_s < SHORT_RUN_S);
    let peak_mb = summary.memory_peak_kib().map(|peak_kib| peak_kib / 1024.0);
    let killed = run.filter(|run| run.was_killed_for_memory());
    let killed = killed.and_then(|run| run.oom_kills).zip(peak_mb).map(|(kills, peak_mb)| {
        let had_mb = limits.memory_mb.map_or(peak_mb, |limit_mb| limit_mb.max(peak_mb));
        let (limit_mb, ask_mb) = (limits.memory_mb, round_memory(had_mb * MORE_AFTER_A_KILL));
        Warning::KilledForMemory { peak_mb, limit_mb, ask_mb, certain: kills.certain }
    });
    let memory = peak_mb.zip(limits.memory_mb).filter(|_| killed.is_none());
    let memory = memory.filter(|(peak_mb, limit_mb)| *peak_mb >= limit_mb * AT_LIMIT);
    let mean_cores = summary.of(Metric::ProcessCpu).mean();
    let cpu = mean_cores.zip(limits.cpu_cores).filter(|(mean, limit)| *mean >= limit * AT_LIMIT);
    let throttled = summary.of(Metric::Throttled).sum().zip(summary.duration_s());
    let throttled = throttled.filter(|(throttled_s, duration_s)| *throttled_s > duration_s * THROTTLED_SHARE);
    let low = coverage.filter(|coverage| *coverage < GOOD_COVERAGE);
    let gpu = (stats.get("process_gpu_usage", "mean"), stats.get("process_gpu_usage", "max"));
    let gpu = match gpu {
        (None, _) => Some(Warning::GpuUnmeasured),
        (Some(mean), Some(max_gpus)) if mean <= 0.0 && max_gpus > 0.0 => {
            Some(Warning::GpuBarelyUsed { max_gpus })
        }
        _ => None,
    };
    [
        killed,
        short.map(|duration_s| Warning::ShortRun { duration_s }),
        memory.map(|(peak_mb, limit_mb)| Warning::MemoryLimitReached { peak_mb, limit_mb }),
        cpu.map(|(mean_cores, limit_cores)| Warning::CpuLimitReached { mean_cores, limit_cores }),
        throttled.map(|(throttled_s, _)| Warning::Throttled { throttled_s }),
        low.map(|coverage| Warning::LowCoverage { coverage }),
        gpu,
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Row;
    use crate::summary::Scope;
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
    fn the_contracts_rules() {
        // The R page of the original: 1.12 CPUs and 798,130 kB give 1 CPU and 1024 MB.
        assert_eq!(resources(&stats(1.12, 798_130.0, (0.0, 0.0), 0.0)), (1, 1024, 0, 0));
        assert_eq!(resources(&stats(0.02, 1.0, (0.0, 0.9), 0.0)), (1, 128, 0, 0));
        assert_eq!(resources(&stats(7.6, 3_000_000.0, (0.01, 0.2), 10.0)), (8, 4096, 1, 128));
        assert_eq!(resources(&stats(3.0, 0.0, (1.5, 3.7), 20_000.0)), (3, 128, 4, 24_576));
    }

    #[test]
    fn halves_go_to_the_even_number_as_in_python() {
        let cpu = |mean| resources(&stats(mean, 1.0, (0.0, 0.0), 0.0)).0;
        assert_eq!([cpu(0.5), cpu(1.5), cpu(2.5), cpu(3.5)], [1, 2, 2, 4]);
        assert_eq!(resources(&stats(1.0, 1.0, (0.1, 2.5), 0.0)).2, 2);
    }

    #[test]
    fn memory_goes_up_to_the_next_size() {
        let cases = [
            (0.0, 128),
            (128.0, 128),
            (128.01, 256),
            (256.5, 512),
            (513.0, 1024),
            (1024.1, 2048),
            (2048.0, 2048),
            (2048.1, 3072),
            (3072.0, 3072),
            (100_000.0, 100_352),
        ];
        for (mb, size) in cases {
            assert_eq!(round_memory(mb), size, "{mb}");
        }
    }

    #[test]
    fn history_counts_in() {
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
    fn nothing_is_invented_where_nothing_was_measured() {
        assert_eq!(recommend_resources(&Stats::default(), &[]), Err(RecommendError::NoProcess));
        let mut unmeasured = stats(1.0, 1.0, (0.0, 0.0), 0.0);
        unmeasured.set("process_memory", "max", None);
        assert_eq!(
            recommend_resources(&unmeasured, &[]).unwrap_err().to_string(),
            "`process_memory` was never measured, so there is nothing to recommend from"
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
    fn a_good_run_has_no_warnings_and_a_weak_one_says_why() {
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
                "the run took only 2.0 s, and may not be typical",
                "the job reached the memory limit (990 of 1000 MB), and may need more",
                "the job kept 3.9 of 4.0 CPUs busy, and may use more where there are more",
                "the CPU limit held the job back for 2.0 s",
                "only 70 % of the CPU time was seen in processes",
            ]
        );
    }

    #[test]
    fn a_gpu_that_hardly_shows_is_mentioned() {
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
        /// What is recommended is enough, and more use never means less is recommended.
        #[test]
        fn memory_is_enough_and_grows_with_use(a in 0.0_f64..1e9, b in 0.0_f64..1e9) {
            let (low, high) = if a < b { (a, b) } else { (b, a) };
            let memory = |peak_kib| resources(&stats(1.0, peak_kib, (0.0, 0.0), 0.0)).1;
            prop_assert!(memory(low) <= memory(high));
            prop_assert!(f64::from(memory(high)) >= high * 1.2 / 1024.0);
        }
    }
}
