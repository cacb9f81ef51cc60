//! Members of the job: the root, its descendants, and orphans that were members before.
//!
//! In:  the process list and, for new processes, their `stat`.
//! Out: the members with their `stat`, in ascending order of pid.
//! Not here: CPU time (`ledger`), memory (`memory`).
//!
//! The parent in `stat` is a process, even if one of its other threads forked. Pids are reused, so pid and start time
//! together identify a process. `stat` is read only for members and for processes that were not in the last process
//! list, so that other processes of the machine cost no more than their entry in the list. After so many forks that a
//! pid may have been reused, `stat` of all processes is read again.

use crate::error::SourceError;
use crate::os::root::Root;
use crate::probe::procfs::{PidStat, read_stat};

/// A process of the job at one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    pub pid: u32,
    pub stat: PidStat,
    /// Whether the process ended during the sample: cutime of its parent may already include its time.
    pub is_leaving: bool,
}

/// The processes of the job, updated at every sample.
#[derive(Debug)]
pub struct Tree {
    root_pid: u32,
    /// Start time of the root; `None` before the root was read. A later process with the same pid is not the root.
    root_start_ticks: Option<u64>,
    with_children: bool,
    /// Pid of the subreaper. Its new children are orphans of the job.
    reaper: Option<u32>,
    members: Vec<Member>,
    is_blind: bool,
    /// Pids of all processes of the machine that were read before, in ascending order.
    known: Vec<u32>,
    forks_then: Option<u64>,
    /// After this many forks, a pid may have been reused.
    forks_per_round: u64,
    /// Whether address spaces are random: then a process with the fingerprint of a member was forked from the member.
    fingerprints_differ: bool,
    buffer: Vec<u8>,
}

impl Tree {
    /// The tree of process `root_pid`; `known` are processes that are older than the root and not part of the job.
    pub fn new(
        root: &Root,
        root_pid: u32,
        with_children: bool,
        reaper: Option<u32>,
        known: Vec<u32>,
    ) -> Self {
        let pid_max = root.text("/proc/sys/kernel/pid_max").and_then(|text| text.parse::<u64>().ok());
        Self {
            root_pid,
            root_start_ticks: None,
            with_children,
            reaper,
            members: Vec::new(),
            is_blind: false,
            known,
            forks_then: None,
            // Half of all pids, since processes also start during an update. 32,768 is the kernel's smallest default.
            forks_per_round: pid_max.unwrap_or(32_768) / 2,
            fingerprints_differ: root.text("/proc/sys/kernel/randomize_va_space").as_deref() == Some("2"),
            buffer: Vec::new(),
        }
    }

    /// The members of the last [`update`](Self::update), in ascending order of pid.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Called instead of `update` if there is no process list: the members of the last update stay.
    pub const fn miss(&mut self) {
        self.is_blind = true;
    }

    /// Whether a member could not be read in the last update, for lack of descriptors or memory. Its old values stay.
    pub const fn is_blind(&self) -> bool {
        self.is_blind
    }

    /// The root at the last update; `None` if it did not exist any more.
    pub fn root_member(&self) -> Option<&Member> {
        self.members.iter().find(|member| member.pid == self.root_pid)
    }

    /// Updates the members. `pids` are all processes of the machine in ascending order, `forks` is its fork counter.
    pub fn update(&mut self, root: &Root, pids: &[u32], forks: Option<u64>) -> Result<(), SourceError> {
        let before = std::mem::take(&mut self.members);
        self.is_blind = false;
        if !self.with_children {
            let found = self.look_at_root(root, before.first())?;
            self.members.extend(found);
            return Ok(());
        }
        if self.may_have_come_round(forks) {
            self.known.clear();
        }
        let (mut others, mut unclear) = (Vec::new(), Vec::new());
        for (pid, was_member) in self.whom_to_ask(&before, pids) {
            if pid == self.root_pid {
                let found = self.look_at_root(root, was_member.as_ref())?;
                self.members.extend(found);
                continue;
            }
            match (self.look_at(root, pid), was_member) {
                (Ok(stat), Some(then)) if then.stat.start_ticks == stat.start_ticks => {
                    self.members.push(Member { pid, stat, is_leaving: stat.is_dead() });
                }
                (Ok(stat), _) => others.push(Member { pid, stat, is_leaving: false }),
                // The file could not be read for lack of descriptors or memory. The process may still be alive.
                (Err(SourceError::Io { .. }), Some(then)) => {
                    self.is_blind = true;
                    self.members.push(then);
                }
                (Err(SourceError::Io { .. }), None) => unclear.push(pid),
                (Err(_), Some(then)) => self.members.push(Member { is_leaving: true, ..then }),
                (Err(_), None) => {}
            }
        }
        self.members.sort_unstable_by_key(|member| member.pid);
        self.admit(&before, others);
        self.known.clear();
        self.known.extend_from_slice(pids);
        for pid in unclear {
            self.known.retain(|known| *known != pid);
        }
        Ok(())
    }

