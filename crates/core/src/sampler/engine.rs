//! The engine: takes samples of the machine, the job and the GPUs, and makes a row from two samples.
//!
//! In:  the moment of each tick, and the job. Out: [`Row`]s and notes for the user.
//! Not here: the time grid and the sinks (`thread`), the cells of a row (`diff`).

use std::sync::Arc;

use super::Target;
use crate::config::Config;
use crate::error::SourceError;
use crate::job::counter::TreeCounter;
use crate::job::ledger::Reaped;
use crate::job::usage::{Counter, CpuTime, JobUsage, ReadWindow};
use crate::job::{self, AttachRequest, BetweenRows, LaunchedJob, SamplerPlace, TrackedJob};
use crate::metric::Row;
use crate::os::root::{Kept, Root};
use crate::os::{self, Moment};
use crate::probe::MachineProbe;
use crate::probe::gpu::{Gpus, Question};
use crate::sampler::diff::{self, Rates, Usage};
use crate::sampler::gpu_watch::GpuWatch;
use crate::sampler::progress::Progress;
use crate::sampler::sample::{Sample, TrackerCost};

const IO_DENIED: &str =
    "storage bytes are incomplete: no permission to read `/proc/PID/io` of some processes";
const IO_UNREAPED: &str = "storage bytes are incomplete: the parents of some processes did not wait for them";
const GUESSED_MEMBERS: &str = "some processes left the process tree and are counted by a guess: they are orphans of the \
                               same session and process group, and started after the tracked process";

/// Notes that are no reason to warn a host process: every cluster of R causes them.
pub(crate) const USUAL_NOTES: [&str; 3] = [IO_DENIED, IO_UNREAPED, GUESSED_MEMBERS];

pub struct Engine {
    root: Arc<Root>,
    pub(super) config: Config,
    machine: MachineProbe,
    pub(super) job: Option<Box<dyn TrackedJob>>,
    started_at: Moment,
    /// The sample of the last row, at first the baseline.
    before: Sample,
    /// The sample of the next row.
    after: Sample,
    process_usage: Usage,
    system_usage: Usage,
    /// Whether this process is the tracker, and not a host process.
    is_own_process: bool,
    own_statm: Option<Kept>,
    /// Whether the sampling thread only samples. Otherwise it is a thread of the host process, and part of the job.
    has_own_thread: bool,
    buffer: Vec<u8>,
    /// Orphans that the tracker reaped since the last sample.
    pub(super) reaped: Vec<Reaped>,
    pub(super) rows: u64,
    /// `None` on machines without GPUs.
    pub(super) gpus: Option<GpuWatch>,
    /// Notes that are not published yet.
    notes: Vec<String>,
    /// Names of the sources whose failure was noted.
    failed: Vec<&'static str>,
}

impl Engine {
    /// Takes the baseline sample, from a thread that only samples.
    pub fn start(root: Arc<Root>, config: Config, target: Target) -> Result<Self, SourceError> {
        Self::start_in(root, config, target, true)
    }

