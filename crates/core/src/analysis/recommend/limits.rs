//! The CPUs, memory and GPUs that a job could use.
//!
//! In:  the head of a recording. Out: [`Limits`].

use crate::probe::gpu::GpuFigures;
use crate::store::recording::Head;
use crate::store::recording::head::server_number;

/// The resources that a job could use; `None` where unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// The lowest of container limit, affinity and CPUs of the machine.
    pub cpu_cores: Option<f64>,
    /// The lower of container limit and memory of the machine, in MiB.
    pub memory_mb: Option<f64>,
    /// `None` if the job had no GPU.
    pub gpus: Option<Allowed>,
}

/// The GPUs that a job could use.
///
/// A GPU without memory of its own is part of a processor. It does not count, because it has no price.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Allowed {
    pub gpus: u32,
    /// GPUs on which the job had neither load nor memory; `None` if there are no figures per GPU.
    pub never_used: Option<u32>,
    /// Memory of the GPUs that the job used, or of all GPUs if it used none.
    pub vram_mib: Option<f64>,
}

impl Allowed {
    /// Counts GPUs and memory from the figures per GPU; `None` if the job could use no GPU.
    pub fn of(figures: &[GpuFigures]) -> Option<Self> {
        let has_memory = |gpu: &&GpuFigures| gpu.vram_total_mib.is_none_or(|mib| mib > 0.0);
        let allowed: Vec<&GpuFigures> = figures.iter().filter(|gpu| gpu.allowed).filter(has_memory).collect();
        let is_idle =
            |gpu: &&&GpuFigures| gpu.job_usage_max == Some(0.0) && gpu.job_vram_max_mib == Some(0.0);
        let idle = allowed.iter().filter(is_idle).count();
        let all_idle = idle == allowed.len();
        let vram = allowed.iter().filter(|gpu| all_idle || !is_idle(gpu)).map(|gpu| gpu.vram_total_mib);
        Some(Self {
            gpus: u32::try_from(allowed.len()).ok().filter(|gpus| *gpus > 0)?,
            never_used: u32::try_from(idle).ok(),
            vram_mib: vram.sum(),
        })
    }
}

impl Head {
    /// The limits of a run, from its recording.
    pub fn limits(&self) -> Limits {
        let info = self.server_info.as_ref();
        let figures = self.run.as_ref().map_or(&[][..], |run| run.gpus.as_slice());
        // A recording without figures per GPU still has the number of GPUs in `server_info`.
        let counted = || {
            let gpus = server_number(info, "gpu_count")?;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a small whole number"
            )]
            let gpus = gpus as u32;
            Some(Allowed { gpus, never_used: None, vram_mib: server_number(info, "gpu_memory_mb") })
        };
        Limits {
            cpu_cores: self.cpu_limit_cores(),
            memory_mb: self.memory_limit_mib(),
            gpus: if figures.is_empty() { counted() } else { Allowed::of(figures) },
        }
    }
}
