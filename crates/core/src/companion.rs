//! A sampler in a process of its own, which goes on when the program that started it is killed.
//!
//! In:  a [`Plan`] and the program to run as companion. Out: [`Companion`], whose rows lie in a journal that both sides
//! know; [`serve`] is the other side.
//!
//! ```text
//! host ── starts the command ──▶ child ── forks ──▶ companion       the child ends at once and is waited for,
//!      ── "go" ───────────────────────────────────▶ baseline        so the companion is nobody's child
//!      ◀──────────────────── one line of JSON: who, since when
//!      ── SIGTERM ────────────────────────────────▶ last row, notes, end   the journal is the host's
//!      killed                                       last row, the recording goes to the history
//! ```

use std::fs::OpenOptions;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::config::{Backend, Config, ConfigError, Interval};
use crate::history::{self, Entry, History};
use crate::journal::notes_path;
use crate::paths;
use crate::record::{self, Rows};
use crate::recording::{Run, Status};
use crate::recover::temporary_name;
use crate::root::Root;
use crate::sampler::Target;
use crate::session::Plan;
use crate::snapshot::Moment;
use crate::source::gpu::GpuFigures;
use crate::source::{process_start, procfs};
use crate::sys::{self, Ending, Watch};
use crate::tracker::{State, Tracker};
use crate::wrap::{Signals, command_of, wait_for_stop};

/// Whether a companion can be had here.
pub const IS_AVAILABLE: bool = true;

/// The hidden command of the program that becomes a companion.
pub const COMMAND: &str = "companion";

/// A companion that says nothing for so long is not coming.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// One that was told to stop and does not, for so long, is left alone.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Why there is no companion.
#[derive(Debug, Error)]
pub enum CompanionError {
    /// The program cannot be run.
    #[error("cannot start the companion `{program}`")]
    Start {
        /// Which.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It ran and gave up.
    #[error("the companion did not start: {why}")]
    Refused {
        /// What it said.
        why: String,
    },
    /// An order that makes no sense.
    #[error("the companion's order is not understood")]
    Order(#[source] serde_json::Error),
    /// An interval that cannot be kept.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// What a companion is told.
#[derive(Debug, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "the switches of a plan")]
struct Orders {
    host: u32,
    pid: u32,
    interval: f64,
    children: bool,
    track_processes: bool,
    track_system: bool,
    backend: String,
    method: Option<String>,
    autostart: bool,
    discover_server: bool,
    discover_cloud: bool,
    id: String,
    journal: PathBuf,
}

/// What it answers.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Answer {
    error: Option<String>,
    pid: u32,
    start_ticks: Option<u64>,
    start_time: f64,
    cpu_source: String,
    notes: Vec<String>,
}

/// What it leaves for its host at the end, beside the rows.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LastWords {
    /// What did not go as it should.
    pub notes: Vec<String>,
    /// What each GPU did.
    pub gpus: Vec<GpuFigures>,
}

/// A companion that runs, or ran.
#[derive(Debug)]
pub struct Companion {
    pid: u32,
    start_ticks: Option<u64>,
    /// Moment of its baseline.
    pub start_time: f64,
    /// How it counts CPU time.
    pub cpu_source: String,
    /// As of the start, and once it has been stopped all of it.
    pub words: LastWords,
    words_path: PathBuf,
    /// It had ended by itself when it was told to stop.
    has_exited: bool,
}

impl Companion {
    /// Starts one, and waits for its baseline. The rows are ours to remove.
    ///
    /// # Errors
    /// [`CompanionError`]; nothing runs then.
    pub fn start(program: &Path, plan: &Plan) -> Result<(Self, Rows), CompanionError> {
        let id = History::new_id();
        let history = history::default_directory(|name| std::env::var_os(name)).map(History::at);
        let journal = match history.filter(|history| history.prepare().is_ok()) {
            Some(history) => history.journal_path(&id),
            None => paths::temporary().join(temporary_name(std::process::id(), &id)),
        };
        let orders = Orders {
            host: std::process::id(),
            pid: plan.pid,
            interval: plan.config.interval.seconds(),
            children: plan.config.children,
            track_processes: plan.config.track_processes,
            track_system: plan.config.track_system,
            backend: plan.config.backend.name().to_owned(),
            method: plan.method.clone(),
            autostart: plan.autostart,
            discover_server: plan.discover_server,
            discover_cloud: plan.discover_cloud,
            id,
            journal,
        };
        let answer = converse(program, &orders)
            .map_err(|source| CompanionError::Start { program: program.to_owned(), source })?;
        if let Some(why) = answer.error {
            return Err(CompanionError::Refused { why });
        }
        let Answer { pid, start_ticks, start_time, cpu_source, notes, .. } = answer;
        let words = LastWords { notes, ..LastWords::default() };
        let words_path = notes_path(&orders.journal);
        let companion =
            Self { pid, start_ticks, start_time, cpu_source, words, words_path, has_exited: false };
        Ok((companion, Rows::of(orders.journal)))
    }

    /// Whether it still records.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        is_alive(self.pid, self.start_ticks)
    }

    /// Where it is in its life. One that is gone has ended with the process that it followed when it has left its
    /// words unasked; else it was killed.
    #[must_use]
    pub fn state(&self) -> State {
        if self.is_alive() {
            State::Running
        } else if self.has_exited || self.words_path.exists() {
            State::Exited
        } else {
            State::Stopped
        }
    }

