//! The job at one moment: its tree, what it spent and what it holds, as one [`JobReading`].
//!
//! In:  the machine's process list and fork counter, each member's files, the children that we reaped.
//! Out: cumulative amounts that never fall, and levels. `diff` makes the row.

mod begin;

pub use begin::{adopt, follow};

use crate::config::Config;
use crate::counter::{OwnThread, TreeCounter};
use crate::diff::{Counter, Within};
use crate::error::SourceError;
pub use crate::follow::Sampler;
use crate::ledger::{Account, Ledger, Reaped, Totals};
use crate::memory::Memory;
use crate::root::Root;
use crate::snapshot::{CpuTime, JobReading, Moment, SingleCpu, Snapshot};
use crate::source::procfs::{is_alive, parse_pid_io};
use crate::stolen::{Spent, Stolen};
use crate::sys::Ended;
use crate::tree::{Member, Tree, pid_path};

/// How long a refusal must last to be meant.
const FOR_GOOD_NS: u64 = 500_000_000;

/// A job that is followed.
#[derive(Debug)]
pub struct Job {
    pid: u32,
    with_children: bool,
    tree: Tree,
    ledger: Ledger,
    memory: Memory,
    counter: Option<TreeCounter>,
    /// What had been seen when the recording began, and what the counter showed then.
    seen_before_ns: u64,
    counted_before_ns: u64,
    stolen: Stolen,
    spent_ns: u64,
    /// When the last look began.
    began_ns: u64,
    /// What parents had received from children by the last look, in ticks.
    received_ns: u64,
    /// How often ticks came into what was seen since the last row: of processes without a clock, and of children that
    /// were waited for.
    ticks_seen: u32,
    accounts: Vec<Account>,
    buffer: Vec<u8>,
    ns_per_tick: u64,
    io_known: bool,
    io_denied: bool,
    /// Processes (pid, start) whose storage bytes were refused, and since when.
    io_refused: Vec<((u32, u64), u64)>,
    /// The largest that any child was that the host itself has waited for, where we are inside of it.
    waited_peak_kib: Option<u64>,
    own_thread: Option<OwnThread>,
    /// The largest mark of any process that we have seen.
    explained_peak_kib: Option<u64>,
    /// The root's last account, once it has ended and while it still is a zombie.
    ended: Option<Ended>,
}

impl Job {
    /// Follows process `pid`. `reaper` is ours where orphans come to us, `known` are processes older than the job.
    #[must_use]
    pub fn new(
        root: &Root,
        pid: u32,
        config: &Config,
        reaper: Option<u32>,
        known: Vec<u32>,
        counter: Option<TreeCounter>,
    ) -> Self {
        Self {
            pid,
            with_children: config.children,
            tree: Tree::new(root, pid, config.children, reaper, known),
            ledger: Ledger::default(),
            memory: Memory::default(),
            // An inherited counter would count the children too.
            counter: counter.filter(|_| config.children),
            seen_before_ns: 0,
            counted_before_ns: 0,
            stolen: Stolen::default(),
            spent_ns: 0,
            began_ns: 0,
            received_ns: 0,
            ticks_seen: 0,
            accounts: Vec::new(),
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

    /// Starts the count here, for a job that runs already: what it spent so far is not this recording's.
    pub fn count_from_here(&mut self, root: &Root, counter: Option<TreeCounter>) {
        self.counter = counter.filter(|_| self.with_children);
        self.seen_before_ns = self.ledger.totals().cpu_ns;
        self.counted_before_ns = self.counter.as_ref().and_then(|counter| counter.read_ns(root)).unwrap_or(0);
        self.stolen = Stolen::default();
        self.spent_ns = 0;
        self.start_interval();
    }

    /// The root.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Members at the last look.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        self.tree.members()
    }

    /// Whether the root was there and alive at the last look.
    #[must_use]
    pub fn is_root_alive(&self) -> bool {
        self.tree.root_member().is_some_and(|member| !member.stat.is_zombie())
    }

    /// Whether the root is there and alive now.
    #[must_use]
    pub fn is_root_still_alive(&self, root: &Root) -> bool {
        is_alive(root, self.pid, self.tree.root_member().map(|known| known.stat.start_ticks))
    }

    /// How CPU time is counted.
    #[must_use]
    pub fn cpu_source(&self) -> &'static str {
        self.counter.as_ref().map_or("procfs", TreeCounter::name)
    }

