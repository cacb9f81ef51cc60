//! Running a job on Windows: a job object counts the process tree, and console events reach the job directly.

use std::process::{Child, Command};
use std::time::Duration;

use super::{Hooks, START_DELAY, Setup, WrapError};
use crate::job::counter::TreeCounter;
use crate::os::{self, Ended, Ending};
use crate::run::tracker::Tracker;
use crate::sampler::progress::State;

/// How often the end of the tracker is checked.
const CHECK_EVERY: Duration = Duration::from_millis(50);
/// Length of one wait for the job's end, which is repeated: the system call needs a limit.
const LONG: Duration = Duration::from_hours(1);

/// Receives console control events such as Ctrl-C, so that they may end the job but not the tracker.
pub(crate) struct Signals;

impl Signals {
    #[expect(clippy::unnecessary_wraps, reason = "the signature of the Linux version")]
    pub(crate) fn receive(_stops: bool) -> Result<Self, WrapError> {
        // This fails without a console; then there are no events.
        let _ = os::receive_ctrl_keys();
        Ok(Self)
    }

    pub(super) fn receive_for_job(_ignored_at_start: &[i32]) -> Result<Self, WrapError> {
        Self::receive(false)
    }

    /// No effect: there is no signal mask.
    #[expect(clippy::unused_self, reason = "the signature of the Linux version")]
    pub(super) const fn restore(&self) {}

    /// No effect: the tracker goes on receiving console control events.
    #[expect(clippy::unused_self, reason = "the signature of the Linux version")]
    pub(super) const fn end_at_once(&self) {}
}

/// A job from its start to its end.
pub(super) struct Job {
    pub(super) pid: u32,
    /// 0: Windows does not fork, so the job inherits no high-water mark.
    pub(super) own_rss_kib: u64,
    child: Child,
}

impl Job {
    /// Starts the command suspended and adds it to a job object before its first instruction.
    pub(super) fn start(
        mut command: Command,
        setup: &Setup<'_>,
    ) -> Result<(Self, Option<TreeCounter>), WrapError> {
        let Setup { config, root, tracker, .. } = *setup;
        let (counter, notes) = if config.children {
            TreeCounter::for_future_child(root, config.cpu_source)
        } else {
            (None, Vec::new())
        };
        for note in notes {
            tracker.note(note);
        }
        let spawned = if counter.is_some() { os::spawn_suspended(&mut command) } else { command.spawn() };
        let mut child = spawned.map_err(|source| WrapError::not_started(&command, source))?;
        let job = |child: Child| Self { pid: child.id(), own_rss_kib: 0, child };
        let Some(counter) = counter else { return Ok((job(child), None)) };
        let added = counter.object().add(&child);
        if let Err(source) = os::resume(&child) {
            // The command is still suspended and has not run a single instruction.
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

    /// Waits for the end of the job.
    pub(super) fn wait(&mut self, _setup: &Setup<'_>, hooks: &mut dyn Hooks) -> Ended {
        if !os::wait_for_child(&self.child, START_DELAY) {
            hooks.job_started();
            while !os::wait_for_child(&self.child, LONG) {}
        }
        let times = os::child_times(&self.child).unwrap_or_default();
        // `wait` neither blocks nor fails, since the job has ended.
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

    /// No effect: an ended process needs no reaping.
    #[expect(clippy::unused_self, reason = "the signature of the Linux version")]
    pub(super) fn reap(self) {}
}

/// Waits until the tracker ends or a console event stops it.
pub(crate) fn wait_for_stop(_signals: &Signals, tracker: &mut Tracker, _hooks: &mut dyn Hooks) {
    while tracker.state() == State::Running {
        if os::is_stop_wanted() {
            return tracker.stop();
        }
        let _ = tracker.wait_for_rows(u64::MAX, CHECK_EVERY);
    }
    tracker.wait_for_end();
}
