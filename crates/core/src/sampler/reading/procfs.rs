//! A single read with Linux `/proc`.
//!
//! In:  a [`Root`] and a pid. Out: [`ProcessReading`], [`SystemReading`].
//!
//! `job::procfs::Job` is not used here. It lists all of `/proc`, and needs earlier samples to skip other processes,
//! which a single read does not have. A single read finds the tree from the kernel's lists of children instead, so that
//! its cost does not depend on the number of other processes. It always reads the PSS of all members. Both read the
//! files of a process with `probe/procfs/process`.

use super::{ProcessReading, SystemReading};
use crate::error::SourceError;
use crate::job::descendants::Scan;
use crate::os::Moment;
use crate::os::root::Root;
use crate::probe::Source;
use crate::probe::gpu::{self, Question};
use crate::probe::procfs::{
    CpuSource, DisksSource, MemorySource, NetworkSource, PidStat, ProcessesSource, borrows_memory,
    file_systems, read_io, read_smaps_rollup,
};

/// Reads a process, and its descendants too if `with_children`. A process that does not exist gives zeros.
pub fn process(root: &Root, pid: u32, with_children: bool) -> Result<ProcessReading, SourceError> {
    let mut scan = Scan { root, buffer: Vec::with_capacity(8 << 10), found: Vec::new() };
    let timestamp = Moment::now().wall_s();
    match scan.stat(pid) {
        Ok(stat) => scan.found.push((pid, stat)),
        Err(SourceError::Gone { .. } | SourceError::Unsupported { .. }) => {}
        Err(error) => return Err(error),
    }
    if with_children && !scan.found.is_empty() {
        scan.descend();
    }
    let Scan { mut buffer, found, .. } = scan;
    let page_kib = rustix::param::page_size() as u64 / 1024;
    let mut reading = ProcessReading { timestamp, pid, memory_kib: Some(0), ..ProcessReading::default() };
    let (mut user_ticks, mut system_ticks) = (Some(0), Some(0));
    let mut storage = None;
    let mut members = Vec::with_capacity(found.len());
    for (pid, stat) in &found {
        user_ticks = plus(user_ticks, Some(stat.utime_ticks));
        system_ticks = plus(system_ticks, Some(stat.stime_ticks));
        if with_children {
            user_ticks = plus(user_ticks, Some(stat.cutime_ticks));
            system_ticks = plus(system_ticks, Some(stat.cstime_ticks));
        }
        if stat.is_zombie() {
            continue;
        }
        members.push(*pid);
        if !borrows_from_parent(root, *pid, stat, &found) {
            let pages = read_smaps_rollup(root, *pid, &mut buffer).ok().flatten();
            let rss_kib = || stat.rss_pages.checked_mul(page_kib);
            let memory_kib = pages.map(|pages| pages.pss_kib).or_else(rss_kib);
            reading.memory_kib = plus(reading.memory_kib, memory_kib);
        }
        if let Ok(io) = read_io(root, *pid, &mut buffer) {
            let (read, written) = storage.unwrap_or((Some(0), Some(0)));
            storage = Some((plus(read, Some(io.read_bytes)), plus(written, Some(io.write_bytes))));
        }
    }
    if with_children {
        reading.children = Some(members.iter().filter(|member| **member != pid).count() as u64);
    }
    // For a tree that has ended, 0 bytes are returned and not `None`.
    let zero_if_ended = members.is_empty().then_some((Some(0), Some(0)));
    (reading.read_bytes, reading.write_bytes) = zero_if_ended.or(storage).unwrap_or_default();
    members.sort_unstable();
    let gpus = gpu::read_now(root, &Question { members, root_pid: Some(pid), since_ns: None });
    (reading.gpu, reading.gpu_numbers) = (gpus.job(), gpus.job_gpus());
    let ticks_per_s = rustix::param::clock_ticks_per_second().max(1);
    reading.user_s = user_ticks.map(|ticks| ratio(ticks, ticks_per_s));
    reading.system_s = system_ticks.map(|ticks| ratio(ticks, ticks_per_s));
    Ok(reading)
}

