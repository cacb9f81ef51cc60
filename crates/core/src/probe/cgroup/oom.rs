//! OOM kills while a job ran, from the kernel's counters of cgroups and of the machine, and how certain they are.
//!
//! In:  `memory.events` (version 2), `memory.oom_control` (version 1), `/proc/vmstat`.
//! Out: [`OomWatch`] with the counters at the start, [`OomCounts`] with the kills since then, [`OomKills`] if they concern
//!      the job.
//! Not here: the recommended memory (`analysis/recommend`).
//!
//! The kernel counts a kill in the cgroup of the killed process and in `/proc/vmstat`, whether a limit or the memory of
//! the machine was exhausted.

use super::groups::{Group, parse_key};
use super::limits::group_limits;
use super::{GroupKills, OomCounts};
use crate::os::root::Root;
use crate::probe::procfs::read_stat;

/// The key of the counter, the same in all files.
const KEY: &str = "oom_kill";

/// A larger group is not searched for processes outside the job: such a group is hardly the job's own.
const MOST_PROCESSES: usize = 1_000;

/// The kernel's counters at the start of a job.
#[derive(Debug, Default)]
pub struct OomWatch {
    groups: Vec<Watched>,
    /// Index of the root process's group in `groups`; `None` if this group has no counter.
    of_root: Option<usize>,
    machine: Option<u64>,
}

/// A cgroup in which a process of the job was found.
#[derive(Debug)]
struct Watched {
    folder: String,
    /// Path and first value of the counter.
    counter: String,
    before: u64,
    limit_bytes: Option<u64>,
    is_shared: bool,
}

impl OomWatch {
    pub fn start(root: &Root) -> Self {
        Self { machine: count(root, "/proc/vmstat"), ..Self::default() }
    }

    /// Watches the groups that the root process of the job has entered. Returns whether the job has its memory group for
    /// itself.
    pub fn enter(&mut self, root: &Root, groups: &[Group], job_pid: u32) -> bool {
        self.of_root = self.watch(root, groups, job_pid);
        self.of_root.and_then(|index| self.groups.get(index)).is_some_and(|group| !group.is_shared)
    }

    /// Watches the groups of a process of the job. Returns the index of the group with the counter.
    pub fn watch(&mut self, root: &Root, groups: &[Group], job_pid: u32) -> Option<usize> {
        let (group, folder, counter, before) =
            groups.iter().filter(|group| group.counts_memory()).find_map(|group| find(root, group))?;
        let known = self.groups.iter().position(|watched| watched.folder == folder);
        known.or_else(|| {
            self.groups.push(Watched {
                limit_bytes: group_limits(root, std::slice::from_ref(group)).memory_bytes,
                is_shared: is_shared(root, folder, job_pid),
                folder: folder.to_owned(),
                counter,
                before,
            });
            self.groups.len().checked_sub(1)
        })
    }

    /// The kills since the start.
    pub fn counts(&self, root: &Root) -> OomCounts {
        let grown = |path: &str, before: u64| count(root, path)?.checked_sub(before);
        let kills = |group: &Watched| GroupKills {
            processes: grown(&group.counter, group.before).unwrap_or(0),
            limit_bytes: group.limit_bytes,
            is_shared: group.is_shared,
        };
        let of_root = self.of_root.and_then(|index| self.groups.get(index));
        OomCounts {
            // A group of the job's own is better evidence than a group that others share.
            in_groups: self
                .groups
                .iter()
                .map(kills)
                .filter(|kills| kills.processes > 0)
                .min_by_key(|kills| kills.is_shared),
            is_group_known: of_root.is_some_and(|group| grown(&group.counter, group.before).is_some()),
            on_machine: self.machine.and_then(|before| grown("/proc/vmstat", before)).unwrap_or(0),
        }
    }
}

/// The group or its nearest ancestor with a counter: its folder, the path and the value of the counter.
fn find<'g>(root: &Root, group: &'g Group) -> Option<(&'g Group, &'g str, String, u64)> {
    // `memory.events` includes the kills in child groups; `memory.events.local` does not (Linux 5.2).
    let files: &[&str] =
        if group.unified { &["memory.events.local", "memory.events"] } else { &["memory.oom_control"] };
    group.upwards().find_map(|folder| {
        let mut paths = files.iter().map(|file| format!("{folder}/{file}"));
        let (path, before) = paths.find_map(|path| count(root, &path).map(|count| (path, count)))?;
        Some((group, folder, path, before))
    })
}

