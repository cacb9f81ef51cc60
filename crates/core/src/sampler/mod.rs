//! Rows of a recording: the time grid, samples, and the difference of two samples.
//!
//! In:  commands (track a job, a child was reaped, stop). Out: rows for the sinks, and the state in `progress`.
//! Not here: the entry points that start the sampling thread (`run`).
//!
//! `thread` is the loop, `grid` says when a row is due, `engine` takes the samples, and `diff` makes the row.

pub mod diff;
mod engine;
pub mod evidence;
pub mod gpu_watch;
pub mod grid;
pub mod marks;
pub mod phases;
pub mod progress;
pub mod reading;
pub mod sample;
mod thread;
mod waits;

use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;

use crate::job::counter::TreeCounter;
use crate::job::ledger::Reaped;
use crate::metric::Row;
use crate::os::Ended;

pub use engine::Engine;
pub(crate) use engine::USUAL_NOTES;
pub(crate) use thread::run;

/// Commands to the sampling thread.
#[derive(Debug)]
pub enum SamplerCommand {
    /// Track this job, whose root is a child of the tracker.
    Adopt { pid: u32, counter: Option<TreeCounter> },
    /// An orphan of the job, which the tracker adopted, has ended.
    Reaped(Reaped),
    /// The root has ended and is not reaped yet: make the last row. `own_rss_kib` is the RSS of the tracker when it
    /// forked the root.
    Ended { ended: Ended, own_rss_kib: u64 },
    /// Read marks from this file.
    ReadMarks(PathBuf),
    /// There is a mark, see [`progress::Progress::mark`].
    Marked,
    /// Run a function that starts a thread or process. Counters of the job exclude what the sampling thread starts.
    Start(fn()),
    /// Make the last row.
    Stop,
}

/// A receiver of rows, such as the journal.
pub trait Sink: Send {
    /// Receives a row; `Break` ends the recording.
    fn take(&mut self, row: &Row) -> io::Result<ControlFlow<()>>;
    /// The name of the sink in error messages.
    fn name(&self) -> String;
}

/// What to track from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A job that the tracker will start; [`SamplerCommand::Adopt`] follows.
    Future,
    /// A running process.
    Running(u32),
    /// Only the machine.
    None,
}