    /// Whether a counter sees all of the job's CPU time.
    #[must_use]
    pub fn is_fully_counted(&self) -> bool {
        self.counter.as_ref().is_some_and(TreeCounter::is_complete)
    }

    /// CPU time of ended processes that nobody received: their last part was not seen.
    #[must_use]
    pub const fn unreceived_cpu_ns(&self) -> u64 {
        self.ledger.unreceived_cpu_ns()
    }

    /// Whether some member's storage bytes could not be read.
    #[must_use]
    pub const fn is_io_denied(&self) -> bool {
        self.io_denied
    }

    /// Looks at the job now; `snapshot` has the machine's side of the same moment.
    ///
    /// # Errors
    /// Where the root is there and cannot be read.
    pub fn read(
        &mut self,
        root: &Root,
        snapshot: &Snapshot,
        reaped: &[Reaped],
        sampler: Sampler,
    ) -> Result<JobReading, SourceError> {
        // Where nobody could be listed, all are as they were.
        if snapshot.pids.is_some() || !self.with_children {
            let pids = snapshot.pids.as_deref().unwrap_or_default();
            self.tree.update(root, pids, snapshot.cpu.and_then(|cpu| cpu.forks))?;
        } else {
            self.tree.miss();
        }
        self.began_ns = Moment::now().monotonic_ns;
        self.accounts.clear();
        for at in 0..self.tree.members().len() {
            if let Some(member) = self.tree.members().get(at).copied() {
                let account = self.account(root, &member, sampler);
                self.accounts.push(account);
            }
        }
        let received_ns =
            self.accounts.iter().fold(0, |sum: u64, one| sum.saturating_add(one.received.cpu_ns));
        self.ticks_seen += u32::from(received_ns != self.received_ns || !reaped.is_empty());
        self.received_ns = received_ns;
        self.ledger.settle(&self.accounts, reaped);
        // Once the root has ended, what is left of the tree says nothing about what the job needs.
        if self.is_root_alive() && !self.tree.is_blind() {
            self.memory.look(root, self.tree.members(), snapshot.at.monotonic_ns);
        }
        if matches!(sampler, Sampler::InsideOf { pid, .. } if pid == self.pid) && self.with_children {
            self.prove_peak_of_ended_children();
        }
        Ok(self.reading(root, &snapshot.single_cpus))
    }

    /// A child that came and went between two looks was once as large as the mark that its parent received.
    fn prove_peak_of_ended_children(&mut self) {
        // What starts as a copy of its parent has its parent's mark, and who was there at the start one from before.
        self.explained_peak_kib = self.explained_peak_kib.max(self.memory.largest_peak_rss_kib());
        let peak_kib = crate::sys::waited_peak_rss_kib();
        let is_new = self.waited_peak_kib.is_some() && peak_kib > self.waited_peak_kib;
        if is_new && peak_kib > self.explained_peak_kib {
            self.memory.prove_peak(peak_kib.unwrap_or(0));
        }
        self.waited_peak_kib = peak_kib;
    }

