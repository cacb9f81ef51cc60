//! What a run shows about its GPUs: whether it needed them, what they waited for, how full they were.
//!
//! In:  the run's running figures, and the GPUs that the job could use. Out: a [`Finding`] for each thing that one can
//! do something about. Findings never change the recommended resources.
//!
//! Only GPUs that the job could use count, and of those only ones with memory of their own: the graphics part of a
//! processor is not what anybody pays for.

use serde::Serialize;

use crate::metric::Metric;
use crate::source::gpu::GpuFigures;
use crate::summary::Summary;

use super::Limits;

/// Below this share of the time a GPU that is used does little.
const LITTLE_USE: f64 = 0.5;

/// From this share on all CPUs are busy.
const ALL_CPUS: f64 = 0.9;

/// Below this share of its memory a GPU is far from full.
const FAR_FROM_FULL: f64 = 0.25;

/// The GPUs that the job could use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Allowed {
    /// How many.
    pub gpus: u32,
    /// Of those, the ones that the job never kept busy nor held memory on; `None` where that is not known by GPU.
    pub never_used: Option<u32>,
    /// Memory of those that it used, or of all where it used none.
    pub vram_mib: Option<f64>,
}

impl Allowed {
    /// From the figures of every GPU; `None` where the job could use none.
    #[must_use]
    pub fn of(figures: &[GpuFigures]) -> Option<Self> {
        let has_memory = |gpu: &&GpuFigures| gpu.vram_total_mib.is_none_or(|mib| mib > 0.0);
        let mine: Vec<&GpuFigures> = figures.iter().filter(|gpu| gpu.allowed).filter(has_memory).collect();
        let is_idle =
            |gpu: &&&GpuFigures| gpu.job_usage_max == Some(0.0) && gpu.job_vram_max_mib == Some(0.0);
        let idle = mine.iter().filter(is_idle).count();
        let all_idle = idle == mine.len();
        let vram = mine.iter().filter(|gpu| all_idle || !is_idle(gpu)).map(|gpu| gpu.vram_total_mib);
        Some(Self {
            gpus: u32::try_from(mine.len()).ok().filter(|gpus| *gpus > 0)?,
            never_used: u32::try_from(idle).ok(),
            vram_mib: vram.sum(),
        })
    }
}

/// Something that one can do about the next run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "finding", rename_all = "snake_case")]
pub enum Finding {
    /// GPUs were there for the job, and it used none.
    GpuNeverUsed {
        /// How many.
        gpus: u32,
    },
    /// Some of its GPUs were never used.
    GpusIdle {
        /// How many.
        idle: u32,
        /// Of so many.
        gpus: u32,
    },
    /// The GPUs had little to do while all CPUs were busy.
    GpuWaitsForCpu {
        /// Mean use of a GPU that was used, 0 to 1.
        gpu_share: f64,
        /// Mean use of CPUs.
        cpu_cores: f64,
        /// CPUs there were.
        cpu_limit_cores: f64,
    },
    /// The job's GPU memory was never nearly full.
    VramFarFromFull {
        /// Most that the job held.
        peak_mib: f64,
        /// What its GPUs have.
        total_mib: f64,
    },
}

impl std::fmt::Display for Finding {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::GpuNeverUsed { gpus: 1 } => {
                write!(formatter, "the job had a GPU and never used it: a machine without one would do")
            }
            Self::GpuNeverUsed { gpus } => {
                write!(formatter, "the job had {gpus} GPUs and used none: a machine without GPUs would do")
            }
            Self::GpusIdle { idle, gpus } => {
                write!(formatter, "the job never used {idle} of its {gpus} GPUs: {} would do", gpus - idle)
            }
            Self::GpuWaitsForCpu { gpu_share, cpu_cores, cpu_limit_cores } => write!(
                formatter,
                "the GPU was busy only {:.0} % of the time while {cpu_cores:.1} of {cpu_limit_cores:.1} CPUs were: it \
                 waits for the CPUs, and more of them would shorten the run",
                gpu_share * 100.0
            ),
            Self::VramFarFromFull { peak_mib, total_mib } => write!(
                formatter,
                "the job filled at most {:.1} of {:.1} GiB of GPU memory: a smaller GPU or larger batches would do",
                peak_mib / 1024.0,
                total_mib / 1024.0
            ),
        }
    }
}

