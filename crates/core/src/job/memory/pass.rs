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
const SHARE: i64 = 100;
/// Largest amount of unused time that is saved up.
const RESERVE_NS: i64 = 25_000_000;
/// Expected CPU time of a read, until reads have shown it: a base, and an amount per MiB of small pages.
const READ_NS: i64 = 20_000;
const READ_NS_PER_MIB: i64 = 3_300;
/// While a process is read, it cannot map or unmap memory. After a longer read, it is not read again for this many times
/// the duration. A process that would take still longer is never read: it counts with its RSS.
const LONG_READ_NS: i64 = 4_000_000;
const LONG_READ_REST: i64 = 200;
const LONGEST_READ_NS: i64 = 60_000_000;
/// A denied read is tried again after this time: during `exec`, the kernel denies every read.
const DENIED_NS: u64 = 1_000_000_000;
/// Processes that share pages are read again after this time, even if they have hardly changed.
const REFRESH_NS: u64 = 10_000_000_000;

/// CPU time that is left for passes.
#[derive(Debug, Default)]
pub(super) struct Budget {
    /// Negative if the last pass took more than was left.
    left_ns: i64,
    saved_at_ns: Option<u64>,
    passed_at_ns: Option<u64>,
    last_cost_ns: u64,
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

    pub(super) fn spend(&mut self, cost_ns: u64) {
        self.left_ns = self.left_ns.saturating_sub(signed(cost_ns));
        self.last_cost_ns += cost_ns;
    }

    pub(super) const fn is_positive(&self) -> bool {
        self.left_ns > 0
    }

    pub(super) const fn has_passed(&self) -> bool {
        self.passed_at_ns.is_some()
    }

    pub(super) const fn last_cost_ns(&self) -> u64 {
        self.last_cost_ns
    }

    fn is_refresh_due(&self, now_ns: u64) -> bool {
        self.passed_at_ns.is_none_or(|then_ns| now_ns.saturating_sub(then_ns) >= REFRESH_NS)
    }

    fn read_cost_ns(&self, process: &Process) -> i64 {
        READ_NS + process.rss_kib() / 1024 * self.read_ns_per_mib.unwrap_or(READ_NS_PER_MIB)
    }

    fn learn(&mut self, cost_ns: u64, read_mib: i64) {
        if read_mib >= 64 {
            let per_mib = signed(cost_ns) / read_mib;
            self.read_ns_per_mib = Some(per_mib.clamp(READ_NS_PER_MIB / 20, READ_NS_PER_MIB * 4));
        }
    }
}

/// Anonymous pages of a family, summed over the processes that were read.
#[derive(Default)]
struct Shares {
    processes: usize,
    pss_kib: i64,
    /// Pages that no other process has.
    own_kib: i64,
    /// Pages that the process with the most shared pages shares.
    shared_kib: i64,
    /// Change of the pages from the sample to the end of the pass.
    moved_kib: i64,
    has_lost_one: bool,
}

impl Shares {
    /// Whether the family was the same while its processes were read.
    const fn add_up(&self) -> bool {
        !self.has_lost_one && self.moved_kib <= self.pss_kib / 64 + 512
    }
}

/// PSS of one process.
struct Pages {
    anon_kib: i64,
    mapped_kib: i64,
    /// Anonymous pages that other processes have too; 0 if their number is unknown.
    shared_kib: i64,
}

impl Memory {
    pub(super) fn wants_pass(&self, effort: Effort, now_ns: u64) -> bool {
        let is_uncertain = self.anon.range.width() + self.mapped.range.width() > self.kib() / 64 + 256;
        let may_be_a_peak = self.anon.range.high + self.mapped.range.high > signed(self.highest_kib);
        match effort {
            Effort::NoPass => false,
            _ if !self.budget.has_passed() => true,
            Effort::BetweenRows => is_uncertain && may_be_a_peak,
            Effort::Row => is_uncertain || self.budget.is_refresh_due(now_ns),
        }
    }

