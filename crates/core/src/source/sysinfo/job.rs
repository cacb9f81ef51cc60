//! A job as `sysinfo` shows it: what its processes spent and hold.
//!
//! In:  the list of processes, and each member's own account. Out: one [`JobReading`] a look.
//! Not here: who belongs to it (`members`).

mod members;

pub use members::Reaper;

use std::sync::Arc;
use std::time::Instant;

use ::sysinfo::{Pid, System};

use self::members::{Member, is_alive};
use super::{Spent, Table, Times, listed, platform};
use crate::counter::TreeCounter;
use crate::diff::{Counter, Within};
use crate::error::SourceError;
use crate::follow::{FollowedJob, Sampler};
use crate::ledger::{Account, Ledger, Reaped, Totals};
use crate::root::Root;
use crate::snapshot::{CpuTime, JobReading, Moment, Snapshot};
use crate::sys::Ended;

/// After a look at the pages of all members they are left alone for so many times as long: the system holds a lock
/// meanwhile that the job may need.
const REST: u32 = 100;

/// Memory of all members together.
#[derive(Clone, Copy, Debug)]
struct Level {
    memory_kib: u64,
    rss_kib: u64,
}

/// A job that is followed.
#[derive(Debug)]
pub struct Job {
    table: Table,
    pid: u32,
    with_children: bool,
    reaper: Option<Reaper>,
    /// What counts the CPU time of the whole tree, and where its files are.
    counter: Option<(Arc<Root>, TreeCounter)>,
    /// In ascending order of pid.
    members: Vec<Member>,
    ledger: Ledger,
    /// What had been seen when the recording began.
    seen_before_ns: u64,
    spent_ns: u64,
    has_storage: bool,
    is_storage_denied: bool,
    ended: Option<Ended>,
    /// What the job held when its root was last seen alive, and the most since the last row.
    level: Option<Level>,
    peak_kib: Option<u64>,
    /// No look at pages before this.
    rest_until: Option<Instant>,
}

impl Job {
    /// Follows process `pid`.
    pub fn new(table: &Table, pid: u32, with_children: bool) -> Self {
        Self {
            table: table.clone(),
            pid,
            with_children,
            reaper: None,
            counter: None,
            members: Vec::new(),
            ledger: Ledger::default(),
            seen_before_ns: 0,
            spent_ns: 0,
            has_storage: false,
            is_storage_denied: false,
            ended: None,
            level: None,
            peak_kib: None,
            rest_until: None,
        }
    }

    /// As a child of ours, whose orphans may come to us, with a counter over the whole tree.
    pub fn started_by(self, reaper: Reaper, counter: Option<(Arc<Root>, TreeCounter)>) -> Self {
        // The counter would count children where they are not wanted.
        Self { reaper: Some(reaper), counter: counter.filter(|_| self.with_children), ..self }
    }

    /// Starts the count here, for a job that runs already: what it spent so far is not this recording's.
    pub fn count_from_here(&mut self) {
        self.seen_before_ns = self.ledger.totals().cpu_ns;
        self.spent_ns = 0;
    }

    /// User and system time of all that was seen.
    pub fn times(&self) -> Times {
        let (totals, tick_ns) = (self.ledger.totals(), platform::tick_ns());
        Times {
            user_ns: totals.user_ticks.saturating_mul(tick_ns),
            system_ns: totals.system_ticks.saturating_mul(tick_ns),
        }
    }

    fn root_member(&self) -> Option<&Member> {
        self.members.iter().find(|member| member.pid == self.pid)
    }

    /// Looks at the pages of all members, if they have rested for long enough.
    fn look_at_pages(&mut self) {
        let began = Instant::now();
        let is_new = self.members.iter().any(|member| member.is_alive && !member.is_looked_at);
        if self.rest_until.is_some_and(|until| began < until) && !is_new {
            return;
        }
        for member in self.members.iter_mut().filter(|member| member.is_alive) {
            member.is_looked_at = true;
            member.share = platform::share_kib(member.pid).map(|kib| (kib, member.rss_kib));
        }
        self.rest_until = Some(began + began.elapsed().saturating_mul(REST));
    }

