//! AMD's compute driver (KFD): memory of ROCm processes, whose work DRM's own counters do not see.
//!
//! In:  `/sys/class/kfd/kfd`. Out: for a GPU, what the job's processes hold on it, and whether others are there too.
//!
//! The map is the kernel's `drivers/gpu/drm/amd/amdkfd/kfd_process.c`: `proc/<pid>/vram_<gpu id>` is in bytes. Numbers
//! of processes are the host's, so that inside of a container nobody matches.

use crate::root::Root;

const TOP: &str = "/sys/class/kfd/kfd";

/// What ROCm processes do on one GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Compute {
    /// Held by the job's processes.
    pub job_bytes: u64,
    /// Processes of the job that hold any.
    pub job_processes: u32,
    /// Other processes that hold any.
    pub other_processes: u32,
}

/// The number that KFD has for the GPU with this render node.
pub(super) fn gpu_id(root: &Root, render_minor: u32) -> Option<u64> {
    let nodes = root.names(&format!("{TOP}/topology/nodes"));
    nodes.iter().find_map(|node| {
        let folder = format!("{TOP}/topology/nodes/{node}");
        let properties = root.text(&format!("{folder}/properties"))?;
        let minor = properties.lines().find_map(|line| line.strip_prefix("drm_render_minor "))?;
        (minor.trim().parse() == Ok(render_minor))
            .then(|| root.text(&format!("{folder}/gpu_id"))?.parse().ok())?
    })
}

/// Looks at all ROCm processes.
pub(super) fn look(root: &Root, gpu_id: u64, members: &[u32]) -> Compute {
    let mut found = Compute::default();
    for pid in root.names(&format!("{TOP}/proc")).iter().filter_map(|name| name.parse::<u32>().ok()) {
        let text = root.text(&format!("{TOP}/proc/{pid}/vram_{gpu_id}"));
        let bytes = text.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        if bytes == 0 {
            continue;
        }
        if members.binary_search(&pid).is_ok() {
            found.job_bytes = found.job_bytes.saturating_add(bytes);
            found.job_processes += 1;
        } else {
            found.other_processes += 1;
        }
    }
    found
}
