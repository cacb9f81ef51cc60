//! What makes a row of two looks at the machine and the job.
//!
//! In:  a moment, and who the job is. Out: a [`Row`]; what there is to say of it.
//! Not here: when it looks, and who takes the rows (the loop around it), what is in a row (`diff`).

use std::sync::Arc;

use super::Target;
use crate::cloud;
use crate::config::Config;
use crate::counter::TreeCounter;
use crate::diff::{self, Counter, Rates, Usage, Within};
use crate::error::SourceError;
use crate::follow::{FollowedJob, Sampler as Place, Started, Wanted};
use crate::ledger::Reaped;
use crate::metric::Row;
use crate::root::{Access, Kept, Root, Shape};
use crate::snapshot::{CpuTime, JobReading, Moment, OwnCost, Snapshot};
use crate::source::Machine;
use crate::source::gpu::{Gpus, Question, Watch as GpuWatch};
use crate::sys;
use crate::tracker::Progress;

/// What makes a row of two looks; the sampling thread is a loop around it.
pub struct Engine {
    root: Arc<Root>,
    pub(super) config: Config,
    machine: Machine,
    pub(super) job: Option<Box<dyn FollowedJob>>,
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
    pub(super) reaped: Vec<Reaped>,
    pub(super) rows: u64,
    /// `None` where this machine has no GPU.
    pub(super) gpus: Option<GpuWatch>,
    /// What did not go as it should, and was not told yet.
    notes: Vec<String>,
    /// Sources of which a failure was told.
    failed: Vec<&'static str>,
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
            rows: 0,
            gpus: None,
            notes: Vec::new(),
            failed: Vec::new(),
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
        engine.note_failures();
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

    pub(super) fn adopt(&mut self, pid: u32, counter: Option<TreeCounter>) {
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

    pub(super) fn interval_ns(&self) -> u64 {
        self.config.interval.ns().get()
    }

    /// Inside of the process that we watch, what threads of ours spend is not the job's.
    fn place(&self, pid: u32) -> Place {
        if !self.is_own_process && self.has_own_thread && pid == std::process::id() {
            self.root.note(|| Access::OwnClock);
            let cpu_ns = sys::thread_cpu_ns().unwrap_or(0) + self.gpu_cpu_ns() + cloud::spent_ns();
            Place::InsideOf { pid, cpu_ns }
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
    pub(super) fn peek(&mut self) {
        self.look_at_job();
        self.ask_gpus();
    }

    fn look_at_job(&mut self) {
        let Some(mut job) = self.job.take() else { return };
        self.machine.list_processes(Moment::now(), &mut self.after);
        let reaped = std::mem::take(&mut self.reaped);
        // A failed look costs nothing: the row's own look follows.
        let _ = job.read(&self.after, &reaped, self.place(std::process::id()));
        self.job = Some(job);
    }

    fn gpu_cpu_ns(&self) -> u64 {
        self.gpus.as_ref().map_or(0, GpuWatch::cpu_ns)
    }

    fn gpu_question(&self) -> Question {
        let members = self.job.as_ref().map(|job| job.members()).unwrap_or_default();
        let root_pid = self.job.as_ref().map(|job| job.pid());
        Question { members, root_pid, since_ns: Some(self.before.at.monotonic_ns) }
    }

    fn ask_gpus(&self) {
        if let Some(gpus) = &self.gpus {
            gpus.ask(self.gpu_question());
        }
    }

    /// For looks by hand.
    pub(crate) fn wait_for_gpus(&mut self) {
        if self.gpus.is_some() {
            self.look_at_job();
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
        self.note_failures();
        if self.before.job.is_none() {
            // The next growth is counted from the last reading there was.
            self.before.job = self.after.job;
        }
        row
    }

    /// The last look becomes the baseline.
    pub(crate) fn start_anew(&mut self) {
        self.process_usage.start_anew();
        self.system_usage.start_anew();
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
        let counter_then = self.before.job.map_or(Counter::Stepping, |job| job.cpu.counter);
        let process = snapshot.job.and_then(|job| {
            let counter = match job.cpu.counter.max(counter_then) {
                // The account of a job that has ended is exact.
                Counter::Stepping if is_end => Counter::ExactNow,
                Counter::Clocks if is_end => Counter::ClocksNow,
                counter => counter,
            };
            self.process_usage.add(job.cpu.within, job.cpu.spent_ns, counter)
        });
        (process, system)
    }

    /// What could not be read the last time, each source once.
    fn note_failures(&mut self) {
        for (source, error) in &self.before.failures {
            if !self.failed.contains(source) {
                self.failed.push(source);
                self.notes.push(format!("{source}: {}", crate::error::with_causes(error)));
            }
        }
    }

    /// Hands on what there is to say, each thing once.
    pub(crate) fn tell_notes(&mut self, progress: &Progress) {
        for note in self.notes.drain(..) {
            progress.note_once(note);
        }
        if let Some(gpus) = &self.gpus {
            progress.set_gpus(gpus.figures());
        }
    }

    pub(super) fn coverage_notes(&self, progress: &Progress) {
        let Some(job) = &self.job else { return };
        if job.is_io_denied() {
            progress.note("storage bytes of some processes are not in the figures: no permission to read their io files".to_owned());
        }
        let cpu = self.before.job.map(|reading| reading.cpu).unwrap_or_default();
        let some_were_dropped = job.unreceived_cpu_ns() > 0 || cpu.proves_dropped_processes();
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_read_no_more_is_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let meminfo = folder.path().join("proc/meminfo");
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        std::fs::write(&meminfo, "MemTotal: 8 kB\nMemFree: 4 kB\nBuffers: 1 kB\nCached: 1 kB\n").unwrap();
        let root = Arc::new(Root::recorded(folder.path()).unwrap());
        let mut engine = Engine::start(root, Config::default(), Target::None).unwrap();
        let about_memory = |engine: &Engine| {
            engine.notes.iter().filter(|note| note.starts_with("memory: ")).cloned().collect::<Vec<_>>()
        };
        assert_eq!(about_memory(&engine), [""; 0]);
        std::fs::write(&meminfo, "MemTotal: many\n").unwrap();
        for _ in 0..2 {
            engine.tick(Moment::now(), 0, false);
        }
        assert_eq!(about_memory(&engine).len(), 1, "{:?}", engine.notes);
    }
}
