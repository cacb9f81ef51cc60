//! What the job has spent, with nothing lost when a process ends and nothing counted twice.
//!
//! In:  what each member has spent so far, at two moments, and the children that we reaped between them.
//! Out: [`Totals`] of the whole job; they never fall.
//! Not here: which processes are the job's (`tree`), reading files (`source`).
//!
//! A process that ends hands what it spent to the parent that waits for it (`cutime`, and in `/proc/[pid]/io`
//! the same counter); so for each ended process we look how much its nearest ancestor that is still there
//! has received, and keep on our own account what is missing. Nothing is received where the parent ignores
//! SIGCHLD (the kernel reaps, and drops it), and by the kernel's init for orphans. Where the ancestor is a
//! child of ours that we reaped, its last account is exact.

/// Amounts that only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// CPU time.
    pub cpu_ns: u64,
    /// User part by ticks.
    pub user_ticks: u64,
    /// System part by ticks.
    pub system_ticks: u64,
    /// Read from storage.
    pub read_bytes: u64,
    /// Written to storage.
    pub write_bytes: u64,
    /// Faults that read from storage.
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

    /// How much of `self` is not in `other`, amount by amount.
    fn missing_from(self, other: Self) -> Self {
        self.zip(other, u64::saturating_sub)
    }
}

/// What one process has spent so far, what it received from children included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Whose.
    pub pid: u32,
    /// With the pid, its identity.
    pub start_ticks: u64,
    /// Its parent.
    pub ppid: u32,
    /// Its own and what it received.
    pub spent: Totals,
    /// What it received from children, as far as the kernel tells the two apart; else the same as `spent`.
    pub received: Totals,
    /// It ended while we looked, and `spent` is of a moment before: its parent may have received it already.
    pub is_leaving: bool,
}

/// A child of ours that ended: its last account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reaped {
    /// Whose.
    pub pid: u32,
    /// Its own and what it received.
    pub spent: Totals,
}

/// The job's account book.
#[derive(Debug, Default)]
pub struct Ledger {
    accounts: Vec<Account>,
    kept: Totals,
    /// The highest totals so far: a child's exact time comes back from its parent in whole ticks.
    highest: Totals,
    /// CPU time that is kept for processes whose last part nobody saw.
    unseen_ends: u64,
}

/// A tick of user and one of system time may be cut off a received amount.
const ROUNDING: Totals = Totals {
    cpu_ns: 20_000_000,
    user_ticks: 1,
    system_ticks: 1,
    read_bytes: 0,
    write_bytes: 0,
    major_faults: 0,
};

/// The two sides of a settlement, and who inherits.
struct Books<'b> {
    before: &'b [Account],
    now: &'b [Account],
    reaped: &'b [Reaped],
}

impl Books<'_> {
    fn find(accounts: &[Account], pid: u32) -> Option<&Account> {
        accounts.get(accounts.binary_search_by_key(&pid, |account| account.pid).ok()?)
    }

    fn is_there(&self, account: &Account) -> bool {
        Self::find(self.now, account.pid).is_some_and(|found| found.start_ticks == account.start_ticks)
    }

    /// The nearest ancestor that is still there or that we reaped; `None` where there is nobody we can ask.
    fn heir(&self, ended: &Account) -> Option<u32> {
        let mut heir = *ended;
        loop {
            if self.reaped.iter().any(|child| child.pid == heir.pid) {
                return Some(heir.pid);
            }
            let parent = Self::find(self.before, heir.ppid).filter(|parent| parent.pid != heir.pid)?;
            if self.is_there(parent) {
                return Some(parent.pid);
            }
            // A parent is older than its child; the check keeps a forged tree from leading us in a circle.
            if parent.start_ticks > heir.start_ticks || parent.ppid == heir.pid {
                return None;
            }
            heir = *parent;
        }
    }

    /// What an heir got in this interval.
    fn received_by(&self, heir: Option<u32>) -> Totals {
        let Some(heir) = heir else { return Totals::default() };
        if let Some(child) = self.reaped.iter().find(|child| child.pid == heir) {
            return child.spent;
        }
        match (Self::find(self.before, heir), Self::find(self.now, heir)) {
            (Some(then), Some(now)) => now.received.missing_from(then.received),
            _ => Totals::default(),
        }
    }
}

