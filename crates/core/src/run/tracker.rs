//! A sampling thread and its results so far: start, stop, wait, state, running summary, notes.
//!
//! In:  a [`Config`], the process to follow, the sinks that receive the rows. Out: a [`Summary`], whose memory does not
//! grow with the number of rows.
//! Not here: the readings and the time grid (`sampler`), the journal (`store::rows`).

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use thiserror::Error;

use crate::analysis::allocation::with_allocation;
use crate::config::Config;
use crate::error::SourceError;
use crate::job::programs::ProgramFigures;
use crate::os::root::Root;
use crate::os::{self, EventFd, Moment};
use crate::probe::cgroup::Limits;
use crate::probe::gpu::GpuFigures;
use crate::probe::{self, host};
use crate::sampler::evidence::{Evidence, SignalReceived};
use crate::sampler::phases::{PhaseFigures, Phases, PlacedMark};
use crate::sampler::progress::{EventFds, Progress, State};
use crate::sampler::{self, Engine, SamplerCommand, Sink, Target};
use crate::store::recording::{Head, Status};
use crate::store::summary::{RunningSummary, Scope, Summary};

/// The variable in which Slurm tells a job when its time limit ends, in Unix seconds.
const SLURM_END_TIME: &str = "SLURM_JOB_END_TIME";

/// Why a tracker does not start.
#[derive(Debug, Error)]
pub enum TrackerError {
    /// The process does not exist, has ended, or cannot be read.
    #[error("cannot follow process {pid}")]
    Target { pid: u32, source: SourceError },
    #[error("cannot read this host")]
    Host(#[source] SourceError),
    /// The system refused a thread or a descriptor.
    #[error("cannot start the sampler")]
    Resources(#[source] std::io::Error),
}

impl TrackerError {
    pub(super) const fn new(target: Target, source: SourceError) -> Self {
        match target {
            Target::Running(pid) => Self::Target { pid, source },
            Target::Future | Target::None => Self::Host(source),
        }
    }

    /// Whether the machine is the cause, for instance no free descriptor, and not the request.
    pub(super) const fn is_shortage(&self) -> bool {
        matches!(
            self,
            Self::Host(_) | Self::Resources(_) | Self::Target { source: SourceError::Io { .. }, .. }
        )
    }

    /// What the user can do about it.
    pub const fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Target { source: SourceError::Foreign, .. } => SourceError::Foreign.hint(),
            Self::Target { .. } if cfg!(windows) => Some("`tasklist` lists the processes that run"),
            Self::Target { .. } => Some("`ps -e` lists the processes that run"),
            Self::Host(_) if cfg!(target_os = "linux") => Some("is /proc mounted?"),
            Self::Host(_) | Self::Resources(_) => None,
        }
    }
}

/// A recording that is in progress or has ended.
///
/// A forked child may only drop its copy: it has no sampling thread, and a lock that the thread held stays locked.
#[derive(Debug)]
pub struct Tracker {
    progress: Arc<Progress>,
    summary: RunningSummary,
    thread: Option<JoinHandle<()>>,
    started: Moment,
    owner_pid: u32,
}

impl Tracker {
    /// Starts the sampling thread and waits for its baseline.
    pub fn start(
        config: Config,
        target: Target,
        mut sinks: Vec<Box<dyn Sink>>,
    ) -> Result<Self, TrackerError> {
        let root = if config.in_process { Root::host_in_process() } else { Root::host() };
        let root = root.map_err(TrackerError::Host)?;
        let eventfds =
            if config.in_process { None } else { EventFds::new().map_err(TrackerError::Resources)? };
        let scope = Scope {
            process: config.track_processes && target != Target::None,
            system: config.track_system,
            start_time: None,
            interval_s: config.interval.seconds(),
        };
        let progress = Arc::new(Progress::new(eventfds));
        let summary = RunningSummary::new(scope);
        let shared_summary = summary.clone();
        let (ready, baseline) = std::sync::mpsc::sync_channel(1);
        let shared = Arc::clone(&progress);
        // The sampling thread opens the CPU counters itself. A new thread inherits the counters of the thread that
        // creates it, so counters that were opened earlier would count the sampling thread as a part of the job.
        let sample = move || match Engine::start(Arc::new(root), config, target) {
            Ok(mut engine) => {
                let started = engine.started_at();
                // Set before `ready`: the caller may read the summary, the CPU source and the notes at once.
                shared_summary.restart(Scope { start_time: Some(started.wall_s()), ..scope });
                sinks.push(Box::new(shared_summary));
                *shared.phases() = Phases::begin(started.monotonic_ns);
                shared.set_cpu_source(engine.cpu_source());
                engine.publish_notes(&shared);
                let _ = ready.send(Ok(started));
                sampler::run(engine, target, &shared, sinks);
            }
            Err(error) => {
                let _ = ready.send(Err(error));
            }
        };
        let thread = std::thread::Builder::new().name("resource-tracker".to_owned()).stack_size(256 << 10);
        let thread = os::without_signals(|| thread.spawn(sample)).map_err(TrackerError::Resources)?;
        let Ok(baseline) = baseline.recv() else {
            let error = std::io::Error::other("the sampling thread ended at once");
            return Err(TrackerError::Resources(error));
        };
        let started = baseline.map_err(|source| TrackerError::new(target, source))?;
        Ok(Self { progress, summary, thread: Some(thread), started, owner_pid: std::process::id() })
    }

