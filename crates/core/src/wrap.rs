//! Running a command under the tracker, and following one that runs already, without being in its way.
//!
//! In:  a command or a pid. Out: how it ended, and the finished [`Tracker`].
//!
//! The command runs in our process group, with our terminal, streams, environment and folder, and with the
//! signal mask and dispositions that we were given. A signal that is sent to us goes on to it once; one that
//! the terminal sends to the whole group has reached it already. When we are killed, it lives on.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Command;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal};
use thiserror::Error;

use crate::config::{Backend, Config};
use crate::counter::TreeCounter;
use crate::ledger::{Reaped, Totals};
use crate::root::Root;
use crate::sampler::{Order, Sink, Target};
use crate::source::cgroup::{OomKills, OomWatch};
use crate::source::procfs::{parse_pid_io, parse_pid_status};
use crate::sys::{self, Ended, Ending, SignalSet, Watch};
use crate::tracker::{Tracker, TrackerError};
use crate::tree::pid_path;

/// Why a command does not run.
#[derive(Debug, Error)]
pub enum WrapError {
    /// There is no such command.
    #[error("cannot find the command `{command}`")]
    NotFound {
        /// As it was given.
        command: String,
        /// What the system said.
        source: io::Error,
    },
    /// It is there and cannot be executed.
    #[error("cannot execute `{command}`")]
    NotExecutable {
        /// As it was given.
        command: String,
        /// What the system said.
        source: io::Error,
    },
    /// We cannot start anything.
    #[error("cannot start `{command}`")]
    Fork {
        /// As it was given.
        command: String,
        /// What the system said.
        source: io::Error,
    },
    /// The tracker does not start.
    #[error(transparent)]
    Tracker(#[from] TrackerError),
    /// Signals cannot be received.
    #[error("cannot receive signals")]
    Signals(#[source] io::Error),
}

impl WrapError {
    /// As a shell would say it; 125 is our own failure.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound { .. } => 127,
            Self::NotExecutable { .. } => 126,
            Self::Fork { .. } | Self::Tracker(_) | Self::Signals(_) => 125,
        }
    }

    /// What can be done about it.
    #[must_use]
    pub const fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotFound { .. } => Some("is it spelled right, and on PATH? A shell line needs `sh -c '…'`"),
            Self::NotExecutable { .. } => {
                Some("`chmod +x` it, or name its interpreter: `run -- python FILE`")
            }
            Self::Tracker(error) => error.hint(),
            Self::Fork { .. } | Self::Signals(_) => None,
        }
    }
}

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

/// What else goes on while a job runs.
pub trait Beside {
    /// The job has run for a moment and is not about to end at once: the time for work that must not hold it up.
    fn settled(&mut self) {}
    /// Whether something of ours is on the terminal that must go before a stop.
    fn minds_stops(&self) -> bool {
        false
    }
    /// The terminal is about to stop us.
    fn stopping(&mut self) {}
    /// We go on.
    fn continued(&mut self) {}
}

impl Beside for () {}

/// Our signals while a job runs: received on a descriptor instead of interrupting us.
pub(crate) struct Signals {
    descriptor: OwnedFd,
    /// The mask that we were given, for the job.
    mask: SignalSet,
    /// What was ignored when we started and that we must not ignore ourselves, for the job.
    ignored: Vec<i32>,
}

impl Signals {
    pub(crate) fn receive(ignored_at_start: &[i32], stops: bool) -> Result<Self, WrapError> {
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

/// A job that ran, and its finished tracker.
#[derive(Debug)]
pub struct Done {
    /// How it ended; `None` where only its parent is told.
    pub ending: Option<Ending>,
    /// Its process id.
    pub pid: u32,
    /// What the kernel killed for memory meanwhile.
    pub oom_kills: Option<OomKills>,
    /// What was recorded.
    pub tracker: Tracker,
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
    let signals = Signals::receive(ignored_at_start, beside.minds_stops())?;
    let root = Root::host().map_err(|error| WrapError::Tracker(TrackerError::Host(error)))?;
    let mut tracker = Tracker::start(config, Target::Future, sinks)?;
    if config.children {
        // Orphans of the job come to us then; a kernel that refuses leaves them to init.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    }
    let (counter, door) = if config.children && config.backend == Backend::Procfs { count_job(&root, config, &tracker) } else { (None, None) };
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
                _ if arrived.from_kernel => {}
                signal => pass_on(pid, signal),
            }
        }
        // Several ends may hide behind one SIGCHLD. An error here means that there is nothing to wait for.
        while let Ok(Some(ended)) = sys::peek_ended_child() {
            if ended.pid == pid {
                return ended;
            }
            tracker.order(Order::Reaped(last_account(root, &ended)));
            reap(ended.pid);
        }
    }
}

/// Stops as we would have if nobody had asked to be told.
fn stop_here(beside: &mut dyn Beside) {
    beside.stopping();
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
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

/// The command line of a process that runs already, where it can be read.
#[must_use]
pub fn command_of(pid: u32) -> Option<Vec<String>> {
    crate::source::command_of(pid)
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
    let signals = Signals::receive(&[], beside.minds_stops())?;
    let root = Root::host().map_err(|error| WrapError::Tracker(TrackerError::Host(error)))?;
    let memory_watch = OomWatch::start(&root, &pid.to_string());
    let mut tracker = Tracker::start(config, Target::Running(pid), sinks)?;
    beside.settled();
    wait_for_stop(&signals, &mut tracker, None, beside);
    let oom_kills = memory_watch.kills(&root, false);
    Ok(Done { ending: None, pid, oom_kills, tracker })
}

/// Records the machine alone until we are told to stop.
///
/// # Errors
/// [`WrapError`] where nothing can be recorded.
pub fn watch_machine(config: Config, sinks: Vec<Box<dyn Sink>>) -> Result<Tracker, WrapError> {
    let signals = Signals::receive(&[], false)?;
    let mut tracker = Tracker::start(config, Target::None, sinks)?;
    wait_for_stop(&signals, &mut tracker, None, &mut ());
    Ok(tracker)
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
