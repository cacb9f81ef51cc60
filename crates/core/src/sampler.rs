//! The sampling thread: looks on the time grid, makes rows of two looks, hands them on.
//!
//! In:  orders (a job to follow, a child that was reaped, the end). Out: rows to the sinks and the running summary.
//! Not here: what is in a row (`diff`), who gives the orders (`tracker`, `wrap`).

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crate::config::Config;
use crate::counter::TreeCounter;
use crate::diff::{self, Counter, Rates, Usage, Within};
use crate::error::SourceError;
use crate::follow::{FollowedJob, Sampler as Place, Started, Wanted};
use crate::grid::{Grid, Tick};
use crate::ledger::Reaped;
use crate::metric::Row;
use crate::root::{Access, Kept, Root, Shape};
use crate::snapshot::{CpuTime, JobReading, Moment, OwnCost, Snapshot};
use crate::source::Machine;
use crate::source::gpu::{Gpus, Question, Watch as GpuWatch};
use crate::sys::{self, Ended, Watch};
use crate::tracker::{Progress, State};

/// What the sampling thread can be told.
#[derive(Debug)]
pub enum Order {
    /// The job runs from now on.
    Adopt {
        /// Its root, a child of ours.
        pid: u32,
        /// What counts its CPU time.
        counter: Option<TreeCounter>,
    },
    /// An orphan of the job, which we adopted, has ended.
    Reaped(Reaped),
    /// The job's root has ended and waits to be reaped: make the last row.
    Ended {
        /// Its last account.
        ended: Ended,
        /// Our own size when we forked it.
        own_rss_kib: u64,
    },
    /// Make the last row.
    Stop,
}

/// Somebody who takes rows as they come.
pub trait Sink: Send {
    /// Takes one; may say that it wants no more, which ends the recording.
    ///
    /// # Errors
    /// What went wrong; said once, and the recording goes on.
    fn take(&mut self, row: &Row) -> io::Result<ControlFlow<()>>;
    /// What it is, for the message about it.
    fn name(&self) -> String;
}

/// Whom to follow from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A job that is about to be started; an [`Order::Adopt`] follows.
    Future,
    /// A process that runs already.
    Running(u32),
    /// Nobody: only the machine.
    None,
}

/// For a long interval the job is looked at now and then, so that its memory and its processes are not missed.
const PEEK_AT_LEAST_EVERY_NS: u64 = 10_000_000_000;
const FIRST_PEEK_NS: u64 = 1_000_000;

/// What makes a row of two looks; the sampling thread is a loop around it.
pub struct Engine {
    root: Arc<Root>,
    config: Config,
    machine: Machine,
    job: Option<Box<dyn FollowedJob>>,
    before: Snapshot,
    after: Snapshot,
    process_usage: Usage,
    system_usage: Usage,
    /// We are a process of our own, apart from the job's: all that we use is the tracker's.
    is_own_process: bool,
    own_statm: Option<Kept>,
    /// We look from a thread of our own, which is no part of the job; else from one of the host's.
    has_own_thread: bool,
    buffer: Vec<u8>,
    /// Orphans that ended since the last look.
    reaped: Vec<Reaped>,
    peek_ns: u64,
    rows: u64,
    /// `None` where this machine has no GPU.
    gpus: Option<GpuWatch>,
    /// What did not go as it should, and was not told yet.
    notes: Vec<String>,
}

impl Engine {
    /// Reads the baseline: what follows is counted from here.
    ///
    /// # Errors
    /// Where the process to follow is not there or cannot be read.
    pub fn start(root: Arc<Root>, config: Config, target: Target) -> Result<Self, SourceError> {
        Self::start_in(root, config, target, true)
    }

