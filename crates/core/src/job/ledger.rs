//! CPU time, storage bytes and page faults of the whole job, with ended processes counted exactly once.
//!
//! In:  the account of each member at two samples, and the children that the tracker reaped between them.
//! Out: [`Totals`] of the job, which never fall.
//! Not here: the members of the job (`tree`), reading files (`probe/procfs`).
//!
//! When a process is reaped, the kernel adds its CPU time to cutime of its parent, and its storage bytes to
//! `/proc/[pid]/io` of its parent. For each ended process, the ledger compares the usage of the process with the growth
//! of its nearest ancestor that is still alive, and keeps the missing part as unreaped usage. Usage is missing for
//! children of a parent that ignores SIGCHLD, since the kernel drops it, and for orphans, since init reaps them outside
//! the job. For children that the tracker reaps, `wait4` returns the exact usage.

/// Usage since the start of a process, or of the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub cpu_ns: u64,
    pub user_ticks: u64,
    pub system_ticks: u64,
    /// Bytes read from storage.
    pub read_bytes: u64,
    /// Bytes written to storage.
    pub write_bytes: u64,
    pub major_faults: u64,
}

impl Totals {
    fn zip(self, other: Self, with: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            cpu_ns: with(self.cpu_ns, other.cpu_ns),
            user_ticks: with(self.user_ticks, other.user_ticks),
            system_ticks: with(self.system_ticks, other.system_ticks),
            read_bytes: with(self.read_bytes, other.read_bytes),
            write_bytes: with(self.write_bytes, other.write_bytes),
            major_faults: with(self.major_faults, other.major_faults),
        }
    }

    fn add(self, other: Self) -> Self {
        self.zip(other, u64::saturating_add)
    }

    /// `self - other` for each amount, at least 0.
    fn missing_from(self, other: Self) -> Self {
        self.zip(other, u64::saturating_sub)
    }
}

/// Usage of one process so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    pub pid: u32,
    /// Start time in clock ticks. Pid and start time identify a process.
    pub start_ticks: u64,
    pub ppid: u32,
    /// Usage of the process and of its reaped children.
    pub spent: Totals,
    /// Usage of reaped children (cutime). The kernel does not separate storage bytes and faults of reaped children:
    /// these amounts are equal to those in `spent`.
    pub reaped_children: Totals,
    /// The process ended during the sample, and `spent` is from an earlier one: cutime of its parent may include it.
    pub is_exiting: bool,
}

/// The exact usage of a child that the tracker reaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reaped {
    pub pid: u32,
    /// Usage of the child and of the children that it reaped.
    pub spent: Totals,
}

#[derive(Debug, Default)]
pub struct Ledger {
    accounts: Vec<Account>,
    /// Usage of ended processes that is not in cutime of a live process.
    ended: Totals,
    /// The highest totals so far. A sum can be lower than the sum before, since cutime of a parent has whole ticks.
    highest: Totals,
    unreaped_cpu_ns: u64,
    /// Usage of members from before the recording.
    excluded: Totals,
}

/// Largest rounding error of cutime and cstime together. Each is rounded down to ticks of 10 ms.
const ROUNDING: Totals = Totals {
    cpu_ns: 20_000_000,
    user_ticks: 1,
    system_ticks: 1,
    read_bytes: 0,
    write_bytes: 0,
    major_faults: 0,
};

/// The account of the process with this pid, in accounts in ascending order of pid.
fn find(accounts: &[Account], pid: u32) -> Option<&Account> {
    accounts.get(accounts.binary_search_by_key(&pid, |account| account.pid).ok()?)
}

/// The accounts before and after an interval.
struct Interval<'b> {
    before: &'b [Account],
    now: &'b [Account],
    reaped: &'b [Reaped],
}

impl Interval<'_> {
    fn is_alive(&self, account: &Account) -> bool {
        find(self.now, account.pid).is_some_and(|found| found.start_ticks == account.start_ticks)
    }

    /// The process that inherits the usage of an ended process: its nearest ancestor that is alive or that the tracker
    /// reaped. `None` without such an ancestor. If the tracker reaped the process itself, the process itself.
    fn reaper_of(&self, ended: &Account) -> Option<u32> {
        let mut ancestor = *ended;
        loop {
            if self.reaped.iter().any(|child| child.pid == ancestor.pid) {
                return Some(ancestor.pid);
            }
            let parent = find(self.before, ancestor.ppid).filter(|parent| parent.pid != ancestor.pid)?;
            if self.is_alive(parent) {
                return Some(parent.pid);
            }
            // A parent is older than its child. Without this check, wrong parents would cause an endless loop.
            if parent.start_ticks > ancestor.start_ticks || parent.ppid == ancestor.pid {
                return None;
            }
            ancestor = *parent;
        }
    }

    /// Usage of children that a process inherited in this interval.
    fn reaped_by(&self, reaper: Option<u32>) -> Totals {
        let Some(reaper) = reaper else { return Totals::default() };
        if let Some(child) = self.reaped.iter().find(|child| child.pid == reaper) {
            return child.spent;
        }
        match (find(self.before, reaper), find(self.now, reaper)) {
            (Some(then), Some(now)) => now.reaped_children.missing_from(then.reaped_children),
            _ => Totals::default(),
        }
    }
}

