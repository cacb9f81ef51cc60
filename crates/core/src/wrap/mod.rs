//! Running a command under the tracker, and following one that runs already, without being in its way.
//!
//! In:  a command or a pid. Out: how it ended, and the finished [`Tracker`].
//! Not here: how each system starts a job, passes signals on and learns of its end: `Signals`, `Job` and
//! `wait_for_stop` of a file a system.
//!
//! The command runs in our process group, with our terminal, streams, environment and folder, and with the
//! signal mask and dispositions that we were given. A signal that is sent to us goes on to it once; one that
//! the terminal sends to the whole group has reached it already. When we are killed, it lives on.

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod system;
#[cfg(target_os = "macos")]
#[path = "macos.rs"]
mod system;
#[cfg(windows)]
#[path = "windows.rs"]
mod system;
#[cfg(unix)]
mod unix;

use std::ffi::OsString;
use std::io;
use std::process::Command;
use std::time::Duration;

use thiserror::Error;

use crate::config::Config;
use crate::recording::OomKills;
use crate::root::Root;
use crate::sampler::{Order, Sink, Target};
use crate::source::cgroup::OomWatch;
use crate::sys::{self, Ending};
use crate::tracker::{Tracker, TrackerError};

use system::Job;
pub(crate) use system::{Signals, wait_for_stop};

/// A job that has run for so long, without a signal or a child of it ending, is not about to end at once.
const SETTLED: Duration = Duration::from_millis(100);

/// The status of what SIGKILL ended; a shell, and with it a job that is a script, exits with it when its command was.
const KILLED: i32 = 128 + 9;

/// Why a command does not run.
#[derive(Debug, Error)]
pub enum WrapError {
    /// There is no such command.
    #[error("cannot find the command `{command}`")]
    NotFound {
        /// As it was given.
        command: String,
        /// What the system said.
        source: io::Error,
    },
    /// It is there and cannot be executed.
    #[error("cannot execute `{command}`")]
    NotExecutable {
        /// As it was given.
        command: String,
        /// What the system said.
        source: io::Error,
    },
    /// We cannot start anything.
    #[error("cannot start `{command}`")]
    Fork {
        /// As it was given.
        command: String,
        /// What the system said.
        source: io::Error,
    },
    /// The tracker does not start.
    #[error(transparent)]
    Tracker(#[from] TrackerError),
    /// Signals cannot be received.
    #[error("cannot receive signals")]
    Signals(#[source] io::Error),
}

impl WrapError {
    /// The system refused to start the command.
    fn not_started(command: &Command, source: io::Error) -> Self {
        let command = command.get_program().to_string_lossy().into_owned();
        match source.kind() {
            io::ErrorKind::NotFound => Self::NotFound { command, source },
            io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => Self::Fork { command, source },
            _ => Self::NotExecutable { command, source },
        }
    }

    /// As a shell would say it; 125 is our own failure.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound { .. } => 127,
            Self::NotExecutable { .. } => 126,
            Self::Fork { .. } | Self::Tracker(_) | Self::Signals(_) => 125,
        }
    }

    /// What can be done about it.
    #[must_use]
    pub const fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotFound { .. } if cfg!(windows) => {
                Some("is it spelled right, and on PATH? A shell line needs `cmd /c …`")
            }
            Self::NotFound { .. } => Some("is it spelled right, and on PATH? A shell line needs `sh -c '…'`"),
            Self::NotExecutable { .. } if cfg!(windows) => Some("name its interpreter: `run -- python FILE`"),
            Self::NotExecutable { .. } => {
                Some("`chmod +x` it, or name its interpreter: `run -- python FILE`")
            }
            Self::Tracker(error) => error.hint(),
            Self::Fork { .. } | Self::Signals(_) => None,
        }
    }
}

/// What else goes on while a job runs.
pub trait Beside {
    /// The job has run for a moment and is not about to end at once: the time for work that must not hold it up.
    fn settled(&mut self) {}
    /// Whether something of ours is on the terminal that must go before a stop.
    fn minds_stops(&self) -> bool {
        false
    }
    /// The terminal is about to stop us.
    fn stopping(&mut self) {}
    /// We go on.
    fn continued(&mut self) {}
    /// Whether a process may end a recording by a signal.
    fn obeys(&self, _sender_pid: u32) -> bool {
        true
    }
}