    fn look_at_memory(&mut self) {
        let alive = || self.members.iter().filter(|member| member.is_alive);
        let level = Level {
            memory_kib: alive().map(Member::memory_kib).sum(),
            rss_kib: alive().map(|member| member.rss_kib).sum(),
        };
        self.peak_kib = self.peak_kib.max(Some(level.memory_kib));
        self.level = Some(level);
    }

    fn account(&mut self, system: &System, member: &Member, sampler: Sampler) -> Account {
        let known = self.ledger.account(member.pid, member.start_s).copied();
        let Some(spent) = platform::spent(member.pid) else {
            let nothing = Account {
                pid: member.pid,
                start_ticks: member.start_s,
                ppid: member.ppid,
                ..Account::default()
            };
            // It has ended since it was listed, or never was ours to look at.
            return Account { is_leaving: known.is_some(), ..known.unwrap_or(nothing) };
        };
        let usage = system.process(Pid::from_u32(member.pid)).map(::sysinfo::Process::disk_usage);
        let (mut read_bytes, mut write_bytes) = (0, 0);
        if let Some(usage) = usage.filter(|_| spent.has_storage) {
            self.has_storage = true;
            (read_bytes, write_bytes) = (usage.total_read_bytes, usage.total_written_bytes);
        } else {
            self.is_storage_denied |= member.is_alive;
            let before = known.unwrap_or_default().spent;
            (read_bytes, write_bytes) =
                (read_bytes.max(before.read_bytes), write_bytes.max(before.write_bytes));
        }
        let mut own = spent.own;
        if let Sampler::InsideOf { pid, cpu_ns } = sampler
            && pid == member.pid
        {
            own.user_ns = own.user_ns.saturating_sub(cpu_ns);
        }
        self.account_of(member, &Spent { own, ..spent }, (read_bytes, write_bytes))
    }

    fn account_of(&self, member: &Member, spent: &Spent, storage: (u64, u64)) -> Account {
        let waited = if self.with_children { spent.waited } else { Times::default() };
        let storage = Totals {
            read_bytes: storage.0,
            write_bytes: storage.1,
            major_faults: spent.major_faults,
            ..Totals::default()
        };
        let received = if platform::STORAGE_IS_HANDED_ON { storage } else { Totals::default() };
        let all = Times {
            user_ns: spent.own.user_ns.saturating_add(waited.user_ns),
            system_ns: spent.own.system_ns.saturating_add(waited.system_ns),
        };
        Account {
            pid: member.pid,
            start_ticks: member.start_s,
            ppid: member.ppid,
            spent: totals(all, storage),
            received: totals(waited, received),
            is_leaving: false,
        }
    }

    /// The root's last account, where it is no longer listed.
    fn last_account(&self) -> Option<Account> {
        let ended = self.ended.filter(|_| self.root_member().is_none())?;
        let times = Times {
            user_ns: ended.user_us.saturating_mul(1_000),
            system_ns: ended.system_us.saturating_mul(1_000),
        };
        let known = self.ledger.account_of_pid(self.pid).copied().unwrap_or_default();
        if platform::TIMES_ARE_HANDED_ON && !self.with_children {
            // What a parent is told of an ended child has that child's children in it.
            return (known.pid == self.pid).then_some(known);
        }
        let storage = Totals { major_faults: ended.major_faults, ..known.spent };
        Some(Account { pid: self.pid, spent: totals(times, storage), is_leaving: false, ..known })
    }

    fn counted_storage_bytes(&self) -> Option<(u64, u64)> {
        self.counter.as_ref().and_then(|(_, counter)| counter.storage_bytes())
    }

