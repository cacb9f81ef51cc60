//! Reasons to distrust the figures of a run.
//!
//! In:  the summary and statistics of a run, its limits, its exit. Out: a [`Warning`] for each unreliable figure.

use std::fmt::{self, Display, Formatter};

use serde::Serialize;

use super::limits::Limits;
use crate::analysis::rounding::round_memory;
use crate::metric::Metric;
use crate::store::recording::Run;
use crate::store::stats::Stats;
use crate::store::summary::Summary;

/// A run shorter than this is not representative.
const SHORT_RUN_S: f64 = 10.0;

/// A figure of at least this share of its limit was determined by the limit.
const AT_LIMIT: f64 = 0.95;

/// Memory to request after an OOM kill, as a multiple of the memory that the job had. The real need is unknown.
const MEMORY_AFTER_OOM_KILL: f64 = 2.0;

/// Throttled time above this share of the duration lowers the mean CPU usage noticeably.
const THROTTLED_SHARE: f64 = 0.01;

/// Below this coverage, part of the job was not observed.
const GOOD_COVERAGE: f64 = 0.95;

/// A reason to distrust a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "warning", rename_all = "snake_case")]
pub enum Warning {
    /// The OOM killer ended the job or one of its processes.
    KilledForMemory {
        /// Highest memory in the samples.
        peak_mb: f64,
        limit_mb: Option<f64>,
        /// Memory to request for the next run, an estimate.
        ask_mb: u32,
        /// Whether the kill was counted in a cgroup of the job without other processes.
        certain: bool,
    },
    ShortRun {
        duration_s: f64,
    },
    MemoryLimitReached {
        peak_mb: f64,
        limit_mb: f64,
    },
    CpuLimitReached {
        mean_cores: f64,
        limit_cores: f64,
    },
    /// The CPU quota paused the job for this time, summed over CPUs.
    Throttled {
        throttled_s: f64,
    },
    /// Part of the CPU time is not attributed to processes of the job.
    LowCoverage {
        coverage: f64,
    },
    /// The mean GPU usage rounds to 0, so no GPU is recommended.
    GpuBarelyUsed {
        max_gpus: f64,
    },
    GpuUnmeasured,
}

impl Display for Warning {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::KilledForMemory { peak_mb, limit_mb, ask_mb, certain } => {
                let probably = if *certain { "" } else { "probably " };
                write!(out, "the OOM killer {probably}ended the job at {peak_mb:.0}")?;
                limit_mb.map_or(Ok(()), |limit_mb| write!(out, " of {limit_mb:.0}"))?;
                write!(out, " MiB of memory: request {ask_mb} MiB (estimate)")
            }
            Self::ShortRun { duration_s } => {
                write!(out, "the run took only {duration_s:.1} s and may not be representative")
            }
            Self::MemoryLimitReached { peak_mb, limit_mb } => write!(
                out,
                "peak memory reached the limit ({peak_mb:.0} of {limit_mb:.0} MiB): the job may need more memory"
            ),
            Self::CpuLimitReached { mean_cores, limit_cores } => write!(
                out,
                "mean CPU usage reached the limit ({mean_cores:.1} of {limit_cores:.1} CPUs): \
                 the job may run faster with more CPUs"
            ),
            Self::Throttled { throttled_s } => {
                write!(out, "the CPU limit throttled the job for {throttled_s:.1} s")
            }
            Self::LowCoverage { coverage } => write!(
                out,
                "only {:.0} % of the CPU time is attributed to processes of the job: memory is a lower bound",
                coverage * 100.0
            ),
            Self::GpuBarelyUsed { max_gpus } => write!(
                out,
                "peak GPU usage was {max_gpus:.2}, but the mean rounds to 0: no GPU is recommended"
            ),
            Self::GpuUnmeasured => write!(out, "GPU usage was not measured"),
        }
    }
}

/// The warnings for a run, the most important first.
pub(super) fn warnings(summary: &Summary, stats: &Stats, limits: Limits, run: Option<&Run>) -> Vec<Warning> {
    let coverage = run.and_then(|run| run.coverage).or_else(|| summary.coverage());
    let short = summary.duration_s().filter(|duration_s| *duration_s < SHORT_RUN_S);
    let peak_mb = summary.memory_peak_kib().map(|peak_kib| peak_kib / 1024.0);
    let killed = run.filter(|run| run.was_killed_for_memory());
    let killed = killed.and_then(|run| run.oom_kills).zip(peak_mb).map(|(kills, peak_mb)| {
        #[expect(clippy::cast_precision_loss, reason = "memory sizes are far below 2^53 bytes")]
        let of_cgroup_mb = kills.limit_bytes.map(|bytes| bytes as f64 / 1_048_576.0);
        let limit_mb = of_cgroup_mb.or(limits.memory_mb);
        let had_mb = limit_mb.map_or(peak_mb, |limit_mb| limit_mb.max(peak_mb));
        let ask_mb = round_memory(had_mb * MEMORY_AFTER_OOM_KILL);
        Warning::KilledForMemory { peak_mb, limit_mb, ask_mb, certain: kills.certain }
    });
    let memory = peak_mb.zip(limits.memory_mb).filter(|_| killed.is_none());
    let memory = memory.filter(|(peak_mb, limit_mb)| *peak_mb >= limit_mb * AT_LIMIT);
    let mean_cores = summary.of(Metric::ProcessCpu).mean();
    let cpu = mean_cores.zip(limits.cpu_cores).filter(|(mean, limit)| *mean >= limit * AT_LIMIT);
    let throttled = summary.of(Metric::Throttled).sum().zip(summary.duration_s());
    let throttled = throttled.filter(|(throttled_s, duration_s)| *throttled_s > duration_s * THROTTLED_SHARE);
    let low = coverage.filter(|coverage| *coverage < GOOD_COVERAGE);
    let gpu = match (stats.get("process_gpu_usage", "mean"), stats.get("process_gpu_usage", "max")) {
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
