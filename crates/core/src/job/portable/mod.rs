//! The portable job: usage of its processes, read with `sysinfo` and system calls.
//!
//! In:  the process list, and the account of each member. Out: one [`JobUsage`] per sample.
//! Not here: the members of the job (`members`).

mod members;

pub use members::Reaper;

use std::time::Instant;

use ::sysinfo::{Pid, System};

use self::members::{Member, is_alive};
use crate::error::SourceError;
use crate::job::counter::TreeCounter;
use crate::job::ledger::{Account, Ledger, Reaped, Totals};
use crate::job::usage::{Counter, CpuTime, JobUsage, ReadWindow};
use crate::job::{
    AttachRequest, AttachedJob, BetweenRows, LaunchedJob, MemoryActivity, SamplerPlace, TrackedJob,
};
use crate::os::{Ended, Moment};
use crate::probe::MachineProbe;
use crate::probe::portable::{Spent, Table, Times, identity_only, one_process, platform};
use crate::probe::snapshot::Snapshot;

/// Shares are read again after this many times the duration of the last read: during the read, the kernel holds a lock
/// that the job may need.
const REST: u32 = 100;

/// Memory of all members together.
#[derive(Clone, Copy, Debug)]
struct Level {
    memory_kib: u64,
    rss_kib: u64,
}

#[derive(Debug)]
pub struct Job {
    table: Table,
    pid: u32,
    with_children: bool,
    reaper: Option<Reaper>,
    counter: Option<TreeCounter>,
    /// In ascending order of pid.
    members: Vec<Member>,
    ledger: Ledger,
    /// CPU time in the ledger when the recording began.
    seen_before_ns: u64,
    spent_ns: u64,
    has_storage: bool,
    is_storage_denied: bool,
    ended: Option<Ended>,
    /// Memory at the last sample at which the root was alive.
    level: Option<Level>,
    /// Largest memory of a sample since the last row.
    peak_kib: Option<u64>,
    /// Shares are not read again before this moment, unless there is a new member.
    rest_until: Option<Instant>,
}

impl Job {
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

    /// A job that the tracker started.
    fn launched_by(self, reaper: Reaper, counter: Option<TreeCounter>) -> Self {
        // The counter includes children, so it is not used if children are not tracked.
        Self { reaper: Some(reaper), counter: counter.filter(|_| self.with_children), ..self }
    }

    /// Excludes the CPU time that a running job has spent so far.
    fn count_from_here(&mut self) {
        self.seen_before_ns = self.ledger.totals().cpu_ns;
        self.spent_ns = 0;
    }

    /// User and system time in the ledger.
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

    fn read_shares(&mut self) {
        let began = Instant::now();
        let is_new = self.members.iter().any(|member| member.is_alive && !member.is_share_read);
        if self.rest_until.is_some_and(|until| began < until) && !is_new {
            return;
        }
        for member in self.members.iter_mut().filter(|member| member.is_alive) {
            member.is_share_read = true;
            member.share = platform::share_kib(member.pid).map(|kib| (kib, member.rss_kib));
        }
        self.rest_until = Some(began + began.elapsed().saturating_mul(REST));
    }

    fn update_memory(&mut self) {
        let alive = || self.members.iter().filter(|member| member.is_alive);
        let level = Level {
            memory_kib: alive().map(Member::memory_kib).sum(),
            rss_kib: alive().map(|member| member.rss_kib).sum(),
        };
        self.peak_kib = self.peak_kib.max(Some(level.memory_kib));
        self.level = Some(level);
    }

