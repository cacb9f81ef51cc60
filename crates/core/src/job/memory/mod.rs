//! Memory of the job, and its peak between two samples.
//!
//! In:  RSS and `VmHWM` of each member at every sample; PSS from `smaps_rollup`.
//! Out: PSS of the tree (between reads, the last PSS plus the growth of RSS since then), and the proved peak.
//! Not here: memory that several processes share (`held`).
//!
//! A read of `smaps_rollup` (a walk over all pages) holds a lock that the job may need, and takes milliseconds for a
//! big process. So walks have a budget: 0.5 % of the time, plus a reserve. With the reserve, a tree that has just
//! changed can be walked as a whole at several samples: the sum of PSS is wrong if the values are of different moments.
//! A process is not walked again for ten times the duration of its last walk, unless a process of the job has started
//! or ended. Processes without a walk come first, then the process with the oldest walk.
//!
//! A forked child shares the pages of its parent, and its high-water mark starts at the mark of its parent.

mod held;

use crate::error::SourceError;
use crate::job::tree::Member;
use crate::os::root::Root;
use crate::probe::procfs::{PidStatus, borrows_memory, read_smaps_rollup, read_stat, read_status};
use held::{Held, Walk, find, slack_kib, together_kib};

/// Walks may take one part in this many of the time, which is 0.5 %.
const SHARE: i64 = 200;
/// Largest amount of unused time for walks that is saved up.
const RESERVE_NS: i64 = 500_000_000;

/// Memory of the whole tree at one sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// PSS, or the best estimate of the PSS.
    pub memory_kib: u64,
    /// Sum of the RSS of all processes.
    pub rss_kib: u64,
    /// Sum of the swapped memory of all processes.
    pub swap_kib: u64,
}

/// The memory of the job, updated at every sample.
#[derive(Debug, Default)]
pub struct Memory {
    held: Vec<Held>,
    level: Option<Level>,
    peak_kib: Option<u64>,
    has_looked: bool,
    last_walks_ns: Option<u64>,
    /// Time that is left for walks; negative if a walk took more than was left.
    left_ns: i64,
    /// Whether walks are switched off.
    rests: bool,
    buffer: Vec<u8>,
    page_kib: u64,
}

