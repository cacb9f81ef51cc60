//! Possible improvements for the next run: GPUs that were idle, perhaps limited by the CPUs, or mostly empty; memory in
//! tmpfs files.
//!
//! In:  the summary and limits of a run. Out: a [`Finding`] for each possible improvement. Findings do not change the
//!      recommended resources.

use std::fmt::{self, Display, Formatter};

use serde::Serialize;

use super::limits::Limits;
use crate::metric::{MIB, Metric};
use crate::store::summary::Summary;

/// Mean usage of a GPU below this share is low.
const LOW_GPU_USAGE: f64 = 0.5;

/// Mean CPU usage above this share of the limit means that the CPUs are the bottleneck.
const ALL_CPUS_BUSY: f64 = 0.9;

/// Peak VRAM below this share of the GPU's memory means that a smaller GPU is possible.
const LOW_VRAM: f64 = 0.25;

/// Growth of tmpfs files above both, in MiB and as a share of the job's peak memory, is worth a finding.
const LARGE_TMPFS_MIB: f64 = 64.0;
const LARGE_TMPFS_SHARE: f64 = 0.1;

/// A possible improvement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "finding", rename_all = "snake_case")]
pub enum Finding {
    /// The job used none of its GPUs.
    GpuNeverUsed { gpus: u32 },
    /// The job held memory of its GPUs but never used them.
    GpuHeldUnused { vram_peak_bytes: f64 },
    /// The job used only some of its GPUs.
    GpusIdle { idle: u32, gpus: u32 },
    /// The GPUs were mostly idle while all CPUs were busy.
    GpuWaitsForCpu {
        /// Mean usage of the GPUs that the job used, 0 to 1.
        gpu_share: f64,
        cpu_cores: f64,
        cpu_limit_cores: f64,
    },
    /// The job used a small part of the VRAM.
    VramFarFromFull { peak_bytes: f64, total_bytes: f64 },
    /// Files in tmpfs used memory that is not in the memory of the job.
    TmpfsFiles { growth_bytes: f64 },
}

impl Display for Finding {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::GpuNeverUsed { gpus: 1 } => {
                write!(out, "the job did not use its GPU: a machine without a GPU is enough")
            }
            Self::GpuNeverUsed { gpus } => {
                write!(out, "the job used none of its {gpus} GPUs: a machine without GPUs is enough")
            }
            Self::GpuHeldUnused { vram_peak_bytes } => write!(
                out,
                "the job held {:.0} MiB of VRAM but never used the GPU: no GPU is recommended",
                vram_peak_bytes / MIB
            ),
            Self::GpusIdle { idle, gpus } => {
                write!(out, "the job did not use {idle} of its {gpus} GPUs: request {}", gpus - idle)
            }
            Self::GpuWaitsForCpu { gpu_share, cpu_cores, cpu_limit_cores } => write!(
                out,
                "mean GPU usage was {:.0} % while {cpu_cores:.1} of {cpu_limit_cores:.1} CPUs were busy: \
                 the CPUs may limit the GPU; a run with more CPUs would show it",
                gpu_share * 100.0
            ),
            Self::VramFarFromFull { peak_bytes, total_bytes } => write!(
                out,
                "the job used at most {:.1} of {:.1} GiB of VRAM: use a smaller GPU or larger batches",
                peak_bytes / MIB / 1024.0,
                total_bytes / MIB / 1024.0
            ),
            Self::TmpfsFiles { growth_bytes } => write!(
                out,
                "files in /dev/shm or another tmpfs used {:.0} MiB of memory, which is not part of the job's memory: \
                 add it to the request",
                growth_bytes / MIB
            ),
        }
    }
}

pub(super) fn findings(summary: &Summary, limits: &Limits) -> Vec<Finding> {
    gpu_findings(summary, limits).into_iter().chain(tmpfs_finding(summary)).collect()
}

fn tmpfs_finding(summary: &Summary) -> Option<Finding> {
    let shmem = summary.of(Metric::CgroupShmem);
    let growth_mib = (shmem.max()? - shmem.min()?) / 1024.0;
    let peak_mib = summary.memory_peak_kib().unwrap_or(0.0) / 1024.0;
    let is_large = growth_mib >= LARGE_TMPFS_MIB && growth_mib >= peak_mib * LARGE_TMPFS_SHARE;
    is_large.then_some(Finding::TmpfsFiles { growth_bytes: growth_mib * MIB })
}

