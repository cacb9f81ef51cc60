//! One sample: the machine, the job, the GPUs and the tracker itself at one moment.
//!
//! Not here: how a row is made from two samples (`diff`).

use crate::job::usage::JobUsage;
use crate::metric::GpuCells;
use crate::probe::gpu::GpuState;
use crate::probe::snapshot::Snapshot;

#[derive(Debug, Default)]
pub struct Sample {
    pub machine: Snapshot,
    /// `None` without a job, or if the job could not be read.
    pub job: Option<JobUsage>,
    pub gpu: GpuState,
    /// One entry per GPU, in the order of `run.gpus`.
    pub each_gpu: Vec<GpuCells>,
    pub tracker: TrackerCost,
}

/// Usage of the tracker itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrackerCost {
    /// CPU time of the tracker's threads in a host process, or of the whole process if the tracker has its own.
    pub cpu_ns: Option<u64>,
    /// RSS of the tracker's process; `None` if the tracker runs in a host process.
    pub rss_kib: Option<u64>,
    /// Bytes that the tracker has received and sent on network interfaces.
    pub traffic: Option<(u64, u64)>,
}