    /// The same from a thread of the host's, whose own time is the job's.
    pub(crate) fn start_in(
        root: Arc<Root>,
        config: Config,
        target: Target,
        has_own_thread: bool,
    ) -> Result<Self, SourceError> {
        let is_own_process = target == Target::Future;
        let own_statm = is_own_process.then(|| root.keep("/proc/self/statm").ok()).flatten();
        let mut engine = Self {
            machine: Machine::of(Arc::clone(&root), config.backend, config.track_system),
            root,
            config,
            job: None,
            before: Snapshot::default(),
            after: Snapshot::default(),
            process_usage: Usage::default(),
            system_usage: Usage::default(),
            is_own_process,
            own_statm,
            has_own_thread,
            buffer: Vec::new(),
            reaped: Vec::new(),
            peek_ns: FIRST_PEEK_NS,
            rows: 0,
            gpus: None,
            notes: Vec::new(),
        };
        let at = Moment::now();
        engine.machine.read(at, &mut engine.before);
        match target {
            Target::Running(pid) => engine.follow_running(pid)?,
            // A job that has not started has spent nothing.
            Target::Future => {
                let cpu = CpuTime { within: Within::at(at.monotonic_ns), ..CpuTime::default() };
                engine.before.job = Some(JobReading { cpu, ..JobReading::default() });
            }
            Target::None => {}
        }
        // After the counters were opened: what this thread starts from now on is not in them.
        let gpus = Gpus::open(&engine.root, !engine.config.as_guest);
        engine.gpus = gpus.map(|gpus| GpuWatch::new(gpus, engine.interval_ns()));
        engine.ask_gpus();
        engine.before.own = engine.own_cost();
        engine.add_usage_points(false);
        for (source, error) in &engine.before.failures {
            engine.notes.push(format!("{source}: {}", crate::error::with_causes(error)));
        }
        Ok(engine)
    }

    /// When the baseline was read.
    #[must_use]
    pub const fn started_at(&self) -> Moment {
        self.before.at
    }

    fn follow_running(&mut self, pid: u32) -> Result<(), SourceError> {
        let sampler = self.place(pid);
        let wanted = Wanted { pid, config: &self.config, sampler, has_own_thread: self.has_own_thread };
        let found = self.machine.follow(wanted, &self.before)?;
        self.notes.extend(found.notes);
        self.before.job = Some(found.reading);
        self.job = Some(found.job);
        Ok(())
    }

    fn adopt(&mut self, pid: u32, counter: Option<TreeCounter>) {
        if !self.config.track_processes {
            return;
        }
        let known = self.before.pids.clone().unwrap_or_default();
        self.job = Some(self.machine.adopt(Started { pid, config: &self.config, known, counter }));
        self.peek();
    }

    /// Whether the process that is followed is there and has not ended.
    pub(crate) fn is_target_alive(&self) -> bool {
        self.job.as_ref().is_some_and(|job| job.is_root_still_alive())
    }

    fn interval_ns(&self) -> u64 {
        self.config.interval.ns().get()
    }

    /// Inside of the process that we watch, what this thread spends is not the job's.
    fn place(&self, pid: u32) -> Place {
        if !self.is_own_process && self.has_own_thread && pid == std::process::id() {
            self.root.note(|| Access::OwnClock);
            Place::InsideOf { pid, cpu_ns: sys::thread_cpu_ns().unwrap_or(0) + self.gpu_cpu_ns() }
        } else {
            Place::Outside
        }
    }

    fn own_cost(&mut self) -> OwnCost {
        self.root.note(|| Access::OwnClock);
        if !self.is_own_process {
            return OwnCost { cpu_ns: sys::thread_cpu_ns().map(|ns| ns + self.gpu_cpu_ns()), rss_kib: None };
        }
        OwnCost { cpu_ns: sys::own_cpu_ns(), rss_kib: self.own_rss_kib() }
    }

    fn own_rss_kib(&mut self) -> Option<u64> {
        let Some(statm) = &self.own_statm else { return sys::own_rss_kib() };
        let text = self.root.reread(statm, Shape::Whole, &mut self.buffer).ok()?;
        let pages: u64 = std::str::from_utf8(text).ok()?.split(' ').nth(1)?.parse().ok()?;
        Some(pages * (sys::page_bytes() / 1024))
    }