    /// Sends a command to the sampling thread.
    pub fn send(&self, command: SamplerCommand) {
        self.progress.send(command);
    }

    /// Makes the last row and ends the thread. Calling it again has no effect.
    pub fn stop(&mut self) {
        self.finish(SamplerCommand::Stop);
    }

    /// Sends the last command and waits for the last row.
    pub fn finish(&mut self, command: SamplerCommand) {
        let Some(thread) = self.thread.take() else { return };
        if self.owner_pid != std::process::id() {
            // The thread runs in the parent process and cannot be joined here.
            std::mem::forget(thread);
            return;
        }
        self.send(command);
        Self::join(thread);
    }

    /// An eventfd that becomes readable after the last row; `None` in in-process mode, which keeps no descriptor open.
    pub fn ended(&self) -> Option<&EventFd> {
        self.progress.ended()
    }

    /// Waits until the followed process has ended and the last row is made.
    pub fn wait_for_end(&mut self) {
        if let Some(thread) = self.thread.take() {
            Self::join(thread);
        }
    }

    fn join(thread: JoinHandle<()>) {
        // A thread that panicked has said so in a note.
        let _ = thread.join();
    }

    /// Time of the baseline.
    pub const fn started(&self) -> Moment {
        self.started
    }

    pub fn state(&self) -> State {
        self.progress.state()
    }

    /// Figures over all rows so far.
    pub fn summary(&self) -> Summary {
        self.summary.get()
    }

    /// What the reader of the figures must know, for instance a source that could not be read.
    pub fn notes(&self) -> Vec<String> {
        self.progress.notes()
    }

    pub fn note(&self, note: String) {
        self.progress.note(note);
    }

    pub(crate) fn add_signal(&self, received: SignalReceived) {
        self.progress.add_signal(received);
    }

    /// Facts about the end of a run that failed or was killed; `command` is what it ran.
    pub(crate) fn evidence(&self, command: Option<&[String]>) -> Evidence {
        let end_time = std::env::var(SLURM_END_TIME).ok().and_then(|text| text.trim().parse().ok());
        Evidence {
            full_file_systems: probe::full_file_systems(command.unwrap_or_default()),
            time_limit_at: end_time,
            ..self.progress.evidence()
        }
    }

    /// How CPU time is counted: `perf`, `cgroup` or `procfs`.
    pub fn cpu_source(&self) -> &'static str {
        self.progress.cpu_source()
    }

    pub fn gpus(&self) -> Vec<GpuFigures> {
        self.progress.gpus()
    }

    /// Usage by program so far.
    pub fn programs(&self) -> Vec<ProgramFigures> {
        self.progress.programs()
    }

    /// Usage by phase so far, and the marks with their time.
    pub fn phases(&self) -> (Vec<PhaseFigures>, Vec<PlacedMark>) {
        let phases = self.progress.phases();
        (phases.figures(), phases.marks())
    }

    /// For marks from other threads.
    pub(super) fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// The limits of the job's cgroups and of its CPU affinity.
    pub(crate) fn limits(&self) -> Limits {
        self.progress.cgroups().0
    }

    /// Waits until there are `rows` rows, the tracker has ended, or the timeout is over; returns the number of rows.
    pub fn wait_for_rows(&self, rows: u64, timeout: Duration) -> u64 {
        self.progress.wait_for_rows(rows, timeout)
    }

    /// Adds the tracker's results to the head of its recording: stop time, CPU source, coverage, notes, GPUs, OOM
    /// kills, programs, phases, and the machine if `discover_server` is set. Notes that the run already has come after the
    /// notes of the tracker.
    pub fn complete(&self, head: &mut Head) {
        let summary = self.summary();
        let run = head.run.get_or_insert_default();
        run.cpu_source = Some(self.cpu_source().to_owned());
        run.coverage = summary.coverage();
        run.notes.splice(..0, self.notes());
        run.gpus = self.gpus();
        run.programs = self.programs();
        (run.phases, run.marks) = self.phases();
        head.metadata.set_stop_time(Moment::now().wall_s(), summary.clock_step_s());
        let (limits, oom_counts) = self.progress.cgroups();
        let Ok(root) = Root::host() else { return };
        let host = host::read_without_waiting(&root, limits);
        let bytes = |size: Option<f64>, unit: f64| size.map(|size| size * unit);
        let memory_bytes = bytes(host.memory_limit_mib.or(host.memory_mib), 1_048_576.0);
        let peak_bytes = bytes(summary.memory_peak_kib(), 1024.0);
        run.oom_kills = oom_counts.of_job(run.ended_by_kill(), peak_bytes, memory_bytes);
        if matches!(run.status, Some(Status::Failed | Status::Killed)) {
            run.evidence = Some(self.evidence(run.command.as_deref())).filter(|facts| !facts.is_empty());
        }
        if head.metadata.discover_server {
            head.server_info = Some(with_allocation(host.server_info(), &summary));
        }
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn cpu_source_is_known_when_start_returns() {
        // A process with one thread: the test process has a thread per CPU, and perf counts processes with few threads.
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        for _ in 0..100 {
            let tracker = Tracker::start(Config::default(), Target::Running(child.id()), Vec::new()).unwrap();
            assert_eq!(tracker.cpu_source(), "perf");
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
