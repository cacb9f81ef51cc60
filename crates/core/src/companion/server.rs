//! The companion's own side: it leaves its host, samples, and keeps the recording of a host that was killed.
//!
//! In:  [`Orders`], a "go" on the standard input. Out: an [`Answer`], rows in the journal, then [`LastWords`] or a
//! recording in the history.

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::time::Duration;

use super::{Answer, CompanionError, LastWords, Orders, is_alive};
use crate::config::{Backend, Config, Interval};
use crate::error::with_causes;
use crate::history::{self, Entry, History};
use crate::record::{self, Rows};
use crate::recording::{Run, Status};
use crate::root::Root;
use crate::sampler::Target;
use crate::snapshot::Moment;
use crate::source::process_start;
use crate::sys::{self, Ending, Watch};
use crate::tracker::{State, Tracker, TrackerError};
use crate::wrap::{Beside, Signals, command_of, wait_for_stop};

/// The companion itself: returns when it has nothing left to do.
///
/// # Errors
/// What it has also told its host.
pub fn serve(orders: &str) -> Result<(), CompanionError> {
    let orders: Orders = serde_json::from_str(orders).map_err(CompanionError::Order)?;
    sys::close_inherited();
    use_all_descriptors();
    // The one that our host sends; one that the host ignores would be so for us too.
    sys::reset(libc::SIGTERM);
    sys::leave_parent().map_err(|error| give_up(CompanionError::Failed { why: error.to_string() }))?;
    let host = Watch::open(orders.host);
    let mut go = [0];
    let _ = io::stdin().read(&mut go);
    let host_start = process_start(orders.host);
    let config = Config {
        interval: Interval::from_seconds(orders.interval)?,
        children: orders.children,
        track_processes: orders.track_processes,
        track_system: orders.track_system,
        backend: Backend::from_name(&orders.backend)?,
        ..Config::default()
    };
    let Started { mut tracker, rows, run, signals } = start(&orders, config).map_err(give_up)?;
    let answered = answer(&Answer {
        pid: std::process::id(),
        start_ticks: process_start(std::process::id()),
        start_time: tracker.started().wall_s(),
        cpu_source: tracker.cpu_source().to_owned(),
        notes: tracker.notes(),
        ..Answer::default()
    });
    if answered.is_err() && is_alive(orders.host, host_start) {
        // It has waited too long for us, and does without. One that is gone was killed: for that we are here.
        return Ok(());
    }
    leave_everything();
    // Who records only the machine has no other end to wait for than its host's.
    let watched = host.as_ref().filter(|_| !orders.track_processes);
    let mut served = Served {
        pid: orders.host,
        start_ticks: host_start,
        is_followed: !orders.track_processes || orders.pid == orders.host,
    };
    wait_for_stop(&signals, &mut tracker, watched, &mut served);
    if is_alive(orders.host, host_start) {
        // The journal is the host's. Where these can be written nowhere, it will think that we were killed.
        let words = LastWords { notes: tracker.notes(), gpus: tracker.gpus(), rest: rows.end().waiting };
        let _ = orders.words.iter().find(|path| words.write(path).is_ok());
        let _ = rows.keep();
    } else {
        keep(&orders, config, rows, run, &tracker, host.as_ref());
    }
    Ok(())
}

fn answer(answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    io::stdout().write_all(&line).and_then(|()| io::stdout().flush())
}

/// Tells the host why nothing comes of it.
fn give_up(error: CompanionError) -> CompanionError {
    if let CompanionError::Refused { why } | CompanionError::Failed { why } = &error {
        let is_refusal = !error.is_shortage();
        let _ = answer(&Answer { error: Some(why.clone()), is_refusal, ..Answer::default() });
    }
    error
}

/// Whom we serve. Others may send signals to all processes around it, which it may survive; where it does not, we end
/// with it, unless it is another process that we follow.
struct Served {
    pid: u32,
    start_ticks: Option<u64>,
    is_followed: bool,
}

impl Beside for Served {
    fn obeys(&self, sender_pid: u32) -> bool {
        sender_pid == self.pid || !self.is_followed || !is_alive(self.pid, self.start_ticks)
    }
}

