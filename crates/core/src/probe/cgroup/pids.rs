//! New processes that the kernel refused because of `pids.max`, while a job ran.
//!
//! In:  `pids.max` and `pids.events`, the same in both versions of cgroups. Out: [`LimitReached`].

use super::groups::{Group, parse_key};
use crate::os::root::Root;
use crate::probe::evidence::LimitReached;

/// The counters of refused processes when a process of the job was found in these groups.
#[derive(Debug, Default)]
pub struct PidsWatch(Vec<Watched>);

#[derive(Debug)]
struct Watched {
    /// Path of `pids.events`.
    counter: String,
    before: u64,
    /// The lowest limit of the group and its ancestors.
    maximum: u64,
}

impl PidsWatch {
    /// Watches the groups of a process of the job.
    pub fn watch(&mut self, root: &Root, groups: &[Group]) {
        for group in groups.iter().filter(|group| group.unified || group.has("pids")) {
            let limit = |folder: &str| root.text(&format!("{folder}/pids.max"))?.parse::<u64>().ok();
            let Some(maximum) = group.upwards().filter_map(limit).min() else { continue };
            // Some kernels count in the group of the process, others in the group with the limit.
            for folder in group.upwards() {
                let counter = format!("{folder}/pids.events");
                let Some(before) = refused(root, &counter) else { continue };
                if self.0.iter().all(|known| known.counter != counter) {
                    self.0.push(Watched { counter, before, maximum });
                }
            }
        }
    }

    /// The limit that the kernel enforced since then.
    pub fn reached(&self, root: &Root) -> Option<LimitReached> {
        let grown = |group: &Watched| {
            Some((refused(root, &group.counter)?.checked_sub(group.before)?, group.maximum))
        };
        let (refused, maximum) = self.0.iter().filter_map(grown).max_by_key(|(refused, _)| *refused)?;
        let reached = LimitReached::new(LimitReached::PROCESSES, maximum, maximum)?;
        (refused > 0).then_some(LimitReached { refused: Some(refused), ..reached })
    }
}

fn refused(root: &Root, path: &str) -> Option<u64> {
    parse_key(root.read(path, &mut Vec::new()).ok()?, "max")
}

#[cfg(test)]
mod tests {
    use super::super::groups::groups_of;
    use super::*;
    use std::fs;

    #[test]
    fn refused_processes_are_counted_from_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/self/cgroup", "0::/job/step\n");
        write("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        write("sys/fs/cgroup/job/pids.max", "40\n");
        write("sys/fs/cgroup/job/pids.events", "max 3\n");
        write("sys/fs/cgroup/job/step/pids.max", "max\n");
        write("sys/fs/cgroup/job/step/pids.events", "max 0\n");
        let root = Root::recorded(folder.path()).unwrap();
        let mut watch = PidsWatch::default();
        watch.watch(&root, &groups_of(&root, "self"));
        assert_eq!(watch.reached(&root), None);
        write("sys/fs/cgroup/job/pids.events", "max 5\n");
        let reached = watch.reached(&root).unwrap();
        assert_eq!((reached.used, reached.maximum, reached.refused), (40, 40, Some(2)));
    }
}
