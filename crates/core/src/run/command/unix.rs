//! Signals on Linux and macOS: which signals the tracker receives, and how it forwards them to the job.
//!
//! Not here: how signals are received (`linux`, `macos`).

use std::sync::OnceLock;

use super::Hooks;
use crate::os::{self, SignalSet};

/// Signals that a tracker without signalfd forwards to the job.
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

/// The signal mask that this program inherited, from the mask at the first call. At a later call, for a second attempt of
/// the job, signals of the first one are still blocked.
pub(super) fn inherited_mask(current: SignalSet) -> SignalSet {
    static INHERITED: OnceLock<SignalSet> = OnceLock::new();
    *INHERITED.get_or_init(|| current)
}

/// Signals to receive: [`FORWARDED`], `more` of this system, and `SIGTSTP` if `stops`. Ignored signals stay ignored.
pub(super) fn signals_to_receive(more: &[i32], stops: bool) -> Vec<i32> {
    // With SIGCHLD ignored the kernel would reap the job, and its exit status would be lost.
    os::reset(libc::SIGCHLD);
    let stops = stops.then_some(libc::SIGTSTP);
    let all = FORWARDED.into_iter().chain(more.iter().copied()).chain(stops);
    all.filter(|signal| !os::is_ignored(*signal)).collect()
}

/// Stops this process as `signal` (`SIGTSTP`, `SIGTTIN` or `SIGTTOU`) does if it is not caught.
pub(super) fn stop_self(signal: i32, hooks: &mut dyn Hooks) {
    hooks.stopping();
    // Not SIGSTOP: in an orphaned process group, no shell could continue a stopped process, and there the three signals
    // have no effect. The signal stops this process when it is unblocked.
    let stop = SignalSet::of(&[signal]);
    os::send_signal(std::process::id(), signal);
    stop.unblock();
    let _ = stop.block();
    hooks.continued();
}

/// Sends a signal to the job. It is not reaped yet, so its pid is not reused. A signal to a zombie has no effect.
pub(super) fn forward(pid: u32, signal: i32) {
    os::send_signal(pid, signal);
}

/// Whether a signal ends a recording if the tracker has started no job (`attach`, `process`, `system`).
pub(super) const fn is_stop(signal: i32) -> bool {
    matches!(signal, libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT)
}