    /// The members, and the processes that were not read before; parents come before their children. Cutime of a parent
    /// must be read before its children: otherwise a child that ends between the two reads is counted twice.
    fn whom_to_ask(&mut self, before: &[Member], pids: &[u32]) -> Vec<(u32, Option<Member>)> {
        let mut known = std::mem::take(&mut self.known).into_iter().peekable();
        let mut old = before.iter().copied().peekable();
        let mut asked = Vec::with_capacity(before.len() + 8);
        for pid in pids.iter().copied() {
            while known.next_if(|other| *other < pid).is_some() {}
            while old.next_if(|member| member.pid < pid).is_some() {}
            let was_known = known.next_if_eq(&pid).is_some();
            let was_member = old.next_if(|member| member.pid == pid);
            if was_member.is_some() || !was_known || pid == self.root_pid {
                asked.push((pid, was_member));
            }
        }
        // Sorted by start time. Pids are mostly in this order already.
        let age =
            |(_, member): &(u32, Option<Member>)| member.map_or(u64::MAX, |member| member.stat.start_ticks);
        if !asked.is_sorted_by_key(age) {
            asked.sort_by_key(age);
        }
        asked
    }

    /// Adds processes whose parent is or was a member, or is the subreaper. A parent may come after its children in
    /// `others`. A forked child whose parent has left the tree is recognised by its address-space fingerprint.
    fn admit(&mut self, before: &[Member], mut others: Vec<Member>) {
        let was_member = |pid: u32| before.binary_search_by_key(&pid, |member| member.pid).is_ok();
        let mut sorted = self.members.len();
        loop {
            let members = self.members.get(..sorted).unwrap_or_default();
            let is_member = |pid: u32| members.binary_search_by_key(&pid, |member| member.pid).is_ok();
            let (admitted, rest): (Vec<_>, Vec<_>) = others.into_iter().partition(|other| {
                let parent = other.stat.ppid;
                // The tracker is not part of the job, even if a member has started or adopted it.
                if other.pid == std::process::id() {
                    return false;
                }
                Some(parent) == self.reaper
                    || is_member(parent)
                    || was_member(parent)
                    || (self.fingerprints_differ && is_forked_from_one(&other.stat, members))
            });
            others = rest;
            if admitted.is_empty() {
                return;
            }
            self.members.extend(admitted);
            self.members.sort_unstable_by_key(|member| member.pid);
            sorted = self.members.len();
        }
    }

    fn may_have_come_round(&mut self, forks: Option<u64>) -> bool {
        let then = std::mem::replace(&mut self.forks_then, forks);
        matches!((then, forks), (Some(then), Some(now)) if now.saturating_sub(then) >= self.forks_per_round)
    }

    fn look_at(&mut self, root: &Root, pid: u32) -> Result<PidStat, SourceError> {
        read_stat(root, pid, &mut self.buffer)
    }

    fn look_at_root(&mut self, root: &Root, then: Option<&Member>) -> Result<Option<Member>, SourceError> {
        let stat = match self.look_at(root, self.root_pid) {
            Ok(stat) => stat,
            Err(SourceError::Gone { .. } | SourceError::Unsupported { .. }) => return Ok(None),
            Err(SourceError::Io { .. }) if then.is_some() => {
                self.is_blind = true;
                return Ok(then.copied());
            }
            Err(error) => return Err(error),
        };
        let start_ticks = *self.root_start_ticks.get_or_insert(stat.start_ticks);
        Ok((start_ticks == stat.start_ticks).then_some(Member {
            pid: self.root_pid,
            stat,
            is_leaving: false,
        }))
    }
}