    /// Takes the baseline sample. Without a thread of its own, the CPU time of the calling thread counts for the job.
    pub(crate) fn start_in(
        root: Arc<Root>,
        config: Config,
        target: Target,
        has_own_thread: bool,
    ) -> Result<Self, SourceError> {
        let is_own_process = target == Target::Future;
        let own_statm = is_own_process.then(|| root.keep("/proc/self/statm").ok()).flatten();
        let mut engine = Self {
            machine: MachineProbe::of(Arc::clone(&root), config.backend, config.track_system),
            root,
            config,
            job: None,
            started_at: Moment::default(),
            before: Sample::default(),
            after: Sample::default(),
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
        if let Target::Running(pid) = target {
            engine.machine.follow(pid, &[]);
        }
        let at = Moment::now();
        engine.started_at = at;
        engine.machine.read(at, &mut engine.before.machine);
        match target {
            Target::Running(pid) => engine.attach(pid)?,
            // The baseline of a job that has not started is zero.
            Target::Future => {
                let cpu = CpuTime { within: ReadWindow::at(at.monotonic_ns), ..CpuTime::default() };
                engine.before.job = Some(JobUsage { cpu, ..JobUsage::default() });
            }
            Target::None => {}
        }
        // The thread that reads GPUs starts after the counters of the job are open, so that they do not count its time.
        let gpus = Gpus::open(&engine.root);
        engine.gpus = gpus.map(|gpus| GpuWatch::new(gpus, engine.interval_ns()));
        engine.ask_gpus();
        engine.before.tracker = engine.tracker_cost();
        engine.add_usage_points(true, false);
        engine.note_failures();
        Ok(engine)
    }

    /// Moment of the baseline.
    pub const fn started_at(&self) -> Moment {
        self.started_at
    }

    fn attach(&mut self, pid: u32) -> Result<(), SourceError> {
        let sampler = self.place(pid);
        let request =
            AttachRequest { pid, config: &self.config, sampler, has_own_thread: self.has_own_thread };
        let attached = job::attach(&self.machine, request, &self.before.machine)?;
        self.notes.extend(attached.notes);
        self.before.job = Some(attached.usage);
        self.job = Some(attached.job);
        Ok(())
    }

    pub(super) fn adopt(&mut self, pid: u32, counter: Option<TreeCounter>) {
        if !self.config.track_processes {
            return;
        }
        self.job = Some(job::track(&self.machine, LaunchedJob { pid, config: &self.config, counter }));
        self.sample_job();
        self.ask_gpus();
    }

    /// Whether the tracked process is alive.
    pub(crate) fn is_target_alive(&self) -> bool {
        self.job.as_ref().is_some_and(|job| job.is_root_still_alive())
    }

    pub(super) fn interval_ns(&self) -> u64 {
        self.config.interval.ns().get()
    }

    /// Where the sampler runs. In the tracked process, the CPU time of the tracker's threads is not part of the job.
    fn place(&self, pid: u32) -> SamplerPlace {
        if !self.is_own_process && self.has_own_thread && pid == std::process::id() {
            let cpu_ns = os::thread_cpu_ns().unwrap_or(0) + self.gpu_cpu_ns() + os::background_cpu_ns();
            SamplerPlace::InHostProcess { pid, cpu_ns }
        } else {
            SamplerPlace::OwnProcess
        }
    }

    fn tracker_cost(&mut self) -> TrackerCost {
        let traffic = self.config.track_system.then(os::network::traffic);
        if !self.is_own_process {
            let cpu_ns = os::thread_cpu_ns().map(|ns| ns + self.gpu_cpu_ns());
            return TrackerCost { cpu_ns, rss_kib: None, traffic };
        }
        TrackerCost { cpu_ns: os::own_cpu_ns(), rss_kib: self.own_rss_kib(), traffic }
    }

    fn own_rss_kib(&mut self) -> Option<u64> {
        let Some(statm) = &self.own_statm else { return os::own_rss_kib() };
        let text = self.root.reread(statm, &mut self.buffer).ok()?;
        let pages: u64 = std::str::from_utf8(text).ok()?.split(' ').nth(1)?.parse().ok()?;
        Some(pages * (os::page_bytes() / 1024))
    }

    /// The source of CPU time: `perf`, `perf in part`, `cgroup`, `job object`, `procfs` or `sysinfo`.
    pub fn cpu_source(&self) -> &'static str {
        self.job.as_ref().map_or(self.config.backend.name(), |job| job.cpu_source())
    }

    /// Samples the job without making a row.
    pub(super) fn sample_job(&mut self) -> Option<BetweenRows> {
        let sampler = self.place(std::process::id());
        let job = self.job.as_mut()?;
        self.machine.follow(job.pid(), &[]);
        Some(job.sample(&mut self.machine, &mut self.reaped, sampler))
    }

    fn gpu_cpu_ns(&self) -> u64 {
        self.gpus.as_ref().map_or(0, GpuWatch::cpu_ns)
    }

    fn gpu_question(&self) -> Question {
        let members = self.job.as_ref().map(|job| job.members()).unwrap_or_default();
        let root_pid = self.job.as_ref().map(|job| job.pid());
        Question { members, root_pid, since_ns: Some(self.before.machine.at.monotonic_ns) }
    }

    pub(super) fn ask_gpus(&self) {
        if let Some(gpus) = &self.gpus {
            gpus.ask(self.gpu_question());
        }
    }

    /// For rows that the user requests: asks the GPUs, and waits a short time for their answer.
    pub(crate) fn wait_for_gpus(&mut self) {
        if self.gpus.is_some() {
            self.sample_job();
        }
        if let Some(gpus) = &self.gpus {
            gpus.wait(self.gpu_question());
        }
    }