impl Memory {
    /// Takes a sample of all members. If no member is alive, the last level stays.
    pub fn look(&mut self, root: &Root, members: &[Member], now_ns: u64) {
        if self.page_kib == 0 {
            self.page_kib = rustix::param::page_size() as u64 / 1024;
        }
        let before = std::mem::take(&mut self.held);
        // A process that had memory of its own at the last sample does not borrow its parent's memory.
        let borrows = |member: &Member| {
            let is_known = find(&before, member.pid).is_some();
            let parent = || members.iter().find(|other| other.pid == member.stat.ppid);
            member.stat.is_forked_child
                && !is_known
                && parent().is_some_and(|parent| {
                    borrows_memory(root, (member.pid, &member.stat), (parent.pid, &parent.stat))
                })
        };
        let members: Vec<&Member> =
            members.iter().filter(|member| !member.stat.is_zombie() && !borrows(member)).collect();
        for member in &members {
            let rss_kib = member.stat.rss_pages.saturating_mul(self.page_kib);
            let PidStatus { peak_rss_kib, swap_kib } = self.status(root, member.pid);
            let found = Held {
                pid: member.pid,
                ppid: member.stat.ppid,
                image: member.stat.fingerprint,
                start_ticks: member.stat.start_ticks,
                is_copy: member.stat.is_forked_child,
                rss_kib,
                counted_rss_kib: rss_kib,
                most_rss_kib: rss_kib,
                peak_rss_kib,
                swap_kib,
                ..Held::default()
            };
            let known = same(&before, &found).copied().unwrap_or_default();
            self.held.push(Held {
                // The last values stay if `status` cannot be read now: otherwise the mark would seem to rise later.
                peak_rss_kib: peak_rss_kib.or(known.peak_rss_kib),
                swap_kib: swap_kib.or(known.swap_kib),
                walk: known.walk,
                inherited_kib: known.inherited_kib,
                is_stale: known.is_stale,
                is_apart: known.is_apart,
                strange_kib: known.strange_kib,
                refused_at_ns: known.refused_at_ns,
                ..found
            });
        }
        let is_new = |held: &Held| same(&before, held).is_none();
        let came = self.held.iter().filter(|held| is_new(held));
        let went = before.iter().filter(|held| same(&self.held, held).is_none());
        let mut changed: Vec<Option<(u64, u64)>> = came.chain(went).map(|held| held.image).collect();
        changed.sort_unstable();
        for (at, member) in members.into_iter().enumerate() {
            let inherited_kib = inherited_kib(&before, &self.held, member);
            let is_strange = member.stat.is_forked_child && find(&self.held, member.stat.ppid).is_none();
            let strange_kib =
                if is_strange && before.is_empty() { self.parent_kib(root, member) } else { None };
            let Some(held) = self.held.get_mut(at) else { continue };
            held.is_stale |= !changed.is_empty();
            held.is_apart |= changed.binary_search(&held.image).is_ok();
            if is_new(held) {
                (held.inherited_kib, held.strange_kib) = (inherited_kib, strange_kib);
            }
        }
        if self.held.is_empty() {
            return;
        }
        if self.rests {
            // Without a walk there is no level yet. RSS is not used instead, since it may be far above PSS.
            self.has_looked = true;
            return;
        }
        self.walk_those_due(root, now_ns);
        self.count_copies_again(root, now_ns);
        let mut level = Level { memory_kib: together_kib(&self.held), ..Level::default() };
        for held in &self.held {
            level.rss_kib = level.rss_kib.saturating_add(held.rss_kib);
            level.swap_kib = level.swap_kib.saturating_add(held.swap_kib.unwrap_or(0));
        }
        let level_then_kib = self.level.map(|level| level.memory_kib);
        self.level = Some(level);
        self.prove_peak(level.memory_kib);
        if self.has_looked {
            self.prove_peak(risen_kib(&before, &self.held, level_then_kib, level.memory_kib));
        }
        self.has_looked = true;
    }

    /// Switches walks off or on. They are off for the baseline of a host process: it waits, and no row shows the level.
    pub const fn rest(&mut self, rests: bool) {
        self.rests = rests;
    }

    /// Adds a proof that the job had this much memory at some moment of the interval.
    pub fn prove_peak(&mut self, kib: u64) {
        self.peak_kib = self.peak_kib.max(Some(kib));
    }

    /// The largest high-water mark of any member at the last sample.
    pub fn largest_peak_rss_kib(&self) -> Option<u64> {
        self.held.iter().filter_map(|held| held.peak_rss_kib).max()
    }

    /// The level at the last sample with a live member.
    pub const fn level(&self) -> Option<Level> {
        self.level
    }

    /// The largest memory that was proved since the last call, and at least the level. Starts a new interval.
    pub fn take_peak_kib(&mut self) -> Option<u64> {
        let level = self.level.map(|level| level.memory_kib);
        self.peak_kib.take().max(level)
    }

    /// The same as `take_peak_kib`, without starting a new interval.
    pub fn peak_kib(&self) -> Option<u64> {
        self.peak_kib.max(self.level.map(|level| level.memory_kib))
    }

    fn status(&mut self, root: &Root, pid: u32) -> PidStatus {
        read_status(root, pid, &mut self.buffer).unwrap_or_default()
    }

    /// RSS of the parent of a forked child; `None` if the parent has ended, and another process has adopted the child.
    fn parent_kib(&mut self, root: &Root, member: &Member) -> Option<u64> {
        let parent = read_stat(root, member.stat.ppid, &mut self.buffer).ok();
        let parent = parent.filter(|parent| parent.fingerprint == member.stat.fingerprint)?;
        parent.fingerprint.map(|_| parent.rss_pages.saturating_mul(self.page_kib))
    }

