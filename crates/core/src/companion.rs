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

mod server;

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, test_kill_process, waitpid};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::config::ConfigError;
use crate::history::{self, History};
use crate::journal::{Journal, Reader, notes_path};
use crate::metric::Row;
use crate::paths;
use crate::record::Rows;
use crate::recover::temporary_name;
use crate::root::Root;
use crate::session::Plan;
use crate::source::gpu::GpuFigures;
use crate::source::{process_start, procfs};
use crate::sys;
use crate::tracker::State;

pub use server::serve;

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
    /// It ran, and there is no such process to follow.
    #[error("the companion did not start: {why}")]
    Refused {
        /// What it said.
        why: String,
    },
    /// It ran, and this machine has not what it needs: room on a disk, say.
    #[error("the companion did not start: {why}")]
    Failed {
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

impl CompanionError {
    /// Whether the machine lacks something and nobody has asked for the wrong thing: no reason to fail a job.
    #[must_use]
    pub fn is_shortage(&self) -> bool {
        match self {
            // A command that is not installed, or is no program.
            Self::Start { source, .. } => {
                !matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
            }
            Self::Failed { .. } => true,
            Self::Refused { .. } | Self::Order(_) | Self::Config(_) => false,
        }
    }
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
    /// Where the last words may be, in this order.
    words: Vec<PathBuf>,
}

/// What it answers.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Answer {
    error: Option<String>,
    /// The error is about what was asked.
    is_refusal: bool,
    pid: u32,
    start_ticks: Option<u64>,
    start_time: f64,
    cpu_source: String,
    notes: Vec<String>,
}