    /// How CPU time is counted: `perf`, `cgroup` or `procfs`.
    #[must_use]
    pub fn cpu_source(&self) -> &'static str {
        self.job.as_ref().map_or(self.config.backend.name(), |job| job.cpu_source())
    }

    /// Looks at the job between two rows.
    fn peek(&mut self) {
        let Some(mut job) = self.job.take() else { return self.ask_gpus() };
        self.machine.list_processes(Moment::now(), &mut self.after);
        let reaped = std::mem::take(&mut self.reaped);
        // A failed look costs nothing: the row's own look follows.
        let _ = job.read(&self.after, &reaped, self.place(std::process::id()));
        self.job = Some(job);
        self.ask_gpus();
    }

    fn gpu_cpu_ns(&self) -> u64 {
        self.gpus.as_ref().map_or(0, GpuWatch::cpu_ns)
    }

    fn gpu_question(&self) -> Question {
        let members = self.job.as_ref().map(|job| job.members()).unwrap_or_default();
        Question { members, root_pid: self.job.as_ref().map(|job| job.pid()) }
    }

    fn ask_gpus(&self) {
        if let Some(gpus) = &self.gpus {
            gpus.ask(self.gpu_question());
        }
    }

    /// For looks by hand.
    pub(crate) fn wait_for_gpus(&mut self) {
        if self.gpus.is_some() {
            self.peek();
        }
        if let Some(gpus) = &self.gpus {
            gpus.wait(self.gpu_question());
        }
    }

    /// Makes the row from the last look to this moment.
    pub fn tick(&mut self, at: Moment, missed_ticks: u64, is_end: bool) -> Row {
        self.machine.read(at, &mut self.after);
        if let Some(mut job) = self.job.take() {
            let reaped = std::mem::take(&mut self.reaped);
            match job.read(&self.after, &reaped, self.place(std::process::id())) {
                Ok(reading) => self.after.job = Some(reading),
                Err(error) => self.after.failures.push(("job", error)),
            }
            job.start_interval();
            self.job = Some(job);
        }
        if let Some(gpus) = &mut self.gpus {
            let since_ns = self.before.at.monotonic_ns;
            (self.after.gpu, self.after.each_gpu) =
                gpus.read(since_ns, at.monotonic_ns, is_end, &mut self.notes);
            if gpus.asks_at_ticks() && !is_end {
                self.ask_gpus();
            }
        }
        self.after.own = self.own_cost();
        let (process_cores, system_cores) = self.add_usage_points(is_end);
        let rates = Rates { process_cores, system_cores, missed_ticks };
        self.rows += 1;
        let row = diff::row(&self.before, &self.after, rates);
        std::mem::swap(&mut self.before, &mut self.after);
        if self.before.job.is_none() {
            // The next growth is counted from the last reading there was.
            self.before.job = self.after.job;
        }
        row
    }

    /// Rates of the snapshot that is in `after`, or the first points from `before` at the start.
    fn add_usage_points(&mut self, is_end: bool) -> (Option<f64>, Option<f64>) {
        let snapshot = if self.after.at == Moment::default() { &self.before } else { &self.after };
        let at = Within::at(snapshot.at.monotonic_ns);
        let system = snapshot.cpu.and_then(|cpu| {
            let cores = self.system_usage.add(at, cpu.busy_ns(), Counter::Stepping)?;
            // What was read late belongs to a longer time than we know of: no machine uses more CPUs than it has.
            Some(cores.min(f64::from(cpu.cpus)))
        });
        let was_stepping = self.before.job.is_none_or(|job| job.cpu.steps);
        let process = snapshot.job.and_then(|job| {
            let counter = match job.cpu.steps || was_stepping {
                false => Counter::Exact,
                // The account of a job that has ended is exact.
                true if is_end => Counter::ExactNow,
                true => Counter::Stepping,
            };
            self.process_usage.add(job.cpu.within, job.cpu.spent_ns, counter)
        });
        (process, system)
    }

    /// Hands on what there is to say, each thing once.
    fn tell_notes(&mut self, progress: &Progress) {
        for note in self.notes.drain(..) {
            progress.note_once(note);
        }
        if let Some(gpus) = &self.gpus {
            progress.set_gpus(gpus.figures());
        }
    }

    fn coverage_notes(&self, progress: &Progress) {
        let Some(job) = &self.job else { return };
        if job.is_io_denied() {
            progress.note("storage bytes of some processes are not in the figures: no permission to read their io files".to_owned());
        }
        let cpu = self.before.job.map(|reading| reading.cpu).unwrap_or_default();
        // A process that nobody waits for hands nothing on: a counter still has its CPU time, nobody has its bytes.
        let unseen_ns = if cpu.is_counted { cpu.spent_ns.saturating_sub(cpu.seen_ns) } else { 0 };
        let some_were_dropped = job.unreceived_cpu_ns() > 0 || unseen_ns > cpu.spent_ns / 20;
        if some_were_dropped && cpu.is_counted {
            progress.note("storage bytes are incomplete: processes ended that nobody waited for".to_owned());
        } else if some_were_dropped {
            progress.note(
                "CPU time and storage bytes are incomplete: processes ended that nobody waited for, and no counter \
                 saw them"
                    .to_owned(),
            );
        }
    }
}

