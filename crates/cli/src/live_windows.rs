//! The status line of `--live`: none on Windows, where a job's screen is not a terminal's that we could share.

use resource_tracker::sampler::Sink;

/// Never there.
pub enum Live {}

impl Live {
    /// No line.
    pub const fn start() -> Option<(Self, Box<dyn Sink>)> {
        None
    }

    /// Never called.
    pub const fn pause(&self) {
        match *self {}
    }

    /// Never called.
    pub const fn resume(&self) {
        match *self {}
    }
}
