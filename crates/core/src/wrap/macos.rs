//! macOS' half of the wrapper: signals and the job's end arrive on a kernel queue.
//!
//! The queue does not say who sent a signal. The keys of the terminal reach the whole foreground group, the job with
//! us: while we are that group, what the keys send is not sent again. Somebody who sends one of those to us alone then
//! reaches nobody; `SIGTERM` and the others always go on. Orphans of the job go to the system, not to us.

use std::process::Command;
use std::time::Duration;

use super::unix::{self, is_stop, pass_on, stop_here};
use super::{Beside, Ours, SETTLED, WrapError};
use crate::counter::TreeCounter;
use crate::sys::{self, Ended, Ending, Queue, SignalSet, Watch};
use crate::tracker::{State, Tracker};

/// What the terminal's keys and its window send.
const FROM_THE_TERMINAL: [i32; 3] = [libc::SIGINT, libc::SIGQUIT, libc::SIGWINCH];

/// How often we look whether the tracker has ended by itself.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Our signals while a job runs: received on a queue instead of interrupting us.
pub(crate) struct Signals {
    queue: Queue,
    /// The mask that we were given, for the job.
    mask: SignalSet,
    /// What was ignored when we started and that we must not ignore ourselves, for the job.
    ignored: Vec<i32>,
}

impl Signals {
    /// `ignored_at_start` is for the job; `stops` asks for those of the terminal too.
    pub(crate) fn receive(ignored_at_start: &[i32], stops: bool) -> Result<Self, WrapError> {
        let wanted = unix::wanted(&[], stops);
        let mask = SignalSet::of(&wanted).block();
        let queue = Queue::of_signals(&wanted).map_err(WrapError::Signals)?;
        Ok(Self { queue, mask, ignored: ignored_at_start.to_vec() })
    }
}

/// The job, from its start to its burial.
pub(super) struct Job {
    pub(super) pid: u32,
    /// Our own size when we forked it is not known: nothing can be proved by a child's mark.
    pub(super) own_rss_kib: u64,
}

impl Job {
    /// Starts the command; nothing counts it as a whole here.
    pub(super) fn start(
        mut command: Command,
        ours: &Ours<'_>,
    ) -> Result<(Self, Option<TreeCounter>), WrapError> {
        let child = sys::spawn(&mut command, ours.signals.mask, ours.signals.ignored.clone())
            .map_err(|source| WrapError::not_started(&command, source))?;
        Ok((Self { pid: child.id(), own_rss_kib: u64::MAX }, None))
    }

    /// Passes signals on until the job's root has ended.
    pub(super) fn wait(&mut self, ours: &Ours<'_>, beside: &mut dyn Beside) -> Ended {
        let (pid, queue) = (self.pid, &ours.signals.queue);
        // One that has ended already is found by waiting for it.
        let _ = queue.watch(pid);
        let mut is_settled = false;
        loop {
            match sys::reap(pid) {
                Ok(Some(ended)) => return ended,
                Ok(None) => {}
                // Nobody to wait for: how it ended is lost.
                Err(_) => {
                    let how = Ending::Code(1);
                    return Ended { pid, how, user_us: 0, system_us: 0, max_rss_kib: 0, major_faults: 0 };
                }
            }
            let arrived = queue.wait((!is_settled).then_some(SETTLED));
            if !is_settled && arrived.is_empty() {
                is_settled = true;
                beside.settled();
            }
            for signal in arrived {
                match signal {
                    libc::SIGTSTP => stop_here(beside),
                    signal if FROM_THE_TERMINAL.contains(&signal) && is_in_front() => {}
                    signal => pass_on(pid, signal),
                }
            }
        }
    }

    /// Waiting for it did that already.
    #[expect(clippy::unused_self, reason = "as Linux's")]
    pub(super) fn bury(self) {}
}

/// Whether the terminal's keys are for us, and so for the job too.
fn is_in_front() -> bool {
    let group = rustix::process::getpgrp();
    rustix::termios::tcgetpgrp(rustix::stdio::stderr()).is_ok_and(|front| front == group)
        || rustix::termios::tcgetpgrp(rustix::stdio::stdin()).is_ok_and(|front| front == group)
}

/// Until the tracker ends, or we are told to stop by a signal.
pub(crate) fn wait_for_stop(
    signals: &Signals,
    tracker: &mut Tracker,
    _other: Option<&Watch>,
    beside: &mut dyn Beside,
) {
    while tracker.state() == State::Running {
        for signal in signals.queue.wait(Some(LOOK_EVERY)) {
            match signal {
                libc::SIGTSTP => stop_here(beside),
                signal if is_stop(signal) => return tracker.stop(),
                _ => {}
            }
        }
    }
    tracker.wait_for_end();
}
