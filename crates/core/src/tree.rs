//! Which processes are the job's: the root, whoever descends from a member, and orphans once seen.
//!
//! In:  the machine's process list and, for processes not met before, their `stat`.
//! Out: the members' pids with their `stat`, in ascending order of pid.
//! Not here: what they spent (`ledger`), what they hold (`memory`).
//!
//! A parent in `stat` is a process whichever of its threads forked, so children of threads are found like
//! any others. A process is (pid, start time): a number that is used again is somebody else. Only processes
//! that were not in the list before are asked for their parent, so a big machine costs no more than its
//! process list; when so many were started that a number may have come round, all are asked again.

use crate::error::SourceError;
use crate::root::Root;
use crate::source::gpu;
use crate::source::procfs::{PidStat, parse_pid_stat};

/// A process of the job at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its number.
    pub pid: u32,
    /// What `stat` said.
    pub stat: PidStat,
    /// It ended while we looked: its parent, read a moment before or after, may have received its account or not.
    pub is_leaving: bool,
}

/// The job's processes, followed from tick to tick.
#[derive(Debug)]
pub struct Tree {
    root_pid: u32,
    /// Start of the root, once it was seen: a later process of the same number is not the job.
    root_start_ticks: Option<u64>,
    with_children: bool,
    /// Whose children are the job's orphans, where we adopt them.
    reaper: Option<u32>,
    members: Vec<Member>,
    is_blind: bool,
    /// All pids of the machine that were looked at, in ascending order.
    known: Vec<u32>,
    forks_then: Option<u64>,
    forks_per_round: u64,
    /// Programs are laid out at random, so that who looks like a member is a copy of it.
    images_differ: bool,
    buffer: Vec<u8>,
}