    /// Reads the RSS of copies again after walks. During a walk, a copy may end or free pages, so that the walk of its
    /// parent shows these pages as unshared. The lower RSS of the copy is then counted at once, and PSS is not summed.
    fn count_copies_again(&mut self, root: &Root, now_ns: u64) {
        let walked = self.held.iter().filter(|held| held.walked_at_ns() == Some(now_ns));
        let mut walked: Vec<_> = walked.map(|held| held.image).collect();
        walked.sort_unstable();
        let may_share = |held: &&mut Held| held.is_copy && walked.binary_search(&held.image).is_ok();
        let mut fell = Vec::new();
        for held in self.held.iter_mut().filter(may_share) {
            let rss_pages = match read_stat(root, held.pid, &mut self.buffer) {
                Ok(stat) => stat.rss_pages,
                Err(SourceError::Gone { .. } | SourceError::Unsupported { .. }) => 0,
                Err(_) => continue,
            };
            let rss_kib = rss_pages.saturating_mul(self.page_kib);
            if rss_kib.saturating_add(slack_kib(held.counted_rss_kib)) < held.counted_rss_kib {
                fell.push(held.image);
            }
            held.counted_rss_kib = rss_kib;
        }
        for held in self.held.iter_mut().filter(|held| fell.contains(&held.image)) {
            held.is_apart = true;
        }
    }

    fn walk_those_due(&mut self, root: &Root, now_ns: u64) {
        let is_alone = self.held.len() == 1;
        let is_due = |at: &usize| self.held.get(*at).is_some_and(|held| held.is_due(now_ns, is_alone));
        let mut due: Vec<usize> = (0..self.held.len()).filter(is_due).collect();
        due.sort_by_key(|at| self.held.get(*at).and_then(Held::walked_at_ns));
        let saved_ns =
            self.last_walks_ns.map_or(RESERVE_NS, |then_ns| signed(now_ns.saturating_sub(then_ns)) / SHARE);
        self.last_walks_ns = Some(now_ns);
        let mut left_ns = self.left_ns.saturating_add(saved_ns).min(RESERVE_NS);
        for at in due {
            let Some(held) = self.held.get_mut(at) else { continue };
            // The walk is expected to cost as much as the last walk. If too little time is left, it waits until enough
            // time or the whole reserve is saved up.
            if left_ns < held.walk.map_or(1, |walk| signed(walk.cost_ns)).min(RESERVE_NS) {
                continue;
            }
            let start_ns = spent_ns();
            match read_smaps_rollup(root, held.pid, &mut self.buffer) {
                Ok(Some(found)) => {
                    let cost_ns = spent_ns().saturating_sub(start_ns);
                    held.refused_at_ns = None;
                    (held.is_stale, held.is_apart) = (false, false);
                    // The walk is newer than `stat`, and may show more memory.
                    held.rss_kib = found.rss_kib;
                    held.most_rss_kib = held.most_rss_kib.max(found.rss_kib);
                    held.walk = Some(Walk {
                        at_ns: now_ns,
                        cost_ns,
                        pss_kib: found.pss_kib,
                        anon: found.anon,
                        counted_rss_kib: held.counted_rss_kib,
                    });
                    left_ns = left_ns.saturating_sub(signed(cost_ns));
                }
                // The process has ended meanwhile, or has no memory: the last walk stays.
                Ok(None) | Err(SourceError::Gone { .. } | SourceError::Parse { .. }) => {}
                Err(_) => held.refused_at_ns = Some(now_ns),
            }
        }
        self.left_ns = left_ns;
    }
}

