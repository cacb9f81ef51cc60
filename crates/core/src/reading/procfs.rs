//! One look by Linux's `/proc`.
//!
//! In:  a [`Root`] and a pid. Out: [`ProcessReading`], [`SystemReading`].
//!
//! A tree is found by the kernel's own lists of children (`/proc/[pid]/task/[tid]/children`), so that one process on
//! a big machine costs no more than on a small one; kernels without them have every process asked for its parent.

use super::{ProcessReading, SystemReading};
use crate::error::SourceError;
use crate::root::Root;
use crate::snapshot::{Moment, Snapshot};
use crate::source::gpu::{self, Question};
use crate::source::procfs::{
    CpuSource, DisksSource, MemorySource, NetworkSource, PidStat, ProcessesSource, file_systems,
    parse_pid_io, parse_pid_stat, parse_smaps_rollup,
};
use crate::tree::pid_path;

/// Looks at a process once. One that is not there reads as nothing at all.
///
/// # Errors
/// Where it is there and cannot be read.
pub fn process(root: &Root, pid: u32, with_children: bool) -> Result<ProcessReading, SourceError> {
    let mut look = Look { root, buffer: Vec::with_capacity(8 << 10), found: Vec::new() };
    let timestamp = Moment::now().wall_s();
    match look.stat(pid) {
        Ok(stat) => look.found.push((pid, stat)),
        Err(SourceError::Gone { .. } | SourceError::Unsupported { .. }) => {}
        Err(error) => return Err(error),
    }
    if with_children && !look.found.is_empty() {
        look.descend();
    }
    let page_kib = rustix::param::page_size() as u64 / 1024;
    let mut reading = ProcessReading { timestamp, pid, ..ProcessReading::default() };
    reading.memory_kib = Some(0);
    let (mut user_ticks, mut system_ticks) = (Some(0), Some(0));
    let mut storage = None;
    let mut members = Vec::with_capacity(look.found.len());
    let found = std::mem::take(&mut look.found);
    let borrows = |pid: u32, stat: &PidStat| {
        let parent = || found.iter().find(|(other, _)| *other == stat.ppid);
        stat.is_copy
            && parent()
                .is_some_and(|(ppid, parent)| stat.borrows_from(parent, || root.share_memory(pid, *ppid)))
    };
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
        if !borrows(*pid, stat) {
            let held_kib = look.pss_kib(*pid).or_else(|| stat.rss_pages.checked_mul(page_kib));
            reading.memory_kib = plus(reading.memory_kib, held_kib);
        }
        if let Some((read_bytes, write_bytes)) = look.storage_bytes(*pid) {
            let (read, written) = storage.unwrap_or((Some(0), Some(0)));
            storage = Some((plus(read, Some(read_bytes)), plus(written, Some(write_bytes))));
        }
        if *pid != reading.pid {
            reading.children = Some(reading.children.unwrap_or(0) + 1);
        }
    }
    if with_children {
        reading.children = reading.children.or(Some(0));
    }
    (reading.read_bytes, reading.write_bytes) = storage.unwrap_or_default();
    if members.is_empty() {
        // Nobody is there to have read or written anything.
        (reading.read_bytes, reading.write_bytes) = (Some(0), Some(0));
    }
    members.sort_unstable();
    reading.gpu = gpu::look(root, &Question { members, root_pid: Some(pid), since_ns: None }).job();
    let ticks_per_s = rustix::param::clock_ticks_per_second().max(1);
    reading.user_s = user_ticks.map(|ticks| ratio(ticks, ticks_per_s));
    reading.system_s = system_ticks.map(|ticks| ratio(ticks, ticks_per_s));
    Ok(reading)
}

/// All descendants of a process by the kernel's own lists, in ascending order; `None` where there are no such lists, or
/// where they changed while they were read: one that ends then may hide another.
pub(crate) fn descendants(root: &Root, pid: u32) -> Option<Vec<u32>> {
    let look_once = || {
        let mut look = Look { root, buffer: Vec::new(), found: Vec::new() };
        let stat = look.stat(pid).ok()?;
        look.found.push((pid, stat));
        look.children(pid, pid)?;
        look.descend();
        let mut pids: Vec<u32> = look.found.iter().map(|(pid, _)| *pid).collect();
        pids.sort_unstable();
        Some(pids)
    };
    let first = look_once()?;
    (look_once()? == first).then_some(first)
}

struct Look<'r> {
    root: &'r Root,
    buffer: Vec<u8>,
    found: Vec<(u32, PidStat)>,
}

