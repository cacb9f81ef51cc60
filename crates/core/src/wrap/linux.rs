//! Linux's half of the wrapper: signals and ends of children arrive on descriptors, orphans come to us, and the job is
//! looked at once more between its end and its burial.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Command;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal};

use super::{Beside, Done, WrapError};
use crate::config::{Backend, Config};
use crate::counter::TreeCounter;
use crate::ledger::{Reaped, Totals};
use crate::root::Root;
use crate::sampler::{Order, Sink, Target};
use crate::source::cgroup::OomWatch;
use crate::source::gpu;
use crate::source::procfs::{parse_pid_io, parse_pid_status};
use crate::sys::{self, Ended, Ending, SignalSet, Watch};
use crate::tracker::{Tracker, TrackerError};
use crate::tree::pid_path;

/// Signals that are passed on. Those that stop and continue a terminal job reach the job by themselves.
const PASSED_ON: [i32; 12] = [
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
    libc::SIGPWR,
    libc::SIGWINCH,
];

/// What a shell, and with it a job that is a script, exits with when its command was killed by SIGKILL.
const KILLED_SAYS_THE_SHELL: i32 = 128 + libc::SIGKILL;

/// A job that has run for so long, without a signal or a child of it ending, is not about to end at once.
const SETTLED: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Our signals while a job runs: received on a descriptor instead of interrupting us.
pub(crate) struct Signals {
    descriptor: OwnedFd,
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
        let mut wanted: Vec<i32> = wanted.collect();
        wanted.push(libc::SIGCHLD);
        let set = SignalSet::of(&wanted);
        let mask = set.block();
        let descriptor = set.descriptor().map_err(WrapError::Signals)?;
        Ok(Self { descriptor, mask, ignored: ignored_at_start.to_vec() })
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
    let root = Root::host().map_err(|error| WrapError::Tracker(TrackerError::Host(error)))?;
    // What read the arguments and opened the outputs is not needed while we sample, nor that when we sum up.
    sys::release_start_up_code();
    let mut tracker = Tracker::start(config, Target::Future, sinks)?;
    if config.children {
        // Orphans of the job come to us then; a kernel that refuses leaves them to init.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    }
    let (counter, door) = if config.children && config.backend == Backend::Procfs {
        count_job(&root, config, &tracker)
    } else {
        (None, None)
    };
    let own_rss_kib = own_peak_rss_kib(&root);
    let memory_watch = OomWatch::start(&root, "self");
    let child = start(command, &signals, door)?;
    let pid = child.id();
    tracker.order(Order::Adopt { pid, counter });
    let ended = wait_for_job(pid, &signals.descriptor, &root, &tracker, beside);
    tracker.finish(Order::Ended { ended, own_rss_kib });
    reap(pid);
    let killed = matches!(ended.how, Ending::Signal(libc::SIGKILL) | Ending::Code(KILLED_SAYS_THE_SHELL));
    let oom_kills = memory_watch.kills(&root, killed);
    sys::release_start_up_code();
    Ok(Done { ending: Some(ended.how), pid, oom_kills, tracker })
}

/// The counter for the job that is about to start, and what it must write to in order to be counted.
fn count_job(root: &Root, config: Config, tracker: &Tracker) -> (Option<TreeCounter>, Option<OwnedFd>) {
    let (counter, notes) = TreeCounter::for_future_child(root, config.cpu_source);
    for note in notes {
        tracker.note(note);
    }
    match counter.as_ref().map(TreeCounter::door) {
        Some(Ok(door)) => (counter, door),
        // A group that the job cannot enter counts nobody.
        Some(Err(why)) => {
            tracker.note(why);
            (None, None)
        }
        None => (None, None),
    }
}

fn start(
    command: &[OsString],
    signals: &Signals,
    door: Option<OwnedFd>,
) -> Result<std::process::Child, WrapError> {
    let (program, arguments) = command.split_first().ok_or_else(|| WrapError::NotFound {
        command: String::new(),
        source: io::ErrorKind::NotFound.into(),
    })?;
    let mut prepared = Command::new(program);
    prepared.args(arguments);
    sys::spawn(&mut prepared, signals.mask, signals.ignored.clone(), door).map_err(|source| {
        let command = program.to_string_lossy().into_owned();
        match source.raw_os_error() {
            Some(libc::ENOENT) => WrapError::NotFound { command, source },
            Some(libc::EAGAIN | libc::ENOMEM) => WrapError::Fork { command, source },
            _ => WrapError::NotExecutable { command, source },
        }
    })
}

/// Passes signals on and reaps orphans, until the job's root has ended; leaves the root for the last look.
fn wait_for_job(
    pid: u32,
    signals: &OwnedFd,
    root: &Root,
    tracker: &Tracker,
    beside: &mut dyn Beside,
) -> Ended {
    let mut is_settled = false;
    loop {
        let mut fds = [PollFd::new(signals, PollFlags::IN)];
        let timeout = (!is_settled).then_some(&SETTLED);
        if poll(&mut fds, timeout) == Ok(0) {
            is_settled = true;
            beside.settled();
            sys::release_start_up_code();
        }
        while let Some(arrived) = sys::next_signal(signals.as_fd()) {
            match arrived.signal {
                libc::SIGTSTP => stop_here(beside),
                libc::SIGCHLD => {}
                // The job has it already; less, for one, drops the next key after a second SIGWINCH.
                _ if arrived.to_group => {}
                signal => pass_on(pid, signal),
            }
        }
        // Several ends may hide behind one SIGCHLD. An error here means that there is nothing to wait for.
        while let Ok(Some(ended)) = sys::peek_ended_child() {
            if ended.pid == pid {
                return ended;
            }
            if !gpu::is_helper(ended.pid) {
                tracker.order(Order::Reaped(last_account(root, &ended)));
            }
            reap(ended.pid);
        }
    }
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
        // The job is not reaped, so the number is still its own; it may have ended, and then nobody minds.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// What an orphan spent; its files are readable until it is reaped.
fn last_account(root: &Root, ended: &Ended) -> Reaped {
    let mut buffer = Vec::new();
    let io = root
        .read(pid_path(ended.pid, "io").as_str(), &mut buffer)
        .ok()
        .and_then(|text| parse_pid_io(text).ok());
    let io = io.unwrap_or_default();
    let us_per_tick = 1_000_000 / rustix::param::clock_ticks_per_second().max(1);
    Reaped {
        pid: ended.pid,
        spent: Totals {
            cpu_ns: ended.user_us.saturating_add(ended.system_us).saturating_mul(1_000),
            user_ticks: ended.user_us / us_per_tick,
            system_ticks: ended.system_us / us_per_tick,
            read_bytes: io.read_bytes,
            write_bytes: io.write_bytes,
            major_faults: ended.major_faults,
        },
    }
}

fn reap(pid: u32) {
    use rustix::process::{WaitId, WaitIdOptions, waitid};
    if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
        let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    }
}

fn own_peak_rss_kib(root: &Root) -> u64 {
    let mut buffer = Vec::new();
    let text = root.read("/proc/self/status", &mut buffer).ok();
    // Not known: then nothing can be proved by a child's mark.
    text.and_then(|text| parse_pid_status(text).ok()?.peak_rss_kib).unwrap_or(u64::MAX)
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
    let root = Root::host().map_err(|error| WrapError::Tracker(TrackerError::Host(error)))?;
    let memory_watch = OomWatch::start(&root, &pid.to_string());
    let mut tracker = Tracker::start(config, Target::Running(pid), sinks)?;
    beside.settled();
    wait_for_stop(&signals, &mut tracker, None, beside);
    let oom_kills = memory_watch.kills(&root, false);
    Ok(Done { ending: None, pid, oom_kills, tracker })
}

/// Until the tracker ends, we are told to stop by a signal, or `other` ends.
pub(crate) fn wait_for_stop(
    signals: &Signals,
    tracker: &mut Tracker,
    other: Option<&Watch>,
    beside: &mut dyn Beside,
) {
    let signals = &signals.descriptor;
    loop {
        let mut fds = vec![PollFd::new(signals, PollFlags::IN)];
        fds.extend(tracker.ended().map(|bell| PollFd::new(bell, PollFlags::IN)));
        fds.extend(other.map(|process| PollFd::new(process, PollFlags::IN)));
        let _ = poll(&mut fds, None);
        if fds.get(1).is_some_and(|ended| !ended.revents().is_empty()) {
            return tracker.wait_for_end();
        }
        if fds.get(2).is_some_and(|other| !other.revents().is_empty()) {
            return tracker.stop();
        }
        while let Some(arrived) = sys::next_signal(signals.as_fd()) {
            match arrived.signal {
                libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT => return tracker.stop(),
                libc::SIGTSTP => stop_here(beside),
                _ => {}
            }
        }
    }
}
