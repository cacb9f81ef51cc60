//! What the halves of Linux and macOS share: which signals are ours while a job runs, and what is done with them.
//!
//! In:  signals. Out: the same, passed on to the job or to ourselves. Not here: how they arrive (`linux`, `macos`).

use rustix::process::{Pid, Signal};

use super::Beside;
use crate::sys::{self, SignalSet};

/// Signals that are passed on. Those that stop and continue a terminal job reach the job by themselves.
const PASSED_ON: [i32; 11] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGWINCH,
];

/// What to receive: signals that are passed on, `more` of them on this system, and what stops us where that is wanted.
pub(super) fn wanted(more: &[i32], stops: bool) -> Vec<i32> {
    // With SIGCHLD ignored the kernel would reap the job behind our back.
    sys::reset(libc::SIGCHLD);
    let stops = stops.then_some(libc::SIGTSTP);
    let all = PASSED_ON.into_iter().chain(more.iter().copied()).chain(stops);
    all.filter(|signal| !sys::is_ignored(*signal)).collect()
}

/// Stops as we would have if nobody had asked to be told.
pub(super) fn stop_here(beside: &mut dyn Beside) {
    beside.stopping();
    // The signal itself, let through for a moment: where no shell could continue us, the kernel stops nobody.
    let stop = SignalSet::of(&[libc::SIGTSTP]);
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::TSTP);
    stop.unblock();
    let _ = stop.block();
    beside.continued();
}

/// Sends a signal to the job.
pub(super) fn pass_on(pid: u32, signal: i32) {
    if let (Some(pid), Some(signal)) = (Pid::from_raw(pid.cast_signed()), Signal::from_named_raw(signal)) {
        // The job is not reaped, so the number is still its own; it may have ended, and then nobody minds.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Whether a signal tells somebody who started no job to stop.
pub(super) const fn is_stop(signal: i32) -> bool {
    matches!(signal, libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT)
}