/// The thread's loop: ends with the last row.
pub(crate) fn run(
    mut engine: Engine,
    target: Target,
    progress: &Arc<Progress>,
    mut sinks: Vec<Box<dyn Sink>>,
) {
    engine.tell_notes(progress);
    progress.set_cpu_source(engine.cpu_source());
    let start = engine.started_at();
    let grid = Grid::new(start.wall_ns, start.monotonic_ns, engine.config.interval.ns());
    let watched = match target {
        Target::Running(pid) if pid == std::process::id() => Watched::Nobody,
        Target::Running(_) if engine.config.as_guest => Watched::ByLooking,
        Target::Running(pid) => Watch::open(pid).map_or(Watched::ByLooking, Watched::ByDescriptor),
        Target::Future | Target::None => Watched::Nobody,
    };
    let mut last: Option<u64> = None;
    let mut peek_at_ns = start.monotonic_ns + engine.peek_ns;
    // A job that is shorter than an interval has one row, also where a grid line falls into it: the row of that line
    // is held back for so long.
    let release_at_ns = start.monotonic_ns + engine.interval_ns();
    let mut held_back: Option<Row> = None;
    loop {
        let now_ns = Moment::now().monotonic_ns;
        let mut tick = grid.next(last, now_ns);
        if target == Target::Future && engine.job.is_none() && engine.config.track_processes {
            // Grid lines before the job starts have no row, and are not missed.
            last = tick.number.checked_sub(1);
            tick.at_ns = u64::MAX;
        }
        let ask_gpus_at_ns = engine.gpus.as_ref().and_then(|gpus| gpus.ask_at_ns(&tick));
        let wake_ns = next_wake_ns(&engine, &tick, peek_at_ns).min(ask_gpus_at_ns.unwrap_or(u64::MAX));
        let wake_ns = if held_back.is_some() { wake_ns.min(release_at_ns) } else { wake_ns };
        let wake = wait(&engine, progress, &watched, wake_ns);
        for order in progress.take_orders() {
            match order {
                Order::Adopt { pid, counter } => {
                    engine.adopt(pid, counter);
                    progress.set_cpu_source(engine.cpu_source());
                }
                Order::Reaped(reaped) => engine.reaped.push(reaped),
                Order::Ended { ended, own_rss_kib } => {
                    if let Some(job) = &mut engine.job {
                        job.end(ended, own_rss_kib);
                    }
                    return finish(engine, held_back.as_ref(), State::Exited, progress, &mut sinks);
                }
                Order::Stop => {
                    return finish(engine, held_back.as_ref(), State::Stopped, progress, &mut sinks);
                }
            }
        }
        if wake == Wake::TargetEnded {
            return finish(engine, held_back.as_ref(), State::Exited, progress, &mut sinks);
        }
        let now_ns = Moment::now().monotonic_ns;
        if let Some(row) = held_back.take_if(|_| now_ns >= release_at_ns)
            && hand_on(&row, progress, &mut sinks).is_break()
        {
            return progress.set_state(State::Stopped);
        }
        if now_ns >= tick.at_ns {
            // Lines that passed while we were held up are missed with this row.
            let late = grid.next(last, now_ns);
            let missed = late.number.saturating_sub(last.map_or(0, |last| last + 1)).saturating_sub(1);
            last = Some(late.number - 1);
            let row = engine.tick(Moment::now(), missed, false);
            if now_ns < release_at_ns {
                held_back = Some(row);
            } else if hand_on(&row, progress, &mut sinks).is_break() {
                return progress.set_state(State::Stopped);
            }
            engine.tell_notes(progress);
            peek_at_ns = now_ns + PEEK_AT_LEAST_EVERY_NS;
        } else if let Some(gpus) =
            engine.gpus.as_mut().filter(|_| ask_gpus_at_ns.is_some_and(|at| now_ns >= at))
        {
            gpus.asked_for(&tick);
            // Processes that came since the last look belong to the question, which is asked with it.
            engine.peek();
        } else if now_ns >= peek_at_ns {
            engine.peek();
            engine.peek_ns = (engine.peek_ns * 2).min(PEEK_AT_LEAST_EVERY_NS);
            peek_at_ns = now_ns + engine.peek_ns;
        }
    }
}