    /// Makes the row from the last row to now.
    pub fn tick(&mut self, at: Moment, missed_ticks: u64, is_end: bool) -> Row {
        self.after.job = None;
        if let Some(job) = &self.job {
            self.machine.follow(job.pid(), &job.members());
        }
        self.machine.read(at, &mut self.after.machine);
        if let Some(mut job) = self.job.take() {
            let reaped = std::mem::take(&mut self.reaped);
            match job.read(&self.after.machine, &reaped, self.place(std::process::id())) {
                Ok(usage) => self.after.job = Some(usage),
                Err(error) => self.after.machine.failures.push(("job", error)),
            }
            job.start_interval();
            self.job = Some(job);
        }
        if let Some(gpus) = &mut self.gpus {
            let since_ns = self.before.machine.at.monotonic_ns;
            (self.after.gpu, self.after.each_gpu) =
                gpus.read(since_ns, at.monotonic_ns, is_end, &mut self.notes);
            if gpus.asks_at_ticks() && !is_end {
                self.ask_gpus();
            }
        }
        self.after.tracker = self.tracker_cost();
        let (process_cores, system_cores) = self.add_usage_points(false, is_end);
        let rates = Rates { process_cores, system_cores, missed_ticks };
        self.rows += 1;
        let row = diff::row(&self.before, &self.after, rates);
        std::mem::swap(&mut self.before, &mut self.after);
        self.note_failures();
        if self.before.job.is_none() {
            // The job could not be read: the growth of the next row counts from the last usage that was read.
            self.before.job = self.after.job;
        }
        row
    }

    /// Rates start again at the last row.
    pub(crate) fn start_anew(&mut self) {
        self.process_usage.start_anew();
        self.system_usage.start_anew();
    }

    /// Adds the CPU times of a sample to the rates; returns the CPUs in use by the job and by the machine.
    fn add_usage_points(&mut self, is_baseline: bool, is_end: bool) -> (Option<f64>, Option<f64>) {
        let sample = if is_baseline { &self.before } else { &self.after };
        let at = ReadWindow::at(sample.machine.at.monotonic_ns);
        let system = sample.machine.cpu.and_then(|cpu| {
            let cores = self.system_usage.add(at, cpu.busy_ns(), Counter::Stepping)?;
            // A delay between reading the clock and reading the counter makes the rate too high.
            Some(cores.min(f64::from(cpu.cpus)))
        });
        let counter_then = self.before.job.map_or(Counter::Stepping, |job| job.cpu.counter);
        let process = sample.job.and_then(|job| {
            let counter = match job.cpu.counter.max(counter_then) {
                // The final amounts of an ended job are exact.
                Counter::Stepping if is_end => Counter::ExactNow,
                Counter::Clocks if is_end => Counter::ClocksNow,
                counter => counter,
            };
            self.process_usage.add(job.cpu.within, job.cpu.spent_ns, counter)
        });
        (process, system)
    }

    /// Notes the sources that failed in the last row, each source once.
    fn note_failures(&mut self) {
        for (source, error) in &self.before.machine.failures {
            if !self.failed.contains(source) {
                self.failed.push(source);
                self.notes.push(format!("{source}: {}", crate::error::with_causes(error)));
            }
        }
    }

    /// Drops the notes, for a caller that does not publish them.
    pub(crate) fn drop_notes(&mut self) {
        self.notes.clear();
    }

    pub(crate) fn publish_notes(&mut self, progress: &Progress) {
        for note in self.notes.drain(..) {
            progress.note(note);
        }
        if self.rows == 0 {
            self.publish_cgroups(progress);
        }
        if let Some(job) = &self.job {
            progress.set_programs(job.programs());
        }
        if let Some(gpus) = &self.gpus {
            progress.set_gpus(gpus.figures());
        }
    }

    /// Publishes the limits of the job and OOM kills, at the start and at the end only: this reads several files.
    fn publish_cgroups(&self, progress: &Progress) {
        let pid = self.job.as_ref().map(|job| job.pid());
        progress.set_cgroups(self.machine.limits(pid), self.machine.oom_counts());
        let of_processes = self.job.as_ref().map(|job| job.limits_reached()).unwrap_or_default();
        progress.set_limits_reached(
            self.machine.process_limit_reached().into_iter().chain(of_processes).collect(),
        );
    }

    /// Publishes what is known at the end only, and notes which figures of the whole recording are incomplete.
    pub(super) fn note_incomplete_figures(&self, progress: &Progress) {
        self.publish_cgroups(progress);
        let Some(job) = &self.job else { return };
        if job.is_io_denied() {
            progress.note(IO_DENIED.to_owned());
        }
        if job.has_guessed_members() {
            progress.note(GUESSED_MEMBERS.to_owned());
        }
        let cpu = self.before.job.map(|usage| usage.cpu).unwrap_or_default();
        if cpu.proves_unreaped_processes() {
            progress.note(
                "memory is a lower bound: some processes ended before they were sampled; only their CPU time is known"
                    .to_owned(),
            );
        }
        let is_incomplete = job.unreaped_cpu_ns() > 0 || cpu.proves_unreaped_processes();
        if is_incomplete && cpu.is_counted {
            progress.note(IO_UNREAPED.to_owned());
        } else if is_incomplete {
            progress.note(
                "CPU time and storage bytes are incomplete: the parents of some processes did not wait for them, \
                 and there is no CPU counter over the whole job"
                    .to_owned(),
            );
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn source_that_starts_to_fail_is_noted_once() {
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