impl Ledger {
    /// Adds the accounts of one sample, in ascending order of pid.
    pub fn add(&mut self, now: &[Account], reaped: &[Reaped]) {
        let before = std::mem::replace(&mut self.accounts, now.to_vec());
        for child in reaped {
            self.ended = self.ended.add(child.spent);
        }
        let interval = Interval { before: &before, now, reaped };
        // Sums of the usage of ended processes, one sum for each process that inherits usage.
        let mut inherited: Vec<(Option<u32>, Totals)> = Vec::new();
        for ended in before.iter().filter(|account| !interval.is_alive(account)) {
            let reaper = interval.reaper_of(ended);
            match inherited.iter_mut().find(|(other, _)| *other == reaper) {
                Some((_, sum)) => *sum = sum.add(ended.spent),
                None => inherited.push((reaper, ended.spent)),
            }
        }
        for (reaper, spent) in &inherited {
            let unreaped = beyond_rounding(spent.missing_from(interval.reaped_by(*reaper)));
            self.unreaped_cpu_ns = self.unreaped_cpu_ns.saturating_add(unreaped.cpu_ns);
            self.ended = self.ended.add(unreaped);
        }
        for exiting in self.accounts.iter_mut().filter(|account| account.is_exiting) {
            let reaper = interval.reaper_of(exiting);
            let at = inherited.iter().position(|(other, _)| *other == reaper);
            let at = at.unwrap_or_else(|| {
                inherited.push((reaper, Totals::default()));
                inherited.len() - 1
            });
            let Some((_, explained)) = inherited.get_mut(at) else { continue };
            // The part of the reaper's growth that other ended processes do not explain. An amount that is not larger
            // is already in cutime of the reaper, and must not be counted twice.
            let unexplained = interval.reaped_by(reaper).missing_from(*explained).add(ROUNDING);
            let reaped = exiting
                .spent
                .zip(unexplained, |amount, unexplained| if amount <= unexplained { amount } else { 0 });
            *explained = explained.add(reaped);
            exiting.spent = exiting.spent.missing_from(reaped);
        }
        let totals = self.accounts.iter().fold(self.ended, |sum, account| sum.add(account.spent));
        let totals = totals.missing_from(self.excluded);
        self.highest = self.highest.zip(totals, u64::max);
    }

    /// Excludes usage of a process from before the recording. Called before the process is added.
    pub fn exclude(&mut self, spent: Totals) {
        self.excluded = self.excluded.add(spent);
    }

    pub const fn totals(&self) -> Totals {
        self.highest
    }

    /// The account of a process at the last sample.
    pub fn account(&self, pid: u32, start_ticks: u64) -> Option<&Account> {
        self.account_of_pid(pid).filter(|account| account.start_ticks == start_ticks)
    }

    pub fn account_of_pid(&self, pid: u32) -> Option<&Account> {
        find(&self.accounts, pid)
    }

    /// CPU time of ended processes that no parent reaped, up to the last sample of each process.
    pub const fn unreaped_cpu_ns(&self) -> u64 {
        self.unreaped_cpu_ns
    }
}

