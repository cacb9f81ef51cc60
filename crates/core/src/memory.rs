//! How much memory the job holds, and the most it held between two looks.
//!
//! In:  each member's RSS and its high-water mark at every look; PSS by walking a process's pages.
//! Out: PSS of the tree (between walks: the last PSS and the growth of RSS since), and the proved peak.
//! Not here: what processes hold together (`held`).
//!
//! A walk holds a lock that the job may need and takes milliseconds for a big process, so that walks have a budget:
//! a two-hundredth of the time, and a reserve that lets a tree which has just changed be walked as a whole, look
//! after look, since shares that were taken at different moments do not add up. A process rests ten times as long
//! as its walk took, unless others came or went. Those never walked come first, then those whose walk is oldest.
//!
//! A process that was forked and runs no other program shares its parent's pages, and started with its parent's mark.

mod held;

use crate::error::SourceError;
use crate::root::Root;
use crate::source::procfs::{PidStatus, parse_pid_stat, parse_pid_status, parse_smaps_rollup};
use crate::tree::{Member, pid_path};
use held::{Held, Walk, find, slack_kib, together_kib};

/// A two-hundredth of the time may go into walks.
const SHARE: i64 = 200;
/// What may be saved up for a tree that changes.
const RESERVE_NS: i64 = 500_000_000;

/// Memory of the whole tree at one look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// PSS, or the best estimate of it.
    pub memory_kib: u64,
    /// RSS summed.
    pub rss_kib: u64,
    /// Swap summed.
    pub swap_kib: u64,
}

/// The job's memory, followed from look to look.
#[derive(Debug, Default)]
pub struct Memory {
    held: Vec<Held>,
    level: Option<Level>,
    peak_kib: Option<u64>,
    has_looked: bool,
    last_walks_ns: Option<u64>,
    /// Below 0 where a walk took more than there was.
    left_ns: i64,
    /// No pages are walked for now.
    rests: bool,
    buffer: Vec<u8>,
    page_kib: u64,
}

