//! AMD's compute driver (KFD): memory of ROCm processes, which the counters of DRM do not include.
//!
//! In:  `/sys/class/kfd/kfd`. Out: memory and number of ROCm processes on a GPU, separately for the job and for others.
//!
//! Source: `drivers/gpu/drm/amd/amdkfd/kfd_process.c`; `proc/<pid>/vram_<gpu id>` is in bytes. KFD uses the pids of the
//! host. In a container they do not match the job's pids, and `drm` makes an estimate.

use crate::os::root::Root;

const TOP: &str = "/sys/class/kfd/kfd";

/// ROCm processes on one GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Compute {
    pub job_bytes: u64,
    pub job_processes: u32,
    pub other_processes: u32,
    pub other_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub gpu_id: u64,
    /// Whether the GPU is part of a processor (APU).
    pub is_integrated: bool,
}

/// Finds the GPU with this render node.
pub(super) fn node(root: &Root, render_minor: u32) -> Option<Node> {
    let nodes = root.names(&format!("{TOP}/topology/nodes"));
    nodes.iter().find_map(|node| {
        let folder = format!("{TOP}/topology/nodes/{node}");
        let properties = root.text(&format!("{folder}/properties"))?;
        let property = |name: &str| -> Option<u32> {
            properties
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
        };
        if property("drm_render_minor") != Some(render_minor) {
            return None;
        }
        let gpu_id = root.text(&format!("{folder}/gpu_id"))?.parse().ok()?;
        Some(Node { gpu_id, is_integrated: property("cpu_cores_count").is_some_and(|cores| cores > 0) })
    })
}

/// Reads all ROCm processes on a GPU.
pub(super) fn read(root: &Root, gpu_id: u64, members: &[u32]) -> Compute {
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
            found.other_bytes = found.other_bytes.saturating_add(bytes);
        }
    }
    found
}