/// What this run shows.
pub(super) fn findings(summary: &Summary, limits: &Limits) -> Vec<Finding> {
    let Some(allowed) = limits.gpus else { return Vec::new() };
    let (usage, vram) = (summary.of(Metric::ProcessGpu), summary.of(Metric::ProcessVram));
    // Where nothing was measured there is nothing to find.
    let Some(usage_max) = usage.max() else { return Vec::new() };
    if usage_max <= 0.0 && vram.max().is_none_or(|mib| mib <= 0.0) {
        return vec![Finding::GpuNeverUsed { gpus: allowed.gpus }];
    }
    let idle = allowed.never_used.filter(|idle| *idle > 0 && *idle < allowed.gpus);
    let used = f64::from(allowed.gpus - idle.unwrap_or(0));
    let gpu_share = usage.mean().map(|mean| mean / used).filter(|share| *share < LITTLE_USE);
    let cpu = summary.of(Metric::ProcessCpu).mean().zip(limits.cpu_cores);
    let waits = gpu_share.zip(cpu.filter(|(mean, limit)| *mean >= limit * ALL_CPUS));
    let memory = vram.max().zip(allowed.vram_mib).filter(|(peak, total)| *peak < total * FAR_FROM_FULL);
    [
        idle.map(|idle| Finding::GpusIdle { idle, gpus: allowed.gpus }),
        waits.map(|(gpu_share, (cpu_cores, cpu_limit_cores))| Finding::GpuWaitsForCpu {
            gpu_share,
            cpu_cores,
            cpu_limit_cores,
        }),
        memory.map(|(peak_mib, total_mib)| Finding::VramFarFromFull { peak_mib, total_mib }),
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

    fn gpu(allowed: bool, job_usage_max: Option<f64>, total: f64) -> GpuFigures {
        GpuFigures {
            allowed,
            job_usage_max,
            job_vram_max_mib: job_usage_max.map(|usage| usage * 100.0),
            vram_total_mib: Some(total),
            ..GpuFigures::default()
        }
    }

    fn found(gpus: &[GpuFigures], usage: Option<f64>, vram_mib: f64, cpu: f64) -> Vec<String> {
        let scope = Scope { process: true, system: true, start_time: Some(0.0), interval_s: 1.0 };
        let mut summary = Summary::new(scope);
        let mut row = Row::default();
        row.set(Metric::ProcessGpu, usage);
        row.set(Metric::ProcessVram, usage.map(|_| vram_mib));
        row.set(Metric::ProcessCpu, Some(cpu));
        summary.add(&row);
        let limits = Limits { cpu_cores: Some(4.0), memory_mb: None, gpus: Allowed::of(gpus) };
        findings(&summary, &limits).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_gpu_that_was_there_for_nothing_is_named() {
        let idle = gpu(true, Some(0.0), 16384.0);
        assert_eq!(
            found(std::slice::from_ref(&idle), Some(0.0), 0.0, 1.0),
            ["the job had a GPU and never used it: a machine without one would do"]
        );
        let two = [idle.clone(), idle.clone()];
        assert_eq!(
            found(&two, Some(0.0), 0.0, 1.0),
            ["the job had 2 GPUs and used none: a machine without GPUs would do"]
        );
        let one_of_two = [idle, gpu(true, Some(0.9), 16384.0)];
        assert_eq!(
            found(&one_of_two, Some(0.9), 15000.0, 1.0),
            ["the job never used 1 of its 2 GPUs: 1 would do"]
        );
    }

    #[test]
    fn gpus_that_it_may_not_use_or_that_have_no_memory_are_not_held_against_a_job() {
        let others = [gpu(false, Some(0.0), 16384.0), gpu(true, Some(0.0), 0.0)];
        assert_eq!(Allowed::of(&others), None);
        assert!(found(&others, Some(0.0), 0.0, 1.0).is_empty());
        assert!(found(&[], Some(0.0), 0.0, 1.0).is_empty());
        assert!(found(&[gpu(true, None, 16384.0)], None, 0.0, 1.0).is_empty(), "never measured");
    }

    #[test]
    fn a_gpu_that_waits_for_the_cpus_and_one_that_is_nearly_empty_are_named() {
        let used = [gpu(true, Some(0.3), 16384.0)];
        assert_eq!(
            found(&used, Some(0.3), 15000.0, 3.9),
            [
                "the GPU was busy only 30 % of the time while 3.9 of 4.0 CPUs were: it waits for the CPUs, and more of \
              them would shorten the run"
            ]
        );
        assert!(found(&used, Some(0.8), 15000.0, 3.9).is_empty(), "both are busy");
        assert!(found(&used, Some(0.3), 15000.0, 1.0).is_empty(), "something else holds it up");
        assert_eq!(
            found(&used, Some(0.9), 1024.0, 1.0),
            [
                "the job filled at most 1.0 of 16.0 GiB of GPU memory: a smaller GPU or larger batches would do"
            ]
        );
    }
}