    /// Has the last row made, waits for the end, and hears what there is to tell.
    pub fn stop(&mut self) {
        self.has_exited = self.state() == State::Exited;
        if let Some(pid) = Pid::from_raw(self.pid.cast_signed()).filter(|_| self.is_alive()) {
            let _ = kill_process(pid, Signal::TERM);
            let end = Instant::now() + STOP_TIMEOUT;
            while self.is_alive() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        match LastWords::read(&self.words_path) {
            Some(words) => self.words = words,
            None => self.words.notes.push("the companion was killed: rows after that are missing".to_owned()),
        }
        let _ = std::fs::remove_file(&self.words_path);
    }
}

impl LastWords {
    fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(path).ok()?).ok()
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        let mut file = sys::for_owner(OpenOptions::new().write(true).create_new(true)).open(path)?;
        file.write_all(&serde_json::to_vec(self)?)
    }
}

fn is_alive(pid: u32, start_ticks: Option<u64>) -> bool {
    Root::host_as_guest().is_ok_and(|root| procfs::is_alive(&root, pid, start_ticks))
}

/// Starts the program, lets it leave us, and hears what it has to say.
fn converse(program: &Path, orders: &Orders) -> io::Result<Answer> {
    let mut child = Command::new(program)
        .arg(COMMAND)
        .arg(serde_json::to_string(orders)?)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let (go, said) = (child.stdin.take(), child.stdout.take());
    // Only this child, and it ends at once. A host that ignores SIGCHLD has had it waited for by the kernel.
    let _ = child.wait();
    let (Some(mut go), Some(said)) = (go, said) else { return Err(io::ErrorKind::BrokenPipe.into()) };
    // From here on none of its time can come back to us: the baseline may be read.
    let _ = go.write_all(b"\n");
    let line = read_line(OwnedFd::from(said))?;
    if line.is_empty() {
        return Err(io::Error::other("it ended without a word"));
    }
    serde_json::from_slice(&line).map_err(io::Error::from)
}

/// Up to the end of the line and not of the file, which another fork of ours may hold open.
fn read_line(said: OwnedFd) -> io::Result<Vec<u8>> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let timeout = Timespec { tv_sec: START_TIMEOUT.as_secs().cast_signed(), tv_nsec: 0 };
    let mut fds = [PollFd::from_borrowed_fd(said.as_fd(), PollFlags::IN)];
    loop {
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    let mut line = Vec::new();
    BufReader::new(std::fs::File::from(said)).read_until(b'\n', &mut line)?;
    Ok(line)
}

/// The companion itself: returns when it has nothing left to do.
///
/// # Errors
/// What it has also told its host.
pub fn serve(orders: &str) -> Result<(), CompanionError> {
    let orders: Orders = serde_json::from_str(orders).map_err(CompanionError::Order)?;
    let refused = |why: String| CompanionError::Refused { why };
    let answered = |answer: &Answer| {
        let mut line = serde_json::to_vec(answer).unwrap_or_default();
        line.push(b'\n');
        // A host that is gone is one that was killed: we go on.
        let _ = io::stdout().write_all(&line).and_then(|()| io::stdout().flush());
    };
    sys::leave_parent().map_err(|error| refused(error.to_string()))?;
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
    let started = start(&orders, config);
    let (mut tracker, rows, run, signals) = match started {
        Ok(started) => started,
        Err(why) => {
            answered(&Answer { error: Some(why.clone()), ..Answer::default() });
            return Err(refused(why));
        }
    };
    answered(&Answer {
        error: None,
        pid: std::process::id(),
        start_ticks: process_start(std::process::id()),
        start_time: tracker.started().wall_s(),
        cpu_source: tracker.cpu_source().to_owned(),
        notes: tracker.notes(),
    });
    leave_everything();
    // Who records only the machine has no other end to wait for than its host's.
    let watched = host.as_ref().filter(|_| !orders.track_processes);
    wait_for_stop(&signals, &mut tracker, watched, &mut ());
    if is_alive(orders.host, host_start) {
        // The journal is the host's. Where these cannot be written, it will think that we were killed.
        let words = LastWords { notes: tracker.notes(), gpus: tracker.gpus() };
        let _ = words.write(&notes_path(rows.path()));
        let _ = rows.keep();
    } else {
        keep(&orders, config, rows, run, &tracker, host.as_ref());
    }
    Ok(())
}

type Started = (Tracker, Rows, Run, Signals);

fn start(orders: &Orders, config: Config) -> Result<Started, String> {
    let signals = Signals::receive(&[], false).map_err(|error| error.to_string())?;
    let run = Run {
        id: Some(orders.id.clone()),
        command: command_of(orders.pid),
        host: sys::host_name(),
        ..Run::default()
    };
    let head = record::head(&config, orders.pid, Moment::now().wall_s(), run.clone());
    let (rows, sink) = Rows::start(&orders.journal, &Rows::about(&head.metadata, &run), false)
        .map_err(|error| format!("cannot write `{}`: {error}", orders.journal.display()))?;
    let target = if orders.track_processes { Target::Running(orders.pid) } else { Target::None };
    let tracker =
        Tracker::start(config, target, vec![sink]).map_err(|error| crate::error::with_causes(&error))?;
    Ok((tracker, rows, run, signals))
}

/// Holds nothing of the host's that could outlive it: its folder, its terminal, its pipes.
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