impl Beside for () {}

/// A job that ran, and its finished tracker.
#[derive(Debug)]
pub struct Done {
    /// How it ended; `None` where only its parent is told.
    pub ending: Option<Ending>,
    /// Its process id.
    pub pid: u32,
    /// What the kernel killed for memory meanwhile.
    pub oom_kills: Option<OomKills>,
    /// What was recorded.
    pub tracker: Tracker,
}

/// What is there before the job, and as long as it runs.
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "not every system needs all of it"))]
struct Ours<'a> {
    config: Config,
    signals: &'a Signals,
    root: &'a Root,
    tracker: &'a Tracker,
}

/// The command line of a process that runs already, where it can be read.
#[must_use]
pub fn command_of(pid: u32) -> Option<Vec<String>> {
    crate::source::command_of(pid)
}

/// Runs `command` under a tracker until it ends.
///
/// `ignored_at_start` are signals that were ignored when this program started, and are not any more.
///
/// # Errors
/// [`WrapError`] where the command does not run; once it runs, nothing of ours ends it.
pub fn run(
    command: &[OsString],
    config: Config,
    sinks: Vec<Box<dyn Sink>>,
    ignored_at_start: &[i32],
    beside: &mut dyn Beside,
) -> Result<Done, WrapError> {
    let signals = Signals::receive(ignored_at_start, beside.minds_stops())?;
    let root = host()?;
    // What opened the outputs is not needed while we sample, nor that when we sum up.
    sys::release_start_up_code();
    let mut tracker = Tracker::start(config, Target::Future, sinks)?;
    let memory_watch = OomWatch::start(&root, "self");
    let ours = Ours { config, signals: &signals, root: &root, tracker: &tracker };
    let (mut job, counter) = Job::start(prepare(command)?, &ours)?;
    let pid = job.pid;
    tracker.order(Order::Adopt { pid, counter });
    let ended = job.wait(&ours, beside);
    tracker.finish(Order::Ended { ended, own_rss_kib: job.own_rss_kib });
    job.bury();
    let oom_kills = memory_watch.kills(&root, exit_status(Some(ended.how)) == KILLED);
    sys::release_start_up_code();
    Ok(Done { ending: Some(ended.how), pid, oom_kills, tracker })
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

/// Follows a process that runs already, until it ends or we are told to stop.
///
/// # Errors
/// [`WrapError`] where it cannot be followed.
pub fn attach(
    pid: u32,
    config: Config,
    sinks: Vec<Box<dyn Sink>>,
    beside: &mut dyn Beside,
) -> Result<Done, WrapError> {
    let signals = Signals::receive(&[], beside.minds_stops())?;
    let root = host()?;
    let memory_watch = OomWatch::start(&root, &pid.to_string());
    let mut tracker = Tracker::start(config, Target::Running(pid), sinks)?;
    beside.settled();
    wait_for_stop(&signals, &mut tracker, None, beside);
    let oom_kills = memory_watch.kills(&root, false);
    Ok(Done { ending: None, pid, oom_kills, tracker })
}

fn host() -> Result<Root, WrapError> {
    Root::host().map_err(|error| WrapError::Tracker(TrackerError::Host(error)))
}

/// Records the machine alone until we are told to stop.
///
/// # Errors
/// [`WrapError`] where nothing can be recorded.
pub fn watch_machine(config: Config, sinks: Vec<Box<dyn Sink>>) -> Result<Tracker, WrapError> {
    let signals = Signals::receive(&[], false)?;
    let mut tracker = Tracker::start(config, Target::None, sinks)?;
    wait_for_stop(&signals, &mut tracker, None, &mut ());
    Ok(tracker)
}

/// The status that a program leaves behind which ended as the job did.
#[must_use]
pub fn exit_status(ending: Option<Ending>) -> i32 {
    match ending {
        // Windows has 32 bits for it, others eight.
        Some(Ending::Code(code)) if cfg!(windows) => code,
        Some(Ending::Code(code)) => code & 0xff,
        Some(Ending::Signal(signal)) => 128 + signal,
        None => 0,
    }
}
