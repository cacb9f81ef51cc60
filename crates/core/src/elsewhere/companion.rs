//! A sampler in a process of its own: on this system there is none, and a session samples in a thread instead.

use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::metric::Row;
use crate::record::Rows;
use crate::session::Plan;
use crate::source::gpu::GpuFigures;
use crate::tracker::State;

/// Whether a companion can be had here.
pub const IS_AVAILABLE: bool = false;

/// The hidden command of the program that becomes a companion.
pub const COMMAND: &str = "companion";

/// Why there is no companion.
#[derive(Debug, Error)]
pub enum CompanionError {
    /// This system has none.
    #[error("`{program}` cannot sample for another program on this system")]
    Unsupported {
        /// Which.
        program: PathBuf,
    },
}

impl CompanionError {
    /// A system that has none lacks nothing.
    #[must_use]
    pub const fn is_shortage(&self) -> bool {
        false
    }
}

/// What it would leave for its host.
#[derive(Clone, Debug, Default)]
pub struct LastWords {
    /// What did not go as it should.
    pub notes: Vec<String>,
    /// What each GPU did.
    pub gpus: Vec<GpuFigures>,
    /// Rows for which there was no room where the others are.
    pub rest: Vec<Row>,
}

/// A companion; none can be made.
#[derive(Debug)]
pub struct Companion {
    /// Moment of its baseline.
    pub start_time: f64,
    /// How it counts CPU time.
    pub cpu_source: String,
    /// What it has to tell.
    pub words: LastWords,
    never: std::convert::Infallible,
}

impl Companion {
    /// Starts none.
    ///
    /// # Errors
    /// Always.
    pub fn start(program: &Path, _plan: &Plan) -> Result<(Self, Rows), CompanionError> {
        Err(CompanionError::Unsupported { program: program.to_owned() })
    }

    /// Whether it still records.
    #[must_use]
    pub const fn is_alive(&self) -> bool {
        match self.never {}
    }

    /// Where it is in its life.
    #[must_use]
    pub const fn state(&self) -> State {
        match self.never {}
    }

    /// Has the last row made.
    pub const fn stop(&self) {
        match self.never {}
    }
}

/// The companion itself.
///
/// # Errors
/// Always.
pub fn serve(_orders: &str) -> Result<(), CompanionError> {
    Err(CompanionError::Unsupported { program: COMMAND.into() })
}
