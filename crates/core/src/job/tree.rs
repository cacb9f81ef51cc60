//! Members of the job: the root, its descendants, and orphans that were members before.
//!
//! In:  the CPU clock of each member; `stat` of members that have run, and of new processes.
//! Out: the members with their `stat`, in ascending order of pid.
//! Not here: CPU time (`ledger`), memory (`memory`).
//!
//! A process whose CPU clock has not moved has not run: its files have not changed, and it has no new child. So only the
//! clocks of idle members are read. New members are found among the processes that have started since (`new_pids`). The
//! parent in `stat` is a process, even if one of its other threads forked. Pids are reused, so pid and start time
//! together identify a process.

use crate::error::SourceError;
use crate::job::SamplerPlace;
use crate::job::new_pids::NewPids;
use crate::job::orphans::{Orphans, is_forked_from_one};
use crate::os::root::Root;
use crate::probe::procfs::{PidStat, read_stat};

/// One in this many members is read at each row even if it is idle: reclaim and swap change its memory.
const REFRESH_ROUND: usize = 64;
/// The CPU time of the sampling thread is read a moment before the CPU clock of its host process.
const OWN_CPU_ERROR_NS: u64 = 50_000;

/// A process of the job at one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    pub pid: u32,
    pub stat: PidStat,
    /// Whether the process ended during the sample: cutime of its parent may already include its time.
    pub is_leaving: bool,
    /// Number of the sample at which `stat` was read. The process has not run since then.
    pub read_at: u64,
    /// CPU clock before `stat` was read.
    clock_ns: Option<u64>,
}

impl Member {
    pub(super) const fn new(pid: u32, stat: PidStat, read_at: u64, clock_ns: Option<u64>) -> Self {
        Self { pid, stat, is_leaving: false, read_at, clock_ns }
    }

    /// The CPU clock before `stat` was read, without the time of sampling threads.
    pub const fn clock_ns(&self) -> Option<u64> {
        self.clock_ns
    }
}

/// The processes of the job, updated at every sample.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Tree {
    root_pid: u32,
    /// Start time of the root; `None` before the root was read. A later process with the same pid is not the root.
    root_start_ticks: Option<u64>,
    with_children: bool,
    /// Pid of the subreaper. Its new children are orphans of the job.
    reaper: Option<u32>,
    /// How to recognise orphans of a job without a subreaper.
    orphans: Option<Orphans>,
    members: Vec<Member>,
    is_blind: bool,
    has_changed: bool,
    has_other_members: bool,
    pub(super) new_pids: NewPids,
    /// Whether address spaces are random: then a process with the fingerprint of a member was forked from the member.
    fingerprints_differ: bool,
    /// Number of the last sample, and number of rows so far.
    sample: u64,
    rows: usize,
    buffer: Vec<u8>,
}

impl Tree {
    /// The tree of process `root_pid`. If the tracker started this process, it is the subreaper of the job.
    pub fn new(root: &Root, root_pid: u32, with_children: bool, reaper: Option<u32>) -> Self {
        Self {
            root_pid,
            root_start_ticks: None,
            with_children,
            reaper,
            orphans: None,
            members: Vec::new(),
            is_blind: false,
            has_changed: false,
            has_other_members: false,
            new_pids: NewPids::since(root, reaper.map(|_| root_pid)),
            fingerprints_differ: root.text("/proc/sys/kernel/randomize_va_space").as_deref() == Some("2"),
            sample: 0,
            rows: 0,
            buffer: Vec::new(),
        }
    }

    /// Whether the last update read a member, or found or lost one.
    pub const fn has_changed(&self) -> bool {
        self.has_changed
    }

    /// Whether the last update found or lost a member.
    pub const fn has_other_members(&self) -> bool {
        self.has_other_members
    }

    /// Number of the last sample.
    pub const fn sample(&self) -> u64 {
        self.sample
    }

    /// The members of the last [`update`](Self::update), in ascending order of pid.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Whether a member could not be read in the last update, for lack of descriptors or memory. Its old values stay.
    pub const fn is_blind(&self) -> bool {
        self.is_blind
    }

    /// The root at the last update; `None` if it did not exist any more.
    pub fn root_member(&self) -> Option<&Member> {
        self.members.iter().find(|member| member.pid == self.root_pid)
    }

    /// Whether an orphan is counted as a member by a guess.
    pub fn has_guessed_members(&self) -> bool {
        self.orphans.as_ref().is_some_and(|orphans| orphans.were_found)
    }