/// Sets amounts to 0 that may be missing only because of rounding.
fn beyond_rounding(missing: Totals) -> Totals {
    missing.zip(ROUNDING, |amount, rounding| if amount > rounding { amount } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    fn account(pid: u32, ppid: u32, own_s: u64, cutime_s: u64) -> Account {
        let cpu = |s: u64| Totals { cpu_ns: s * SECOND, user_ticks: s * 100, ..Totals::default() };
        Account {
            pid,
            ppid,
            start_ticks: u64::from(pid),
            spent: cpu(own_s + cutime_s),
            reaped_children: cpu(cutime_s),
            is_exiting: false,
        }
    }

    fn seconds(ledger: &Ledger) -> u64 {
        ledger.totals().cpu_ns / SECOND
    }

    #[test]
    fn reaped_child_is_counted_once() {
        let mut ledger = Ledger::default();
        ledger.add(&[account(10, 1, 1, 0), account(11, 10, 5, 0)], &[]);
        assert_eq!(seconds(&ledger), 6);
        // The child spent 7 s until its end.
        ledger.add(&[account(10, 1, 2, 7)], &[]);
        assert_eq!(seconds(&ledger), 9);
    }

    #[test]
    fn child_with_dropped_time_counts_as_unreaped() {
        let mut ledger = Ledger::default();
        ledger.add(&[account(10, 1, 1, 0), account(11, 10, 5, 0)], &[]);
        ledger.add(&[account(10, 1, 2, 0)], &[]);
        assert_eq!((seconds(&ledger), ledger.unreaped_cpu_ns()), (7, 5 * SECOND));
    }

    #[test]
    fn time_of_child_and_grandchild_is_found_in_the_grandparent() {
        let mut ledger = Ledger::default();
        ledger.add(&[account(10, 1, 1, 0), account(11, 10, 5, 0), account(12, 11, 3, 0)], &[]);
        ledger.add(&[account(10, 1, 1, 9)], &[]);
        assert_eq!((seconds(&ledger), ledger.unreaped_cpu_ns()), (10, 0));
    }

    #[test]
    fn orphan_reaped_by_the_tracker_has_exact_amounts() {
        let mut ledger = Ledger::default();
        let orphan = account(12, 99, 3, 0);
        ledger.add(&[account(10, 1, 1, 0), orphan], &[]);
        let spent = Totals { cpu_ns: 4 * SECOND, ..Totals::default() };
        ledger.add(&[account(10, 1, 1, 0)], &[Reaped { pid: 12, spent }]);
        assert_eq!((seconds(&ledger), ledger.unreaped_cpu_ns()), (5, 0));
    }

    #[test]
    fn child_that_exits_during_the_sample_is_counted_once() {
        for parent_cutime_s in [0, 5] {
            let mut ledger = Ledger::default();
            ledger.add(&[account(10, 1, 1, 0), account(11, 10, 5, 0)], &[]);
            let exiting = Account { is_exiting: true, ..account(11, 10, 5, 0) };
            ledger.add(&[account(10, 1, 1, parent_cutime_s), exiting], &[]);
            assert_eq!(seconds(&ledger), 6, "cutime of the parent grew by {parent_cutime_s} s");
            ledger.add(&[account(10, 1, 1, 5)], &[]);
            assert_eq!((seconds(&ledger), ledger.unreaped_cpu_ns()), (6, 0));
        }
    }

    #[test]
    fn new_child_that_exits_during_the_sample_is_counted_once() {
        for parent_cutime_s in [0, 5] {
            let mut ledger = Ledger::default();
            ledger.add(&[account(10, 1, 1, 0)], &[]);
            let exiting = Account { is_exiting: true, ..account(11, 10, 5, 0) };
            ledger.add(&[account(10, 1, 1, parent_cutime_s), exiting], &[]);
            assert_eq!(seconds(&ledger), 6, "cutime of the parent grew by {parent_cutime_s} s");
            ledger.add(&[account(10, 1, 1, 5)], &[]);
            assert_eq!((seconds(&ledger), ledger.unreaped_cpu_ns()), (6, 0));
        }
    }

    #[test]
    fn rounding_of_cutime_does_not_add_up() {
        let mut ledger = Ledger::default();
        let mut root = account(10, 1, 1, 0);
        for round in 1..=100_u32 {
            let mut child = account(1000 + round, 10, 0, 0);
            child.spent.cpu_ns = 55_000_000;
            ledger.add(&[root, child], &[]);
            // The kernel shows cutime in whole ticks.
            let cutime_ns = u64::from(round) * 55_000_000 / 10_000_000 * 10_000_000;
            root.reaped_children.cpu_ns = cutime_ns;
            root.spent.cpu_ns = SECOND + cutime_ns;
            ledger.add(&[root], &[]);
        }
        assert_eq!(ledger.totals().cpu_ns, SECOND + 5_500_000_000);
    }

    proptest! {
        /// Totals never fall, for any set of processes and any order in which they end.
        #[test]
        fn totals_never_fall(rounds in proptest::collection::vec(
            proptest::collection::btree_map(2_u32..12, (1_u32..12, 0_u64..50, 0_u64..50), 0..8), 1..6,
        )) {
            let mut ledger = Ledger::default();
            let mut grown = std::collections::BTreeMap::<u32, (u64, u64)>::new();
            let mut last = Totals::default();
            for round in rounds {
                let now: Vec<_> = round.iter().map(|(pid, (ppid, own, cutime))| {
                    // Amounts of a live process only grow.
                    let sum = grown.entry(*pid).or_default();
                    *sum = (sum.0 + own, sum.1 + cutime);
                    account(*pid, *ppid, sum.0, sum.1)
                }).collect();
                ledger.add(&now, &[]);
                let totals = ledger.totals();
                prop_assert!(totals.cpu_ns >= last.cpu_ns, "{totals:?} after {last:?}");
                last = totals;
            }
        }
    }
}
