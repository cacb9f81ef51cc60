//! How much memory the job holds, and the most it held between two looks.
//!
//! In:  each member's RSS and its high-water mark at every look; PSS by walking a process's pages.
//! Out: PSS of the tree (between walks: the last PSS and the growth of RSS since), and the proved peak.
//!
//! A walk holds a lock that the job may need and takes milliseconds for a big process, so that walks have a budget:
//! a two-hundredth of the time, and a reserve that lets a tree which has just changed be walked as a whole, look
//! after look, since shares that were taken at different moments do not add up. A process rests ten times as long
//! as its walk took. Those never walked come first, then those whose walk is oldest.

use crate::error::SourceError;
use crate::root::Root;
use crate::source::procfs::{parse_pid_status, parse_smaps_rollup};
use crate::tree::{Member, pid_path};

/// A two-hundredth of the time may go into walks.
const SHARE: u64 = 200;
/// Whose lock was held for a walk is left alone for this many times as long.
const REST: u64 = 10;
/// A process alone whose RSS stays the same is walked this often, since others may come to share its libraries.
const SETTLED_NS: u64 = 10_000_000_000;
/// What may be saved up for a tree that changes.
const RESERVE_NS: u64 = 500_000_000;

/// One that refuses is asked again after this time: in the middle of an exec a process refuses everybody.
const REFUSED_NS: u64 = 1_000_000_000;

/// One process at the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    pid: u32,
    start_ticks: u64,
    rss_kib: u64,
    /// RSS by `stat`, which counts a little differently than a walk does: only its growth is used.
    counted_rss_kib: u64,
    peak_rss_kib: Option<u64>,
    swap_kib: Option<u64>,
    walk: Option<Walk>,
    /// When a walk was refused: another user's process, or a kernel without `smaps_rollup`.
    refused_at_ns: Option<u64>,
}

/// A walk over a process's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Walk {
    at_ns: u64,
    cost_ns: u64,
    pss_kib: u64,
    /// RSS by `stat` at that moment.
    counted_rss_kib: u64,
}

impl Held {
    /// The last PSS and the growth of RSS since; RSS where there was no walk.
    fn memory_kib(&self) -> u64 {
        match self.walk {
            Some(walk) if self.counted_rss_kib >= walk.counted_rss_kib => {
                walk.pss_kib + (self.counted_rss_kib - walk.counted_rss_kib)
            }
            Some(walk) => walk.pss_kib.saturating_sub(walk.counted_rss_kib - self.counted_rss_kib),
            None => self.rss_kib,
        }
    }

    fn is_due(&self, now_ns: u64, is_alone: bool) -> bool {
        if self.refused_at_ns.is_some_and(|then_ns| now_ns.saturating_sub(then_ns) < REFUSED_NS) {
            return false;
        }
        let Some(walk) = self.walk else { return true };
        // Of a process that shares with no other one here, only a change of RSS changes the share.
        let is_settled = is_alone && self.counted_rss_kib == walk.counted_rss_kib;
        let rest_ns = if is_settled { SETTLED_NS } else { 0 }.max(walk.cost_ns.saturating_mul(REST));
        now_ns.saturating_sub(walk.at_ns) >= rest_ns
    }

