//! Windows' half of the wrapper: the job is in a job object, which counts it as one, and on our console, whose keys
//! reach it by themselves.

use std::ffi::OsString;
use std::io;
use std::process::{Child, Command};
use std::time::Duration;

use super::{Beside, Done, WrapError};
use crate::config::Config;
use crate::counter::TreeCounter;
use crate::root::Root;
use crate::sampler::{Order, Sink, Target};
use crate::sys::{self, Ended, Ending, Watch};
use crate::tracker::{State, Tracker, TrackerError};

/// A job that has run for so long is not about to end at once.
const SETTLED: Duration = Duration::from_millis(100);
/// How often we look whether the end has come.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Of a wait without an end, in parts that the system can count.
const LONG: Duration = Duration::from_hours(1);

/// The console's keys while a job runs: they end the job, if it likes, and not us.
pub(crate) struct Signals;

impl Signals {
    pub(crate) fn receive() -> Result<Self, WrapError> {
        // A program without a console gets no keys.
        let _ = sys::receive_ctrl_keys();
        Ok(Self)
    }
}

/// Runs `command` under a tracker until it ends.
///
/// # Errors
/// [`WrapError`] where the command does not run; once it runs, nothing of ours ends it.
pub fn run(
    command: &[OsString],
    config: Config,
    sinks: Vec<Box<dyn Sink>>,
    _ignored_at_start: &[i32],
    beside: &mut dyn Beside,
) -> Result<Done, WrapError> {
    let _signals = Signals::receive()?;
    let root = Root::host().map_err(|error| WrapError::Tracker(TrackerError::Host(error)))?;
    let mut tracker = Tracker::start(config, Target::Future, sinks)?;
    let (counter, notes) = if config.children {
        TreeCounter::for_future_child(&root, config.cpu_source)
    } else {
        (None, Vec::new())
    };
    for note in notes {
        tracker.note(note);
    }
    let (mut child, counter) = start(command, counter, &tracker)?;
    let pid = child.id();
    tracker.order(Order::Adopt { pid, counter });
    if !sys::wait_for_child(&child, SETTLED) {
        beside.settled();
        while !sys::wait_for_child(&child, LONG) {}
    }
    let times = sys::child_times(&child).unwrap_or_default();
    // It has ended, so that this neither waits nor fails.
    let code = child.wait().ok().and_then(|status| status.code()).unwrap_or(1);
    let ended = Ended {
        pid,
        how: Ending::Code(code),
        user_us: times.user_ns / 1_000,
        system_us: times.system_ns / 1_000,
        max_rss_kib: 0,
        major_faults: 0,
    };
    tracker.finish(Order::Ended { ended, own_rss_kib: 0 });
    Ok(Done { ending: Some(ended.how), pid, oom_kills: None, tracker })
}

/// Starts the command where it is counted from its first instruction on.
fn start(
    command: &[OsString],
    counter: Option<TreeCounter>,
    tracker: &Tracker,
) -> Result<(Child, Option<TreeCounter>), WrapError> {
    let (program, arguments) = command.split_first().ok_or_else(|| WrapError::NotFound {
        command: String::new(),
        source: io::ErrorKind::NotFound.into(),
    })?;
    let name = || program.to_string_lossy().into_owned();
    let mut prepared = Command::new(program);
    prepared.args(arguments);
    let spawned = if counter.is_some() { sys::spawn_suspended(&mut prepared) } else { prepared.spawn() };
    let mut child = spawned.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => WrapError::NotFound { command: name(), source },
        io::ErrorKind::OutOfMemory => WrapError::Fork { command: name(), source },
        _ => WrapError::NotExecutable { command: name(), source },
    })?;
    let Some(counter) = counter else { return Ok((child, None)) };
    let added = counter.object().add(&child);
    if let Err(source) = sys::resume(&child) {
        // It has not run a single instruction.
        let _ = child.kill();
        return Err(WrapError::Fork { command: name(), source });
    }
    match added {
        Ok(()) => Ok((child, Some(counter))),
        Err(error) => {
            tracker.note(format!("no counter over the whole job: {error}"));
            Ok((child, None))
        }
    }
}

/// Follows a process that runs already, until it ends or we are told to stop.
///
/// # Errors
/// [`WrapError`] where it cannot be followed.
pub fn attach(
    pid: u32,
    config: Config,
    sinks: Vec<Box<dyn Sink>>,
    beside: &mut dyn Beside,
) -> Result<Done, WrapError> {
    let signals = Signals::receive()?;
    let mut tracker = Tracker::start(config, Target::Running(pid), sinks)?;
    beside.settled();
    wait_for_stop(&signals, &mut tracker, None, beside);
    Ok(Done { ending: None, pid, oom_kills: None, tracker })
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
