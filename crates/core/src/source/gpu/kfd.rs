//! AMD's compute driver (KFD): memory of ROCm processes, whose work DRM's own counters do not see.
//!
//! In:  `/sys/class/kfd/kfd`. Out: for a GPU, what the job's processes hold on it, and whether others are there too.
//!
//! The map is the kernel's `drivers/gpu/drm/amd/amdkfd/kfd_process.c`: `proc/<pid>/vram_<gpu id>` is in bytes. Numbers
//! of processes are the host's, so that inside of a container nobody matches (`drm` estimates there).

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
    /// Held by those.
    pub other_bytes: u64,
}

/// What KFD says about a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node {
    /// Its number there.
    pub gpu_id: u64,
    /// A part of a processor.
    pub is_integrated: bool,
}

/// The GPU with this render node.
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
            found.other_bytes = found.other_bytes.saturating_add(bytes);
        }
    }
    found
}