    /// The processes to read: those of families with uncertain bounds, and all if the mapped pages are uncertain. In
    /// order of families, so that shares of a family are of the same moment. The second value is true for all.
    fn to_read(&self, now_ns: u64) -> (Vec<usize>, bool) {
        let is_refresh = self.budget.is_refresh_due(now_ns);
        let all = !self.budget.has_passed() || self.mapped.range.width() > self.kib() / 128 + 128;
        let is_wanted = |process: &Process| {
            let width_kib = self.families.get(&process.family).map_or(0, |family| family.range.width());
            let may_share = width_kib > 0 || (is_refresh && process.shared_kib > 0);
            // Nearly all pages of a large process without relatives are known to be its own.
            let is_known = self.budget.read_cost_ns(process) > LONG_READ_NS
                && process.mapped_kib < process.anon_kib / 32;
            may_share || (all && !is_known)
        };
        let wanted = |at: &usize| self.processes.get(*at).is_some_and(is_wanted);
        let mut found: Vec<usize> = (0..self.processes.len()).filter(wanted).collect();
        found.sort_by_key(|at| self.processes.get(*at).map(|process| process.family));
        (found, all)
    }

    /// Reads PSS, if enough time is saved up and no process would be held up too often.
    pub(super) fn pass(&mut self, root: &Root, now_ns: u64) {
        let (wanted, all) = self.to_read(now_ns);
        let mut expected_ns = 0;
        for process in wanted.iter().filter_map(|at| self.processes.get(*at)) {
            let cost_ns = self.budget.read_cost_ns(process);
            let rest_ns = signed(now_ns.saturating_sub(process.read_at_ns));
            if cost_ns > LONG_READ_NS && rest_ns < cost_ns.saturating_mul(LONG_READ_REST) {
                return;
            }
            expected_ns += cost_ns;
        }
        if self.budget.left_ns < expected_ns.min(RESERVE_NS) {
            return;
        }
        let start_ns = spent_ns();
        let sampled = self.processes.clone();
        let before = self.machine_kib(root);
        let mut families: BTreeMap<Family, Shares> = BTreeMap::new();
        let (mut read_mib, mut mapped_kib, mut moved_kib) = (0, 0, 0);
        let unread = (0..self.processes.len()).filter(|at| all && !wanted.contains(at));
        mapped_kib += unread.filter_map(|at| Some(self.processes.get(at)?.mapped_kib)).sum::<i64>();
        for at in &wanted {
            let Some(process) = self.processes.get_mut(*at) else { continue };
            let is_too_long = self.budget.read_cost_ns(process) > LONGEST_READ_NS;
            let family = families.entry(process.family).or_default();
            family.processes += 1;
            let (anon_then_kib, mapped_then_kib) = (process.anon_kib, process.mapped_kib);
            if let Some(pages) = read_pages(root, process, now_ns, is_too_long, &mut self.buffer) {
                read_mib += process.rss_kib() / 1024;
                mapped_kib += pages.mapped_kib;
                family.pss_kib += pages.anon_kib;
                family.own_kib += pages.anon_kib.min(process.anon_kib - process.shared_kib);
                family.shared_kib = family.shared_kib.max(pages.shared_kib);
                family.moved_kib += (process.anon_kib - anon_then_kib).abs();
                moved_kib += (process.mapped_kib - mapped_then_kib).abs();
            } else {
                family.has_lost_one = true;
            }
        }
        // Shares add up only if all processes still have the same pages.
        for process in wanted.iter().filter_map(|at| self.processes.get(*at)) {
            let family = families.entry(process.family).or_default();
            match read_status(root, process.pid, &mut self.buffer)
                .ok()
                .and_then(|now| now.anon_kib.zip(now.mapped_kib))
            {
                Some((anon_kib, kib)) => {
                    family.moved_kib += (signed(anon_kib) - process.anon_kib).abs();
                    moved_kib += (signed(kib) - process.mapped_kib).abs();
                }
                None => family.has_lost_one |= !root.is_recorded(),
            }
        }
        let after = self.machine_kib(root);
        // The processes were read between the two readings of the machine's counters.
        let middle = |one: Option<i64>, other: Option<i64>| {
            one.zip(other).map(|(one, other)| i64::midpoint(one, other))
        };
        let is_whole = families.values().all(|family| !family.has_lost_one);
        // A process without relatives is known by its own counters, whatever its PSS.
        if families.values().all(|shares| shares.add_up() || shares.processes == 1) {
            for (family, shares) in families.into_iter().filter(|(_, shares)| shares.add_up()) {
                let Some(family) = self.families.get_mut(&family) else { continue };
                // Shares do not add up while a child that is not a member yet has a part of them.
                let least_kib = if family.is_complete { shares.own_kib + shares.shared_kib } else { 0 };
                family.range = Range::at(shares.pss_kib.max(least_kib));
            }
            self.anon.correct(self.anon_range(), middle(before.0, after.0));
        } else {
            self.restore(&sampled, |process, then| {
                (process.anon_kib, process.shared_kib, process.copied_kib) =
                    (then.anon_kib, then.shared_kib, then.copied_kib);
            });
        }
        if all && is_whole && moved_kib <= mapped_kib / 64 + 512 {
            let outside_kib = (self.largest_mapped_kib() - mapped_kib).max(0);
            if !self.budget.has_passed() || outside_kib < self.shared_outside_kib {
                self.shared_outside_kib = outside_kib;
            }
            let mapped_kib = mapped_kib.max(self.largest_mapped_kib() - self.shared_outside_kib);
            self.mapped.correct(Range::at(mapped_kib), middle(before.1, after.1));
            self.processes.iter_mut().for_each(|process| process.added_kib = 0);
        } else {
            self.restore(&sampled, |process, then| process.mapped_kib = then.mapped_kib);
        }
        self.budget.passed_at_ns = Some(now_ns);
        let cost_ns = spent_ns() - start_ns;
        self.budget.spend(cost_ns);
        self.budget.learn(cost_ns, read_mib);
    }

