//! Windows' half of the wrapper: the job is in a job object, which counts it as one, and on our console, whose keys
//! reach it by themselves.

use std::process::{Child, Command};
use std::time::Duration;

use super::{Beside, Ours, SETTLED, WrapError};
use crate::counter::TreeCounter;
use crate::sys::{self, Ended, Ending, Watch};
use crate::tracker::{State, Tracker};

/// How often we look whether the end has come.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Of a wait without an end, in parts that the system can count.
const LONG: Duration = Duration::from_hours(1);

/// The console's keys while a job runs: they end the job, if it likes, and not us.
pub(crate) struct Signals;

impl Signals {
    #[expect(clippy::unnecessary_wraps, reason = "other systems can fail here")]
    pub(crate) fn receive(_ignored_at_start: &[i32], _stops: bool) -> Result<Self, WrapError> {
        // A program without a console gets no keys.
        let _ = sys::receive_ctrl_keys();
        Ok(Self)
    }
}

/// The job, from its start to its burial.
pub(super) struct Job {
    pub(super) pid: u32,
    /// Nothing is forked here.
    pub(super) own_rss_kib: u64,
    child: Child,
}

impl Job {
    /// Starts the command where it is counted from its first instruction on.
    pub(super) fn start(
        mut command: Command,
        ours: &Ours<'_>,
    ) -> Result<(Self, Option<TreeCounter>), WrapError> {
        let Ours { config, root, tracker, .. } = *ours;
        let (counter, notes) = if config.children {
            TreeCounter::for_future_child(root, config.cpu_source)
        } else {
            (None, Vec::new())
        };
        for note in notes {
            tracker.note(note);
        }
        let spawned = if counter.is_some() { sys::spawn_suspended(&mut command) } else { command.spawn() };
        let mut child = spawned.map_err(|source| WrapError::not_started(&command, source))?;
        let job = |child: Child| Self { pid: child.id(), own_rss_kib: 0, child };
        let Some(counter) = counter else { return Ok((job(child), None)) };
        let added = counter.object().add(&child);
        if let Err(source) = sys::resume(&child) {
            // It has not run a single instruction.
            let _ = child.kill();
            let command = command.get_program().to_string_lossy().into_owned();
            return Err(WrapError::Fork { command, source });
        }
        match added {
            Ok(()) => Ok((job(child), Some(counter))),
            Err(error) => {
                tracker.note(format!("no counter over the whole job: {error}"));
                Ok((job(child), None))
            }
        }
    }

    /// Waits until it has ended; keys of the console reach it by themselves.
    pub(super) fn wait(&mut self, _ours: &Ours<'_>, beside: &mut dyn Beside) -> Ended {
        if !sys::wait_for_child(&self.child, SETTLED) {
            beside.settled();
            while !sys::wait_for_child(&self.child, LONG) {}
        }
        let times = sys::child_times(&self.child).unwrap_or_default();
        // It has ended, so that this neither waits nor fails.
        let code = self.child.wait().ok().and_then(|status| status.code()).unwrap_or(1);
        Ended {
            pid: self.pid,
            how: Ending::Code(code),
            user_us: times.user_ns / 1_000,
            system_us: times.system_ns / 1_000,
            max_rss_kib: 0,
            major_faults: 0,
        }
    }

    /// Waiting for it did that already.
    #[expect(clippy::unused_self, reason = "as Linux's")]
    pub(super) fn bury(self) {}
}

/// Until the tracker ends, or a key of the console tells us to stop.
pub(crate) fn wait_for_stop(
    _signals: &Signals,
    tracker: &mut Tracker,
    _other: Option<&Watch>,
    _beside: &mut dyn Beside,
) {
    while tracker.state() == State::Running {
        if sys::is_stop_wanted() {
            return tracker.stop();
        }
        let _ = tracker.wait_for_rows(u64::MAX, LOOK_EVERY);
    }
    tracker.wait_for_end();
}
