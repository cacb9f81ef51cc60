//! Was something killed because memory ran out? The kernel counts such kills, by group and for the machine.
//!
//! In:  `memory.events` (version 2), `memory.oom_control` (version 1), `/proc/vmstat`. Out: [`OomWatch`], which knows
//! the counts of its start, and [`OomKills`].
//! Not here: what to ask for next time (`recommend`).

use super::{groups_of, parse_key};
pub use crate::recording::OomKills;
use crate::root::Root;

/// The line of all three files.
const KEY: &str = "oom_kill";

/// How many processes the kernel had killed for memory when we began to look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OomWatch {
    /// The file of the job's group that counts, and its count; `None` where there is none.
    group: Option<(String, u64)>,
    machine: Option<u64>,
}

impl OomWatch {
    /// Begins to look, for the groups of process `pid` (`self` for ours and those of a child that we will start).
    #[must_use]
    pub fn start(root: &Root, pid: &str) -> Self {
        let groups = groups_of(root, pid);
        let group = groups.iter().filter(|group| group.unified || group.has("memory")).find_map(|group| {
            let file = if group.unified { "memory.events" } else { "memory.oom_control" };
            let path = format!("{}/{file}", group.folder);
            count(root, &path).map(|count| (path, count))
        });
        Self { group, machine: count(root, "/proc/vmstat") }
    }

    /// What was killed since. The machine's count alone proves nothing about the job, unless the job ended as what
    /// the kernel kills does: `killed` says that.
    #[must_use]
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

    /// A machine whose counts are these.
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
    fn the_groups_own_count_is_proof() {
        assert_eq!(kills((7, 9), false), Some(OomKills { processes: 2, certain: true }));
    }

    #[test]
    fn the_machines_count_is_a_guess_and_only_for_a_job_that_was_killed() {
        assert_eq!(kills((5, 8), true), Some(OomKills { processes: 1, certain: false }));
        assert_eq!(kills((5, 8), false), None);
    }

    #[test]
    fn what_did_not_grow_or_was_made_anew_says_nothing() {
        assert_eq!(kills((5, 7), true), None);
        assert_eq!(kills((0, 7), true), None);
    }

    #[test]
    fn this_machine_counts_its_kills() {
        assert!(OomWatch::start(&Root::host().unwrap(), "self").machine.is_some());
    }
}