impl Tree {
    /// Follows `root_pid`; `known` are processes that were there before it and are none of its.
    #[must_use]
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
            // Half a round is safe against what starts while we look; 32,768 is the kernel's smallest default.
            forks_per_round: pid_max.unwrap_or(32_768) / 2,
            images_differ: root.text("/proc/sys/kernel/randomize_va_space").as_deref() == Some("2"),
            buffer: Vec::new(),
        }
    }

    /// The members of the last [`update`](Self::update), in ascending order of pid.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// There is no list of processes this time: all are as before.
    pub const fn miss(&mut self) {
        self.is_blind = true;
    }

    /// Whether a member could not be looked at in the last update, for want of descriptors or memory, and is as before.
    #[must_use]
    pub const fn is_blind(&self) -> bool {
        self.is_blind
    }

    /// The root as it was at the last update, if it still was.
    #[must_use]
    pub fn root_member(&self) -> Option<&Member> {
        self.members.iter().find(|member| member.pid == self.root_pid)
    }

    /// Looks again. `pids` is the machine's list in ascending order, `forks` its fork counter.
    ///
    /// # Errors
    /// Where the root's `stat` is there but cannot be read or understood. Other processes that cannot be
    /// read end between the list and the reading every day, and are left out.
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
        let (mut strangers, mut unclear) = (Vec::new(), Vec::new());
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
                // Asked again once it is clear whether we started it.
                (Ok(stat), _) if gpu::may_be_helper(stat.ppid) => unclear.push(pid),
                (Ok(stat), _) => strangers.push(Member { pid, stat, is_leaving: false }),
                // We cannot read now, for want of descriptors or memory: that says nothing about the process.
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
        self.admit(&before, strangers);
        self.known.clear();
        self.known.extend_from_slice(pids);
        for pid in unclear {
            self.known.retain(|known| *known != pid);
        }
        Ok(())
    }

    /// Members and processes not met before, parents before their children: what a parent has received from a child
    /// must be read before the child itself, or a child that ends in between is counted in both.
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
        // By age; numbers mostly stand in that order already.
        let age =
            |(_, member): &(u32, Option<Member>)| member.map_or(u64::MAX, |member| member.stat.start_ticks);
        if !asked.is_sorted_by_key(age) {
            asked.sort_by_key(age);
        }
        asked
    }

    /// Takes in those strangers whose parent is a member, was one, or is us; parents may stand behind children. A worker
    /// that has left its parent, and it the tree, is known by what it is a copy of.
    fn admit(&mut self, before: &[Member], mut strangers: Vec<Member>) {
        let was_member = |pid: u32| before.binary_search_by_key(&pid, |member| member.pid).is_ok();
        let mut sorted = self.members.len();
        loop {
            let members = self.members.get(..sorted).unwrap_or_default();
            let is_member = |pid: u32| members.binary_search_by_key(&pid, |member| member.pid).is_ok();
            let (admitted, rest): (Vec<_>, Vec<_>) = strangers.into_iter().partition(|stranger| {
                let parent = stranger.stat.ppid;
                // A tracker that a member started, or adopted, is no part of the job.
                if stranger.pid == std::process::id() || gpu::is_helper(stranger.pid) {
                    return false;
                }
                Some(parent) == self.reaper
                    || is_member(parent)
                    || was_member(parent)
                    || (self.images_differ && is_copy_of_one(&stranger.stat, members))
            });
            strangers = rest;
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
        let path = pid_path(pid, "stat");
        let text = root.read(path.as_str(), &mut self.buffer)?;
        parse_pid_stat(text).map_err(|source| SourceError::Parse { path: path.as_str().into(), source })
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

/// Whether it was forked from a program that one of them has started, however far up.
fn is_copy_of_one(stat: &PidStat, members: &[Member]) -> bool {
    let is_original = |member: &&Member| !member.stat.is_copy && member.stat.image.is_some();
    stat.is_copy && members.iter().filter(is_original).any(|member| member.stat.image == stat.image)
}

/// `/proc/<pid>/<file>` without an allocation.
#[derive(Clone, Copy)]
pub struct PidPath {
    bytes: [u8; 40],
    length: usize,
}

impl PidPath {
    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.bytes.get(..self.length).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
    }
}

/// The path of a process's file.
#[must_use]
pub fn pid_path(pid: u32, file: &str) -> PidPath {
    use std::io::Write as _;
    let mut path = PidPath { bytes: [0; 40], length: 0 };
    let mut rest = path.bytes.as_mut_slice();
    // 6 + 10 + 1 + the longest file name we use (12) fit into 40 bytes.
    let _ = write!(rest, "/proc/{pid}/{file}");
    path.length = 40 - rest.len();
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A recorded tree with these (pid, ppid, start) in it.
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
    fn descendants_are_found_in_whatever_order_their_numbers_stand() {
        let (_folder, root, pids) = host(&[(1, 0, 1), (50, 1, 5), (10, 60, 9), (60, 50, 7), (99, 1, 8)]);
        let mut tree = Tree::new(&root, 50, true, None, Vec::new());
        tree.update(&root, &pids, None).unwrap();
        assert_eq!(pids_of(&tree), [10, 50, 60]);
    }

    #[test]
    fn an_orphan_once_seen_stays_and_one_that_we_adopt_is_the_jobs() {
        let (_folder, root, pids) = host(&[(1, 0, 1), (50, 1, 5), (60, 50, 7)]);
        let mut tree = Tree::new(&root, 50, true, Some(7), Vec::new());
        tree.update(&root, &pids, None).unwrap();
        let (_folder, later, pids) = host(&[(1, 0, 1), (50, 1, 5), (60, 1, 7), (70, 7, 20), (80, 1, 21)]);
        tree.update(&later, &pids, None).unwrap();
        assert_eq!(pids_of(&tree), [50, 60, 70]);
    }

    #[test]
    fn a_worker_that_left_the_tree_unseen_is_known_by_its_image() {
        let image = Some((0x7ffc_1234_5670, 0x55d0_0000_1000));
        let member = |pid, is_copy, image| Member {
            pid,
            stat: PidStat { is_copy, image, ..PidStat::default() },
            is_leaving: false,
        };
        let worker = member(80, true, image).stat;
        assert!(is_copy_of_one(&worker, &[member(50, false, None), member(60, false, image)]));
        assert!(!is_copy_of_one(&worker, &[member(50, true, image)]), "both may be copies of a stranger");
        assert!(!is_copy_of_one(&PidStat { is_copy: false, ..worker }, &[member(50, false, image)]));
        let unknown = PidStat { image: None, ..worker };
        assert!(!is_copy_of_one(&unknown, &[member(50, false, None)]), "what is not known is not the same");
    }

    #[test]
    fn a_member_that_cannot_be_looked_at_is_as_before_and_says_so_and_a_stranger_does_not_matter() {
        let (folder, root, pids) = host(&[(1, 0, 1), (50, 1, 5), (60, 50, 7), (99, 1, 8)]);
        let mut tree = Tree::new(&root, 50, true, None, Vec::new());
        let close = |pid: u32| {
            // A folder opens and cannot be read.
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
    fn a_number_that_is_used_again_is_somebody_else() {
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
    fn after_a_round_of_numbers_everybody_is_asked_again() {
        let (_folder, root, pids) = host(&[(1, 0, 1), (50, 1, 5), (60, 1, 7)]);
        let mut tree = Tree::new(&root, 50, true, None, Vec::new());
        tree.update(&root, &pids, Some(100)).unwrap();
        let (_folder, later, pids) = host(&[(1, 0, 1), (50, 1, 5), (60, 50, 30)]);
        tree.update(&later, &pids, Some(200)).unwrap();
        assert_eq!(pids_of(&tree), [50], "60 was known as a stranger");
        tree.update(&later, &pids, Some(200 + 16_384)).unwrap();
        assert_eq!(pids_of(&tree), [50, 60]);
    }
}
