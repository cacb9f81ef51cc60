//! A pass: reads the PSS of processes whose share is uncertain, within a budget.
//!
//! In:  `smaps_rollup` of these processes. Out: exact amounts in place of bounds.

use std::collections::BTreeMap;

use super::estimate::Range;
use super::process::{Family, Process};
use super::{Effort, Memory, signed, spent_ns};
use crate::error::SourceError;
use crate::os::root::Root;
use crate::probe::procfs::{SmapsRollup, read_smaps_rollup, read_status};

/// Passes may take one part in this many of the time.
const SHARE: i64 = 110;
/// Largest amount of unused time that is saved up.
const RESERVE_NS: i64 = 15_000_000;
/// Expected CPU time of a read, until reads have shown it: a base, and an amount per MiB of small pages.
const READ_NS: i64 = 20_000;
const READ_NS_PER_MIB: i64 = 3_300;
/// While a process is read, it cannot map or unmap memory. After a longer read, it is not read again for this many times
/// the duration. A process that would take still longer is never read: it counts with its RSS.
const LONG_READ_NS: i64 = 4_000_000;
const LONG_READ_REST: i64 = 200;
const LONGEST_READ_NS: i64 = 20_000_000;
/// A denied read is tried again after this time: during `exec`, the kernel denies every read.
const DENIED_NS: u64 = 1_000_000_000;
/// Processes that share pages are read again after this time, even if they have hardly changed.
const REFRESH_NS: u64 = 10_000_000_000;
/// A level by the counters of the machine is verified after this time; at a row earlier, so that rows come first.
const VERIFY_NS: u64 = 1_500_000_000;
const VERIFY_ROW_NS: u64 = 500_000_000;

/// CPU time that is left for passes.
#[derive(Debug, Default)]
pub(super) struct Budget {
    /// Negative if the last pass took more than was left.
    left_ns: i64,
    saved_at_ns: Option<u64>,
    passed_at_ns: Option<u64>,
    pub(super) last_cost_ns: u64,
    read_ns_per_mib: Option<i64>,
}

impl Budget {
    pub(super) fn save(&mut self, now_ns: u64) {
        let saved_ns =
            self.saved_at_ns.map_or(RESERVE_NS, |then_ns| signed(now_ns.saturating_sub(then_ns)) / SHARE);
        self.saved_at_ns = Some(now_ns);
        self.left_ns = self.left_ns.saturating_add(saved_ns).min(RESERVE_NS);
        self.last_cost_ns = 0;
    }

    pub(super) const fn is_positive(&self) -> bool {
        self.left_ns > 0
    }

    /// Called after a pass that took `cost_ns` of CPU time for `read_mib` of resident memory.
    fn pass(&mut self, cost_ns: u64, read_mib: i64, now_ns: u64) {
        self.spend(cost_ns);
        self.passed_at_ns = Some(now_ns);
        if read_mib >= 64 {
            let per_mib = signed(cost_ns) / read_mib;
            self.read_ns_per_mib = Some(per_mib.clamp(READ_NS_PER_MIB / 20, READ_NS_PER_MIB * 4));
        }
    }

    pub(super) fn spend(&mut self, cost_ns: u64) {
        self.left_ns = self.left_ns.saturating_sub(signed(cost_ns));
        self.last_cost_ns += cost_ns;
    }

    pub(super) const fn has_passed(&self) -> bool {
        self.passed_at_ns.is_some()
    }

    /// Whether the last pass is this long ago.
    fn is_due(&self, after_ns: u64, now_ns: u64) -> bool {
        self.passed_at_ns.is_none_or(|then_ns| now_ns.saturating_sub(then_ns) >= after_ns)
    }

    fn read_cost_ns(&self, process: &Process) -> i64 {
        READ_NS + process.rss_kib() / 1024 * self.read_ns_per_mib.unwrap_or(READ_NS_PER_MIB)
    }

