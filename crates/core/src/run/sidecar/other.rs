//! Systems without a sidecar: [`Sidecar::start`] always fails, and the session samples in a thread.

use std::path::Path;

use super::{FinalReport, SidecarError};
use crate::run::plan::Plan;
use crate::sampler::progress::State;
use crate::store::rows::Rows;

#[derive(Debug)]
pub struct Sidecar {
    pub start_time: f64,
    pub cpu_source: String,
    pub report: FinalReport,
    never: std::convert::Infallible,
}

impl Sidecar {
    pub const fn start(_program: &Path, _plan: &Plan) -> Result<(Self, Rows), SidecarError> {
        Err(SidecarError::Unsupported)
    }

    pub const fn is_alive(&self) -> bool {
        match self.never {}
    }

    pub const fn state(&self) -> State {
        match self.never {}
    }

    pub const fn stop(&mut self, _journal: &Path) {
        match self.never {}
    }
}

/// The hidden command `sidecar`, which always fails on this system.
pub const fn serve(_orders: &str) -> Result<(), SidecarError> {
    Err(SidecarError::Unsupported)
}
