//! OOM kills while a job ran, from the kernel's counters of the cgroup and of the machine.
//!
//! In:  `memory.events` (version 2), `memory.oom_control` (version 1), `/proc/vmstat`.
//! Out: [`OomWatch`] with the counters at the start of the job, and [`OomKills`] during the job.
//! Not here: the recommended memory (`analysis/recommend`).

use super::OomKills;
use super::groups::{groups_of, parse_key};
use crate::os::root::Root;

/// The key of the counter, the same in all three files.
const KEY: &str = "oom_kill";

/// The kernel's OOM kill counts at the start of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OomWatch {
    /// Path and value of the counter in the job's cgroup; `None` without a memory cgroup.
    group: Option<(String, u64)>,
    machine: Option<u64>,
}

impl OomWatch {
    /// Reads the counters of the machine and of the groups of process `pid`; `self` for a job that the tracker starts.
    pub fn start(root: &Root, pid: &str) -> Self {
        let groups = groups_of(root, pid);
        let group = groups.iter().filter(|group| group.unified || group.has("memory")).find_map(|group| {
            let file = if group.unified { "memory.events" } else { "memory.oom_control" };
            let path = format!("{}/{file}", group.folder);
            count(root, &path).map(|count| (path, count))
        });
        Self { group, machine: count(root, "/proc/vmstat") }
    }

    /// OOM kills since the start; `None` if there are none. The machine's counter includes other programs, so it is
    /// used only if `SIGKILL` ended the job (`killed`).
    pub fn kills(&self, root: &Root, killed: bool) -> Option<OomKills> {
        let grown = |path: &str, before: u64| count(root, path)?.checked_sub(before).filter(|n| *n > 0);
        let in_group = self.group.as_ref().and_then(|(path, before)| grown(path, *before));
        let on_machine = || grown("/proc/vmstat", self.machine.filter(|_| killed)?);
        let certain = in_group.is_some();
        in_group.or_else(on_machine).map(|processes| OomKills { processes, certain })
    }
}

fn count(root: &Root, path: &str) -> Option<u64> {
    parse_key(root.read(path, &mut Vec::new()).ok()?, KEY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Writes the files of a recorded host whose counters have these values.
    fn write(folder: &std::path::Path, group: u64, machine: u64) {
        let files = [
            ("proc/self/cgroup", "0::/job\n".to_owned()),
            ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n".to_owned()),
            ("proc/vmstat", format!("nr_free_pages 1\noom_kill {machine}\n")),
            ("sys/fs/cgroup/job/memory.events", format!("oom 3\noom_kill {group}\noom_group_kill 0\n")),
        ];
        for (path, text) in files {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    fn kills(after: (u64, u64), killed: bool) -> Option<OomKills> {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), 5, 7);
        let root = Root::recorded(folder.path()).unwrap();
        let watch = OomWatch::start(&root, "self");
        write(folder.path(), after.0, after.1);
        watch.kills(&root, killed)
    }

    #[test]
    fn kills_counted_by_the_cgroup_are_certain() {
        assert_eq!(kills((7, 9), false), Some(OomKills { processes: 2, certain: true }));
    }

    #[test]
    fn kills_counted_by_the_machine_are_uncertain_and_used_only_if_the_job_was_killed() {
        assert_eq!(kills((5, 8), true), Some(OomKills { processes: 1, certain: false }));
        assert_eq!(kills((5, 8), false), None);
    }

    #[test]
    fn counter_that_did_not_grow_or_was_reset_shows_no_kills() {
        assert_eq!(kills((5, 7), true), None);
        assert_eq!(kills((0, 7), true), None);
    }

    #[test]
    fn kernel_of_this_machine_counts_oom_kills() {
        assert!(OomWatch::start(&Root::host().unwrap(), "self").machine.is_some());
    }
}