    /// Whether there is time to read these processes, and none would be held up too often.
    fn allows<'p>(&self, processes: impl Iterator<Item = &'p Process>, now_ns: u64) -> bool {
        let mut expected_ns = 0;
        for process in processes {
            let cost_ns = self.read_cost_ns(process);
            let rest_ns = signed(now_ns.saturating_sub(process.read_at_ns));
            if cost_ns > LONG_READ_NS && rest_ns < cost_ns.saturating_mul(LONG_READ_REST) {
                return false;
            }
            expected_ns += cost_ns;
        }
        self.left_ns >= expected_ns.min(RESERVE_NS)
    }
}

/// Anonymous pages of a family, summed over the processes that were read.
#[derive(Default)]
struct Shares {
    pss_kib: i64,
    /// Pages that no other process has.
    own_kib: i64,
    /// Pages that the process with the most shared pages shares.
    shared_kib: i64,
    /// Whether all its pages are pages of the job: it has a process that is not a forked child.
    is_complete: bool,
    /// Whether a process ended, gained or freed pages during the pass: its shares do not add up.
    has_changed: bool,
}

impl Memory {
    pub(super) fn wants_pass(&self, effort: Effort, now_ns: u64) -> bool {
        let (anon, mapped) = (self.anon.range(), self.mapped.range());
        let is_uncertain = anon.width() + mapped.width() > self.kib() / 64 + 256;
        match effort {
            Effort::NoPass => false,
            _ if !self.budget.has_passed() => true,
            _ if !is_uncertain => effort == Effort::Row && self.budget.is_due(REFRESH_NS, now_ns),
            _ if self.is_counted() => {
                self.budget.is_due(if effort == Effort::Row { VERIFY_ROW_NS } else { VERIFY_NS }, now_ns)
            }
            Effort::BetweenRows => anon.high + mapped.high > signed(self.highest_kib),
            Effort::Row => true,
        }
    }

    /// Whether the counters of the machine decide within the bounds.
    const fn is_counted(&self) -> bool {
        self.anon.is_counted() && self.mapped.is_counted()
    }

    /// The processes to read: those of families with uncertain bounds, and all if the mapped pages are uncertain. In
    /// order of families, so that shares of a family are of the same moment, and parents before their children: pages
    /// that a child frees during the pass then count at most once. The second value is true for all.
    fn to_read(&self, now_ns: u64) -> (Vec<usize>, bool) {
        let is_refresh = self.budget.is_due(REFRESH_NS, now_ns);
        let all = !self.budget.has_passed() || self.mapped.range().width() > self.kib() / 128 + 128;
        let is_wanted = |process: &Process| {
            let width_kib = self.families.get(&process.family).map_or(0, |range| range.width());
            let may_share = width_kib > 0 || (is_refresh && process.shared_kib > 0);
            // Nearly all pages of a large process without relatives are known to be its own.
            let is_known = self.budget.read_cost_ns(process) > LONG_READ_NS
                && process.mapped_kib < process.anon_kib / 32;
            may_share || (all && !is_known)
        };
        let wanted = |at: &usize| self.processes.get(*at).is_some_and(is_wanted);
        let mut found: Vec<usize> = (0..self.processes.len()).filter(wanted).collect();
        let order = |process: &Process| (process.family, process.start_ticks, process.is_forked, process.pid);
        found.sort_by_key(|at| self.processes.get(*at).map(order));
        (found, all)
    }