/// Whether the group has processes that are neither the tracker nor the job, nor ancestors of these.
fn is_shared(root: &Root, folder: &str, job_pid: u32) -> bool {
    let own = [std::process::id(), job_pid];
    let mut buffer = Vec::new();
    let mut parents_of = |pid: u32| {
        let parent = |pid: &u32| Some(read_stat(root, *pid, &mut buffer).ok()?.ppid).filter(|ppid| *ppid > 0);
        std::iter::successors(Some(pid), parent).collect::<Vec<_>>()
    };
    let ancestors = own.map(&mut parents_of).concat();
    let Some(pids) = root.text(&format!("{folder}/cgroup.procs")) else { return true };
    let pids = pids.lines().map(|pid| pid.parse::<u32>().unwrap_or(0));
    let is_other = |(number, pid): (usize, u32)| {
        let is_known = ancestors.contains(&pid) || parents_of(pid).iter().any(|parent| own.contains(parent));
        number >= MOST_PROCESSES || !is_known
    };
    pids.enumerate().any(is_other)
}

fn count(root: &Root, path: &str) -> Option<u64> {
    parse_key(root.read(path, &mut Vec::new()).ok()?, KEY)
}

#[cfg(test)]
mod tests {
    use super::super::groups::groups_of;
    use super::*;
    use std::fs;
    use std::path::Path;

    /// Writes the files of a recorded host: the counters of the job's group, of its child group and of the machine.
    fn write(folder: &Path, group: u64, child_group: u64, machine: u64) {
        let files = [
            ("proc/self/cgroup", "0::/job\n".to_owned()),
            ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n".to_owned()),
            ("proc/7/stat", "7 (sh) S 1 7 7 0 -1 0 0 0 4 2 9 9 8 7 20 0 1 0 500 0 88 1 1\n".to_owned()),
            ("proc/8/stat", "8 (job) S 7 7 7 0 -1 0 0 0 4 2 9 9 8 7 20 0 1 0 500 0 88 1 1\n".to_owned()),
            ("proc/9/stat", "9 (other) S 1 7 7 0 -1 0 0 0 4 2 9 9 8 7 20 0 1 0 500 0 88 1 1\n".to_owned()),
            ("proc/vmstat", format!("nr_free_pages 1\noom_kill {machine}\n")),
            ("sys/fs/cgroup/job/memory.max", "1000000\n".to_owned()),
            ("sys/fs/cgroup/job/cgroup.procs", "7\n8\n".to_owned()),
            ("sys/fs/cgroup/job/memory.events", format!("oom 3\noom_kill {}\n", group + child_group)),
            ("sys/fs/cgroup/job/memory.events.local", format!("oom 3\noom_kill {group}\noom_group_kill 0\n")),
        ];
        for (path, text) in files {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    fn counts(before: [u64; 3], after: [u64; 3], procs: &str) -> OomCounts {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), before[0], before[1], before[2]);
        fs::write(folder.path().join("sys/fs/cgroup/job/cgroup.procs"), procs).unwrap();
        let root = Root::recorded(folder.path()).unwrap();
        let mut watch = OomWatch::start(&root);
        watch.enter(&root, &groups_of(&root, "self"), 8);
        write(folder.path(), after[0], after[1], after[2]);
        watch.counts(&root)
    }

    #[test]
    fn kills_in_the_jobs_cgroup_have_its_limit() {
        let kills = |is_shared| GroupKills { processes: 2, limit_bytes: Some(1_000_000), is_shared };
        let expected =
            |is_shared| OomCounts { in_groups: Some(kills(is_shared)), is_group_known: true, on_machine: 2 };
        assert_eq!(counts([5, 0, 7], [7, 0, 9], "7\n8\n"), expected(false), "the job and its shell");
        assert_eq!(counts([5, 0, 7], [7, 0, 9], "7\n8\n9\n"), expected(true), "a process outside the job");
        assert_eq!(counts([5, 0, 7], [7, 0, 9], "0\n8\n"), expected(true), "a process of another namespace");
    }

    #[test]
    fn kills_in_a_child_group_and_counters_that_were_reset_do_not_count() {
        let none = |on_machine| OomCounts { in_groups: None, is_group_known: true, on_machine };
        assert_eq!(counts([5, 0, 7], [5, 1, 8], "8\n"), none(1));
        assert_eq!(counts([5, 0, 7], [5, 0, 7], "8\n"), none(0));
        assert_eq!(counts([5, 0, 7], [0, 0, 0], "8\n"), OomCounts::default());
    }

    #[test]
    fn kernel_of_this_machine_counts_oom_kills() {
        assert!(OomWatch::start(&Root::host().unwrap()).machine.is_some());
    }
}