fn borrows_from_parent(root: &Root, pid: u32, stat: &PidStat, found: &[(u32, PidStat)]) -> bool {
    let parent = || found.iter().find(|(other, _)| *other == stat.ppid);
    stat.is_forked_child
        && parent().is_some_and(|(ppid, parent)| borrows_memory(root, (pid, stat), (*ppid, parent)))
}

pub fn system(root: &Root) -> SystemReading {
    let sources: [Box<dyn Source>; 5] = [
        Box::new(CpuSource::default()),
        Box::new(ProcessesSource::default()),
        Box::new(MemorySource::default()),
        Box::new(DisksSource::default()),
        Box::new(NetworkSource::default()),
    ];
    SystemReading::read(root, sources, file_systems(root).unwrap_or_default())
}

/// The sum of two values; `None` if a value is unknown, or if the sum overflows.
fn plus(sum: Option<u64>, part: Option<u64>) -> Option<u64> {
    sum?.checked_add(part?)
}

#[expect(clippy::cast_precision_loss, reason = "tick counts are below 2^53 for centuries")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Metric;

    #[test]
    fn process_that_does_not_exist_gives_zeros() {
        let root = Root::host_in_process().unwrap();
        let own = process(&root, std::process::id(), true).unwrap();
        // The number of children is not fixed: other tests start children in this process.
        assert!(own.memory_kib > Some(500) && own.children.is_some(), "{own:?}");
        assert_eq!(process(&root, std::process::id(), false).unwrap().children, None);
        let none = process(&root, u32::MAX >> 4, true).unwrap();
        assert_eq!((none.memory_kib, none.read_bytes, none.user_s), (Some(0), Some(0), Some(0.0)));
    }

    #[test]
    fn sums_that_overflow_are_unknown() {
        let tree = tempfile::tempdir().unwrap();
        let folder = tree.path().join("proc/7");
        std::fs::create_dir_all(&folder).unwrap();
        let most = u64::MAX;
        let stat = format!("7 (a) S 1 1 1 0 -1 0 0 0 0 0 {most} 5 1 0 20 0 1 0 9 0 {most} 0\n");
        std::fs::write(folder.join("stat"), stat).unwrap();
        let reading = process(&Root::recorded(tree.path()).unwrap(), 7, true).unwrap();
        assert_eq!((reading.user_s, reading.memory_kib, reading.children), (None, None, Some(0)));
        assert!(reading.system_s.is_some_and(|seconds| seconds > 0.0));
    }

    #[test]
    fn lists_of_children_and_parents_give_the_same_tree() {
        let root = Root::host_in_process().unwrap();
        // The list of 900 children is longer than the page in which the kernel returns it.
        let many = "exec 3<&0; i=0; while [ $i -lt 900 ]; do (read x <&3) & i=$((i + 1)); done; cat; wait";
        let mut child = std::process::Command::new("sh")
            .args(["-c", many])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let find = |by_parents: bool| {
            let mut scan = Scan { root: &root, buffer: Vec::new(), found: Vec::new() };
            let stat = scan.stat(child.id()).unwrap();
            scan.found.push((child.id(), stat));
            if by_parents {
                scan.descend_by_parents();
            } else {
                scan.descend();
            }
            let mut pids: Vec<u32> = scan.found.iter().map(|(pid, _)| *pid).collect();
            pids.sort_unstable();
            pids
        };
        let deadline = std::time::Instant::now() + std::time::Duration::from_mins(1);
        while find(true).len() < 902 {
            assert!(std::time::Instant::now() < deadline, "{} of 902 were started", find(true).len());
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert_eq!(find(false), find(true));
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn machine_has_levels_and_totals() {
        let reading = system(&Root::host_in_process().unwrap());
        assert!(reading.levels.get(Metric::MemoryUsed).is_some_and(|kib| kib > 0.0));
        assert!(reading.levels.get(Metric::Timestamp).is_some_and(|seconds| seconds > 1e9));
        assert!(reading.user_s.is_some_and(|seconds| seconds > 0.0));
        assert!(!reading.spaces.is_empty());
    }
}
