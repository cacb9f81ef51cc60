//! Pages of one process at a sample, and the bounds of what it has gained and lost since the sample before.
//!
//! In:  a member of the job, its `status`, and the same process at the last sample. Out: [`Process`].

use super::estimate::Range;
use crate::job::tree::Member;
use crate::os::root::Root;
use crate::probe::procfs::{PidStatus, read_status};

/// A fault on a mapped file maps up to this many pages.
const FAULT_AROUND: i64 = 16;

/// Address-space fingerprint. A process and its forked children have the same one, and share anonymous pages.
pub(super) type Family = (u64, u64);

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Process {
    pub pid: u32,
    pub ppid: u32,
    pub start_ticks: u64,
    pub is_forked: bool,
    pub family: Family,
    /// Number of the sample at which `stat` was read, and RSS in it.
    pub stat_at: u64,
    pub rss_pages: u64,
    pub anon_kib: i64,
    /// Pages of files and of shared memory.
    pub mapped_kib: i64,
    /// Size of all pages for which the process had a minor fault.
    pub faulted_kib: i64,
    /// Upper bound of the anonymous pages that are shared with the family.
    pub shared_kib: i64,
    /// Upper bound of the anonymous pages that processes outside the job have too.
    pub outside_kib: i64,
    pub peak_rss_kib: i64,
    pub swap_kib: u64,
    /// Upper bounds of what was added since the last pass: copies of shared pages, and mapped pages.
    pub copied_kib: i64,
    pub added_kib: i64,
    /// When PSS was last read, and when reading it was last denied.
    pub read_at_ns: u64,
    pub denied_at_ns: Option<u64>,
}

impl Process {
    /// Reads the pages of a member, unless it has not run, or has had no page fault and the same RSS.
    pub(super) fn read(root: &Root, member: &Member, before: &[Self], buffer: &mut Vec<u8>) -> Self {
        let stat = &member.stat;
        let old = find(before, member.pid).filter(|old| old.start_ticks == stat.start_ticks);
        if let Some(old) = old.filter(|old| old.stat_at == member.read_at) {
            return *old;
        }
        let page_kib = super::page_kib();
        let parent = || find(before, stat.ppid).filter(|_| stat.is_forked_child);
        let own_family = || parent().map_or((0, u64::from(member.pid)), |parent| parent.family);
        let mut process = Self {
            pid: member.pid,
            ppid: stat.ppid,
            start_ticks: stat.start_ticks,
            is_forked: stat.is_forked_child,
            family: stat.fingerprint.unwrap_or_else(own_family),
            stat_at: member.read_at,
            rss_pages: stat.rss_pages,
            faulted_kib: super::signed(stat.minor_faults).saturating_mul(page_kib),
            ..Self::default()
        };
        let old = process.same_in(before).copied();
        if let Some(old) = old {
            if (old.rss_pages, old.faulted_kib) == (process.rss_pages, process.faulted_kib) {
                return Self { stat_at: member.read_at, ..old };
            }
            let Self { ppid, stat_at, rss_pages, faulted_kib, .. } = process;
            process = Self { ppid, stat_at, rss_pages, faulted_kib, ..old };
        }
        let PidStatus { peak_rss_kib, swap_kib, anon_kib, mapped_kib } =
            read_status(root, member.pid, buffer).unwrap_or_default();
        let rss_kib = super::signed(stat.rss_pages).saturating_mul(page_kib);
        (process.anon_kib, process.mapped_kib) = match anon_kib.zip(mapped_kib) {
            Some((anon, mapped)) => (super::signed(anon), super::signed(mapped)),
            None => (rss_kib, 0),
        };
        process.shared_kib = process.shared_kib.min(process.anon_kib);
        // The last mark stays if it cannot be read now: otherwise it would seem to rise later.
        let kept_kib = old.map_or(process.rss_kib(), |old| old.peak_rss_kib);
        process.peak_rss_kib = peak_rss_kib.map_or(kept_kib, super::signed);
        process.swap_kib = swap_kib.unwrap_or(process.swap_kib);
        process
    }

