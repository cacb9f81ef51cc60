//! Running a command under the tracker, and following one that runs already, without being in its way.
//!
//! In:  a command or a pid. Out: how it ended, and the finished [`Tracker`].
//! Not here: how each system starts a job, passes signals on and learns of its end (a file a system).
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

use std::io;

use thiserror::Error;

use crate::config::Config;
use crate::recording::OomKills;
use crate::sampler::{Sink, Target};
use crate::sys::Ending;
use crate::tracker::{Tracker, TrackerError};

pub(crate) use system::{Signals, wait_for_stop};
pub use system::{attach, run};

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

/// The command line of a process that runs already, where it can be read.
#[must_use]
pub fn command_of(pid: u32) -> Option<Vec<String>> {
    crate::source::command_of(pid)
}

/// Records the machine alone until we are told to stop.
///
/// # Errors
/// [`WrapError`] where nothing can be recorded.
pub fn watch_machine(config: Config, sinks: Vec<Box<dyn Sink>>) -> Result<Tracker, WrapError> {
    let signals = Signals::receive()?;
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