impl Ledger {
    /// Closes the books of one interval. `now` is in ascending order of pid.
    pub fn settle(&mut self, now: &[Account], reaped: &[Reaped]) {
        let before = std::mem::replace(&mut self.accounts, now.to_vec());
        for child in reaped {
            self.kept = self.kept.add(child.spent);
        }
        let books = Books { before: &before, now, reaped };
        let mut wills: Vec<(Option<u32>, Totals)> = Vec::new();
        for ended in before.iter().filter(|account| !books.is_there(account)) {
            let heir = books.heir(ended);
            match wills.iter_mut().find(|(other, _)| *other == heir) {
                Some((_, sum)) => *sum = sum.add(ended.spent),
                None => wills.push((heir, ended.spent)),
            }
        }
        for (heir, bequeathed) in &wills {
            let missing = beyond_rounding(bequeathed.missing_from(books.received_by(*heir)));
            self.unseen_ends = self.unseen_ends.saturating_add(missing.cpu_ns);
            self.kept = self.kept.add(missing);
        }
        for leaving in self.accounts.iter_mut().filter(|account| account.is_leaving) {
            let heir = books.heir(leaving);
            let at = wills.iter().position(|(other, _)| *other == heir);
            let at = at.unwrap_or_else(|| {
                wills.push((heir, Totals::default()));
                wills.len() - 1
            });
            let Some((_, explained)) = wills.get_mut(at) else { continue };
            // What the heir received beyond what others left it: where that covers an amount, it was handed on.
            let spare = books.received_by(heir).missing_from(*explained).add(ROUNDING);
            let handed_on =
                leaving.spent.zip(spare, |amount, spare| if amount <= spare { amount } else { 0 });
            *explained = explained.add(handed_on);
            leaving.spent = leaving.spent.missing_from(handed_on);
        }
        let totals = self.accounts.iter().fold(self.kept, |sum, account| sum.add(account.spent));
        self.highest = self.highest.zip(totals, u64::max);
    }

    /// Everything that the job has spent so far.
    #[must_use]
    pub const fn totals(&self) -> Totals {
        self.highest
    }

    /// The account of a process at the last settlement.
    #[must_use]
    pub fn account(&self, pid: u32, start_ticks: u64) -> Option<&Account> {
        self.account_of_pid(pid).filter(|account| account.start_ticks == start_ticks)
    }

    /// The account of whoever had that pid at the last settlement.
    #[must_use]
    pub fn account_of_pid(&self, pid: u32) -> Option<&Account> {
        self.accounts.get(self.accounts.binary_search_by_key(&pid, |account| account.pid).ok()?)
    }

    /// CPU time of processes that ended without anybody receiving it; their last part is not in it.
    #[must_use]
    pub const fn unreceived_cpu_ns(&self) -> u64 {
        self.unseen_ends
    }
}

