//! The Linux job: usage of its processes from `/proc`, and CPU time from a counter over the whole tree.
//!
//! In:  the process list and the fork counter, the files of each member, the children that the tracker reaped.
//! Out: one [`JobUsage`] per sample.

use crate::config::Config;
use crate::error::SourceError;
use crate::job::counter::{OwnThread, TreeCounter};
use crate::job::ledger::{Account, Ledger, Reaped, Totals};
use crate::job::limit_watch::LimitWatch;
use crate::job::memory::{Effort, Memory};
use crate::job::programs::{JobTotals, ProgramFigures, Programs, Storage};
use crate::job::steal::{Spent, Steal};
use crate::job::threads::{SliceEnd, Threads};
use crate::job::tree::{Member, Tree};
use crate::job::usage::{Counter, CpuTime, JobUsage, ReadWindow};
use crate::job::{BetweenRows, MemoryActivity, SamplerPlace};
use crate::os::root::Root;
use crate::os::{Ended, Moment};
use crate::probe::procfs::{is_alive, read_io};
use crate::probe::snapshot::{SingleCpu, Snapshot};

/// `EACCES` on `/proc/PID/io` must persist this long before it is reported.
const IO_DENIED_AFTER_NS: u64 = 500_000_000;

/// Rates by the CPU clocks look back over this time.
const STEP_NS: u64 = 25_000_000;

/// The longest time between two updates of the ledger.
const LEDGER_MAX_NS: u64 = 10_000_000_000;

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Job {
    pub(super) pid: u32,
    with_children: bool,
    follows_memory: bool,
    pub(super) tree: Tree,
    pub(super) ledger: Ledger,
    /// Number of the sample of the last ledger update, its time, and the time of the first one.
    ledger_sample: u64,
    /// Whether a member has changed since then.
    is_ledger_stale: bool,
    ledger_at_ns: u64,
    first_at_ns: u64,
    memory: Memory,
    programs: Programs,
    pub(super) limits: LimitWatch,
    threads: Threads,
    /// Number of CPUs of the machine.
    cpus: u64,
    /// Start of the recording.
    started_ns: u64,
    /// Whether memory passes are allowed. They are not while a host process waits for its baseline.
    pub(super) may_pass: bool,
    /// Start of the recording in clock ticks since boot, if the job is older: usage before is not part of it.
    attached_ticks: Option<u64>,
    counter: Option<TreeCounter>,
    /// CPU time in the ledger and in the counter when the recording began.
    seen_before_ns: u64,
    counted_before_ns: u64,
    steal: Steal,
    spent_ns: u64,
    /// When the last sample began.
    began_ns: u64,
    /// Sum of cutime and cstime of all members at the last sample.
    cutime_ns: u64,
    /// How often the ledger used clock ticks, which have steps of 10 ms, since the last row: for processes without a
    /// CPU clock, and for reaped children.
    ticks_seen: u32,
    /// Until this moment, a rate by the CPU clocks would include the last step of the clock ticks.
    steps_until_ns: u64,
    buffer: Vec<u8>,
    ns_per_tick: u64,
    io_known: bool,
    pub(super) io_denied: bool,
    /// Processes (pid, start time) whose storage bytes were denied, and the moment of the first denial.
    io_refused: Vec<((u32, u64), u64)>,
    /// In in-process mode, the largest high-water mark of the reaped children of the host process.
    waited_peak_kib: Option<u64>,
    pub(super) own_thread: Option<OwnThread>,
    /// The largest high-water mark of any sampled process.
    explained_peak_kib: Option<u64>,
    /// The exact amounts of the root, after its end and before it is reaped.
    ended: Option<Ended>,
}