    /// The counter misses nobody but may miss the end of a process, where the kernel takes its memory down: it is
    /// read before that on some kernels. What was seen misses nothing of the processes that were waited for. Neither
    /// counts anything twice, so the larger is nearer to the truth, once what the hypervisor took is off the counter.
    fn cpu_time(&mut self, root: &Root, cpus: &[SingleCpu]) -> CpuTime {
        let seen_ns = self.ledger.totals().cpu_ns.saturating_sub(self.seen_before_ns);
        let begin_ns = Moment::now().monotonic_ns;
        let counted_ns = self.counter.as_ref().and_then(|counter| counter.read_ns(root));
        let counted_ns = counted_ns.map(|ns| ns.saturating_sub(self.counted_before_ns));
        let own_ns = counted_ns.map(|counted_ns| {
            if !self.counter.as_ref().is_some_and(TreeCounter::counts_stolen_time) {
                return counted_ns;
            }
            let unreceived_ns = self.ledger.unreceived_cpu_ns();
            let ignores_children = self.tree.members().iter().any(|member| member.stat.ignores_children);
            self.stolen.take_off(Spent { counted_ns, seen_ns, unreceived_ns, ignores_children }, cpus)
        });
        self.spent_ns = self.spent_ns.max(seen_ns).max(own_ns.unwrap_or(0));
        let is_continuous = self.counter.as_ref().is_some_and(TreeCounter::is_continuous);
        let by_counter = is_continuous && counted_ns == Some(self.spent_ns);
        let by_clocks = seen_ns == self.spent_ns && self.ticks_seen == 0;
        // The clocks were read before the counter.
        let begin_ns = if by_counter { begin_ns } else { self.began_ns };
        CpuTime {
            spent_ns: self.spent_ns,
            within: Within { begin_ns, end_ns: Moment::now().monotonic_ns },
            counter: match (by_counter, by_clocks) {
                (true, _) => Counter::Exact,
                (false, true) => Counter::Clocks,
                (false, false) => Counter::Stepping,
            },
            seen_ns,
            is_counted: counted_ns.is_some() && self.is_fully_counted(),
        }
    }

    fn reading(&mut self, root: &Root, cpus: &[SingleCpu]) -> JobReading {
        let cpu = self.cpu_time(root, cpus);
        let alive = || self.tree.members().iter().filter(|member| !member.stat.is_zombie());
        // What was seen before says nothing about now. Counters go on, and what they lack comes with the next look.
        let level = self.memory.level().filter(|_| !self.tree.is_blind());
        let totals = self.ledger.totals();
        let children = alive().filter(|member| member.pid != self.pid).count() as u64;
        JobReading {
            pid: self.pid,
            children: (self.with_children && !self.tree.is_blind()).then_some(children),
            cpu,
            user_ticks: totals.user_ticks,
            system_ticks: totals.system_ticks,
            read_bytes: self.io_known.then_some(totals.read_bytes),
            write_bytes: self.io_known.then_some(totals.write_bytes),
            major_faults: totals.major_faults,
            memory_kib: level.map(|level| level.memory_kib),
            memory_peak_kib: self.memory.peak_kib().filter(|_| !self.tree.is_blind()),
            rss_kib: level.map(|level| level.rss_kib),
            swap_kib: level.map(|level| level.swap_kib),
            threads: (!self.tree.is_blind()).then(|| alive().map(|member| member.stat.threads).sum()),
        }
    }

    /// The root, a child of ours, has ended; it is not reaped yet, and this is exact.
    ///
    /// `own_rss_kib` is what the tracker held when it forked: the mark that a child starts with.
    pub fn end(&mut self, ended: Ended, own_rss_kib: u64) {
        self.ended = Some(ended);
        let explained_kib = self.memory.largest_peak_rss_kib().unwrap_or(0).max(own_rss_kib);
        if ended.max_rss_kib > explained_kib {
            // One of its processes was once this large, since the last look: a mark that nothing else explains.
            self.memory.prove_peak(ended.max_rss_kib);
        }
    }

    /// A row was made of the last reading: peaks are of the next interval from here on.
    pub fn start_interval(&mut self) {
        self.ticks_seen = 0;
        let _ = self.memory.take_peak_kib();
    }

