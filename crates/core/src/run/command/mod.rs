//! Running a command under the tracker, and following a process that already runs.
//!
//! In:  a command or a pid. Out: [`Done`], the exit status of the job and the finished [`Tracker`].
//! Not here: how a job is started, signals are forwarded and the end of the job is detected (`Signals`, `Job` and
//! `wait_for_stop` in one file per system).
//!
//! The steps of [`run`]: receive signals, start the tracker, start the job, wait for its end while forwarding signals
//! and reaping orphans, take the last sample, reap the job.
//!
//! The job runs in the process group of the tracker, with the same terminal, standard streams and working folder, the same
//! environment, the id of its run (`RESOURCE_TRACKER_RUN`) and the file for its marks (`RESOURCE_TRACKER_MARKS`), and with the
//! signal mask and dispositions that the tracker inherited. A signal to the tracker is forwarded once; a signal of the
//! terminal reaches the whole group without forwarding (table in `linux`). If the tracker dies, the job goes on.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use thiserror::Error;

use crate::config::Config;
use crate::os::root::Root;
use crate::os::{self, Ending};
use crate::probe::cgroup::read_limits;
use crate::run::tracker::{Tracker, TrackerError};
use crate::sampler::marks::{MARKS_VARIABLE, create_marks, marks_beside};
use crate::sampler::progress::State;
use crate::sampler::{SamplerCommand, Sink, Target};
use crate::store::recording::head::{PARENT_VARIABLE, announcement};
use crate::store::recording::{Head, Run, Status};

#[cfg(target_os = "linux")]
use linux as system;
#[cfg(target_os = "macos")]
use macos as system;
#[cfg(windows)]
use windows as system;

use system::{Job, Signals, wait_for_stop};

/// `Hooks::job_started` is called when no signal and no ended child has arrived for this time.
const START_DELAY: Duration = Duration::from_millis(100);

/// The variable that tells a job how often it was started.
const ATTEMPT_VARIABLE: &str = "RESOURCE_TRACKER_ATTEMPT";

/// Why a command was not run.
#[derive(Debug, Error)]
pub enum WrapError {
    #[error("cannot find the command `{command}`")]
    NotFound { command: String, source: io::Error },
    #[error("cannot execute `{command}`")]
    NotExecutable { command: String, source: io::Error },
    /// The system has no memory or no process id left.
    #[error("cannot start `{command}`")]
    Fork { command: String, source: io::Error },
    #[error(transparent)]
    Tracker(#[from] TrackerError),
    #[error("cannot receive signals")]
    Signals(#[source] io::Error),
}

impl WrapError {
    fn not_started(command: &Command, source: io::Error) -> Self {
        let command = command.get_program().to_string_lossy().into_owned();
        match source.kind() {
            io::ErrorKind::NotFound => Self::NotFound { command, source },
            io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => Self::Fork { command, source },
            _ => Self::NotExecutable { command, source },
        }
    }

    /// As in a shell, 127 if the command is not found and 126 if it is not executable. 125 if the tracker fails.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound { .. } => 127,
            Self::NotExecutable { .. } => 126,
            Self::Fork { .. } | Self::Tracker(_) | Self::Signals(_) => 125,
        }
    }

    /// Whether the command itself can be started.
    pub const fn is_of_tracker(&self) -> bool {
        matches!(self, Self::Tracker(_) | Self::Signals(_))
    }

    /// Replaces this program by `command`, untracked, after an error of the tracker: the host cannot be read, or refuses
    /// the tracker a thread or a descriptor. Returns only if this fails.
    pub fn run_untracked(command: &[OsString], ignored_at_start: &[i32]) -> Self {
        match prepare(command) {
            Ok(mut prepared) => {
                let source = os::exec(&mut prepared, ignored_at_start.to_vec());
                Self::not_started(&prepared, source)
            }
            Err(error) => error,
        }
    }

    /// What the user can do about it.
    pub const fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotFound { .. } if cfg!(windows) => {
                Some("check the spelling and PATH; a shell command line needs `cmd /c …`")
            }
            Self::NotFound { .. } => {
                Some("check the spelling and PATH; a shell command line needs `sh -c '…'`")
            }
            Self::NotExecutable { .. } if cfg!(windows) => Some("run its interpreter: `run -- python FILE`"),
            Self::NotExecutable { .. } => {
                Some("make it executable with `chmod +x`, or run its interpreter: `run -- python FILE`")
            }
            Self::Tracker(error) => error.hint(),
            Self::Fork { .. } | Self::Signals(_) => None,
        }
    }
}

/// Callbacks of a front while a job runs.
pub trait Hooks {
    /// Id of the run; the job gets it as an environment variable.
    fn run_id(&self) -> Option<&str> {
        None
    }
    /// Number of the attempt, from 1, if the command is run again after out-of-memory kills; the job gets it as an
    /// environment variable.
    fn attempt(&self) -> Option<u32> {
        None
    }

    /// Path of the journal, which need not exist. The file for the marks of the job is beside it.
    fn journal(&self) -> Option<PathBuf> {
        None
    }
    /// Called once the job has run for 100 ms. Work that must not delay the start of the job begins here.
    fn job_started(&mut self) {}
    /// Whether `SIGTSTP` (Ctrl-Z) must be received, so that `stopping` can clear the terminal before the stop.
    fn minds_stops(&self) -> bool {
        false
    }
    /// Called before `SIGTSTP` stops the tracker.
    fn stopping(&mut self) {}
    /// Called after `SIGCONT`.
    fn continued(&mut self) {}
}

impl Hooks for () {}

