//! Reasons to distrust the figures of a run.
//!
//! In:  the head, summary and statistics of a run, its limits. Out: a [`Warning`] for each unreliable figure.

use std::fmt::{self, Display, Formatter};

use serde::Serialize;

use super::limits::Limits;
use crate::human;
use crate::metric::{MIB, Metric};
use crate::store::recording::{Head, Status};
use crate::store::stats::Stats;
use crate::store::summary::Summary;

/// A run shorter than this is not representative.
const SHORT_RUN_S: f64 = 10.0;

/// A figure of at least this share of its limit was determined by the limit.
const AT_LIMIT: f64 = 0.95;

/// Mean CPU usage of at least this share of the limit means that all CPUs were busy.
const ALL_BUSY: f64 = 0.9;

/// Tasks that waited for a CPU for this share of the time, those of the job too, while other programs used this many CPUs:
/// the machine was contended.
const HIGH_PRESSURE: f64 = 0.2;
const OTHERS_BUSY_CORES: f64 = 0.25;

/// CPU time that the hypervisor took, as a share of the duration, above which the run is slower than elsewhere.
const STOLEN_SHARE: f64 = 0.05;

/// Throttled time above this share of the duration lowers the mean CPU usage noticeably.
const THROTTLED_SHARE: f64 = 0.01;

/// Below this coverage, part of the job was not observed.
const GOOD_COVERAGE: f64 = 0.95;