/// The same process in `others`. A process that has called `exec` since then is new, and so is its high-water mark.
fn same<'h>(others: &'h [Held], held: &Held) -> Option<&'h Held> {
    others
        .get(find(others, held.pid)?)
        .filter(|other| other.start_ticks == held.start_ticks && other.is_copy == held.is_copy)
}

/// Memory that a new process may share with its parent; 0 after `exec`.
fn inherited_kib(before: &[Held], now: &[Held], member: &Member) -> u64 {
    if !member.stat.is_forked_child {
        return 0;
    }
    let of = |held: &[Held]| held.get(find(held, member.stat.ppid)?).copied();
    let (then, parent) = (of(before), of(now));
    // If the parent is new too, it may have been as large as its mark at the fork. A child of vfork uses the memory of
    // its parent until it calls `exec`, so both have the same mark.
    let mark_kib = parent.and_then(|held| held.peak_rss_kib);
    let own_mark_kib = find(now, member.pid).and_then(|at| now.get(at)?.peak_rss_kib);
    let mark_kib = mark_kib.filter(|_| then.is_none() || own_mark_kib == mark_kib);
    let rss_kib = then.into_iter().chain(parent).map(|held| held.rss_kib).max();
    mark_kib.max(rss_kib).unwrap_or(0)
}