/// A finished job and its tracker.
#[derive(Debug)]
pub struct Done {
    /// `None` for an attached process: only its parent receives the exit status.
    pub ending: Option<Ending>,
    pub pid: u32,
    pub tracker: Tracker,
}

impl Done {
    /// Ends this process as the job ended, if a signal ended the job. Otherwise returns the exit status for this process:
    /// that of the job, or 0 for an attached process.
    pub fn exit_status(self) -> i32 {
        let ending = self.ending;
        drop(self);
        if let Some(Ending::Signal(signal)) = ending {
            os::end_by_signal(signal);
        }
        exit_status(ending)
    }

    /// Whether another attempt may help after a certain or likely out-of-memory kill; `None` without such a kill. It cannot
    /// help if the limit holds for the tracker too: then it is the limit of a scheduler or container.
    pub fn may_retry_oom(&self, config: &Config) -> Option<bool> {
        let mut head = Head::new(config, self.pid, self.tracker.started().wall_s(), Run::default());
        self.describe(head.run.get_or_insert_default());
        self.tracker.complete(&mut head);
        let kills = head.run.filter(|run| run.status != Some(Status::Finished))?.oom_kills?;
        let own = Root::host().ok().and_then(|root| read_limits(&root, "self").memory_bytes);
        Some(kills.limit_bytes.is_none() || kills.limit_bytes != own)
    }

    /// Sets the status, and the exit code or signal of the run.
    pub fn describe(&self, run: &mut Run) {
        match self.ending {
            Some(ending) => run.set_ending(ending),
            None if self.tracker.state() == State::Exited => run.status = Some(Status::Ended),
            None => run.status = Some(Status::Detached),
        }
    }
}

fn exit_status(ending: Option<Ending>) -> i32 {
    match ending {
        // Exit codes have 32 bits on Windows, and 8 on other systems.
        Some(Ending::Code(code)) if cfg!(windows) => code,
        Some(Ending::Code(code)) => code & 0xff,
        Some(Ending::Signal(signal)) => 128 + signal,
        None => 0,
    }
}

/// Everything that exists before the job starts.
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "not every system uses all fields"))]
struct Setup<'a> {
    config: Config,
    signals: &'a Signals,
    root: &'a Root,
    tracker: &'a Tracker,
}

/// Runs `command` under a tracker until it ends.
///
/// `ignored_at_start`: signals that were ignored when this program started, and that the job must start with ignored.
pub fn run(
    command: &[OsString],
    config: Config,
    sinks: Vec<Box<dyn Sink>>,
    ignored_at_start: &[i32],
    hooks: &mut dyn Hooks,
) -> Result<Done, WrapError> {
    let spare = os::reserve_descriptors();
    let signals = Signals::receive_for_job(ignored_at_start)?;
    let started = host().and_then(|root| Ok((root, Tracker::start(config, Target::Future, sinks)?)));
    let (root, mut tracker) = started.inspect_err(|_| signals.restore())?;
    let setup = Setup { config, signals: &signals, root: &root, tracker: &tracker };
    drop(spare);
    let mut command = prepare(command)?;
    command.envs(hooks.run_id().map(|id| (PARENT_VARIABLE, announcement(id))));
    command.envs(hooks.attempt().map(|attempt| (ATTEMPT_VARIABLE, attempt.to_string())));
    // The marks of this job are not for a run around this one.
    command.env_remove(MARKS_VARIABLE);
    let marks = hooks
        .journal()
        .map(|journal| marks_beside(&journal))
        .filter(|path| create_marks(path, tracker.started()).is_ok());
    if let Some(path) = &marks {
        command.env(MARKS_VARIABLE, path);
        tracker.send(SamplerCommand::ReadMarks(path.clone()));
    }
    let remove_marks = || marks.as_ref().map(std::fs::remove_file);
    let started = Job::start(command, &setup);
    let (mut job, counter) = started.inspect_err(|_| drop(remove_marks()))?;
    let pid = job.pid;
    tracker.send(SamplerCommand::Adopt { pid, counter });
    let ended = job.wait(&setup, hooks);
    signals.end_at_once();
    tracker.finish(SamplerCommand::Ended { ended, own_rss_kib: job.own_rss_kib });
    job.reap();
    remove_marks();
    Ok(Done { ending: Some(ended.how), pid, tracker })
}

fn prepare(command: &[OsString]) -> Result<Command, WrapError> {
    let (program, arguments) = command.split_first().ok_or_else(|| WrapError::NotFound {
        command: String::new(),
        source: io::ErrorKind::NotFound.into(),
    })?;
    let mut prepared = Command::new(program);
    prepared.args(arguments);
    Ok(prepared)
}

/// Follows a running process until it ends or a signal stops the tracker.
pub fn attach(
    pid: u32,
    config: Config,
    sinks: Vec<Box<dyn Sink>>,
    hooks: &mut dyn Hooks,
) -> Result<Done, WrapError> {
    let signals = Signals::receive(hooks.minds_stops())?;
    let mut tracker = Tracker::start(config, Target::Running(pid), sinks)?;
    hooks.job_started();
    wait_for_stop(&signals, &mut tracker, hooks);
    Ok(Done { ending: None, pid, tracker })
}

fn host() -> Result<Root, WrapError> {
    Root::host().map_err(|error| WrapError::Tracker(TrackerError::Host(error)))
}

/// Records the machine without a job until a signal stops the tracker.
pub fn watch_machine(config: Config, sinks: Vec<Box<dyn Sink>>) -> Result<Tracker, WrapError> {
    let signals = Signals::receive(false)?;
    let mut tracker = Tracker::start(config, Target::None, sinks)?;
    wait_for_stop(&signals, &mut tracker, &mut ());
    Ok(tracker)
}