    fn account(&mut self, root: &Root, member: &Member, sampler: Sampler) -> Account {
        let stat = &member.stat;
        let (waited_user, waited_system) =
            if self.with_children { (stat.cutime_ticks, stat.cstime_ticks) } else { (0, 0) };
        let ticks_ns = |ticks: u64| ticks.saturating_mul(self.ns_per_tick);
        let clock_ns = root.process_cpu_ns(member.pid);
        let known = self.ledger.account(member.pid, stat.start_ticks);
        let has_ended = member.is_leaving || (clock_ns.is_none() && !root.is_recorded());
        if let Some(known) = known.filter(|_| has_ended) {
            return Account { is_leaving: true, ..*known };
        }
        self.ticks_seen += u32::from(clock_ns.is_none());
        let mut own_ns =
            clock_ns.unwrap_or_else(|| ticks_ns(stat.utime_ticks.saturating_add(stat.stime_ticks)));
        if let Sampler::InsideOf { pid, cpu_ns } = sampler
            && pid == member.pid
        {
            own_ns = own_ns.saturating_sub(cpu_ns);
        }
        let waited_ns = ticks_ns(waited_user.saturating_add(waited_system));
        let mut cpu_ns = own_ns.saturating_add(waited_ns);
        let mut user_ticks = stat.utime_ticks.saturating_add(waited_user);
        let mut system_ticks = stat.stime_ticks.saturating_add(waited_system);
        if let Some(ended) = self.ended.filter(|ended| ended.pid == member.pid && self.with_children) {
            cpu_ns = ended.user_us.saturating_add(ended.system_us).saturating_mul(1_000);
            let ticks = |us: u64| us.saturating_mul(1_000) / self.ns_per_tick;
            (user_ticks, system_ticks) = (ticks(ended.user_us), ticks(ended.system_us));
        }
        let (read_bytes, write_bytes) = self.storage_bytes(root, member);
        let storage =
            Totals { read_bytes, write_bytes, major_faults: stat.major_faults, ..Totals::default() };
        Account {
            pid: member.pid,
            start_ticks: stat.start_ticks,
            ppid: stat.ppid,
            spent: Totals { cpu_ns, user_ticks, system_ticks, ..storage },
            // For storage and faults the kernel does not tell apart what was received.
            received: Totals {
                cpu_ns: waited_ns,
                user_ticks: waited_user,
                system_ticks: waited_system,
                ..storage
            },
            // One that began and ended since the last look may be in its parent's account already.
            is_leaving: has_ended,
        }
    }

    fn storage_bytes(&mut self, root: &Root, member: &Member) -> (u64, u64) {
        let text = root.read(pid_path(member.pid, "io").as_str(), &mut self.buffer);
        let who = (member.pid, member.stat.start_ticks);
        match text.map(parse_pid_io) {
            Ok(Ok(io)) => {
                self.io_known = true;
                self.io_refused.retain(|(refused, _)| *refused != who);
                (io.read_bytes, io.write_bytes)
            }
            other => {
                if matches!(other, Err(SourceError::Denied { .. })) {
                    self.note_refusal(who);
                }
                // What was read before stays: the process may have ended between two files.
                let known = self.ledger.account(member.pid, member.stat.start_ticks);
                known.map_or((0, 0), |account| (account.spent.read_bytes, account.spent.write_bytes))
            }
        }
    }

    /// In the middle of an exec or of its end a process refuses everybody: only one that goes on doing so is another
    /// user's.
    fn note_refusal(&mut self, who: (u32, u64)) {
        let now_ns = Moment::now().monotonic_ns;
        match self.io_refused.iter().find(|(refused, _)| *refused == who) {
            Some((_, since_ns)) => self.io_denied |= now_ns.saturating_sub(*since_ns) >= FOR_GOOD_NS,
            None => self.io_refused.push((who, now_ns)),
        }
    }
}