/// Memory that the tree had at least once between two samples, from the process whose high-water mark proves the most.
/// Marks of several processes are not summed, since they may be of different moments.
///
/// A mark proves a peak in this interval only if it rose between the two samples, or if the process is new and the mark
/// is above the memory that it inherited. The memory of the other processes is known at both samples. The smaller sum
/// is used, since memory may have moved from one process to another.
fn risen_kib(before: &[Held], now: &[Held], level_then_kib: Option<u64>, level_kib: u64) -> u64 {
    let risen = |held: &Held| {
        let then = same(before, held);
        let mark_kib = held.peak_rss_kib?;
        if then.is_some_and(|then| then.peak_rss_kib >= Some(mark_kib)) {
            return None;
        }
        let above = |level_kib: u64, rss_kib: u64| {
            level_kib.saturating_add(mark_kib.saturating_sub(rss_kib.max(held.inherited_kib)))
        };
        let from_now_kib = above(level_kib, held.rss_kib);
        let rss_then_kib = then.map_or(0, |then| then.most_rss_kib);
        Some(level_then_kib.map_or(from_now_kib, |then_kib| above(then_kib, rss_then_kib).min(from_now_kib)))
    };
    now.iter().filter_map(risen).max().unwrap_or(0)
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

/// CPU time of this thread so far. On a busy machine, the duration of a walk is longer than its CPU time.
fn spent_ns() -> u64 {
    crate::os::thread_cpu_ns().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::procfs::PidStat;

    fn held(pid: u32, rss_kib: u64, peak_rss_kib: u64) -> Held {
        Held { pid, rss_kib, most_rss_kib: rss_kib, peak_rss_kib: Some(peak_rss_kib), ..Held::default() }
    }

    #[test]
    fn only_marks_that_rose_count_and_marks_are_not_summed() {
        let before = [held(1, 100, 900), held(2, 100, 200)];
        let risen =
            |now: &[Held]| risen_kib(&before, now, Some(200), now.iter().map(|held| held.rss_kib).sum());
        assert_eq!(risen(&[held(1, 100, 900), held(2, 100, 200)]), 0, "old marks");
        assert_eq!(risen(&[held(1, 100, 900), held(2, 100, 700)]), 800);
        assert_eq!(risen(&[held(1, 400, 1_000), held(2, 150, 700)]), 1_100, "the larger, not the sum");
        assert_eq!(risen(&[held(1, 100, 900), held(2, 100, 200), held(3, 50, 300)]), 500, "a new process");
    }

    #[test]
    fn peak_between_two_samples_is_reported_and_memory_that_moves_counts_once() {
        assert_eq!(risen_kib(&[held(1, 300, 300)], &[held(1, 15, 614)], Some(300), 15), 614);
        let (before, now) = ([held(1, 15, 15)], [held(1, 15, 614), held(2, 600, 600)]);
        assert_eq!(risen_kib(&before, &now, Some(15), 615), 615);
    }

    /// A parent and four copies share 400 MiB. All are alive when the second sample begins. The copies end during the
    /// sample: after, before or while the parent is walked.
    #[test]
    fn copies_that_end_during_walks_do_not_change_the_memory_of_their_parent() {
        let pages = 409_600 / (rustix::param::page_size() as u64 / 1024);
        let stat = format!("1 (a) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 9 0 {pages} 0\n");
        let walk = |pss_kib: u64, own_kib: u64| {
            format!(
                "Rss: 409600 kB\nPss: {pss_kib} kB\nPss_Anon: {pss_kib} kB\nPrivate_Clean: 0 kB\n\
                 Private_Dirty: {own_kib} kB\nAnonymous: 409600 kB\n"
            )
        };
        let member = |pid: u32| Member {
            pid,
            stat: PidStat {
                ppid: u32::from(pid > 1),
                is_forked_child: pid > 1,
                rss_pages: pages,
                fingerprint: Some((1, 1)),
                ..PidStat::default()
            },
            is_leaving: false,
        };
        let members: Vec<Member> = (1..=5).map(member).collect();
        for parents_walk in [walk(81_920, 0), walk(409_600, 409_600), walk(395_000, 380_400)] {
            let tree = tempfile::tempdir().unwrap();
            let folder = |pid: u32| tree.path().join(format!("proc/{pid}"));
            for pid in 1..=5 {
                std::fs::create_dir_all(folder(pid)).unwrap();
                std::fs::write(folder(pid).join("stat"), &stat).unwrap();
                std::fs::write(folder(pid).join("smaps_rollup"), walk(81_920, 0)).unwrap();
            }
            let root = Root::recorded(tree.path()).unwrap();
            let mut memory = Memory::default();
            memory.look(&root, &members, 1);
            std::fs::write(folder(1).join("smaps_rollup"), parents_walk).unwrap();
            (2..=5).for_each(|pid| std::fs::remove_dir_all(folder(pid)).unwrap());
            assert_eq!(memory.level().unwrap().memory_kib, 409_600);
            memory.look(&root, &members, 20_000_000_000);
            assert_eq!(memory.level().unwrap().memory_kib, 409_600);
            assert_eq!(memory.take_peak_kib(), Some(409_600));
        }
    }

    #[test]
    fn forked_child_inherits_pages_and_mark_of_its_parent() {
        let member = |is_forked_child| Member {
            pid: 2,
            stat: PidStat { ppid: 1, is_forked_child, ..PidStat::default() },
            is_leaving: false,
        };
        let (before, parent) = ([held(1, 400, 400)], held(1, 400, 400));
        assert_eq!(inherited_kib(&before, &[parent], &member(true)), 400);
        assert_eq!(inherited_kib(&before, &[parent], &member(false)), 0, "another program");
        assert_eq!(inherited_kib(&[], &[held(1, 10, 400)], &member(true)), 400);
        let old = [held(1, 10, 400)];
        assert_eq!(inherited_kib(&old, &[old[0], held(2, 10, 400)], &member(true)), 400, "by vfork");
        assert_eq!(inherited_kib(&old, &[old[0], held(2, 300, 300)], &member(true)), 10, "by fork");
        let child = |rss_kib, mark_kib| Held { inherited_kib: 400, ..held(2, rss_kib, mark_kib) };
        assert_eq!(child(400, 400).memory_kib(), 0, "not walked: only memory that is not inherited");
        assert_eq!(risen_kib(&before, &[parent, child(15, 400)], Some(400), 415), 400, "nothing of its own");
        assert_eq!(risen_kib(&before, &[parent, child(15, 700)], Some(400), 415), 700);
    }
}