impl Job {
    /// `reaper` is the subreaper that adopts orphans of the job.
    pub fn new(
        root: &Root,
        pid: u32,
        config: &Config,
        reaper: Option<u32>,
        counter: Option<TreeCounter>,
    ) -> Self {
        let started_ns = Moment::now().monotonic_ns;
        Self {
            pid,
            with_children: config.children,
            follows_memory: config.memory_between_rows,
            tree: Tree::new(root, pid, config.children, reaper),
            ledger: Ledger::default(),
            ledger_sample: 0,
            is_ledger_stale: true,
            ledger_at_ns: 0,
            first_at_ns: 0,
            memory: Memory::default(),
            programs: Programs::default(),
            limits: LimitWatch::default(),
            threads: if reaper.is_some() { Threads::since(started_ns) } else { Threads::default() },
            cpus: 1,
            started_ns,
            may_pass: true,
            attached_ticks: None,
            // The counter includes children, so it is not used if children are not tracked.
            counter: counter.filter(|_| config.children),
            seen_before_ns: 0,
            counted_before_ns: 0,
            steal: Steal::default(),
            spent_ns: 0,
            began_ns: 0,
            cutime_ns: 0,
            ticks_seen: 0,
            steps_until_ns: 0,
            buffer: Vec::new(),
            ns_per_tick: 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1),
            io_known: false,
            io_denied: false,
            io_refused: Vec::new(),
            waited_peak_kib: None,
            explained_peak_kib: None,
            own_thread: None,
            ended: None,
        }
    }

    /// Looks at the next row for members that left the tree before the tracker started. Their usage so far is excluded.
    pub fn find_older_orphans(&mut self) {
        self.attached_ticks = crate::os::ticks_since_boot();
        self.tree.new_pids.forget();
    }

    /// Excludes the CPU time that a running job has spent so far.
    pub fn count_from_here(&mut self, counter: Option<TreeCounter>) {
        self.counter = counter.filter(|_| self.with_children);
        self.seen_before_ns = self.ledger.totals().cpu_ns;
        self.counted_before_ns = self.counter.as_ref().and_then(TreeCounter::read_ns).unwrap_or(0);
        self.steal = Steal::default();
        self.programs.count_from_here();
        self.started_ns = Moment::now().monotonic_ns;
        self.spent_ns = 0;
        self.start_interval();
    }

    /// Members at the last sample.
    pub fn members(&self) -> &[Member] {
        self.tree.members()
    }

    /// Whether the root was alive at the last sample.
    pub fn is_root_alive(&self) -> bool {
        self.tree.root_member().is_some_and(|member| !member.stat.is_zombie())
    }

    /// Whether the root is alive now.
    pub fn is_root_still_alive(&self, root: &Root) -> bool {
        is_alive(root, self.pid, self.tree.root_member().map(|known| known.stat.start_ticks))
    }

    pub fn cpu_source(&self) -> &'static str {
        self.counter.as_ref().map_or("procfs", TreeCounter::name)
    }

    /// Takes the sample of a row; `snapshot` is the machine at the same moment.
    pub fn read(
        &mut self,
        root: &Root,
        snapshot: &Snapshot,
        reaped: &[Reaped],
        sampler: SamplerPlace,
    ) -> Result<JobUsage, SourceError> {
        // The clocks of members are read from here on.
        self.began_ns = Moment::now().monotonic_ns;
        self.tree.update(root, sampler, true)?;
        self.follow_changes(root, true);
        self.update_ledger(root, reaped, sampler);
        let effort = if self.may_pass { Effort::Row } else { Effort::NoPass };
        self.sample_memory(root, snapshot.at.monotonic_ns, effort);
        if sampler.cpu_ns_in(self.pid).is_some() && self.with_children {
            self.prove_peak_of_ended_children();
        }
        let mut usage = self.reading(&snapshot.single_cpus);
        self.cpus = snapshot.cpu.map_or(1, |cpu| u64::from(cpu.cpus));
        self.add_thread_times(root, sampler);
        usage.thread_times = self.threads.times();
        Ok(usage)
    }

    /// Takes a sample between two rows. The ledger is updated at ever longer intervals: after 1, 2, 4, … ms, and then
    /// with the rows.
    pub fn sample_between_rows(
        &mut self,
        root: &Root,
        reaped: &mut Vec<Reaped>,
        sampler: SamplerPlace,
    ) -> BetweenRows {
        // A failure is reported with the next row, if it persists.
        if self.tree.update(root, sampler, false).is_err() {
            return BetweenRows { memory: MemoryActivity::Steady, pass_cost_ns: 0 };
        }
        self.follow_changes(root, false);
        let now_ns = Moment::now().monotonic_ns;
        let pause_ns = self.ledger_at_ns.saturating_sub(self.first_at_ns).min(LEDGER_MAX_NS);
        if now_ns.saturating_sub(self.ledger_at_ns) >= pause_ns {
            self.update_ledger(root, reaped, sampler);
            reaped.clear();
        }
        if self.tree.has_other_members() && self.threads.is_due(now_ns) && self.counter.is_some() {
            self.add_thread_times(root, sampler);
        }
        let activity = self.sample_memory(root, now_ns, Effort::BetweenRows);
        let memory = if self.follows_memory { activity } else { MemoryActivity::NotFollowed };
        BetweenRows { memory, pass_cost_ns: self.memory.pass_cost_ns() }
    }

    fn follow_changes(&mut self, root: &Root, is_row: bool) {
        if self.tree.has_changed() && !self.tree.is_blind() {
            self.is_ledger_stale = true;
            let (members, now_ns) = (self.tree.members(), Moment::now().monotonic_ns);
            self.programs.update(root, members, self.tree.sample(), now_ns, self.ns_per_tick);
            self.limits.update(root, members, self.tree.sample(), is_row);
        }
    }

    fn add_thread_times(&mut self, root: &Root, sampler: SamplerPlace) {
        let is_in_job = matches!(sampler, SamplerPlace::InHostProcess { .. });
        let counted_ns = self.counter.as_ref().and_then(TreeCounter::read_ns);
        let counted_ns = counted_ns.map(|ns| ns.saturating_sub(self.counted_before_ns));
        let end = SliceEnd {
            at_ns: Moment::now().monotonic_ns,
            sample: self.tree.sample(),
            spent_ns: counted_ns.unwrap_or(self.spent_ns),
            cpus: self.cpus,
            sampler_tid: is_in_job.then(crate::os::thread_id),
        };
        self.threads.add(root, self.tree.members(), end);
    }

    /// Usage by program so far.
    pub fn programs(&self) -> Vec<ProgramFigures> {
        let Totals { read_bytes, write_bytes, .. } = self.ledger.totals();
        let storage = self.io_known.then_some(Storage { read_bytes, write_bytes });
        self.programs.figures(JobTotals { cpu_ns: self.spent_ns, storage }, self.started_ns)
    }

    fn sample_memory(&mut self, root: &Root, now_ns: u64, effort: Effort) -> MemoryActivity {
        // After the end of the root, the memory of the other processes does not show what the job needs.
        if !self.is_root_alive() || self.tree.is_blind() {
            return MemoryActivity::Steady;
        }
        // Without a level, a pass is still due.
        if !self.tree.has_changed() && self.memory.has_level() {
            self.memory.sample_idle(root, now_ns);
            return MemoryActivity::Idle;
        }
        match self.memory.sample(root, self.tree.members(), now_ns, effort) {
            true if self.memory.is_near_peak() => MemoryActivity::NearPeak,
            true => MemoryActivity::Changing,
            false => MemoryActivity::Steady,
        }
    }

    fn update_ledger(&mut self, root: &Root, reaped: &[Reaped], sampler: SamplerPlace) {
        if !std::mem::take(&mut self.is_ledger_stale) && reaped.is_empty() && self.ended.is_none() {
            return;
        }
        self.ledger_at_ns = Moment::now().monotonic_ns;
        if self.first_at_ns == 0 {
            self.first_at_ns = self.ledger_at_ns;
        }
        let members = self.tree.members().to_vec();
        self.io_refused.retain(|((pid, start_ticks), _)| {
            members.iter().any(|member| (member.pid, member.stat.start_ticks) == (*pid, *start_ticks))
        });
        let accounts: Vec<Account> =
            members.iter().map(|member| self.account(root, member, sampler)).collect();
        self.ledger_sample = self.tree.sample();
        let cutime_ns =
            accounts.iter().fold(0, |sum: u64, one| sum.saturating_add(one.reaped_children.cpu_ns));
        self.ticks_seen += u32::from(cutime_ns != self.cutime_ns || !reaped.is_empty());
        self.cutime_ns = cutime_ns;
        if self.ticks_seen > 0 {
            self.steps_until_ns = self.ledger_at_ns + STEP_NS;
        }
        self.programs.add_reaped(reaped);
        self.programs.add_storage(&accounts);
        self.ledger.add(&accounts, reaped);
    }

    /// Adds the peak of a child that started and ended between two samples, from `getrusage` of the host process.
    fn prove_peak_of_ended_children(&mut self) {
        // A forked child starts with the high-water mark of its parent, so a mark that a sampled process had proves
        // nothing. Nor does a mark that was there at the baseline.
        self.explained_peak_kib = self.explained_peak_kib.max(self.memory.largest_peak_rss_kib());
        let peak_kib = crate::os::waited_peak_rss_kib();
        let is_new = self.waited_peak_kib.is_some() && peak_kib > self.waited_peak_kib;
        if is_new && peak_kib > self.explained_peak_kib {
            self.memory.prove_peak(peak_kib.unwrap_or(0));
        }
        self.waited_peak_kib = peak_kib;
    }

    /// The larger of two values, neither of which counts a process twice: the counter without steal, and the ledger.
    /// The counter includes all processes, but on some kernels it lacks the time in which an exiting process frees its
    /// memory. The ledger includes this time for reaped processes.
    fn cpu_time(&mut self, cpus: &[SingleCpu]) -> CpuTime {
        let seen_ns = self.ledger.totals().cpu_ns.saturating_sub(self.seen_before_ns);
        let begin_ns = Moment::now().monotonic_ns;
        let counted_ns = self.counter.as_ref().and_then(TreeCounter::read_ns);
        let counted_ns = counted_ns.map(|ns| ns.saturating_sub(self.counted_before_ns));
        let own_ns = counted_ns.map(|counted_ns| {
            if !self.counter.as_ref().is_some_and(TreeCounter::counts_steal) {
                return counted_ns;
            }
            let unreaped_ns = self.ledger.unreaped_cpu_ns();
            let ignores_children = self.tree.members().iter().any(|member| member.stat.ignores_children);
            self.steal.without_steal(Spent { counted_ns, seen_ns, unreaped_ns, ignores_children }, cpus)
        });
        self.spent_ns = self.spent_ns.max(seen_ns).max(own_ns.unwrap_or(0));
        let counter_is = |quality: fn(&TreeCounter) -> bool| self.counter.as_ref().is_some_and(quality);
        let by_counter = counter_is(TreeCounter::is_continuous) && counted_ns == Some(self.spent_ns);
        let by_clocks = seen_ns == self.spent_ns && self.ticks_seen == 0 && begin_ns >= self.steps_until_ns;
        // The CPU clocks of the processes were read before the counter.
        let begin_ns = if by_counter { begin_ns } else { self.began_ns };
        CpuTime {
            spent_ns: self.spent_ns,
            within: ReadWindow { begin_ns, end_ns: Moment::now().monotonic_ns },
            counter: match (by_counter, by_clocks) {
                (true, _) => Counter::Exact,
                (false, true) => Counter::Clocks,
                (false, false) => Counter::Stepping,
            },
            seen_ns,
            is_counted: counted_ns.is_some() && counter_is(TreeCounter::is_complete),
        }
    }

    fn reading(&mut self, cpus: &[SingleCpu]) -> JobUsage {
        let cpu = self.cpu_time(cpus);
        let alive = || self.tree.members().iter().filter(|member| !member.stat.is_zombie());
        // A sample that could not read all members has no levels. Counters continue with the next sample.
        let level = self.memory.level(Moment::now().monotonic_ns).filter(|_| !self.tree.is_blind());
        let memory = Some(&self.memory).filter(|_| !self.tree.is_blind());
        let totals = self.ledger.totals();
        let children = alive().filter(|member| member.pid != self.pid).count() as u64;
        JobUsage {
            pid: self.pid,
            children: (self.with_children && !self.tree.is_blind()).then_some(children),
            cpu,
            user_ticks: totals.user_ticks,
            system_ticks: totals.system_ticks,
            read_bytes: self.io_known.then_some(totals.read_bytes),
            write_bytes: self.io_known.then_some(totals.write_bytes),
            major_faults: totals.major_faults,
            memory_kib: level.map(|level| level.memory_kib),
            memory_peak_kib: memory.and_then(Memory::peak_kib),
            memory_mean_kib: memory.and_then(Memory::mean_kib),
            rss_kib: level.map(|level| level.rss_kib),
            swap_kib: level.map(|level| level.swap_kib),
            thread_times: None,
            threads: (!self.tree.is_blind()).then(|| alive().map(|member| member.stat.threads).sum()),
        }
    }

    pub fn end(&mut self, ended: Ended, own_rss_kib: u64) -> bool {
        self.ended = Some(ended);
        let explained_kib = self.memory.largest_peak_rss_kib().unwrap_or(0).max(own_rss_kib);
        let is_new = ended.max_rss_kib > explained_kib;
        if is_new {
            // No sampled process had this high-water mark.
            self.memory.prove_peak(ended.max_rss_kib);
        }
        is_new
    }

    pub fn start_interval(&mut self) {
        self.ticks_seen = 0;
        self.memory.start_interval();
    }

    fn account(&mut self, root: &Root, member: &Member, sampler: SamplerPlace) -> Account {
        let stat = &member.stat;
        let (waited_user, waited_system) =
            if self.with_children { (stat.cutime_ticks, stat.cstime_ticks) } else { (0, 0) };
        let ticks_ns = |ticks: u64| ticks.saturating_mul(self.ns_per_tick);
        let known = self.ledger.account(member.pid, stat.start_ticks);
        let who = (member.pid, stat.start_ticks);
        let has_run = member.read_at > self.ledger_sample || self.ended.is_some();
        if let Some(known) = known.filter(|_| !has_run && self.io_refused.iter().all(|(one, _)| *one != who))
        {
            return *known;
        }
        let clock_ns = root.process_cpu_ns(member.pid);
        let has_ended = member.is_leaving || (clock_ns.is_none() && !root.is_recorded());
        if let Some(known) = known.filter(|_| has_ended) {
            return Account { is_exiting: true, ..*known };
        }
        self.ticks_seen += u32::from(clock_ns.is_none());
        let own_ns = clock_ns.unwrap_or_else(|| ticks_ns(stat.utime_ticks.saturating_add(stat.stime_ticks)));
        let own_ns = own_ns.saturating_sub(sampler.cpu_ns_in(member.pid).unwrap_or(0));
        let waited_ns = ticks_ns(waited_user.saturating_add(waited_system));
        let mut cpu_ns = own_ns.saturating_add(waited_ns);
        let mut user_ticks = stat.utime_ticks.saturating_add(waited_user);
        let mut system_ticks = stat.stime_ticks.saturating_add(waited_system);
        if let Some(ended) = self.ended.filter(|ended| ended.pid == member.pid && self.with_children) {
            cpu_ns = ended.user_us.saturating_add(ended.system_us).saturating_mul(1_000);
            let ticks = |us: u64| us.saturating_mul(1_000) / self.ns_per_tick;
            (user_ticks, system_ticks) = (ticks(ended.user_us), ticks(ended.system_us));
        }
        let is_older_orphan =
            known.is_none() && self.attached_ticks.is_some_and(|ticks| stat.start_ticks < ticks);
        let (read_bytes, write_bytes) = self.storage_bytes(root, member);
        let storage =
            Totals { read_bytes, write_bytes, major_faults: stat.major_faults, ..Totals::default() };
        let spent = Totals { cpu_ns, user_ticks, system_ticks, ..storage };
        if is_older_orphan {
            self.ledger.exclude(spent);
        }
        Account {
            pid: member.pid,
            start_ticks: stat.start_ticks,
            ppid: stat.ppid,
            spent,
            reaped_children: Totals {
                cpu_ns: waited_ns,
                user_ticks: waited_user,
                system_ticks: waited_system,
                ..storage
            },
            is_exiting: has_ended,
        }
    }

    fn storage_bytes(&mut self, root: &Root, member: &Member) -> (u64, u64) {
        let who = (member.pid, member.stat.start_ticks);
        match read_io(root, member.pid, &mut self.buffer) {
            Ok(io) => {
                self.io_known = true;
                self.io_refused.retain(|(refused, _)| *refused != who);
                (io.read_bytes, io.write_bytes)
            }
            other => {
                if matches!(other, Err(SourceError::Denied { .. })) {
                    self.note_refusal(who);
                }
                // The values of the last sample stay: the process may have ended between the reads of two files.
                let known = self.ledger.account(member.pid, member.stat.start_ticks);
                known.map_or((0, 0), |account| (account.spent.read_bytes, account.spent.write_bytes))
            }
        }
    }

    /// Remembers that storage bytes were denied. During `exec` and exit, the kernel denies access to a process for a
    /// moment. Access to processes of other users is denied permanently, which is reported.
    fn note_refusal(&mut self, who: (u32, u64)) {
        let now_ns = Moment::now().monotonic_ns;
        match self.io_refused.iter().find(|(refused, _)| *refused == who) {
            Some((_, since_ns)) => self.io_denied |= now_ns.saturating_sub(*since_ns) >= IO_DENIED_AFTER_NS,
            None => self.io_refused.push((who, now_ns)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn refused_processes_are_forgotten_when_they_end() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("proc/50")).unwrap();
        let stat = "50 (a) S 1 50 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 5 0 5 0\n";
        fs::write(folder.path().join("proc/50/stat"), stat).unwrap();
        let root = Root::recorded(folder.path()).unwrap();
        let mut job = Job::new(&root, 50, &Config::default(), None, None);
        for who in [(50, 5), (50, 4), (60, 7)] {
            job.note_refusal(who);
        }
        job.read(&root, &Snapshot::default(), &[], SamplerPlace::OwnProcess).unwrap();
        let refused: Vec<_> = job.io_refused.iter().map(|(who, _)| *who).collect();
        assert_eq!(refused, [(50, 5)], "the others have ended");
    }
}