    /// Updates the members. At a row, some of the idle members are read too.
    pub fn update(&mut self, root: &Root, sampler: SamplerPlace, is_row: bool) -> Result<(), SourceError> {
        // In a `/proc` of another PID namespace, nothing is known of the members.
        self.is_blind = root.check_processes().is_err();
        if self.is_blind {
            return Ok(());
        }
        let before = std::mem::take(&mut self.members);
        self.sample += 1;
        self.rows += usize::from(is_row);
        // Parents before their children: cutime of a parent must be read before its children. Otherwise a child that
        // ends between the two reads is counted twice. Pids are mostly in the order of start times already.
        let mut order: Vec<usize> = (0..before.len()).collect();
        let age = |at: &usize| before.get(*at).map(|member| member.stat.start_ticks);
        if !order.is_sorted_by_key(age) {
            order.sort_by_key(age);
        }
        for at in order {
            let Some(then) = before.get(at).copied() else { continue };
            let is_due = is_row && at % REFRESH_ROUND == self.rows % REFRESH_ROUND;
            let clock_ns = clock_ns(root, then.pid, sampler);
            let has_run = clock_ns.zip(then.clock_ns).is_none_or(|(now, then_ns)| {
                let error_ns = sampler.cpu_ns_in(then.pid).map_or(0, |_| OWN_CPU_ERROR_NS);
                now.abs_diff(then_ns) > error_ns
            });
            if !has_run && !is_due {
                self.members.push(then);
            } else if then.pid == self.root_pid {
                let found = self.read_root(root, Some(&then), clock_ns)?;
                self.members.extend(found);
            } else {
                self.read_member(root, then, clock_ns);
            }
        }
        if before.is_empty() {
            let clock_ns = clock_ns(root, self.root_pid, sampler);
            let found = self.read_root(root, None, clock_ns)?;
            self.members.extend(found);
        }
        self.members.sort_unstable_by_key(|member| member.pid);
        if self.with_children {
            self.admit_new(root, &before, sampler);
        }
        self.has_other_members =
            !before.iter().map(|member| member.pid).eq(self.members.iter().map(|member| member.pid));
        self.has_changed =
            self.has_other_members || self.members.iter().any(|member| member.read_at == self.sample);
        Ok(())
    }

    fn read_member(&mut self, root: &Root, then: Member, clock_ns: Option<u64>) {
        match read_stat(root, then.pid, &mut self.buffer) {
            Ok(stat) if stat.start_ticks == then.stat.start_ticks => {
                let member = Member::new(then.pid, stat, self.sample, clock_ns);
                self.members.push(Member { is_leaving: stat.is_dead(), ..member });
            }
            // The pid was reused. If the new process is a member, discovery finds it.
            Ok(_) => {}
            // The file could not be read for lack of descriptors or memory. The process may still be alive.
            Err(SourceError::Io { .. }) => {
                self.is_blind = true;
                self.members.push(then);
            }
            Err(_) if then.is_leaving => {}
            Err(_) => self.members.push(Member { is_leaving: true, read_at: self.sample, ..then }),
        }
    }

    fn admit_new(&mut self, root: &Root, before: &[Member], sampler: SamplerPlace) {
        let Ok(pids) = self.new_pids.find(root, &mut self.buffer) else {
            self.is_blind = true;
            return;
        };
        let mut others = Vec::new();
        for pid in pids {
            if self.is_member(pid) || pid == self.root_pid {
                continue;
            }
            match read_stat(root, pid, &mut self.buffer) {
                Ok(stat) if !stat.is_thread => {
                    others.push(Member::new(pid, stat, self.sample, clock_ns(root, pid, sampler)));
                }
                // The file could not be read for lack of descriptors or memory. It is read with the next sample.
                Err(SourceError::Io { .. }) => self.new_pids.forget(),
                _ => {}
            }
        }
        self.admit(before, others);
    }

    fn is_member(&self, pid: u32) -> bool {
        self.members.binary_search_by_key(&pid, |member| member.pid).is_ok()
    }

    /// Adds processes whose parent is or was a member, or is the subreaper. A parent may come after its children in
    /// `others`. A forked child whose parent has left the tree is recognised by its address-space fingerprint.
    fn admit(&mut self, before: &[Member], mut others: Vec<Member>) {
        let was_member = |pid: u32| before.binary_search_by_key(&pid, |member| member.pid).is_ok();
        loop {
            let (admitted, rest): (Vec<_>, Vec<_>) = others.into_iter().partition(|other| {
                // The tracker is not part of the job, even if a member has started or adopted it.
                other.pid != std::process::id()
                    && (Some(other.stat.ppid) == self.reaper
                        || self.is_member(other.stat.ppid)
                        || was_member(other.stat.ppid)
                        || (self.fingerprints_differ
                            && is_forked_from_one(
                                &other.stat,
                                self.members.iter().map(|member| &member.stat),
                            )))
            });
            others = rest;
            if admitted.is_empty() {
                break;
            }
            self.members.extend(admitted);
            self.members.sort_unstable_by_key(|member| member.pid);
        }
        let Some(orphans) = &mut self.orphans else { return };
        let found: Vec<Member> = others
            .extract_if(.., |other| other.pid != std::process::id() && orphans.include(&other.stat))
            .collect();
        if !found.is_empty() {
            orphans.were_found = true;
            self.members.extend(found);
            self.members.sort_unstable_by_key(|member| member.pid);
            // The other processes may be children of these orphans.
            self.admit(before, others);
        }
    }