    /// Takes back what a discarded pass has changed.
    fn restore(&mut self, sampled: &[Process], take: impl Fn(&mut Process, &Process)) {
        self.processes.iter_mut().zip(sampled).for_each(|(process, then)| take(process, then));
    }
}

/// Reads the PSS of a process, and updates its resident pages to the same moment; `None` if the process has ended.
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
            Ok(Some(found)) => return Some(pages_of(process, &found)),
            Ok(None) | Err(SourceError::Gone { .. }) => return None,
            // A process of another user, or a kernel without this file.
            Err(_) => process.denied_at_ns = Some(now_ns),
        }
    }
    let unshared = i64::from(!process.is_forked);
    let (anon_kib, mapped_kib) = (process.anon_kib * unshared, process.mapped_kib * unshared);
    Some(Pages { anon_kib, mapped_kib, shared_kib: 0 })
}

fn pages_of(process: &mut Process, found: &SmapsRollup) -> Pages {
    let pss_kib = signed(found.pss_kib);
    let Some(anon) = found.anon else {
        // Before Linux 5.4, the file does not separate the kinds of pages.
        let anon_kib = pss_kib * process.anon_kib / process.rss_kib().max(1);
        return Pages { anon_kib, mapped_kib: pss_kib - anon_kib, shared_kib: 0 };
    };
    process.anon_kib = signed(anon.rss_kib);
    process.mapped_kib = signed(found.rss_kib) - process.anon_kib;
    process.shared_kib = process.anon_kib - signed(anon.own_kib);
    process.copied_kib = 0;
    let anon_kib = signed(anon.pss_kib);
    Pages { anon_kib, mapped_kib: pss_kib - anon_kib, shared_kib: process.shared_kib }
}
