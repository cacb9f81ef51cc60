//! Rows by hand: the caller looks when it likes, in its own thread.
//!
//! In:  a [`Config`] and whom to follow. Out: a row from the look before to now.
//! Not here: the time grid and the sampling thread (`sampler`, `tracker`).

use std::sync::Arc;

use crate::config::Config;
use crate::metric::Row;
use crate::root::Root;
use crate::sampler::{Engine, Target};
use crate::snapshot::Moment;
use crate::tracker::TrackerError;

/// A baseline, and what comes after it.
pub struct Meter {
    engine: Engine,
    target: Target,
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Meter").field("target", &self.target).finish_non_exhaustive()
    }
}

impl Meter {
    /// Reads the baseline, as a guest of the calling thread.
    ///
    /// # Errors
    /// [`TrackerError`] where the target or the host cannot be read.
    pub fn start(config: Config, target: Target) -> Result<Self, TrackerError> {
        let root = Arc::new(Root::host_as_guest().map_err(TrackerError::Host)?);
        let config = Config { as_guest: true, ..config };
        let engine = Engine::start_in(root, config, target, false);
        let engine = engine.map_err(|source| match target {
            Target::Running(pid) => TrackerError::Target { pid, source },
            Target::Future | Target::None => TrackerError::Host(source),
        })?;
        Ok(Self { engine, target })
    }

    /// The row from the last look, or the baseline, to now.
    pub fn row(&mut self) -> Row {
        self.engine.wait_for_gpus();
        self.engine.tick(Moment::now(), 0, false)
    }

    /// Reads the baseline once more: what was used until now is in no row. Who belongs to the job stays known.
    pub fn start_anew(&mut self) {
        self.row();
        self.engine.start_anew();
    }

    /// Whether the process that is followed has ended; a machine never does.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.target, Target::Running(_)) && !self.engine.is_target_alive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Metric;

    #[test]
    fn the_callers_own_cpu_time_is_the_jobs() {
        let config = Config { track_system: false, ..Config::default() };
        let mut meter = Meter::start(config, Target::Running(std::process::id())).unwrap();
        let before_ns = crate::sys::thread_cpu_ns().unwrap();
        let mut spent_ns = 0;
        while spent_ns < 50_000_000 {
            spent_ns = crate::sys::thread_cpu_ns().unwrap() - before_ns;
        }
        let row = meter.row();
        let reported = row.get(Metric::ProcessUtime).unwrap() + row.get(Metric::ProcessStime).unwrap();
        assert!(reported >= 0.049, "{reported}");
        assert!(!meter.has_ended());
    }
}
