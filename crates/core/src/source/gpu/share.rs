//! Which part of an NVIDIA GPU is the job's.
//!
//! In:  what the driver says about the GPU's processes, and the job's pids and open device files.
//! Out: a [`Share`]. Pure.
//!
//! On the host the driver's numbers are ours. In a container they are the host's on many drivers, or processes are
//! not listed at all: then the job's processes that have the GPU's device file open stand for as many of those that
//! nobody here knows, and the figure is called an estimate.

use super::Share;

/// A process that the driver lists.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct GpuProcess {
    pub pid: u32,
    /// Unknown on some drivers.
    pub vram_bytes: Option<u64>,
}

/// What the driver says about one GPU's processes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Processes {
    /// Of the whole GPU.
    pub gpu_usage: Option<f64>,
    /// Of the whole GPU.
    pub gpu_vram_bytes: Option<u64>,
    /// `None` where the call failed.
    pub listed: Option<Vec<GpuProcess>>,
    /// Usage by pid, of those above 0; `None` where the driver does not measure it.
    pub usages: Option<Vec<(u32, f64)>>,
    /// Into instances (MIG).
    pub is_divided: bool,
}

/// The job as seen from the GPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job<'a> {
    /// Its processes, in ascending order.
    pub members: &'a [u32],
    /// `None` on the host itself, where numbers mean what they say.
    pub container: Option<Container<'a>>,
}

/// What a container needs for an estimate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Container<'a> {
    /// Members that have this GPU's device file open.
    pub holders: &'a [u32],
    /// All processes that can be seen from here, in ascending order.
    pub visible: &'a [u32],
}

/// The job's part.
pub(super) fn share(gpu: &Processes, job: Job<'_>) -> Share {
    let found = part(gpu, job);
    // Unknown from the beginning: zeros of before the job came to it would be all that is known in the end.
    let is_known = gpu.usages.is_some() || !gpu.is_divided;
    Share { usage: found.usage.filter(|_| is_known), ..found }
}

fn part(gpu: &Processes, job: Job<'_>) -> Share {
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
    // A number that is ours and holds this very GPU is no coincidence: this driver translates.
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
        // Times of several processes overlap, and a GPU is not busier than all the time.
        Some(usages) => Some(sum(usages, &is_ours).min(1.0)),
        None if ours().next().is_none() => Some(0.0),
        // Nobody else is there, so what it does it does for the job.
        None if ours().count() == listed.len() => gpu.gpu_usage,
        None => None,
    };
    Share { usage, vram_bytes: ours().map(|process| process.vram_bytes).sum(), is_estimate: false }
}

/// Usage of the processes that count. From 0 on: the sum of no numbers at all is -0 to the standard library.
fn sum(usages: &[(u32, f64)], counts: impl Fn(u32) -> bool) -> f64 {
    usages.iter().filter(|(pid, _)| counts(*pid)).fold(0.0, |sum, (_, usage)| sum + usage)
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a part of a number of bytes that is far below 2^53"
)]
fn estimate(gpu: &Processes, container: Container<'_>, listed: &[GpuProcess]) -> Share {
    let foreign: Vec<&GpuProcess> =
        listed.iter().filter(|process| container.visible.binary_search(&process.pid).is_err()).collect();
    if foreign.is_empty() && !listed.is_empty() {
        // All that are listed are seen here and are not the job's: it only has the file open.
        return Share { is_estimate: true, ..Share::NOTHING };
    }
    if foreign.is_empty() {
        // Nobody is listed though somebody has the GPU open: as far as can be seen it is the job's alone.
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
            is_divided: false,
        }
    }

    fn on_host(gpu: &Processes, members: &[u32]) -> (Option<f64>, Option<u64>) {
        let share = share(gpu, Job { members, container: None });
        assert!(!share.is_estimate);
        (share.usage, share.vram_bytes)
    }

    #[test]
    fn on_the_host_the_jobs_processes_count_and_others_do_not() {
        let gpu = gpu(&[(10, 100), (11, 50), (99, 700)], Some(&[(10, 0.25), (11, 0.5), (99, 0.9)]));
        assert_eq!(on_host(&gpu, &[10, 11]), (Some(0.75), Some(150)));
        assert_eq!(on_host(&gpu, &[5]), (Some(0.0), Some(0)));
        assert!(on_host(&gpu, &[5]).0.unwrap().is_sign_positive(), "0 and not -0");
        assert_eq!(on_host(&gpu, &[]), (Some(0.0), Some(0)));
    }

    #[test]
    fn overlapping_processes_never_use_more_than_the_whole_gpu() {
        assert_eq!(on_host(&gpu(&[(1, 1), (2, 1)], Some(&[(1, 0.9), (2, 0.9)])), &[1, 2]).0, Some(1.0));
    }

    #[test]
    fn where_usage_by_process_is_not_measured_only_a_gpu_of_our_own_has_one() {
        assert_eq!(on_host(&gpu(&[(10, 100)], None), &[10]).0, Some(0.75));
        assert_eq!(on_host(&gpu(&[(10, 100), (99, 1)], None), &[10]), (None, Some(100)));
        assert_eq!(on_host(&gpu(&[(99, 1)], None), &[10]).0, Some(0.0));
    }

    #[test]
    fn a_list_that_failed_is_unknown_and_so_is_memory_that_is_not_told() {
        assert_eq!(on_host(&Processes { listed: None, ..gpu(&[], None) }, &[10]), (None, None));
        let mut hidden = gpu(&[(10, 1)], None);
        hidden.listed = Some(vec![GpuProcess { pid: 10, vram_bytes: None }]);
        assert_eq!(on_host(&hidden, &[10]).1, None);
    }

    #[test]
    fn usage_of_a_divided_gpu_is_unknown_also_before_the_job_comes_to_it() {
        let divided = |listed| Processes { is_divided: true, ..gpu(listed, None) };
        assert_eq!(on_host(&divided(&[(99, 1)]), &[10]), (None, Some(0)));
        assert_eq!(on_host(&divided(&[(10, 7)]), &[10]), (None, Some(7)));
    }

    #[test]
    fn in_a_container_open_files_stand_for_numbers_of_the_host() {
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
        // Process 1 is here and is not the job's.
        assert_eq!(within(&gpu(&[(1, 300)], None), &[7]), (Some(0.0), Some(0), true));
    }
}