impl Look<'_> {
    fn stat(&mut self, pid: u32) -> Result<PidStat, SourceError> {
        let path = pid_path(pid, "stat");
        let text = self.root.read(path.as_str(), &mut self.buffer)?;
        parse_pid_stat(text).map_err(|source| SourceError::Parse { path: path.as_str().into(), source })
    }

    /// Adds all descendants of what was found.
    fn descend(&mut self) {
        let mut at = 0;
        while let Some((pid, stat)) = self.found.get(at).copied() {
            at += 1;
            let threads = match stat.threads {
                0 | 1 => vec![pid],
                _ => numbers(self.root, &format!("/proc/{pid}/task")),
            };
            for thread in threads {
                let Some(children) = self.children(pid, thread) else {
                    if at == 1 {
                        return self.descend_by_parents();
                    }
                    continue;
                };
                for child in children {
                    if let Ok(stat) = self.stat(child)
                        && self.found.iter().all(|(known, _)| *known != child)
                    {
                        self.found.push((child, stat));
                    }
                }
            }
        }
    }

    /// `None` where the kernel keeps no such list, or the thread has ended.
    fn children(&mut self, pid: u32, thread: u32) -> Option<Vec<u32>> {
        let path = format!("/proc/{pid}/task/{thread}/children");
        let text = self.root.read(&path, &mut self.buffer).ok()?;
        let words = text.split(|byte| *byte == b' ');
        Some(words.filter_map(|word| std::str::from_utf8(word).ok()?.parse().ok()).collect())
    }

    /// The same by asking every process of the machine for its parent.
    fn descend_by_parents(&mut self) {
        let mut pids = Vec::new();
        if self.root.pids(&mut pids, &mut Vec::new()).is_err() {
            return;
        }
        let mut others: Vec<(u32, PidStat)> =
            pids.into_iter().filter_map(|pid| Some((pid, self.stat(pid).ok()?))).collect();
        let mut at = 0;
        while let Some((parent, _)) = self.found.get(at).copied() {
            at += 1;
            let (children, rest) = others.into_iter().partition(|(_, stat)| stat.ppid == parent);
            others = rest;
            self.found.extend::<Vec<_>>(children);
        }
    }

    fn pss_kib(&mut self, pid: u32) -> Option<u64> {
        let text = self.root.read(pid_path(pid, "smaps_rollup").as_str(), &mut self.buffer).ok()?;
        Some(parse_smaps_rollup(text).ok()??.pss_kib)
    }

    fn storage_bytes(&mut self, pid: u32) -> Option<(u64, u64)> {
        let text = self.root.read(pid_path(pid, "io").as_str(), &mut self.buffer).ok()?;
        let io = parse_pid_io(text).ok()?;
        Some((io.read_bytes, io.write_bytes))
    }
}

fn numbers(root: &Root, folder: &str) -> Vec<u32> {
    root.names(folder).iter().filter_map(|name| name.parse().ok()).collect()
}

/// Looks at the machine once.
#[must_use]
pub fn system(root: &Root) -> SystemReading {
    let mut snapshot = Snapshot::default();
    snapshot.reset(Moment::now());
    let sources: [Box<dyn crate::source::Source>; 5] = [
        Box::new(CpuSource::default()),
        Box::new(ProcessesSource::default()),
        Box::new(MemorySource::default()),
        Box::new(DisksSource::default()),
        Box::new(NetworkSource::default()),
    ];
    for mut source in sources {
        // What a source does not give stays empty.
        let _ = source.read(root, &mut snapshot);
    }
    snapshot.gpu = gpu::look(root, &Question::default());
    SystemReading::new(snapshot, file_systems(root).unwrap_or_default())
}

/// Unknown once a part is, or where both are more than can be.
fn plus(sum: Option<u64>, part: Option<u64>) -> Option<u64> {
    sum?.checked_add(part?)
}

#[expect(clippy::cast_precision_loss, reason = "a date in ns keeps better than a microsecond in a double")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Metric;

    #[test]
    fn this_process_is_found_and_one_that_is_not_there_reads_as_nothing() {
        let root = Root::host_as_guest().unwrap();
        let own = process(&root, std::process::id(), true).unwrap();
        // Other tests start children in this process.
        assert!(own.memory_kib > Some(500) && own.children.is_some(), "{own:?}");
        assert_eq!(process(&root, std::process::id(), false).unwrap().children, None);
        let none = process(&root, u32::MAX >> 4, true).unwrap();
        assert_eq!((none.memory_kib, none.read_bytes, none.user_s), (Some(0), Some(0), Some(0.0)));
    }

    #[test]
    fn numbers_that_add_up_to_more_than_can_be_are_unknown() {
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
    fn the_kernels_lists_and_the_parents_give_one_tree() {
        let root = Root::host_as_guest().unwrap();
        // So many that their list is longer than the page in which the kernel gives it.
        let many = "exec 3<&0; i=0; while [ $i -lt 900 ]; do (read x <&3) & i=$((i + 1)); done; cat; wait";
        let mut child = std::process::Command::new("sh")
            .args(["-c", many])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let find = |by_parents: bool| {
            let mut look = Look { root: &root, buffer: Vec::new(), found: Vec::new() };
            let stat = look.stat(child.id()).unwrap();
            look.found.push((child.id(), stat));
            if by_parents {
                look.descend_by_parents();
            } else {
                look.descend();
            }
            let mut pids: Vec<u32> = look.found.iter().map(|(pid, _)| *pid).collect();
            pids.sort_unstable();
            pids
        };
        // The shell starts them when it likes.
        let late = std::time::Instant::now() + std::time::Duration::from_mins(1);
        while find(true).len() < 902 {
            assert!(std::time::Instant::now() < late, "{} of 902 were started", find(true).len());
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert_eq!(find(false), find(true));
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn the_machine_has_levels_and_totals() {
        let reading = system(&Root::host_as_guest().unwrap());
        assert!(reading.levels.get(Metric::MemoryUsed).is_some_and(|kib| kib > 0.0));
        assert!(reading.levels.get(Metric::Timestamp).is_some_and(|seconds| seconds > 1e9));
        assert!(reading.user_s.is_some_and(|seconds| seconds > 0.0));
        assert!(!reading.spaces.is_empty());
    }
}