    /// Reads PSS, if the budget allows it.
    pub(super) fn pass(&mut self, root: &Root, now_ns: u64) {
        let (wanted, all) = self.to_read(now_ns);
        if !self.budget.allows(wanted.iter().filter_map(|at| self.processes.get(*at)), now_ns) {
            return;
        }
        let is_first = !self.budget.has_passed();
        let start_ns = spent_ns();
        let before = self.machine_kib(root);
        let mut families: BTreeMap<Family, Shares> = BTreeMap::new();
        let mut read: Vec<(usize, Pages)> = Vec::with_capacity(wanted.len());
        let (mut read_mib, mut mapped_kib) = (0, 0);
        for at in &wanted {
            let Some(process) = self.processes.get_mut(*at) else { continue };
            let is_too_long = self.budget.read_cost_ns(process) > LONGEST_READ_NS;
            let family = families.entry(process.family).or_default();
            family.is_complete |= !process.is_forked;
            read_mib += process.rss_kib() / 1024;
            match read_pages(root, process, now_ns, is_too_long, &mut self.buffer) {
                Some(pages) => {
                    mapped_kib += pages.mapped_pss_kib;
                    family.pss_kib += pages.anon_pss_kib;
                    family.own_kib += pages.anon_pss_kib.min(pages.anon_kib - pages.shared_kib);
                    family.shared_kib = family.shared_kib.max(pages.shared_kib);
                    read.push((*at, pages));
                }
                None => family.has_changed = true,
            }
        }
        for (at, pages) in &read {
            let Some(process) = self.processes.get(*at) else { continue };
            let status = read_status(root, process.pid, &mut self.buffer).ok();
            let now = status.and_then(|status| status.anon_kib.zip(status.mapped_kib));
            // A process that has ended has no amounts, and some recorded files have none.
            let has_changed = now.map_or(!root.is_recorded(), |now| pages.has_changed(process, now));
            families.entry(process.family).or_default().has_changed |= has_changed;
        }
        let after = self.machine_kib(root);
        self.budget.pass(spent_ns() - start_ns, read_mib, now_ns);
        let most_kib = self.kib() / 32 + 1024;
        let is_same = |one: Option<i64>, other: Option<i64>| {
            one.zip(other).is_none_or(|(one, other)| (one - other).abs() <= most_kib)
        };
        if !is_first && self.is_counted() && !(is_same(before.0, after.0) && is_same(before.1, after.1)) {
            return; // The job changed meanwhile, so the shares do not add up.
        }
        let is_whole = families.values().all(|shares| !shares.has_changed);
        families.retain(|_, shares| !shares.has_changed);
        for (at, pages) in read {
            if let Some(process) = self.processes.get_mut(at)
                && families.contains_key(&process.family)
            {
                pages.store(process);
            }
        }
        for (family, shares) in families {
            // Shares do not add up while a child that is not a member yet has a part of them.
            let least_kib = if shares.is_complete { shares.own_kib + shares.shared_kib } else { 0 };
            self.families.insert(family, Range::at(shares.pss_kib.max(least_kib)));
        }
        self.anon.correct(self.anon_range(), after.0);
        // A first pass counts even if the job changed meanwhile, else mapped pages of other processes would count.
        if all && (is_whole || is_first) {
            let unread = (0..self.processes.len()).filter(|at| !wanted.contains(at));
            mapped_kib += unread.filter_map(|at| Some(self.processes.get(at)?.mapped_kib)).sum::<i64>();
            let largest_kib = self.processes.iter().map(|process| process.mapped_kib).max().unwrap_or(0);
            let outside_kib = (largest_kib - mapped_kib).max(0);
            if is_first || outside_kib < self.shared_outside_kib {
                self.shared_outside_kib = outside_kib;
            }
            let mapped_kib = mapped_kib.max(largest_kib - self.shared_outside_kib);
            let high_kib = if is_whole { mapped_kib } else { self.mapped.range().high.max(mapped_kib) };
            self.mapped.correct(Range { low: mapped_kib, high: high_kib }, after.1);
            self.processes.iter_mut().for_each(|process| process.added_kib = 0);
        }
    }
}

/// Pages of one process in a pass.
#[derive(Clone, Copy)]
struct Pages {
    anon_kib: i64,
    mapped_kib: i64,
    /// Anonymous pages that other processes have too.
    shared_kib: i64,
    anon_pss_kib: i64,
    mapped_pss_kib: i64,
}