    fn account(&mut self, system: &System, member: &Member, sampler: SamplerPlace) -> Account {
        let known = self.ledger.account(member.pid, member.start_s).copied();
        let Some(spent) = platform::spent(member.pid) else {
            let nothing = Account {
                pid: member.pid,
                start_ticks: member.start_s,
                ppid: member.ppid,
                ..Account::default()
            };
            // The process has ended since the listing, or belongs to another user.
            return Account { is_exiting: known.is_some(), ..known.unwrap_or(nothing) };
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
        own.user_ns = own.user_ns.saturating_sub(sampler.cpu_ns_in(member.pid).unwrap_or(0));
        self.account_of(member, &Spent { own, ..spent }, (read_bytes, write_bytes))
    }

    fn account_of(&self, member: &Member, spent: &Spent, storage: (u64, u64)) -> Account {
        let reaped = if self.with_children { spent.reaped_children } else { Times::default() };
        let storage = Totals {
            read_bytes: storage.0,
            write_bytes: storage.1,
            major_faults: spent.major_faults,
            ..Totals::default()
        };
        let reaped_storage = if platform::PARENT_INHERITS_STORAGE { storage } else { Totals::default() };
        let all = Times {
            user_ns: spent.own.user_ns.saturating_add(reaped.user_ns),
            system_ns: spent.own.system_ns.saturating_add(reaped.system_ns),
        };
        Account {
            pid: member.pid,
            start_ticks: member.start_s,
            ppid: member.ppid,
            spent: totals(all, storage),
            reaped_children: totals(reaped, reaped_storage),
            is_exiting: false,
        }
    }

    /// The final account of a root that has been reaped.
    fn last_account(&self) -> Option<Account> {
        let ended = self.ended.filter(|_| self.root_member().is_none())?;
        let times = Times {
            user_ns: ended.user_us.saturating_mul(1_000),
            system_ns: ended.system_us.saturating_mul(1_000),
        };
        let known = self.ledger.account_of_pid(self.pid).copied().unwrap_or_default();
        if platform::PARENT_INHERITS_TIMES && !self.with_children {
            // The times of `wait4` include reaped children.
            return (known.pid == self.pid).then_some(known);
        }
        let storage = Totals { major_faults: ended.major_faults, ..known.spent };
        Some(Account { pid: self.pid, spent: totals(times, storage), is_exiting: false, ..known })
    }

    fn counted_storage_bytes(&self) -> Option<(u64, u64)> {
        self.counter.as_ref().and_then(TreeCounter::storage_bytes)
    }

    fn cpu_time(&mut self) -> CpuTime {
        let seen_ns = self.ledger.totals().cpu_ns.saturating_sub(self.seen_before_ns);
        let begin_ns = Moment::now().monotonic_ns;
        let counted_ns = self.counter.as_ref().and_then(TreeCounter::read_ns);
        // Ledger and counter are lower bounds of the CPU time, so the larger of the two is closer to it.
        self.spent_ns = self.spent_ns.max(seen_ns).max(counted_ns.unwrap_or(0));
        CpuTime {
            spent_ns: self.spent_ns,
            within: ReadWindow { begin_ns, end_ns: Moment::now().monotonic_ns },
            counter: Counter::Stepping,
            seen_ns,
            is_counted: counted_ns.is_some(),
        }
    }

    fn usage(&mut self) -> JobUsage {
        let cpu = self.cpu_time();
        let totals = self.ledger.totals();
        let counted = self.counted_storage_bytes();
        let alive = || self.members.iter().filter(|member| member.is_alive);
        let children = alive().filter(|member| member.pid != self.pid).count() as u64;
        JobUsage {
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
            ..JobUsage::default()
        }
    }
}

impl TrackedJob for Job {
    fn read(
        &mut self,
        _snapshot: &Snapshot,
        reaped: &[Reaped],
        sampler: SamplerPlace,
    ) -> Result<JobUsage, SourceError> {
        let table = self.table.clone();
        let mut accounts = table.with(|system| {
            self.find_members(system);
            let members = self.members.clone();
            members.iter().map(|member| self.account(system, member, sampler)).collect::<Vec<_>>()
        })?;
        accounts.extend(self.last_account());
        accounts.sort_unstable_by_key(|account| account.pid);
        self.ledger.add(&accounts, reaped);
        // After the end of the root, the memory of the other processes does not show what the job needs. A root that
        // has freed its memory is about to end.
        if self.root_member().is_some_and(|root| root.is_alive && root.rss_kib > 0) {
            self.read_shares();
            self.update_memory();
        }
        Ok(self.usage())
    }

    fn sample(
        &mut self,
        machine: &mut MachineProbe,
        reaped: &mut Vec<Reaped>,
        sampler: SamplerPlace,
    ) -> BetweenRows {
        let mut snapshot = Snapshot::default();
        machine.list_processes(Moment::now(), &mut snapshot);
        // A failure is reported with the next row, if it persists.
        let _ = self.read(&snapshot, reaped, sampler);
        reaped.clear();
        BetweenRows { memory: MemoryActivity::NotFollowed, pass_cost_ns: 0 }
    }

    fn end(&mut self, ended: Ended, _own_rss_kib: u64) -> bool {
        self.ended = Some(ended);
        false
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
        one_process(self.pid, identity_only(), |process| {
            is_alive(process) && start_s.is_some_and(|start_s| start_s == process.start_time())
        })
        .unwrap_or(false)
    }

    fn cpu_source(&self) -> &'static str {
        self.counter.as_ref().map_or("sysinfo", TreeCounter::name)
    }

    fn unreaped_cpu_ns(&self) -> u64 {
        // A job object (the only counter with storage bytes) also counts processes that no parent reaped.
        if self.counted_storage_bytes().is_some() { 0 } else { self.ledger.unreaped_cpu_ns() }
    }

    fn is_io_denied(&self) -> bool {
        self.is_storage_denied
    }

    fn has_guessed_members(&self) -> bool {
        false
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

pub(super) fn attach(
    table: &Table,
    request: AttachRequest<'_>,
    baseline: &Snapshot,
) -> Result<AttachedJob, SourceError> {
    let mut job = Job::new(table, request.pid, request.config.children);
    job.read(baseline, &[], request.sampler)?;
    if !job.is_root_still_alive() {
        return Err(SourceError::Gone { path: format!("process {}", request.pid).into() });
    }
    job.count_from_here();
    let usage = job.read(baseline, &[], request.sampler)?;
    Ok(AttachedJob { job: Box::new(job), usage, notes: Vec::new() })
}

pub(super) fn track(table: &Table, launched: LaunchedJob<'_>) -> Box<dyn TrackedJob> {
    let LaunchedJob { pid, config, counter } = launched;
    // The table was last updated before the job started.
    let known = table.with(|system| system.processes().keys().map(|pid| pid.as_u32()).collect());
    let reaper = Reaper { pid: std::process::id(), known: known.unwrap_or_default() };
    Box::new(Job::new(table, pid, config.children).launched_by(reaper, counter))
}