    /// Those never walked first, then the oldest walk: what RSS shows of a change is counted meanwhile, what others
    /// came to share is not.
    fn walked_at_ns(&self) -> Option<u64> {
        self.walk.map(|walk| walk.at_ns)
    }
}

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
    left_ns: u64,
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
        for member in members.iter().filter(|member| !member.stat.is_zombie()) {
            let known = find(&before, member).copied().unwrap_or_default();
            let status = self.status(root, member.pid);
            self.held.push(Held {
                pid: member.pid,
                start_ticks: member.stat.start_ticks,
                rss_kib: member.stat.rss_pages.saturating_mul(self.page_kib),
                counted_rss_kib: member.stat.rss_pages.saturating_mul(self.page_kib),
                peak_rss_kib: status.0,
                swap_kib: status.1,
                ..known
            });
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
        let mut level = Level::default();
        for held in &self.held {
            level.memory_kib = level.memory_kib.saturating_add(held.memory_kib());
            level.rss_kib = level.rss_kib.saturating_add(held.rss_kib);
            level.swap_kib = level.swap_kib.saturating_add(held.swap_kib.unwrap_or(0));
        }
        self.level = Some(level);
        let rise_kib = if self.has_looked { largest_rise_kib(&before, &self.held) } else { 0 };
        self.prove_peak(level.memory_kib.saturating_add(rise_kib));
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

    fn status(&mut self, root: &Root, pid: u32) -> (Option<u64>, Option<u64>) {
        let text = root.read(pid_path(pid, "status").as_str(), &mut self.buffer);
        text.ok()
            .and_then(|text| parse_pid_status(text).ok())
            .map_or((None, None), |s| (s.peak_rss_kib, s.swap_kib))
    }

    fn walk_those_due(&mut self, root: &Root, now_ns: u64) {
        let is_alone = self.held.len() == 1;
        let is_due = |at: &usize| self.held.get(*at).is_some_and(|held| held.is_due(now_ns, is_alone));
        let mut due: Vec<usize> = (0..self.held.len()).filter(is_due).collect();
        due.sort_by_key(|at| self.held.get(*at).and_then(Held::walked_at_ns));
        let saved_ns =
            self.last_walks_ns.map_or(RESERVE_NS, |then_ns| now_ns.saturating_sub(then_ns) / SHARE);
        self.last_walks_ns = Some(now_ns);
        let mut left_ns = self.left_ns.saturating_add(saved_ns).min(RESERVE_NS);
        for at in due {
            let Some(held) = self.held.get_mut(at) else { continue };
            // What the last walk cost, this one will: one that does not fit any more waits for its turn.
            if left_ns < held.walk.map_or(1, |walk| walk.cost_ns) {
                continue;
            }
            let start_ns = spent_ns();
            let text = root.read(pid_path(held.pid, "smaps_rollup").as_str(), &mut self.buffer);
            match text.map(parse_smaps_rollup) {
                Ok(Ok(Some(found))) => {
                    let cost_ns = spent_ns().saturating_sub(start_ns);
                    held.refused_at_ns = None;
                    // The walk is newer than `stat`, and may have found more.
                    held.rss_kib = found.rss_kib;
                    held.walk = Some(Walk {
                        at_ns: now_ns,
                        cost_ns,
                        pss_kib: found.pss_kib,
                        counted_rss_kib: held.counted_rss_kib,
                    });
                    left_ns = left_ns.saturating_sub(cost_ns);
                }
                // Ended meanwhile, or without memory: what is known stays.
                Ok(_) | Err(SourceError::Gone { .. }) => {}
                Err(_) => held.refused_at_ns = Some(now_ns),
            }
        }
        self.left_ns = left_ns;
    }
}

fn find<'h>(held: &'h [Held], member: &Member) -> Option<&'h Held> {
    let at = held.binary_search_by_key(&member.pid, |held| held.pid).ok()?;
    held.get(at).filter(|held| held.start_ticks == member.stat.start_ticks)
}

/// How far one process rose above its RSS at both ends of the interval; peaks of several do not add up.
///
/// Only a mark that rose between the two looks was set in this interval; that of a process which was not
/// there at the first look was set since then as a whole.
fn largest_rise_kib(before: &[Held], now: &[Held]) -> u64 {
    now.iter()
        .filter_map(|held| {
            let then =
                before.binary_search_by_key(&held.pid, |other| other.pid).ok().and_then(|at| before.get(at));
            let then = then.filter(|then| then.start_ticks == held.start_ticks).copied().unwrap_or_default();
            let mark_kib = held.peak_rss_kib?;
            (then.peak_rss_kib < Some(mark_kib))
                .then(|| mark_kib.saturating_sub(held.rss_kib.max(then.rss_kib)))
        })
        .max()
        .unwrap_or(0)
}

/// What this thread has spent so far: on a busy machine a walk takes longer than it costs.
fn spent_ns() -> u64 {
    crate::sys::thread_cpu_ns().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(pid: u32, rss_kib: u64, peak_rss_kib: u64) -> Held {
        Held { pid, rss_kib, peak_rss_kib: Some(peak_rss_kib), ..Held::default() }
    }

    #[test]
    fn only_a_mark_that_rose_counts_and_marks_are_never_summed() {
        let before = [held(1, 100, 900), held(2, 100, 200)];
        assert_eq!(largest_rise_kib(&before, &[held(1, 100, 900), held(2, 100, 200)]), 0, "old marks");
        assert_eq!(largest_rise_kib(&before, &[held(1, 100, 900), held(2, 150, 700)]), 550);
        assert_eq!(
            largest_rise_kib(&before, &[held(1, 400, 1_000), held(2, 150, 700)]),
            600,
            "the larger, not the sum"
        );
        assert_eq!(
            largest_rise_kib(&before, &[held(3, 50, 300)]),
            250,
            "a process that is new rose from nothing"
        );
    }

    #[test]
    fn between_walks_memory_follows_rss() {
        let walk = Walk { at_ns: 0, cost_ns: 1_000, pss_kib: 60, counted_rss_kib: 100 };
        let at = |counted_rss_kib| Held { counted_rss_kib, walk: Some(walk), ..Held::default() }.memory_kib();
        assert_eq!((at(100), at(130), at(50), at(10)), (60, 90, 10, 0));
    }

    #[test]
    fn a_costly_walk_is_not_repeated_for_ten_times_its_cost() {
        let walk = Walk { at_ns: 1_000, cost_ns: 7_000_000, pss_kib: 1, counted_rss_kib: 1 };
        let held = Held { walk: Some(walk), ..Held::default() };
        assert!(!held.is_due(60_000_000, false));
        assert!(held.is_due(70_001_000, false));
    }
}