/// A reason to distrust a figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "warning", rename_all = "snake_case")]
pub enum Warning {
    /// The OOM killer ended the job or one of its processes.
    KilledForMemory {
        /// Highest memory in the samples.
        peak_bytes: f64,
        /// The limit that was exceeded; `None` if unknown.
        limit_bytes: Option<f64>,
        /// Whether the kill was counted in a cgroup of the job without other processes.
        certain: bool,
    },
    /// The run did not succeed, or the tracker died before its end.
    Incomplete {
        status: Status,
    },
    ShortRun {
        duration_seconds: f64,
    },
    MemoryLimitReached {
        peak_bytes: f64,
        limit_bytes: f64,
    },
    /// The request for memory may be too small.
    MemoryAtRisk {
        why: String,
    },
    /// All CPUs were busy.
    CpuLimitReached {
        mean_cores: f64,
        limit_cores: f64,
    },
    /// The CPU quota paused the job for this time, summed over CPUs.
    Throttled {
        throttled_seconds: f64,
    },
    /// Other programs kept CPUs busy that the job waited for.
    Contended {
        other_cores: f64,
        /// Share of the time in which a task of the machine waited for a CPU.
        waiting_share: f64,
    },
    /// CPU time that the hypervisor gave to other machines.
    Stolen {
        stolen_seconds: f64,
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
            Self::KilledForMemory { peak_bytes, limit_bytes, certain } => {
                let probably = if *certain { "" } else { "probably " };
                write!(out, "the OOM killer {probably}ended the job at {:.0}", peak_bytes / MIB)?;
                limit_bytes.map_or(Ok(()), |limit| write!(out, " of {:.0}", limit / MIB))?;
                write!(out, " MiB of memory: its real need is unknown, so the request is an estimate")
            }
            Self::Incomplete { status } => match status {
                Status::Running | Status::Detached => {
                    write!(out, "the run has not ended: the figures are preliminary")
                }
                Status::TrackerDied => {
                    write!(out, "the tracker died before the run ended: the figures are incomplete")
                }
                _ => write!(out, "the run failed: a complete run may need more"),
            },
            Self::ShortRun { duration_seconds } => {
                let duration = human::duration(*duration_seconds);
                write!(out, "the run took only {duration} and may not be representative")
            }
            Self::MemoryLimitReached { peak_bytes, limit_bytes } => write!(
                out,
                "peak memory reached the limit ({:.0} of {:.0} MiB): the job may need more memory",
                peak_bytes / MIB,
                limit_bytes / MIB
            ),
            Self::MemoryAtRisk { why } => out.write_str(why),
            Self::CpuLimitReached { mean_cores, limit_cores } => write!(
                out,
                "the job kept all its CPUs busy ({mean_cores:.1} of {limit_cores:.1}): more CPUs may make it \
                 faster; the gain is unknown"
            ),
            Self::Throttled { throttled_seconds } => {
                write!(out, "the CPU limit throttled the job for {}", human::duration(*throttled_seconds))
            }
            Self::Contended { other_cores, waiting_share } => write!(
                out,
                "other programs kept {other_cores:.1} CPUs busy, and tasks waited for a CPU in {:.0} % of the time: on a \
                 quiet machine the run may be faster",
                waiting_share * 100.0
            ),
            Self::Stolen { stolen_seconds } => write!(
                out,
                "the hypervisor gave {stolen_seconds:.1} s of CPU time to other machines: elsewhere the run may be faster"
            ),
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
pub(super) fn warnings(head: &Head, summary: &Summary, stats: &Stats, limits: Limits) -> Vec<Warning> {
    let run = head.run.as_ref();
    let coverage = run.and_then(|run| run.coverage).or_else(|| summary.coverage());
    let duration_s = summary.duration_s();
    let short = duration_s.filter(|duration_s| *duration_s < SHORT_RUN_S);
    let peak_bytes = summary.memory_peak_kib().map(|peak_kib| peak_kib * 1024.0);
    let killed = run.filter(|run| run.was_killed_for_memory());
    let killed = killed.and_then(|run| run.oom_kills).zip(peak_bytes).map(|(kills, peak_bytes)| {
        #[expect(clippy::cast_precision_loss, reason = "memory sizes are far below 2^53 bytes")]
        let limit_bytes = kills.limit_bytes.map(|bytes| bytes as f64);
        Warning::KilledForMemory { peak_bytes, limit_bytes, certain: kills.certain }
    });
    let complete = |status: &Status| matches!(status, Status::Finished | Status::Ended | Status::Other(_));
    let incomplete = run.and_then(|run| run.status.clone()).filter(|status| !complete(status));
    let incomplete = incomplete.filter(|_| killed.is_none());
    let memory = peak_bytes.zip(limits.memory_mb.map(|mib| mib * MIB)).filter(|_| killed.is_none());
    let memory = memory.filter(|(peak, limit)| *peak >= limit * AT_LIMIT);
    let mean_cores = summary.of(Metric::ProcessCpu).mean();
    let cpu = mean_cores.zip(limits.cpu_cores).filter(|(mean, limit)| *mean >= limit * ALL_BUSY);
    // A sum over the run that is more than a share of its duration.
    let above = |metric: Metric, share: f64| {
        let sum =
            summary.of(metric).sum().zip(duration_s).filter(|(sum, duration_s)| *sum > duration_s * share);
        sum.map(|(sum, _)| sum)
    };
    let others = summary.of(Metric::SystemCpu).mean().zip(mean_cores).map(|(machine, job)| machine - job);
    // In a short run, these figures are mostly those of its start.
    let others = others.filter(|cores| *cores >= OTHERS_BUSY_CORES && short.is_none());
    // A job whose own threads hardly waited is not slower for it.
    let own_queue = summary.of(Metric::CpuQueue).sum().zip(duration_s);
    let is_waiting = own_queue.is_none_or(|(sum, duration_s)| sum >= duration_s * HIGH_PRESSURE);
    let waiting_share = above(Metric::PressureCpu, HIGH_PRESSURE).filter(|_| is_waiting);
    let waiting_share = waiting_share.zip(duration_s).map(|(sum, all)| sum / all);
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
        incomplete.map(|status| Warning::Incomplete { status }),
        short.map(|duration_seconds| Warning::ShortRun { duration_seconds }),
        memory.map(|(peak_bytes, limit_bytes)| Warning::MemoryLimitReached { peak_bytes, limit_bytes }),
        cpu.map(|(mean_cores, limit_cores)| Warning::CpuLimitReached { mean_cores, limit_cores }),
        above(Metric::Throttled, THROTTLED_SHARE)
            .map(|throttled_seconds| Warning::Throttled { throttled_seconds }),
        others
            .zip(waiting_share)
            .map(|(other_cores, waiting_share)| Warning::Contended { other_cores, waiting_share }),
        above(Metric::Steal, STOLEN_SHARE)
            .filter(|_| short.is_none())
            .map(|stolen_seconds| Warning::Stolen { stolen_seconds }),
        low.map(|coverage| Warning::LowCoverage { coverage }),
        gpu,
    ]
    .into_iter()
    .flatten()
    .collect()
}