struct Started {
    tracker: Tracker,
    rows: Rows,
    run: Run,
    signals: Signals,
}

fn start(orders: &Orders, config: Config) -> Result<Started, CompanionError> {
    let failed = |why: String| CompanionError::Failed { why };
    let signals = Signals::receive(&[], false).map_err(|error| failed(error.to_string()))?;
    let run = Run {
        id: Some(orders.id.clone()),
        command: command_of(orders.pid),
        host: sys::host_name(),
        ..Run::default()
    };
    let head = record::head(&config, orders.pid, Moment::now().wall_s(), run.clone());
    let (rows, journal) = Rows::start(&orders.journal, &Rows::about(&head.metadata, &run), false)
        .map_err(|error| failed(format!("cannot write `{}`: {error}", orders.journal.display())))?;
    let target = if orders.track_processes { Target::Running(orders.pid) } else { Target::None };
    let tracker = Tracker::start(config, target, vec![journal]).map_err(|error| {
        let why = with_causes(&error);
        // One that is there could have been followed.
        let is_missing = matches!(error, TrackerError::Target { pid, .. } if process_start(pid).is_none());
        if is_missing { CompanionError::Refused { why } } else { failed(why) }
    })?;
    Ok(Started { tracker, rows, run, signals })
}

/// The host may have few left for itself, and we are not the host.
fn use_all_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Holds nothing more of the host's that could outlive it: its folder, its terminal, the pipes that we spoke through.
fn leave_everything() {
    use rustix::fs::{Mode, OFlags};
    use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
    let _ = rustix::process::chdir("/");
    if let Ok(null) = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        let _ = dup2_stdin(&null);
        let _ = dup2_stdout(&null);
        let _ = dup2_stderr(&null);
    }
}

/// The host is gone and did not say goodbye: its recording goes to the history.
fn keep(orders: &Orders, config: Config, rows: Rows, mut run: Run, tracker: &Tracker, host: Option<&Watch>) {
    if let Some(ending) = how_it_ended(orders.host, host) {
        record::set_ending(&mut run, ending);
        run.notes.push(match ending {
            Ending::Code(code) => format!("the program ended with code {code} without stopping its tracker"),
            Ending::Signal(signal) => format!("the program was killed by signal {signal}"),
        });
    } else {
        run.status = Some(if tracker.state() == State::Exited { Status::Ended } else { Status::Detached });
        run.notes.push("the program ended without stopping its tracker".to_owned());
    }
    let mut head = record::head(&config, orders.pid, tracker.started().wall_s(), run);
    head.metadata.method.clone_from(&orders.method);
    head.metadata.autostart = orders.autostart;
    head.metadata.discover_server = orders.discover_server;
    head.metadata.discover_cloud = orders.discover_cloud;
    record::finish(&mut head, tracker);
    let entry = Entry::new(&orders.id, &head, tracker.summary().stats().ok());
    let history = history::default_directory(|name| std::env::var_os(name)).map(History::at);
    let stored = history.map(|history| history.store(&entry, |file| rows.write_snapshot(file, &head)));
    if !matches!(stored, Some(Ok(_))) {
        // The rows are not to be lost.
        let _ = rows.keep();
    }
}

/// How a process that is no child of ours ended: by its remains, or by what the kernel still knows of it.
fn how_it_ended(pid: u32, pidfd: Option<&Watch>) -> Option<Ending> {
    let root = Root::host_as_guest().ok()?;
    for _ in 0..50 {
        if let Some(ending) = pidfd.and_then(|pidfd| sys::ending_of(pidfd.as_fd())) {
            return Some(ending);
        }
        // `exit_code`, the last field of `stat`: for a zombie the status that `waitpid` would give.
        let text = root.text(&format!("/proc/{pid}/stat"));
        let status = text.as_deref().and_then(|text| {
            let (_, fields) = text.rsplit_once(") Z ")?;
            fields.rsplit(' ').next()?.parse::<i32>().ok()
        });
        if let Some(status) = status {
            return Some(sys::ending_of_status(status));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    None
}