/// Times are received in whole ticks: less than that is not missing, it was rounded away.
fn beyond_rounding(missing: Totals) -> Totals {
    missing.zip(ROUNDING, |amount, rounding| if amount > rounding { amount } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    fn account(pid: u32, ppid: u32, own_s: u64, received_s: u64) -> Account {
        let cpu = |s: u64| Totals { cpu_ns: s * SECOND, user_ticks: s * 100, ..Totals::default() };
        Account {
            pid,
            ppid,
            start_ticks: u64::from(pid),
            spent: cpu(own_s + received_s),
            received: cpu(received_s),
            is_leaving: false,
        }
    }

    fn seconds(ledger: &Ledger) -> u64 {
        ledger.totals().cpu_ns / SECOND
    }

    #[test]
    fn a_child_that_was_waited_for_is_counted_once() {
        let mut ledger = Ledger::default();
        ledger.settle(&[account(10, 1, 1, 0), account(11, 10, 5, 0)], &[]);
        assert_eq!(seconds(&ledger), 6);
        ledger.settle(&[account(10, 1, 2, 7)], &[]); // the child had spent 7 by its end
        assert_eq!(seconds(&ledger), 9);
    }

    #[test]
    fn a_child_that_the_kernel_reaped_keeps_what_was_seen() {
        let mut ledger = Ledger::default();
        ledger.settle(&[account(10, 1, 1, 0), account(11, 10, 5, 0)], &[]);
        ledger.settle(&[account(10, 1, 2, 0)], &[]);
        assert_eq!((seconds(&ledger), ledger.unreceived_cpu_ns()), (7, 5 * SECOND));
    }

    #[test]
    fn a_family_that_ended_together_is_found_in_the_grandparent() {
        let mut ledger = Ledger::default();
        ledger.settle(&[account(10, 1, 1, 0), account(11, 10, 5, 0), account(12, 11, 3, 0)], &[]);
        ledger.settle(&[account(10, 1, 1, 9)], &[]);
        assert_eq!((seconds(&ledger), ledger.unreceived_cpu_ns()), (10, 0));
    }

    #[test]
    fn an_orphan_that_we_reaped_has_an_exact_last_account() {
        let mut ledger = Ledger::default();
        let orphan = account(12, 99, 3, 0);
        ledger.settle(&[account(10, 1, 1, 0), orphan], &[]);
        let spent = Totals { cpu_ns: 4 * SECOND, ..Totals::default() };
        ledger.settle(&[account(10, 1, 1, 0)], &[Reaped { pid: 12, spent }]);
        assert_eq!((seconds(&ledger), ledger.unreceived_cpu_ns()), (5, 0));
    }

    #[test]
    fn a_child_that_ends_while_we_look_is_counted_once_whether_its_parent_was_read_before_or_after() {
        for parent_received_s in [0, 5] {
            let mut ledger = Ledger::default();
            ledger.settle(&[account(10, 1, 1, 0), account(11, 10, 5, 0)], &[]);
            let leaving = Account { is_leaving: true, ..account(11, 10, 5, 0) };
            ledger.settle(&[account(10, 1, 1, parent_received_s), leaving], &[]);
            assert_eq!(seconds(&ledger), 6, "parent had received {parent_received_s} s");
            ledger.settle(&[account(10, 1, 1, 5)], &[]);
            assert_eq!((seconds(&ledger), ledger.unreceived_cpu_ns()), (6, 0));
        }
    }

    #[test]
    fn a_child_that_began_and_ends_since_the_last_look_is_counted_once() {
        for parent_received_s in [0, 5] {
            let mut ledger = Ledger::default();
            ledger.settle(&[account(10, 1, 1, 0)], &[]);
            let leaving = Account { is_leaving: true, ..account(11, 10, 5, 0) };
            ledger.settle(&[account(10, 1, 1, parent_received_s), leaving], &[]);
            assert_eq!(seconds(&ledger), 6, "parent had received {parent_received_s} s");
            ledger.settle(&[account(10, 1, 1, 5)], &[]);
            assert_eq!((seconds(&ledger), ledger.unreceived_cpu_ns()), (6, 0));
        }
    }

    #[test]
    fn a_tick_that_was_cut_off_is_not_kept_again_and_again() {
        let mut ledger = Ledger::default();
        let mut root = account(10, 1, 1, 0);
        for round in 1..=100_u32 {
            let mut child = account(1000 + round, 10, 0, 0);
            child.spent.cpu_ns = 55_000_000;
            ledger.settle(&[root, child], &[]);
            // The kernel shows the received time in whole ticks.
            let received = u64::from(round) * 55_000_000 / 10_000_000 * 10_000_000;
            root.received.cpu_ns = received;
            root.spent.cpu_ns = SECOND + received;
            ledger.settle(&[root], &[]);
        }
        assert_eq!(ledger.totals().cpu_ns, SECOND + 5_500_000_000);
    }

    proptest! {
        /// Whatever ends in whatever order, what was spent is never taken back.
        #[test]
        fn totals_never_fall(rounds in proptest::collection::vec(
            proptest::collection::btree_map(2_u32..12, (1_u32..12, 0_u64..50, 0_u64..50), 0..8), 1..6,
        )) {
            let mut ledger = Ledger::default();
            let mut grown = std::collections::BTreeMap::<u32, (u64, u64)>::new();
            let mut last = Totals::default();
            for round in rounds {
                let now: Vec<_> = round.iter().map(|(pid, (ppid, own, received))| {
                    // A live process's own amounts only grow; one that was away is a new one, told by its start.
                    let sum = grown.entry(*pid).or_default();
                    *sum = (sum.0 + own, sum.1 + received);
                    account(*pid, *ppid, sum.0, sum.1)
                }).collect();
                ledger.settle(&now, &[]);
                let totals = ledger.totals();
                prop_assert!(totals.cpu_ns >= last.cpu_ns, "{totals:?} after {last:?}");
                last = totals;
            }
        }
    }
}
