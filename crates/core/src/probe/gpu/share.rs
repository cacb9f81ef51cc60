//! The job's share of an NVIDIA GPU.
//!
//! In:  the driver's list of processes on the GPU, the job's pids and open device files. Out: a [`Share`].
//!
//! On the host, the driver's pids match the job's pids. In a container many drivers list pids of the host, or no pids.
//! Each process of the job that has the GPU's device file open is then taken as one of the unknown pids, and the share
//! is marked as an estimate.

use super::Share;

/// A process in the driver's list.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct GpuProcess {
    pub pid: u32,
    /// `None` if the driver does not report memory by process.
    pub vram_bytes: Option<u64>,
}

/// Figures that the driver reports for one GPU and its processes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Processes {
    pub gpu_usage: Option<f64>,
    pub gpu_vram_bytes: Option<u64>,
    /// Processes on the GPU; `None` if the call failed.
    pub listed: Option<Vec<GpuProcess>>,
    /// Usage by pid, without pids of usage 0; `None` if the driver does not measure usage by process.
    pub usages: Option<Vec<(u32, f64)>>,
    /// Whether the GPU is divided into MIG instances.
    pub is_mig: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Job<'a> {
    /// Pids of the job, in ascending order.
    pub members: &'a [u32],
    /// `None` on the host, where the driver's pids match the job's.
    pub container: Option<Container<'a>>,
}

/// Input of an estimate in a container.
#[derive(Clone, Copy, Debug)]
pub(super) struct Container<'a> {
    /// Members of the job that have this GPU's device file open.
    pub holders: &'a [u32],
    /// All pids of this namespace, in ascending order.
    pub visible: &'a [u32],
}

pub(super) fn share(gpu: &Processes, job: Job<'_>) -> Share {
    let found = known_share(gpu, job);
    // The job's usage of a MIG device is unknown. It stays unknown before the job uses the device, since zeros would
    // lower the mean.
    let is_known = gpu.usages.is_some() || !gpu.is_mig;
    Share { usage: found.usage.filter(|_| is_known), ..found }
}

fn known_share(gpu: &Processes, job: Job<'_>) -> Share {
    if job.members.is_empty() {
        return Share::NOTHING;
    }
    let is_member = |pid: u32| job.members.binary_search(&pid).is_ok();
    let Some(container) = job.container else {
        return by_numbers(gpu, is_member);
    };
    if container.holders.is_empty() {
        return Share::NOTHING;
    }
    // If the list contains a member that has this GPU open, the driver lists pids of this container.
    let is_holder = |pid: u32| container.holders.contains(&pid);
    let listed = gpu.listed.as_deref().unwrap_or_default();
    if listed.iter().any(|process| is_holder(process.pid)) {
        return by_numbers(gpu, is_holder);
    }
    estimate(gpu, container, listed)
}

fn by_numbers(gpu: &Processes, is_ours: impl Fn(u32) -> bool) -> Share {
    let Some(listed) = gpu.listed.as_deref() else { return Share::default() };
    let ours = || listed.iter().filter(|process| is_ours(process.pid));
    let usage = match &gpu.usages {
        // Several processes may use the GPU at the same time, so the sum is capped at 1.
        Some(usages) => Some(sum(usages, &is_ours).min(1.0)),
        None if ours().next().is_none() => Some(0.0),
        // Only the job's processes are on this GPU.
        None if ours().count() == listed.len() => gpu.gpu_usage,
        None => None,
    };
    Share { usage, vram_bytes: ours().map(|process| process.vram_bytes).sum(), is_estimate: false }
}