    pub(super) const fn rss_kib(&self) -> i64 {
        self.anon_kib + self.mapped_kib
    }

    /// The same process in `others`, running the same program.
    pub(super) fn same_in<'p>(&self, others: &'p [Self]) -> Option<&'p Self> {
        let is_same = |other: &&Self| {
            (other.start_ticks, other.is_forked, other.family)
                == (self.start_ticks, self.is_forked, self.family)
        };
        find(others, self.pid).filter(is_same)
    }

    /// Bounds of the growth of distinct anonymous and mapped pages since `old`. A new forked child has `inherited_kib` of
    /// its relatives.
    pub(super) fn follow(
        &mut self,
        old: Option<&Self>,
        inherited_kib: i64,
        is_alone: bool,
    ) -> (Range, Range) {
        let then = old.copied().unwrap_or_default();
        let faulted_kib = self.faulted_kib - then.faulted_kib;
        let grown_kib = match old {
            Some(old) => self.anon_kib - old.anon_kib,
            None => (self.anon_kib - inherited_kib).max(0),
        };
        // Freed pages may be pages that a relative still has. A copy of a shared page is a fault that does not change
        // the size of the process.
        let freed_kib = (-grown_kib).clamp(0, then.shared_kib);
        let copied_kib = (faulted_kib - grown_kib.max(0)).clamp(0, self.shared_kib);
        let anon_growth = Range { low: grown_kib, high: grown_kib + freed_kib + copied_kib };
        self.copied_kib = (self.copied_kib + copied_kib).min(self.shared_kib);

        let grown_kib = self.mapped_kib - then.mapped_kib;
        if is_alone && old.is_some() {
            return (anon_growth, Range::at(grown_kib));
        }
        // Another process may have mapped the same pages. In the same time, the process may have unmapped pages.
        let faulted_kib = faulted_kib - (self.anon_kib - then.anon_kib).max(0);
        let least_kib = grown_kib.max(0);
        let added_kib =
            faulted_kib.max(0).saturating_mul(FAULT_AROUND).clamp(least_kib, self.mapped_kib.max(least_kib));
        self.added_kib = (self.added_kib + added_kib).min(self.mapped_kib);
        (anon_growth, Range { low: -(added_kib - grown_kib).min(then.mapped_kib), high: added_kib })
    }

    /// Bounds of the growth of distinct anonymous and mapped pages by the end of this process.
    pub(super) const fn growth_by_end(&self) -> (Range, Range) {
        let anon = Range { low: -self.anon_kib, high: self.shared_kib - self.anon_kib - self.copied_kib };
        (anon, Range { low: -self.mapped_kib, high: -self.added_kib })
    }
}

/// The process with this pid. `processes` are in ascending order of pid.
pub(super) fn find(processes: &[Process], pid: u32) -> Option<&Process> {
    processes.get(processes.binary_search_by_key(&pid, |process| process.pid).ok()?)
}