impl Pages {
    /// `process` with the amounts of its `smaps_rollup`.
    fn of(process: &Process, found: &SmapsRollup) -> Self {
        let (pss_kib, rss_kib) = (signed(found.pss_kib), signed(found.rss_kib));
        let Some(anon) = found.anon else {
            // Before Linux 5.4, the file does not separate the kinds of pages.
            let anon_pss_kib = pss_kib * process.anon_kib / process.rss_kib().max(1);
            return Self { anon_pss_kib, mapped_pss_kib: pss_kib - anon_pss_kib, ..Self::own(process) };
        };
        let [anon_kib, own_kib, anon_pss_kib] = [anon.rss_kib, anon.own_kib, anon.pss_kib].map(signed);
        Self {
            anon_kib,
            mapped_kib: rss_kib - anon_kib,
            shared_kib: anon_kib - own_kib,
            anon_pss_kib,
            mapped_pss_kib: pss_kib - anon_pss_kib,
        }
    }

    /// All resident pages of a process whose PSS is unknown. Those of a forked child count with its parent.
    const fn own(process: &Process) -> Self {
        let Process { anon_kib, mapped_kib, .. } = *process;
        let (anon_pss_kib, mapped_pss_kib) = if process.is_forked { (0, 0) } else { (anon_kib, mapped_kib) };
        Self { anon_kib, mapped_kib, shared_kib: 0, anon_pss_kib, mapped_pss_kib }
    }

    /// Whether the process has gained or lost many pages during the pass, before or after it was read. While it unmaps
    /// memory, `smaps_rollup` does not have these pages any more, but the counters in `status` still do.
    fn has_changed(&self, before: &Process, (anon_kib, mapped_kib): (u64, u64)) -> bool {
        let differs = |then_kib: i64, now_kib: u64| (signed(now_kib) - then_kib).abs() > then_kib / 32 + 1024;
        [before.anon_kib, self.anon_kib].into_iter().any(|then_kib| differs(then_kib, anon_kib))
            || [before.mapped_kib, self.mapped_kib].into_iter().any(|then_kib| differs(then_kib, mapped_kib))
    }

    fn store(self, process: &mut Process) {
        process.anon_kib = self.anon_kib;
        process.mapped_kib = self.mapped_kib;
        process.shared_kib = self.shared_kib;
        process.outside_kib = process.outside_kib.min(self.shared_kib);
        process.copied_kib = 0;
    }
}

/// Reads the pages of a process; `None` if the process has ended.
fn read_pages(
    root: &Root,
    process: &mut Process,
    now_ns: u64,
    is_too_long: bool,
    buffer: &mut Vec<u8>,
) -> Option<Pages> {
    let was_denied = process.denied_at_ns.is_some_and(|at_ns| now_ns.saturating_sub(at_ns) < DENIED_NS);
    process.read_at_ns = now_ns;
    if !was_denied && !is_too_long {
        match read_smaps_rollup(root, process.pid, buffer) {
            Ok(Some(found)) => return Some(Pages::of(process, &found)),
            Ok(None) | Err(SourceError::Gone { .. }) => return None,
            // A process of another user, or a kernel without this file.
            Err(_) => process.denied_at_ns = Some(now_ns),
        }
    }
    Some(Pages::own(process))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_that_gains_or_frees_pages_during_a_pass_has_changed() {
        let at = |mapped_kib| Process { anon_kib: 50_000, mapped_kib, ..Process::default() };
        let changed = |before_kib, read_kib, after_kib| {
            Pages::own(&at(read_kib)).has_changed(&at(before_kib), (50_000, after_kib))
        };
        assert!(!changed(200_000, 200_000, 201_000));
        assert!(
            changed(0, 200_000, 200_000),
            "before it was read: other processes were read without its share"
        );
        assert!(changed(200_000, 200_000, 100_000), "after it was read");
        assert!(changed(200_000, 4_000, 190_000), "it unmaps memory");
    }
}