/// Sum of the usages of pids that count. Starts at 0.0, because `sum()` of an empty iterator is -0.0.
fn sum(usages: &[(u32, f64)], counts: impl Fn(u32) -> bool) -> f64 {
    usages.iter().filter(|(pid, _)| counts(*pid)).fold(0.0, |sum, (_, usage)| sum + usage)
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "part of a number of bytes far below 2^53"
)]
fn estimate(gpu: &Processes, container: Container<'_>, listed: &[GpuProcess]) -> Share {
    let foreign: Vec<&GpuProcess> =
        listed.iter().filter(|process| container.visible.binary_search(&process.pid).is_err()).collect();
    if foreign.is_empty() && !listed.is_empty() {
        // All listed processes are in this container and do not belong to the job.
        return Share { is_estimate: true, ..Share::NOTHING };
    }
    if foreign.is_empty() {
        // The list is empty although the job has the GPU open, so all usage is taken as the job's.
        return Share { usage: gpu.gpu_usage, vram_bytes: gpu.gpu_vram_bytes, is_estimate: true };
    }
    let part = (container.holders.len() as f64 / foreign.len() as f64).min(1.0);
    let vram_bytes: Option<u64> = foreign.iter().map(|process| process.vram_bytes).sum();
    let usage = match &gpu.usages {
        Some(usages) => {
            let is_foreign = |pid: u32| foreign.iter().any(|process| process.pid == pid);
            Some(sum(usages, is_foreign).min(1.0))
        }
        None => gpu.gpu_usage,
    };
    Share {
        usage: usage.map(|usage| usage * part),
        vram_bytes: vram_bytes.map(|bytes| (bytes as f64 * part) as u64),
        is_estimate: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(listed: &[(u32, u64)], usages: Option<&[(u32, f64)]>) -> Processes {
        let process = |(pid, bytes): &(u32, u64)| GpuProcess { pid: *pid, vram_bytes: Some(*bytes) };
        Processes {
            gpu_usage: Some(0.75),
            gpu_vram_bytes: Some(1000),
            listed: Some(listed.iter().map(process).collect()),
            usages: usages.map(<[_]>::to_vec),
            is_mig: false,
        }
    }

    fn on_host(gpu: &Processes, members: &[u32]) -> (Option<f64>, Option<u64>) {
        let share = share(gpu, Job { members, container: None });
        assert!(!share.is_estimate);
        (share.usage, share.vram_bytes)
    }

    #[test]
    fn on_the_host_only_processes_of_the_job_count() {
        let gpu = gpu(&[(10, 100), (11, 50), (99, 700)], Some(&[(10, 0.25), (11, 0.5), (99, 0.9)]));
        assert_eq!(on_host(&gpu, &[10, 11]), (Some(0.75), Some(150)));
        assert_eq!(on_host(&gpu, &[5]), (Some(0.0), Some(0)));
        assert!(on_host(&gpu, &[5]).0.unwrap().is_sign_positive(), "0 and not -0");
        assert_eq!(on_host(&gpu, &[]), (Some(0.0), Some(0)));
    }

    #[test]
    fn overlapping_processes_use_at_most_the_whole_gpu() {
        assert_eq!(on_host(&gpu(&[(1, 1), (2, 1)], Some(&[(1, 0.9), (2, 0.9)])), &[1, 2]).0, Some(1.0));
    }

    #[test]
    fn without_usage_by_process_the_job_has_a_usage_only_if_it_is_alone_on_the_gpu() {
        assert_eq!(on_host(&gpu(&[(10, 100)], None), &[10]).0, Some(0.75));
        assert_eq!(on_host(&gpu(&[(10, 100), (99, 1)], None), &[10]), (None, Some(100)));
        assert_eq!(on_host(&gpu(&[(99, 1)], None), &[10]).0, Some(0.0));
    }

    #[test]
    fn failed_process_list_and_unreported_memory_are_unknown() {
        assert_eq!(on_host(&Processes { listed: None, ..gpu(&[], None) }, &[10]), (None, None));
        let mut hidden = gpu(&[(10, 1)], None);
        hidden.listed = Some(vec![GpuProcess { pid: 10, vram_bytes: None }]);
        assert_eq!(on_host(&hidden, &[10]).1, None);
    }

    #[test]
    fn usage_of_a_mig_device_is_unknown_before_the_job_uses_it_too() {
        let divided = |listed| Processes { is_mig: true, ..gpu(listed, None) };
        assert_eq!(on_host(&divided(&[(99, 1)]), &[10]), (None, Some(0)));
        assert_eq!(on_host(&divided(&[(10, 7)]), &[10]), (None, Some(7)));
    }

    #[test]
    fn in_a_container_the_share_is_estimated_from_open_device_files() {
        let within = |gpu: &Processes, holders: &[u32]| {
            let container = Container { holders, visible: &[1, 7, 8] };
            let found = share(gpu, Job { members: &[7, 8], container: Some(container) });
            (found.usage, found.vram_bytes, found.is_estimate)
        };
        let host_numbers = gpu(&[(4001, 300), (4002, 100)], Some(&[(4001, 0.4), (4002, 0.2)]));
        assert_eq!(within(&host_numbers, &[7]), (Some(f64::midpoint(0.4, 0.2)), Some(200), true));
        assert_eq!(within(&host_numbers, &[7, 8]).1, Some(400));
        assert_eq!(within(&host_numbers, &[]), (Some(0.0), Some(0), false));
        assert_eq!(within(&gpu(&[], None), &[7]), (Some(0.75), Some(1000), true));
        let translated = gpu(&[(7, 300), (4002, 100)], Some(&[(7, 0.4)]));
        assert_eq!(within(&translated, &[7]), (Some(0.4), Some(300), false));
        // Process 1 is in this container and does not belong to the job.
        assert_eq!(within(&gpu(&[(1, 300)], None), &[7]), (Some(0.0), Some(0), true));
    }
}
