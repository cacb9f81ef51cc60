//! macOS' half of the wrapper: signals and the job's end arrive on a kernel queue.
//!
//! The queue does not say who sent a signal. The keys of the terminal reach the whole foreground group, the job with
//! us: while we are that group, what the keys send is not sent again. Somebody who sends one of those to us alone then
//! reaches nobody; `SIGTERM` and the others always go on. Orphans of the job go to the system, not to us.

use std::ffi::OsString;
use std::io;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal};

use super::{Beside, Done, WrapError};
use crate::config::Config;
use crate::sampler::{Order, Sink, Target};
use crate::sys::{self, Ended, Ending, Queue, SignalSet, Watch};
use crate::tracker::{State, Tracker};

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

/// What the terminal's keys and its window send.
const FROM_THE_TERMINAL: [i32; 3] = [libc::SIGINT, libc::SIGQUIT, libc::SIGWINCH];

/// A job that has run for so long, without a signal, is not about to end at once.
const SETTLED: Duration = Duration::from_millis(100);
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
    /// For somebody who starts no job.
    pub(crate) fn receive() -> Result<Self, WrapError> {
        Self::receive_for(&[], false)
    }

    fn receive_for(ignored_at_start: &[i32], stops: bool) -> Result<Self, WrapError> {
        // With SIGCHLD ignored the kernel would reap the job behind our back.
        sys::reset(libc::SIGCHLD);
        let stops = stops.then_some(libc::SIGTSTP);
        let wanted = PASSED_ON.into_iter().chain(stops).filter(|signal| !sys::is_ignored(*signal));
        let wanted: Vec<i32> = wanted.collect();
        let mask = SignalSet::of(&wanted).block();
        let queue = Queue::of_signals(&wanted).map_err(WrapError::Signals)?;
        Ok(Self { queue, mask, ignored: ignored_at_start.to_vec() })
    }
}

/// Runs `command` under a tracker until it ends.
///
/// `ignored_at_start` are signals that were ignored when this program started, and are not any more.
///
/// # Errors
/// [`WrapError`] where the command does not run; once it runs, nothing of ours ends it.
pub fn run(
    command: &[OsString],
    config: Config,
    sinks: Vec<Box<dyn Sink>>,
    ignored_at_start: &[i32],
    beside: &mut dyn Beside,
) -> Result<Done, WrapError> {
    let signals = Signals::receive_for(ignored_at_start, beside.minds_stops())?;
    let mut tracker = Tracker::start(config, Target::Future, sinks)?;
    let pid = start(command, &signals)?;
    tracker.order(Order::Adopt { pid, counter: None });
    // One that has ended already is found by waiting for it.
    let _ = signals.queue.watch(pid);
    let ended = wait_for_job(pid, &signals.queue, beside);
    tracker.finish(Order::Ended { ended, own_rss_kib: u64::MAX });
    Ok(Done { ending: Some(ended.how), pid, oom_kills: None, tracker })
}

fn start(command: &[OsString], signals: &Signals) -> Result<u32, WrapError> {
    let (program, arguments) = command.split_first().ok_or_else(|| WrapError::NotFound {
        command: String::new(),
        source: io::ErrorKind::NotFound.into(),
    })?;
    let mut prepared = Command::new(program);
    prepared.args(arguments);
    let child = sys::spawn(&mut prepared, signals.mask, signals.ignored.clone()).map_err(|source| {
        let command = program.to_string_lossy().into_owned();
        match source.raw_os_error() {
            Some(libc::ENOENT) => WrapError::NotFound { command, source },
            Some(libc::EAGAIN | libc::ENOMEM) => WrapError::Fork { command, source },
            _ => WrapError::NotExecutable { command, source },
        }
    })?;
    Ok(child.id())
}

/// Passes signals on until the job's root has ended.
fn wait_for_job(pid: u32, queue: &Queue, beside: &mut dyn Beside) -> Ended {
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

/// Whether the terminal's keys are for us, and so for the job too.
fn is_in_front() -> bool {
    let group = rustix::process::getpgrp();
    rustix::termios::tcgetpgrp(rustix::stdio::stderr()).is_ok_and(|front| front == group)
        || rustix::termios::tcgetpgrp(rustix::stdio::stdin()).is_ok_and(|front| front == group)
}

/// Stops as we would have if nobody had asked to be told.
fn stop_here(beside: &mut dyn Beside) {
    beside.stopping();
    // The signal itself, let through for a moment: where no shell could continue us, the kernel stops nobody.
    let stop = SignalSet::of(&[libc::SIGTSTP]);
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::TSTP);
    stop.unblock();
    let _ = stop.block();
    beside.continued();
}

fn pass_on(pid: u32, signal: i32) {
    if let (Some(pid), Some(signal)) = (Pid::from_raw(pid.cast_signed()), Signal::from_named_raw(signal)) {
        // The job is not reaped, so the number is still its own.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Follows a process that runs already, until it ends or we are told to stop by a signal.
///
/// # Errors
/// [`WrapError`] where it cannot be followed.
pub fn attach(
    pid: u32,
    config: Config,
    sinks: Vec<Box<dyn Sink>>,
    beside: &mut dyn Beside,
) -> Result<Done, WrapError> {
    let signals = Signals::receive_for(&[], beside.minds_stops())?;
    let mut tracker = Tracker::start(config, Target::Running(pid), sinks)?;
    beside.settled();
    wait_for_stop(&signals, &mut tracker, None, beside);
    Ok(Done { ending: None, pid, oom_kills: None, tracker })
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
                libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT => return tracker.stop(),
                libc::SIGTSTP => stop_here(beside),
                _ => {}
            }
        }
    }
    tracker.wait_for_end();
}