/// The findings about GPUs; none if the run had no GPU or GPU usage was not measured.
fn gpu_findings(summary: &Summary, limits: &Limits) -> Vec<Finding> {
    let Some(allowed) = limits.gpus else { return Vec::new() };
    let (usage, vram) = (summary.of(Metric::ProcessGpu), summary.of(Metric::ProcessVram));
    let Some(usage_max) = usage.max() else { return Vec::new() };
    if usage_max <= 0.0 {
        let held = vram.max().filter(|mib| *mib > 0.0).map(|mib| mib * MIB);
        let never_used = Finding::GpuNeverUsed { gpus: allowed.gpus };
        return vec![held.map_or(never_used, |vram_peak_bytes| Finding::GpuHeldUnused { vram_peak_bytes })];
    }
    let idle = allowed.never_used.filter(|idle| *idle > 0 && *idle < allowed.gpus);
    let used = f64::from(allowed.gpus - idle.unwrap_or(0));
    let gpu_share = usage.mean().map(|mean| mean / used).filter(|share| *share < LOW_GPU_USAGE);
    let cpu = summary.of(Metric::ProcessCpu).mean().zip(limits.cpu_cores);
    let waits = gpu_share.zip(cpu.filter(|(mean, limit)| *mean >= limit * ALL_CPUS_BUSY));
    let memory = vram.max().zip(allowed.vram_mib).filter(|(peak, total)| *peak < total * LOW_VRAM);
    [
        idle.map(|idle| Finding::GpusIdle { idle, gpus: allowed.gpus }),
        waits.map(|(gpu_share, (cpu_cores, cpu_limit_cores))| Finding::GpuWaitsForCpu {
            gpu_share,
            cpu_cores,
            cpu_limit_cores,
        }),
        memory.map(|(peak_mib, total_mib)| Finding::VramFarFromFull {
            peak_bytes: peak_mib * MIB,
            total_bytes: total_mib * MIB,
        }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::super::limits::Allowed;
    use super::*;
    use crate::metric::Row;
    use crate::probe::gpu::GpuFigures;
    use crate::store::summary::Scope;

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
    fn growth_of_tmpfs_files_is_reported_if_it_is_large() {
        let found = |levels_mib: [f64; 2], peak_mib: f64| {
            let scope = Scope { process: true, system: true, start_time: Some(0.0), interval_s: 1.0 };
            let mut summary = Summary::new(scope);
            for level_mib in levels_mib {
                let mut row = Row::default();
                row.set(Metric::CgroupShmem, Some(level_mib * 1024.0));
                row.set(Metric::ProcessMemory, Some(peak_mib * 1024.0));
                summary.add(&row);
            }
            findings(&summary, &Limits::default())
        };
        assert_eq!(found([10.0, 310.0], 1000.0), [Finding::TmpfsFiles { growth_bytes: 300.0 * MIB }]);
        assert_eq!(found([10.0, 310.0], 9000.0), [], "small beside the memory of the job");
        assert_eq!(found([300.0, 310.0], 1.0), [], "files from before the run");
    }

    #[test]
    fn unused_gpus_are_reported() {
        let idle = gpu(true, Some(0.0), 16384.0);
        assert_eq!(
            found(std::slice::from_ref(&idle), Some(0.0), 0.0, 1.0),
            ["the job did not use its GPU: a machine without a GPU is enough"]
        );
        assert_eq!(
            found(std::slice::from_ref(&idle), Some(0.0), 300.0, 1.0),
            ["the job held 300 MiB of VRAM but never used the GPU: no GPU is recommended"]
        );
        let two = [idle.clone(), idle.clone()];
        assert_eq!(
            found(&two, Some(0.0), 0.0, 1.0),
            ["the job used none of its 2 GPUs: a machine without GPUs is enough"]
        );
        let one_of_two = [idle, gpu(true, Some(0.9), 16384.0)];
        assert_eq!(
            found(&one_of_two, Some(0.9), 15000.0, 1.0),
            ["the job did not use 1 of its 2 GPUs: request 1"]
        );
    }

    #[test]
    fn gpus_that_are_not_allowed_or_have_no_memory_give_no_finding() {
        let others = [gpu(false, Some(0.0), 16384.0), gpu(true, Some(0.0), 0.0)];
        assert_eq!(Allowed::of(&others), None);
        assert!(found(&others, Some(0.0), 0.0, 1.0).is_empty());
        assert!(found(&[], Some(0.0), 0.0, 1.0).is_empty());
        assert!(found(&[gpu(true, None, 16384.0)], None, 0.0, 1.0).is_empty(), "not measured");
    }

    #[test]
    fn gpu_that_waits_for_cpus_and_mostly_empty_vram_are_reported() {
        let used = [gpu(true, Some(0.3), 16384.0)];
        assert_eq!(
            found(&used, Some(0.3), 15000.0, 3.9),
            [
                "mean GPU usage was 30 % while 3.9 of 4.0 CPUs were busy: the CPUs may limit the GPU; a run with more \
                 CPUs would show it"
            ]
        );
        assert!(found(&used, Some(0.8), 15000.0, 3.9).is_empty(), "GPU and CPUs are busy");
        assert!(found(&used, Some(0.3), 15000.0, 1.0).is_empty(), "the CPUs are not the bottleneck");
        assert_eq!(
            found(&used, Some(0.9), 1024.0, 1.0),
            ["the job used at most 1.0 of 16.0 GiB of VRAM: use a smaller GPU or larger batches"]
        );
    }
}