/// Whether a process is a forked child of a member, or a forked child of such a forked child, and so on.
fn is_forked_from_one(stat: &PidStat, members: &[Member]) -> bool {
    let is_original = |member: &&Member| !member.stat.is_forked_child && member.stat.fingerprint.is_some();
    stat.is_forked_child
        && members.iter().filter(is_original).any(|member| member.stat.fingerprint == stat.fingerprint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A recorded tree with processes of these (pid, ppid, start time).
    fn host(processes: &[(u32, u32, u64)]) -> (tempfile::TempDir, Root, Vec<u32>) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("proc")).unwrap();
        for (pid, ppid, start) in processes {
            let own = folder.path().join(format!("proc/{pid}"));
            fs::create_dir(&own).unwrap();
            fs::write(
                own.join("stat"),
                format!("{pid} (a b) S {ppid} 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 {start} 0 5 0\n"),
            )
            .unwrap();
        }
        let root = Root::recorded(folder.path()).unwrap();
        let mut pids: Vec<u32> = processes.iter().map(|(pid, ..)| *pid).collect();
        pids.sort_unstable();
        (folder, root, pids)
    }

    fn pids_of(tree: &Tree) -> Vec<u32> {
        tree.members().iter().map(|member| member.pid).collect()
    }

    #[test]
    fn descendants_are_found_for_any_order_of_pids() {
        let (_folder, root, pids) = host(&[(1, 0, 1), (50, 1, 5), (10, 60, 9), (60, 50, 7), (99, 1, 8)]);
        let mut tree = Tree::new(&root, 50, true, None, Vec::new());
        tree.update(&root, &pids, None).unwrap();
        assert_eq!(pids_of(&tree), [10, 50, 60]);
    }

    #[test]
    fn known_orphan_stays_a_member_and_orphan_of_the_subreaper_becomes_one() {
        let (_folder, root, pids) = host(&[(1, 0, 1), (50, 1, 5), (60, 50, 7)]);
        let mut tree = Tree::new(&root, 50, true, Some(7), Vec::new());
        tree.update(&root, &pids, None).unwrap();
        let (_folder, later, pids) = host(&[(1, 0, 1), (50, 1, 5), (60, 1, 7), (70, 7, 20), (80, 1, 21)]);
        tree.update(&later, &pids, None).unwrap();
        assert_eq!(pids_of(&tree), [50, 60, 70]);
    }

    #[test]
    fn forked_child_that_left_the_tree_is_found_by_its_fingerprint() {
        let fingerprint = Some((0x7ffc_1234_5670, 0x55d0_0000_1000));
        let member = |pid, is_forked_child, fingerprint| Member {
            pid,
            stat: PidStat { is_forked_child, fingerprint, ..PidStat::default() },
            is_leaving: false,
        };
        let worker = member(80, true, fingerprint).stat;
        assert!(is_forked_from_one(&worker, &[member(50, false, None), member(60, false, fingerprint)]));
        assert!(
            !is_forked_from_one(&worker, &[member(50, true, fingerprint)]),
            "both may be forked from a process outside the job"
        );
        assert!(!is_forked_from_one(
            &PidStat { is_forked_child: false, ..worker },
            &[member(50, false, fingerprint)]
        ));
        let unknown = PidStat { fingerprint: None, ..worker };
        assert!(
            !is_forked_from_one(&unknown, &[member(50, false, None)]),
            "unknown fingerprints are not equal"
        );
    }

    #[test]
    fn unreadable_member_keeps_its_values_and_unreadable_other_process_is_ignored() {
        let (folder, root, pids) = host(&[(1, 0, 1), (50, 1, 5), (60, 50, 7), (99, 1, 8)]);
        let mut tree = Tree::new(&root, 50, true, None, Vec::new());
        let close = |pid: u32| {
            // A folder can be opened, but reading it fails.
            let stat = folder.path().join(format!("proc/{pid}/stat"));
            fs::remove_file(&stat).and_then(|()| fs::create_dir(&stat)).unwrap();
        };
        close(99);
        tree.update(&root, &pids, None).unwrap();
        assert!(!tree.is_blind());
        close(60);
        tree.update(&root, &pids, None).unwrap();
        assert!(tree.is_blind());
        assert_eq!(pids_of(&tree), [50, 60]);
    }

    #[test]
    fn reused_pid_is_another_process() {
        let (_folder, root, pids) = host(&[(1, 0, 1), (50, 1, 5), (60, 50, 7)]);
        let mut tree = Tree::new(&root, 50, true, None, Vec::new());
        tree.update(&root, &pids, None).unwrap();
        let (_folder, later, pids) = host(&[(1, 0, 1), (50, 1, 5), (60, 1, 30)]);
        tree.update(&later, &pids, None).unwrap();
        assert_eq!(pids_of(&tree), [50]);
        let (_folder, last, pids) = host(&[(1, 0, 1), (50, 1, 40)]);
        tree.update(&last, &pids, None).unwrap();
        assert_eq!(pids_of(&tree), [0_u32; 0]);
    }

    #[test]
    fn all_processes_are_read_again_when_pids_may_have_been_reused() {
        let (_folder, root, pids) = host(&[(1, 0, 1), (50, 1, 5), (60, 1, 7)]);
        let mut tree = Tree::new(&root, 50, true, None, Vec::new());
        tree.update(&root, &pids, Some(100)).unwrap();
        let (_folder, later, pids) = host(&[(1, 0, 1), (50, 1, 5), (60, 50, 30)]);
        tree.update(&later, &pids, Some(200)).unwrap();
        assert_eq!(pids_of(&tree), [50], "60 was known and not a member");
        tree.update(&later, &pids, Some(200 + 16_384)).unwrap();
        assert_eq!(pids_of(&tree), [50, 60]);
    }
}