    fn cpu_time(&mut self) -> CpuTime {
        let seen_ns = self.ledger.totals().cpu_ns.saturating_sub(self.seen_before_ns);
        let begin_ns = Moment::now().monotonic_ns;
        let counted_ns = self.counter.as_ref().and_then(|(root, counter)| counter.read_ns(root));
        // Neither counts anything twice, so the larger is nearer to the truth.
        self.spent_ns = self.spent_ns.max(seen_ns).max(counted_ns.unwrap_or(0));
        CpuTime {
            spent_ns: self.spent_ns,
            within: Within { begin_ns, end_ns: Moment::now().monotonic_ns },
            counter: Counter::Stepping,
            seen_ns,
            is_counted: counted_ns.is_some(),
        }
    }

    fn reading(&mut self) -> JobReading {
        let cpu = self.cpu_time();
        let totals = self.ledger.totals();
        let counted = self.counted_storage_bytes();
        let alive = || self.members.iter().filter(|member| member.is_alive);
        let children = alive().filter(|member| member.pid != self.pid).count() as u64;
        JobReading {
            pid: self.pid,
            children: self.with_children.then_some(children),
            cpu,
            user_ticks: totals.user_ticks,
            system_ticks: totals.system_ticks,
            read_bytes: self.has_storage.then_some(totals.read_bytes).max(counted.map(|(read, _)| read)),
            write_bytes: self
                .has_storage
                .then_some(totals.write_bytes)
                .max(counted.map(|(_, written)| written)),
            major_faults: totals.major_faults,
            memory_kib: self.level.map(|level| level.memory_kib),
            memory_peak_kib: self.peak_kib,
            rss_kib: self.level.map(|level| level.rss_kib),
            ..JobReading::default()
        }
    }
}

impl FollowedJob for Job {
    fn read(
        &mut self,
        _snapshot: &Snapshot,
        reaped: &[Reaped],
        sampler: Sampler,
    ) -> Result<JobReading, SourceError> {
        let table = self.table.clone();
        let mut accounts = table.with(|system| {
            self.find_members(system);
            let members = self.members.clone();
            members.iter().map(|member| self.account(system, member, sampler)).collect::<Vec<_>>()
        })?;
        accounts.extend(self.last_account());
        accounts.sort_unstable_by_key(|account| account.pid);
        self.ledger.settle(&accounts, reaped);
        // Once the root has ended, what is left of the tree says nothing about what the job needs.
        if self.root_member().is_some_and(|root| root.is_alive) {
            self.look_at_pages();
            self.look_at_memory();
        }
        Ok(self.reading())
    }

    fn end(&mut self, ended: Ended, _own_rss_kib: u64) {
        self.ended = Some(ended);
    }

    fn start_interval(&mut self) {
        self.peak_kib = None;
    }

    fn pid(&self) -> u32 {
        self.pid
    }

    fn members(&self) -> Vec<u32> {
        self.members.iter().map(|member| member.pid).collect()
    }

    fn is_root_still_alive(&self) -> bool {
        let start_s = self.root_member().map(|root| root.start_s);
        super::one_process(self.pid, listed(), |process| {
            is_alive(process) && start_s.is_some_and(|start_s| start_s == process.start_time())
        })
        .unwrap_or(false)
    }

    fn cpu_source(&self) -> &'static str {
        self.counter.as_ref().map_or("sysinfo", |(_, counter)| counter.name())
    }

    fn unreceived_cpu_ns(&self) -> u64 {
        // What counts the whole job misses nobody.
        if self.counted_storage_bytes().is_some() { 0 } else { self.ledger.unreceived_cpu_ns() }
    }

    fn is_io_denied(&self) -> bool {
        self.is_storage_denied
    }
}

fn totals(times: Times, storage: Totals) -> Totals {
    let tick_ns = platform::tick_ns();
    Totals {
        cpu_ns: times.sum_ns(),
        user_ticks: times.user_ns / tick_ns,
        system_ticks: times.system_ns / tick_ns,
        ..storage
    }
}
