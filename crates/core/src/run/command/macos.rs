//! Running a job on macOS: signals and the end of the job arrive on a kqueue.
//!
//! A kqueue does not report the sender of a signal. Terminal keys reach the whole foreground process group, the job
//! included, so their signals are not forwarded while the tracker is in the foreground; a `kill -INT` to the tracker
//! alone is then lost. `SIGTERM` and all other signals are always forwarded. launchd adopts orphans of the job.

use std::process::Command;
use std::time::Duration;

use super::unix::{self, forward, is_stop, stop_self};
use super::{Hooks, START_DELAY, Setup, WrapError};
use crate::job::counter::TreeCounter;
use crate::os::{self, Ended, Ending, Queue, SignalSet};
use crate::run::tracker::Tracker;
use crate::sampler::progress::State;

/// Signals of terminal keys and of window size changes.
const FROM_THE_TERMINAL: [i32; 3] = [libc::SIGINT, libc::SIGQUIT, libc::SIGWINCH];

/// How often the end of the tracker is checked.
const CHECK_EVERY: Duration = Duration::from_millis(50);

/// The signals of the tracker, blocked and received on a kqueue.
pub(crate) struct Signals {
    queue: Queue,
    /// The inherited signal mask, for the job.
    mask: SignalSet,
    /// Signals that the job starts with ignored.
    ignored: Vec<i32>,
}

impl Signals {
    /// The signals of a tracker that follows a process. With `stops`, `SIGTSTP` is received too.
    pub(crate) fn receive(stops: bool) -> Result<Self, WrapError> {
        Self::open(stops, &[])
    }

    /// The signals of a tracker that runs a job.
    pub(super) fn receive_for_job(ignored_at_start: &[i32]) -> Result<Self, WrapError> {
        Self::open(true, ignored_at_start)
    }

    /// Called if no job was started.
    pub(super) fn restore(&self) {
        self.mask.restore();
    }

    /// Called when the job has ended: from now on, a request to end ends the tracker at once.
    #[expect(clippy::unused_self, reason = "the signature of the Linux version")]
    pub(super) fn end_at_once(&self) {
        SignalSet::of(&[libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM]).unblock();
    }

    fn open(stops: bool, ignored_at_start: &[i32]) -> Result<Self, WrapError> {
        let signals = unix::signals_to_receive(&[], stops);
        let mask = unix::inherited_mask(SignalSet::of(&signals).block());
        let queue = Queue::of_signals(&signals).map_err(WrapError::Signals)?;
        Ok(Self { queue, mask, ignored: ignored_at_start.to_vec() })
    }
}

/// A job from its start until it is reaped.
pub(super) struct Job {
    pub(super) pid: u32,
    /// Always the largest value, which makes the sampler ignore the high-water mark that the job inherits.
    pub(super) own_rss_kib: u64,
}

impl Job {
    /// Starts the command. macOS has no CPU counter of a process tree.
    pub(super) fn start(
        mut command: Command,
        setup: &Setup<'_>,
    ) -> Result<(Self, Option<TreeCounter>), WrapError> {
        let child = os::spawn(&mut command, setup.signals.mask, setup.signals.ignored.clone())
            .map_err(|source| WrapError::not_started(&command, source))?;
        Ok((Self { pid: child.id(), own_rss_kib: u64::MAX }, None))
    }

    /// Forwards signals until the job ends, and reaps it.
    pub(super) fn wait(&mut self, setup: &Setup<'_>, hooks: &mut dyn Hooks) -> Ended {
        let (pid, queue) = (self.pid, &setup.signals.queue);
        // This fails if the job has already ended. `os::reap` then returns its status at once.
        let _ = queue.watch(pid);
        let mut is_started = false;
        loop {
            match os::reap(pid) {
                Ok(Some(ended)) => return ended,
                Ok(None) => {}
                // The job is no longer a child, so its exit status is lost.
                Err(_) => {
                    let how = Ending::Code(1);
                    return Ended { pid, how, user_us: 0, system_us: 0, max_rss_kib: 0, major_faults: 0 };
                }
            }
            let received = queue.wait((!is_started).then_some(START_DELAY));
            if !is_started && received.is_empty() {
                is_started = true;
                hooks.job_started();
            }
            for signal in received {
                match signal {
                    libc::SIGTSTP => stop_self(libc::SIGTSTP, hooks),
                    signal if FROM_THE_TERMINAL.contains(&signal) && is_in_foreground() => {}
                    signal => forward(pid, signal),
                }
            }
        }
    }

    /// No effect: `wait` has reaped the job.
    #[expect(clippy::unused_self, reason = "the signature of the Linux version")]
    pub(super) fn reap(self) {}
}

/// Whether the process group of the tracker and the job is in the foreground of its terminal.
fn is_in_foreground() -> bool {
    let group = rustix::process::getpgrp();
    rustix::termios::tcgetpgrp(rustix::stdio::stderr()).is_ok_and(|foreground| foreground == group)
        || rustix::termios::tcgetpgrp(rustix::stdio::stdin()).is_ok_and(|foreground| foreground == group)
}

/// Waits until the tracker ends or a signal stops it.
pub(crate) fn wait_for_stop(signals: &Signals, tracker: &mut Tracker, hooks: &mut dyn Hooks) {
    while tracker.state() == State::Running {
        for signal in signals.queue.wait(Some(CHECK_EVERY)) {
            match signal {
                libc::SIGTSTP => stop_self(libc::SIGTSTP, hooks),
                signal if is_stop(signal) => return tracker.stop(),
                _ => {}
            }
        }
    }
    tracker.wait_for_end();
}