/// What it leaves for its host at the end, beside the rows. In a file it is a journal with the rest of the rows.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LastWords {
    /// What did not go as it should.
    pub notes: Vec<String>,
    /// What each GPU did.
    pub gpus: Vec<GpuFigures>,
    /// Rows for which there was no room where the others are.
    #[serde(skip)]
    pub rest: Vec<Row>,
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
    words_paths: Vec<PathBuf>,
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
        let has_room =
            |history: &History| history.prepare().is_ok() && paths::takes_files(history.directory());
        let journal = match history.filter(has_room) {
            Some(history) => history.journal_path(&id),
            None => paths::temporary().join(temporary_name(std::process::id(), &id)),
        };
        let words = places_for_words(&journal, &id);
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
            words,
        };
        let answer = converse(program, &orders)
            .map_err(|source| CompanionError::Start { program: program.to_owned(), source })?;
        if let Some(why) = answer.error {
            return Err(if answer.is_refusal {
                CompanionError::Refused { why }
            } else {
                CompanionError::Failed { why }
            });
        }
        let Answer { pid, start_ticks, start_time, cpu_source, notes, .. } = answer;
        let words = LastWords { notes, ..LastWords::default() };
        let Orders { journal, words: words_paths, .. } = orders;
        let companion =
            Self { pid, start_ticks, start_time, cpu_source, words, words_paths, has_exited: false };
        Ok((companion, Rows::of(journal)))
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
        } else if self.has_exited || self.words_path().is_some() {
            State::Exited
        } else {
            State::Stopped
        }
    }

    /// Where it has left its words. Others may write into some of those folders too.
    fn words_path(&self) -> Option<&Path> {
        let is_ours = |path: &&PathBuf| {
            path.symlink_metadata().is_ok_and(|found| found.is_file() && sys::is_own_file(&found))
        };
        self.words_paths.iter().find(is_ours).map(PathBuf::as_path)
    }

    /// Has the last row made, waits for the end, and hears what there is to tell.
    pub fn stop(&mut self) {
        self.has_exited = self.state() == State::Exited;
        let told = self.tell_to_stop();
        let path = self.words_path().map(Path::to_owned);
        match (path.as_deref().and_then(LastWords::read), told) {
            (Some(words), _) => self.words = words,
            (None, Ok(())) => self.words.notes.push(
                "the companion was killed, or had no room for what it knew: rows after that are missing"
                    .to_owned(),
            ),
            (None, Err(error)) => self.words.notes.push(format!(
                "the companion cannot be stopped: {error}; it records until this program ends, for the history"
            )),
        }
        if let Some(path) = path {
            let _ = std::fs::remove_file(path);
        }
    }

    /// Returns when it has ended.
    ///
    /// # Errors
    /// Where it goes on: a host that has changed its user may not send it a signal any more.
    fn tell_to_stop(&self) -> io::Result<()> {
        let Some(pid) = Pid::from_raw(self.pid.cast_signed()) else { return Ok(()) };
        let end = Instant::now() + STOP_TIMEOUT;
        while self.is_alive() {
            // Again and again: one that comes while somebody else's is waiting there is lost.
            // One that somebody has halted hears it once it goes on.
            match kill_process(pid, Signal::TERM).and_then(|()| kill_process(pid, Signal::CONT)) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(errno) => return Err(errno.into()),
            }
            if Instant::now() > end {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // Process 1 of a container gets every orphan for a child, and so does one that asks for them: this one, too.
        if self.start_ticks.is_some() && process_start(self.pid) == self.start_ticks {
            // Nobody else's is ever waited for; one whose last thread is still on its way out ends at once.
            while matches!(waitpid(Some(pid), WaitOptions::NOHANG), Ok(None)) && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }
}

impl LastWords {
    fn read(path: &Path) -> Option<Self> {
        let mut reader = Reader::open(path).ok()?;
        let words: Self = serde_json::from_value(reader.recording.take()).ok()?;
        Some(Self { rest: reader.collect(), ..words })
    }

    /// Whole or not at all.
    fn write(&self, path: &Path) -> io::Result<()> {
        let mut file = Journal::create(path, serde_json::to_value(self)?, false)?;
        let written = self.rest.iter().try_for_each(|row| file.append(row));
        if written.is_err() {
            let _ = std::fs::remove_file(path);
        }
        written
    }
}

/// Beside the rows, or where there is room when there is none: the words are short, and read at once.
fn places_for_words(journal: &Path, id: &str) -> Vec<PathBuf> {
    let name = notes_path(Path::new(&temporary_name(std::process::id(), id)));
    let others = [paths::temporary(), PathBuf::from("/dev/shm")].map(|folder| folder.join(&name));
    std::iter::once(notes_path(journal)).chain(others).collect()
}

fn is_alive(pid: u32, start_ticks: Option<u64>) -> bool {
    match Root::host_as_guest() {
        Ok(root) if root.check_processes().is_ok() => procfs::is_alive(&root, pid, start_ticks),
        // We cannot see any process, for want of a descriptor or of our own `/proc`. Whether there is one of that number can be
        // told all the same.
        _ => Pid::from_raw(pid.cast_signed())
            .is_some_and(|pid| matches!(test_kill_process(pid), Ok(()) | Err(Errno::PERM))),
    }
}

/// Starts the program, lets it leave us, and hears what it has to say.
fn converse(program: &Path, orders: &Orders) -> io::Result<Answer> {
    // No pipe: whoever writes into one that nobody reads any more may be killed for it.
    let (mut go, theirs) = UnixStream::pair()?;
    let mut child = Command::new(program)
        .arg(COMMAND)
        .arg(serde_json::to_string(orders)?)
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let said = child.stdout.take();
    // Only this child, and it ends at once. A host that ignores SIGCHLD has had it waited for by the kernel.
    let _ = child.wait();
    let Some(said) = said else { return Err(io::ErrorKind::BrokenPipe.into()) };
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
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    let mut line = Vec::new();
    BufReader::new(std::fs::File::from(said)).read_until(b'\n', &mut line)?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Metric;

    #[test]
    fn last_words_come_back_with_the_rows_that_had_no_room() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("words");
        let mut row = Row::default();
        row.set(Metric::Timestamp, Some(12.5));
        let words = LastWords { notes: vec!["a note".to_owned()], gpus: Vec::new(), rest: vec![row; 3] };
        words.write(&path).unwrap();
        assert!(words.write(&path).is_err(), "what is there is somebody's");
        let read = LastWords::read(&path).unwrap();
        assert_eq!((&read.notes, &read.rest), (&words.notes, &words.rest));
        assert!(LastWords::read(&folder.path().join("missing")).is_none());
    }

    #[test]
    fn a_machine_in_want_fails_no_job_and_a_wrong_order_does() {
        let start = |kind: io::ErrorKind| CompanionError::Start { program: "it".into(), source: kind.into() };
        let why = || "no room".to_owned();
        assert!(
            start(io::ErrorKind::WouldBlock).is_shortage()
                && CompanionError::Failed { why: why() }.is_shortage()
        );
        assert!(
            !start(io::ErrorKind::NotFound).is_shortage()
                && !start(io::ErrorKind::PermissionDenied).is_shortage()
        );
        assert!(!CompanionError::Refused { why: why() }.is_shortage());
    }
}