/// Memory that the job had at least once between two samples, from the process whose high-water mark proves the most.
/// Marks of several processes are not summed, since they may be of different moments.
///
/// A mark proves a peak in this interval only if it rose between the two samples, or if the process is new. The memory
/// of the other processes is known at both samples. The smaller sum is used, since memory may have moved from one
/// process to another.
pub(super) fn risen_kib(before: &[Process], now: &[Process], [then_kib, now_kib]: [i64; 2]) -> i64 {
    let risen = |process: &Process| {
        let (rss_kib, mark_kib, inherited_kib) = match process.same_in(before) {
            Some(old) => (old.rss_kib(), old.peak_rss_kib, 0),
            // A forked child starts with the size of its parent.
            None if process.is_forked => {
                let parent = find(now, process.ppid).or_else(|| find(before, process.ppid))?;
                (parent.peak_rss_kib, parent.peak_rss_kib, parent.peak_rss_kib)
            }
            None => (0, 0, 0),
        };
        let above = |level_kib: i64, rss_kib: i64| level_kib + (process.peak_rss_kib - rss_kib).max(0);
        let is_new = process.peak_rss_kib > mark_kib;
        is_new.then(|| above(then_kib, rss_kib).min(above(now_kib, process.rss_kib().max(inherited_kib))))
    };
    now.iter().filter_map(risen).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, anon_kib: i64, faulted_kib: i64) -> Process {
        Process { pid, anon_kib, faulted_kib, peak_rss_kib: anon_kib, ..Process::default() }
    }

    fn anon_growth(old: Option<Process>, now: Process, inherited_kib: i64) -> (i64, i64) {
        let mut now = now;
        let (anon, _) = now.follow(old.as_ref(), inherited_kib, false);
        (anon.low, anon.high)
    }

    #[test]
    fn private_growth_is_exact_and_copies_of_shared_pages_are_bounded_by_page_faults() {
        let then = process(1, 100, 100);
        assert_eq!(anon_growth(Some(then), process(1, 150, 150), 0), (50, 50));
        assert_eq!(anon_growth(Some(then), process(1, 30, 100), 0), (-70, -70));
        let shared = |process: Process| Process { shared_kib: 80, ..process };
        assert_eq!(anon_growth(Some(shared(then)), shared(process(1, 100, 130)), 0), (0, 30));
        assert_eq!(anon_growth(Some(shared(then)), shared(process(1, 100, 900)), 0), (0, 80));
        assert_eq!(
            anon_growth(Some(shared(then)), shared(process(1, 30, 100)), 0),
            (-70, 0),
            "a relative may have the pages"
        );
    }

    #[test]
    fn forked_child_adds_only_what_it_did_not_inherit() {
        let child = |anon_kib, faulted_kib| Process {
            is_forked: true,
            shared_kib: anon_kib,
            ..process(2, anon_kib, faulted_kib)
        };
        assert_eq!(anon_growth(None, child(400, 3), 400), (0, 3));
        assert_eq!(anon_growth(None, child(420, 20), 400), (20, 20));
        let mut copied = child(400, 50);
        copied.follow(None, 400, false);
        assert_eq!(copied.growth_by_end().0, Range { low: -400, high: -50 }, "its copies end with it");
    }

    #[test]
    fn mapped_pages_are_exact_for_one_process_and_may_be_shared_among_several() {
        let mapped = |mapped_kib, faulted_kib| Process { mapped_kib, faulted_kib, ..process(1, 0, 0) };
        let growth = |old: Process, mut now: Process, is_alone| {
            let (_, mapped) = now.follow(Some(&old), 0, is_alone);
            (mapped.low, mapped.high)
        };
        assert_eq!(growth(mapped(10, 0), mapped(170, 10), true), (160, 160));
        assert_eq!(growth(mapped(10, 0), mapped(170, 10), false), (0, 160));
        assert_eq!(
            growth(mapped(170, 0), mapped(100, 10), false),
            (-170, 100),
            "it may have unmapped all, and mapped others"
        );
    }

    #[test]
    fn only_marks_that_rose_count_and_marks_are_not_summed() {
        let at = |pid, rss, mark| Process { peak_rss_kib: mark, ..process(pid, rss, 0) };
        let before = [at(1, 100, 900), at(2, 100, 200)];
        let risen = |now: &[Process]| risen_kib(&before, now, [200, now.iter().map(Process::rss_kib).sum()]);
        assert_eq!(risen(&[at(1, 100, 900), at(2, 100, 200)]), 0, "old marks");
        assert_eq!(risen(&[at(1, 100, 900), at(2, 100, 700)]), 800);
        assert_eq!(risen(&[at(1, 400, 1_000), at(2, 150, 700)]), 1_100, "the larger, not the sum");
        assert_eq!(risen(&[at(1, 100, 900), at(2, 100, 200), at(3, 50, 300)]), 500, "a new process");
        let child = Process { is_forked: true, ppid: 1, ..at(3, 15, 900) };
        assert_eq!(risen(&[at(1, 100, 900), at(2, 100, 200), child]), 0, "the mark of its parent");
        assert_eq!(
            risen_kib(&[at(1, 15, 15)], &[at(1, 15, 614), at(2, 600, 600)], [15, 615]),
            615,
            "memory that moved"
        );
    }
}
