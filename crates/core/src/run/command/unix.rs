//! Signals on Linux and macOS: which signals the tracker receives while a job runs, and how it forwards them.
//!
//! Not here: how signals are received (`linux`, `macos`).

use rustix::process::{Pid, Signal};

use super::Hooks;
use crate::os::{self, SignalSet};

/// Signals that are forwarded to the job. The terminal sends stop and continue signals to the job directly.
const FORWARDED: [i32; 11] = [
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

/// Signals to receive: [`FORWARDED`], `more` of this system, and `SIGTSTP` if `stops`. Ignored signals stay ignored.
pub(super) fn signals_to_receive(more: &[i32], stops: bool) -> Vec<i32> {
    // With SIGCHLD ignored the kernel would reap the job, and its exit status would be lost.
    os::reset(libc::SIGCHLD);
    let stops = stops.then_some(libc::SIGTSTP);
    let all = FORWARDED.into_iter().chain(more.iter().copied()).chain(stops);
    all.filter(|signal| !os::is_ignored(*signal)).collect()
}

/// Stops this process as an unhandled `SIGTSTP` does.
pub(super) fn stop_self(hooks: &mut dyn Hooks) {
    hooks.stopping();
    // SIGTSTP and not SIGSTOP: in an orphaned process group, no shell could continue a stopped process, and there
    // SIGTSTP has no effect. It stops this process when it is unblocked.
    let stop = SignalSet::of(&[libc::SIGTSTP]);
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::TSTP);
    stop.unblock();
    let _ = stop.block();
    hooks.continued();
}

pub(super) fn forward(pid: u32, signal: i32) {
    if let (Some(pid), Some(signal)) = (Pid::from_raw(pid.cast_signed()), Signal::from_named_raw(signal)) {
        // The job is not reaped yet, so its pid is not reused. A signal to a zombie has no effect.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Whether a signal ends a recording if the tracker has started no job (`attach`, `process`, `system`).
pub(super) const fn is_stop(signal: i32) -> bool {
    matches!(signal, libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT)
}