impl Memory {
    /// Looks at all members. A job of which nothing is alive keeps its last level.
    pub fn look(&mut self, root: &Root, members: &[Member], now_ns: u64) {
        if self.page_kib == 0 {
            self.page_kib = rustix::param::page_size() as u64 / 1024;
        }
        let before = std::mem::take(&mut self.held);
        // Once it was seen with memory of its own it has some.
        let borrows = |member: &Member| {
            let is_known = find(&before, member.pid).is_some();
            let parent = || members.iter().find(|other| other.pid == member.stat.ppid);
            member.stat.is_copy
                && !is_known
                && parent().is_some_and(|parent| {
                    member.stat.borrows_from(&parent.stat, || root.share_memory(member.pid, parent.pid))
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
                image: member.stat.image,
                start_ticks: member.stat.start_ticks,
                is_copy: member.stat.is_copy,
                rss_kib,
                counted_rss_kib: rss_kib,
                most_rss_kib: rss_kib,
                peak_rss_kib,
                swap_kib,
                ..Held::default()
            };
            let known = same(&before, &found).copied().unwrap_or_default();
            self.held.push(Held {
                // Where `status` cannot be read now: a mark that is forgotten would seem to rise.
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
            let is_strange = member.stat.is_copy && find(&self.held, member.stat.ppid).is_none();
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
            // Without a walk there is no level yet, and RSS is not to be taken for one: it may be far above it.
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

    /// Walks no pages, or does again: for a baseline that somebody waits for, and whose level no row shows.
    pub const fn rest(&mut self, rests: bool) {
        self.rests = rests;
    }

    /// Takes note that the job held this much at some moment of the interval.
    pub fn prove_peak(&mut self, kib: u64) {
        self.peak_kib = self.peak_kib.max(Some(kib));
    }

    /// The largest high-water mark of any member at the last look.
    #[must_use]
    pub fn largest_peak_rss_kib(&self) -> Option<u64> {
        self.held.iter().filter_map(|held| held.peak_rss_kib).max()
    }

    /// The level at the last look that found anybody alive.
    #[must_use]
    pub const fn level(&self) -> Option<Level> {
        self.level
    }

    /// The most that was proved since this was last asked; the level at least.
    pub fn take_peak_kib(&mut self) -> Option<u64> {
        let level = self.level.map(|level| level.memory_kib);
        self.peak_kib.take().max(level)
    }

    /// The same, without starting a new interval.
    #[must_use]
    pub fn peak_kib(&self) -> Option<u64> {
        self.peak_kib.max(self.level.map(|level| level.memory_kib))
    }

    fn status(&mut self, root: &Root, pid: u32) -> PidStatus {
        let text = root.read(pid_path(pid, "status").as_str(), &mut self.buffer);
        text.ok().and_then(|text| parse_pid_status(text).ok()).unwrap_or_default()
    }

    /// What the parent of a copy holds; `None` where it has gone, and another one stands for it.
    fn parent_kib(&mut self, root: &Root, member: &Member) -> Option<u64> {
        let text = root.read(pid_path(member.stat.ppid, "stat").as_str(), &mut self.buffer).ok()?;
        let parent = parse_pid_stat(text).ok().filter(|parent| parent.image == member.stat.image)?;
        parent.image.map(|_| parent.rss_pages.saturating_mul(self.page_kib))
    }

    /// Walks take time, in which a copy may end or let go of pages, so that its parent is found to have them alone, or
    /// some of them: what RSS shows of that is counted at once, and shares do not add up then.
    fn count_copies_again(&mut self, root: &Root, now_ns: u64) {
        let walked = self.held.iter().filter(|held| held.walked_at_ns() == Some(now_ns));
        let mut walked: Vec<_> = walked.map(|held| held.image).collect();
        walked.sort_unstable();
        let may_share = |held: &&mut Held| held.is_copy && walked.binary_search(&held.image).is_ok();
        let mut fell = Vec::new();
        for held in self.held.iter_mut().filter(may_share) {
            let text = root.read(pid_path(held.pid, "stat").as_str(), &mut self.buffer);
            let rss_pages = match text.map(parse_pid_stat) {
                Ok(Ok(stat)) => stat.rss_pages,
                Err(SourceError::Gone { .. } | SourceError::Unsupported { .. }) => 0,
                Ok(Err(_)) | Err(_) => continue,
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
            // What the last walk cost, this one will: one that does not fit any more waits until it does, or until
            // there is all that can be saved up.
            if left_ns < held.walk.map_or(1, |walk| signed(walk.cost_ns)).min(RESERVE_NS) {
                continue;
            }
            let start_ns = spent_ns();
            let text = root.read(pid_path(held.pid, "smaps_rollup").as_str(), &mut self.buffer);
            match text.map(parse_smaps_rollup) {
                Ok(Ok(Some(found))) => {
                    let cost_ns = spent_ns().saturating_sub(start_ns);
                    held.refused_at_ns = None;
                    (held.is_stale, held.is_apart) = (false, false);
                    // The walk is newer than `stat`, and may have found more.
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
                // Ended meanwhile, or without memory: what is known stays.
                Ok(_) | Err(SourceError::Gone { .. }) => {}
                Err(_) => held.refused_at_ns = Some(now_ns),
            }
        }
        self.left_ns = left_ns;
    }
}

/// The same process among others; with another program it is a new one, and so is its mark.
fn same<'h>(others: &'h [Held], held: &Held) -> Option<&'h Held> {
    others
        .get(find(others, held.pid)?)
        .filter(|other| other.start_ticks == held.start_ticks && other.is_copy == held.is_copy)
}

/// What a new process may have from its parent: nothing once it runs a program of its own.
fn inherited_kib(before: &[Held], now: &[Held], member: &Member) -> u64 {
    if !member.stat.is_copy {
        return 0;
    }
    let of = |held: &[Held]| held.get(find(held, member.stat.ppid)?).copied();
    let (then, parent) = (of(before), of(now));
    // A parent that is new itself may have been as large as its mark since; and until it runs another program, what was
    // started by vfork has its parent's memory itself, the mark included.
    let mark_kib = parent.and_then(|held| held.peak_rss_kib);
    let own_mark_kib = find(now, member.pid).and_then(|at| now.get(at)?.peak_rss_kib);
    let mark_kib = mark_kib.filter(|_| then.is_none() || own_mark_kib == mark_kib);
    let rss_kib = then.into_iter().chain(parent).map(|held| held.rss_kib).max();
    mark_kib.max(rss_kib).unwrap_or(0)
}

/// The most that the tree held between two looks, by the one process that rose furthest; peaks of several do not add
/// up.
///
/// Only a mark that rose between the two looks was set in this interval; that of a process which was not there at the
/// first look was set since then, beyond what it had from its parent. What the others held meanwhile is taken from
/// either end: the smaller sum is proved, since memory may have gone from one process to another.
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

/// What this thread has spent so far: on a busy machine a walk takes longer than it costs.
fn spent_ns() -> u64 {
    crate::sys::thread_cpu_ns().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::procfs::PidStat;

    fn held(pid: u32, rss_kib: u64, peak_rss_kib: u64) -> Held {
        Held { pid, rss_kib, most_rss_kib: rss_kib, peak_rss_kib: Some(peak_rss_kib), ..Held::default() }
    }

    #[test]
    fn only_a_mark_that_rose_counts_and_marks_are_never_summed() {
        let before = [held(1, 100, 900), held(2, 100, 200)];
        let risen =
            |now: &[Held]| risen_kib(&before, now, Some(200), now.iter().map(|held| held.rss_kib).sum());
        assert_eq!(risen(&[held(1, 100, 900), held(2, 100, 200)]), 0, "old marks");
        assert_eq!(risen(&[held(1, 100, 900), held(2, 100, 700)]), 800);
        assert_eq!(risen(&[held(1, 400, 1_000), held(2, 150, 700)]), 1_100, "the larger, not the sum");
        assert_eq!(
            risen(&[held(1, 100, 900), held(2, 100, 200), held(3, 50, 300)]),
            500,
            "risen from nothing"
        );
    }

    #[test]
    fn a_look_in_the_middle_of_a_hump_hides_nothing_of_it_and_memory_that_is_handed_on_counts_once() {
        assert_eq!(risen_kib(&[held(1, 300, 300)], &[held(1, 15, 614)], Some(300), 15), 614);
        let (before, now) = ([held(1, 15, 15)], [held(1, 15, 614), held(2, 600, 600)]);
        assert_eq!(risen_kib(&before, &now, Some(15), 615), 615);
    }

    /// A parent and four copies share 400 MiB. All are alive when they are listed for the second look; by its end the
    /// copies are gone, and the parent was walked before that, after it, or meanwhile.
    #[test]
    fn copies_that_end_while_pages_are_walked_change_nothing_of_what_their_parent_holds() {
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
                is_copy: pid > 1,
                rss_pages: pages,
                image: Some((1, 1)),
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
    fn a_copy_of_its_parent_has_its_parents_pages_and_mark() {
        let member = |is_copy| Member {
            pid: 2,
            stat: PidStat { ppid: 1, is_copy, ..PidStat::default() },
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
        assert_eq!(child(400, 400).memory_kib(), 0, "not walked: what is not its parent's");
        assert_eq!(risen_kib(&before, &[parent, child(15, 400)], Some(400), 415), 400, "nothing of its own");
        assert_eq!(risen_kib(&before, &[parent, child(15, 700)], Some(400), 415), 700);
    }
}