/// The tick, or a look before it: in the first interval soon and then ever more rarely, later only now and then.
fn next_wake_ns(engine: &Engine, tick: &Tick, peek_at_ns: u64) -> u64 {
    let may_peek =
        engine.job.is_some() && (engine.rows == 0 || engine.interval_ns() > PEEK_AT_LEAST_EVERY_NS);
    if may_peek { tick.at_ns.min(peek_at_ns) } else { tick.at_ns }
}

fn finish(
    mut engine: Engine,
    held_back: Option<&Row>,
    state: State,
    progress: &Arc<Progress>,
    sinks: &mut [Box<dyn Sink>],
) {
    let row = engine.tick(Moment::now(), 0, true);
    let row = match held_back {
        Some(first) => diff::join(first, &row),
        None => row,
    };
    engine.tell_notes(progress);
    engine.coverage_notes(progress);
    let _ = hand_on(&row, progress, sinks);
    progress.set_state(state);
}

fn hand_on(row: &Row, progress: &Progress, sinks: &mut [Box<dyn Sink>]) -> ControlFlow<()> {
    let mut flow = ControlFlow::Continue(());
    for sink in sinks.iter_mut() {
        match sink.take(row) {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => flow = ControlFlow::Break(()),
            Err(error) => progress.note_once(format!("cannot write {}: {error}", sink.name())),
        }
    }
    progress.add(row);
    flow
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wake {
    TimeOrOrder,
    TargetEnded,
}

/// How we learn that the process we follow has ended.
#[derive(Debug)]
enum Watched {
    /// It is our own host, or there is none.
    Nobody,
    /// The kernel tells us.
    ByDescriptor(Watch),
    /// A guest keeps no descriptor, and other systems have none: we look now and then.
    ByLooking,
}

/// How often we look whether the process it follows is still there.
const LOOK_EVERY: Duration = Duration::from_millis(100);

fn wait(engine: &Engine, progress: &Progress, watched: &Watched, until_ns: u64) -> Wake {
    let left = Duration::from_nanos(until_ns.saturating_sub(Moment::now().monotonic_ns));
    let left = if matches!(watched, Watched::ByLooking) { left.min(LOOK_EVERY) } else { left };
    let mut ended = false;
    if let Some(bell) = progress.bell() {
        let descriptor = match watched {
            Watched::ByDescriptor(process) => Some(process),
            Watched::Nobody | Watched::ByLooking => None,
        };
        ended = sys::wait_for_bell(bell, descriptor, left);
        bell.quiet();
    } else {
        progress.wait_for_order(left);
    }
    ended |= matches!(watched, Watched::ByLooking) && !engine.is_target_alive();
    if ended { Wake::TargetEnded } else { Wake::TimeOrOrder }
}