    fn read_root(
        &mut self,
        root: &Root,
        then: Option<&Member>,
        clock_ns: Option<u64>,
    ) -> Result<Option<Member>, SourceError> {
        let stat = match read_stat(root, self.root_pid, &mut self.buffer) {
            Ok(stat) => stat,
            Err(SourceError::Gone { .. } | SourceError::Unsupported { .. }) => return Ok(None),
            Err(SourceError::Io { .. }) if then.is_some() => {
                self.is_blind = true;
                return Ok(then.copied());
            }
            Err(error) => return Err(error),
        };
        if self.root_start_ticks.is_none() && self.reaper.is_none() && self.with_children {
            self.orphans = Some(Orphans::of(root, &stat, &mut self.buffer));
        }
        let start_ticks = *self.root_start_ticks.get_or_insert(stat.start_ticks);
        Ok((start_ticks == stat.start_ticks).then_some(Member::new(
            self.root_pid,
            stat,
            self.sample,
            clock_ns,
        )))
    }
}

/// The CPU clock of a process, without the time of sampling threads.
fn clock_ns(root: &Root, pid: u32, sampler: SamplerPlace) -> Option<u64> {
    Some(root.process_cpu_ns(pid)?.saturating_sub(sampler.cpu_ns_in(pid).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A recorded tree with processes of these (pid, ppid, start time). Each has a process group of its own.
    fn host(processes: &[(u32, u32, u64)]) -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("proc")).unwrap();
        for (pid, ppid, start) in processes {
            let own = folder.path().join(format!("proc/{pid}"));
            fs::create_dir(&own).unwrap();
            fs::write(
                own.join("stat"),
                format!("{pid} (a b) S {ppid} {pid} 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 {start} 0 5 0\n"),
            )
            .unwrap();
        }
        let root = Root::recorded(folder.path()).unwrap();
        (folder, root)
    }

    fn update(tree: &mut Tree, root: &Root) {
        tree.update(root, SamplerPlace::OwnProcess, true).unwrap();
    }

    fn pids_of(tree: &Tree) -> Vec<u32> {
        tree.members().iter().map(|member| member.pid).collect()
    }

    #[test]
    fn descendants_are_found_for_any_order_of_pids() {
        let (_folder, root) = host(&[(1, 0, 1), (50, 1, 5), (10, 60, 9), (60, 50, 7), (99, 1, 8)]);
        let mut tree = Tree::new(&root, 50, true, None);
        update(&mut tree, &root);
        assert_eq!(pids_of(&tree), [10, 50, 60]);
    }

    #[test]
    fn known_orphan_stays_a_member_and_orphan_of_the_subreaper_becomes_one() {
        let (_folder, root) = host(&[(1, 0, 1), (50, 1, 5), (60, 50, 7)]);
        let mut tree = Tree::new(&root, 50, true, Some(7));
        update(&mut tree, &root);
        let (_folder, later) = host(&[(1, 0, 1), (50, 1, 5), (60, 1, 7), (70, 7, 20), (80, 1, 21)]);
        update(&mut tree, &later);
        assert_eq!(pids_of(&tree), [50, 60, 70]);
    }

    #[test]
    fn unreadable_member_keeps_its_values_and_unreadable_other_process_is_ignored() {
        let (folder, root) = host(&[(1, 0, 1), (50, 1, 5), (60, 50, 7), (99, 1, 8)]);
        let mut tree = Tree::new(&root, 50, true, None);
        let close = |pid: u32| {
            // A folder can be opened, but reading it fails.
            let stat = folder.path().join(format!("proc/{pid}/stat"));
            fs::remove_file(&stat).and_then(|()| fs::create_dir(&stat)).unwrap();
        };
        close(99);
        update(&mut tree, &root);
        assert!(!tree.is_blind());
        close(60);
        update(&mut tree, &root);
        assert!(tree.is_blind());
        assert_eq!(pids_of(&tree), [50, 60]);
    }

    #[test]
    fn reused_pid_is_another_process() {
        let (_folder, root) = host(&[(1, 0, 1), (50, 1, 5), (60, 50, 7)]);
        let mut tree = Tree::new(&root, 50, true, None);
        update(&mut tree, &root);
        let (_folder, later) = host(&[(1, 0, 1), (50, 1, 5), (60, 1, 30)]);
        update(&mut tree, &later);
        assert_eq!(pids_of(&tree), [50]);
        let (_folder, last) = host(&[(1, 0, 1), (50, 1, 40)]);
        update(&mut tree, &last);
        assert_eq!(pids_of(&tree), [0_u32; 0]);
    }

    #[test]
    fn thread_of_a_member_is_not_a_member() {
        let (folder, root) = host(&[(1, 0, 1), (50, 1, 5), (60, 50, 7), (61, 50, 7)]);
        let fields = "0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 7 0 5 0 0 0 0 0 0 0 0 0 0 0 0 0";
        let stat = format!("61 (a b) S 50 61 1 {fields} -1 0\n");
        fs::write(folder.path().join("proc/61/stat"), stat).unwrap();
        let mut tree = Tree::new(&root, 50, true, None);
        update(&mut tree, &root);
        assert_eq!(pids_of(&tree), [50, 60]);
    }
}
