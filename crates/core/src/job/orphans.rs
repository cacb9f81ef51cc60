//! Orphans of a job without a subreaper, recognised by a guess.
//!
//! In:  `stat` of the root and of other processes. Out: whether a process is an orphan of the job.
//!
//! Orphans of the job are processes of its session and process group that started after it, and that a process above the
//! job has adopted. Workers of R's `makeCluster` are orphans from their start.

use crate::os;
use crate::os::root::Root;
use crate::probe::procfs::{PidStat, read_stat};

#[derive(Debug)]
pub struct Orphans {
    group: u64,
    session: u64,
    start_ticks: u64,
    /// When the recording began. A zombie that is older had ended before, and its parent has not reaped it yet.
    since_ticks: u64,
    /// Processes that may adopt orphans of the job: init, and ancestors of the root, but not its parent, and not those of
    /// its process group: a shell or `make` that started the root also starts other processes of this group.
    parents: Vec<u32>,
    /// Whether an orphan was found: its membership is a guess.
    pub were_found: bool,
}

impl Orphans {
    pub fn of(root: &Root, stat: &PidStat, buffer: &mut Vec<u8>) -> Self {
        let mut parents = vec![1];
        let mut pid = read_stat(root, stat.ppid, buffer).map_or(0, |parent| parent.ppid);
        for _ in 0..64 {
            let Some(ancestor) = read_stat(root, pid, buffer).ok().filter(|_| pid > 1) else { break };
            if ancestor.group != stat.group {
                parents.push(pid);
            }
            pid = ancestor.ppid;
        }
        let PidStat { group, session, start_ticks, .. } = *stat;
        let since_ticks = if root.is_recorded() { None } else { os::ticks_since_boot() }.unwrap_or(0);
        Self { group, session, start_ticks, since_ticks, parents, were_found: false }
    }

    pub fn include(&self, stat: &PidStat) -> bool {
        (stat.group, stat.session) == (self.group, self.session)
            && stat.group > 0
            && stat.start_ticks >= self.start_ticks
            && self.parents.contains(&stat.ppid)
            && !(stat.is_zombie() && stat.start_ticks < self.since_ticks)
    }
}

/// Whether a process is a forked child of a member, or a forked child of such a forked child, and so on.
pub fn is_forked_from_one<'m>(stat: &PidStat, mut members: impl Iterator<Item = &'m PidStat>) -> bool {
    stat.is_forked_child
        && stat.fingerprint.is_some()
        && members.any(|member| !member.is_forked_child && member.fingerprint == stat.fingerprint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orphans_of_the_same_session_and_group_are_members_by_a_guess() {
        let stat = |ppid, group, session, start_ticks| PidStat {
            ppid,
            group,
            session,
            start_ticks,
            ..PidStat::default()
        };
        let orphans = Orphans {
            group: 50,
            session: 40,
            start_ticks: 9,
            since_ticks: 20,
            parents: vec![1, 30],
            were_found: false,
        };
        assert!(orphans.include(&stat(1, 50, 40, 9)) && orphans.include(&stat(30, 50, 40, 12)));
        assert!(
            !orphans.include(&stat(45, 50, 40, 12)),
            "its parent is alive, and not an ancestor of the job"
        );
        assert!(!orphans.include(&stat(1, 51, 40, 12)), "another job of the same shell");
        assert!(!orphans.include(&stat(1, 50, 41, 12)), "another session");
        assert!(!orphans.include(&stat(1, 50, 40, 8)), "older than the job");
        let zombie = |start_ticks| PidStat { state: b'Z', ..stat(1, 50, 40, start_ticks) };
        assert!(!orphans.include(&zombie(12)), "it had ended before the recording began");
        assert!(orphans.include(&zombie(20)));
        let folder = tempfile::tempdir().unwrap();
        for (pid, ppid) in [(30, 1), (45, 30)] {
            std::fs::create_dir_all(folder.path().join(format!("proc/{pid}"))).unwrap();
            let text = format!("{pid} (a) S {ppid} 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 5 0 5 0\n");
            std::fs::write(folder.path().join(format!("proc/{pid}/stat")), text).unwrap();
        }
        let root = Root::recorded(folder.path()).unwrap();
        let found = Orphans::of(&root, &stat(45, 50, 40, 9), &mut Vec::new());
        assert_eq!(found.parents, [1, 30], "the parent of the job does not adopt its orphans");
    }

    #[test]
    fn forked_child_that_left_the_tree_is_found_by_its_fingerprint() {
        let stat =
            |is_forked_child, fingerprint| PidStat { is_forked_child, fingerprint, ..PidStat::default() };
        let fingerprint = Some((0x7ffc_1234_5670, 0x55d0_0000_1000));
        let worker = stat(true, fingerprint);
        let is_found = |stat: &PidStat, members: &[PidStat]| is_forked_from_one(stat, members.iter());
        assert!(is_found(&worker, &[stat(false, None), stat(false, fingerprint)]));
        let sibling = [stat(true, fingerprint)];
        assert!(!is_found(&worker, &sibling), "both may be forked from a process outside the job");
        assert!(!is_found(&stat(false, fingerprint), &[stat(false, fingerprint)]));
        assert!(!is_found(&stat(true, None), &[stat(false, None)]), "unknown fingerprints are not equal");
    }
}
