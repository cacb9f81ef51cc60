//! The host's handle on its sidecar: start it, see its state, stop it, receive its final report.
//!
//! In:  a [`Plan`] and the path of the command `resource-tracker`. Out: [`Sidecar`], and the [`Rows`] that it writes.
//! Not here: the sidecar process (`server`), the messages (`protocol`).

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{self, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::protocol::{Answer, Command, Connection, Orders, START_TIMEOUT, SUBCOMMAND, is_alive};
use super::{FinalReport, SidecarError};
use crate::os::{Moment, paths};
use crate::probe::process_start;
use crate::run::plan::Plan;
use crate::sampler::progress::State;
use crate::store::history::History;
use crate::store::recording::Run;
use crate::store::rows::Rows;

const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// A sidecar that runs or has ended. Only the process that started it can stop it; a forked child cannot.
#[derive(Debug)]
pub struct Sidecar {
    owner_pid: u32,
    pid: u32,
    start_ticks: Option<u64>,
    connection: Connection,
    /// Whether the sidecar had ended by itself before `stop`.
    had_exited: bool,
    /// Time of the baseline, Unix seconds.
    pub start_time: f64,
    pub cpu_source: String,
    /// Only the notes of the start, until the sidecar has stopped.
    pub report: FinalReport,
}

impl Sidecar {
    /// Starts a sidecar and waits for its baseline. The caller owns the journal.
    pub fn start(program: &Path, plan: &Plan, run: Run) -> Result<(Self, Rows), SidecarError> {
        let id = run.id.clone().unwrap_or_else(History::new_id);
        let history = History::of_user(|name| std::env::var_os(name));
        let is_writable =
            |history: &History| history.prepare().is_ok() && paths::takes_files(history.directory());
        let journal = match history.filter(is_writable) {
            Some(history) => history.journal_path(&id),
            None => Rows::temporary_path(&id),
        };
        let metadata = plan.head(Moment::now().wall_s(), Run::default()).metadata;
        let store = plan.store.clone();
        let orders = Orders { host_pid: process::id(), id, journal, metadata, run, store };
        let (connection, answer) = launch(program, &orders)
            .map_err(|source| SidecarError::Start { program: program.to_owned(), source })?;
        match answer {
            Answer::Started { pid, start_ticks, start_time, cpu_source, notes } => {
                let report = FinalReport { notes, ..FinalReport::default() };
                let sidecar = Self {
                    owner_pid: orders.host_pid,
                    pid,
                    start_ticks,
                    connection,
                    had_exited: false,
                    start_time,
                    cpu_source,
                    report,
                };
                Ok((sidecar, Rows::of(orders.journal)))
            }
            Answer::Refused(why) => Err(SidecarError::Refused { why }),
            Answer::Failed(why) => Err(SidecarError::Failed { why }),
        }
    }

    pub fn is_alive(&self) -> bool {
        is_alive(self.pid, self.start_ticks)
    }

    /// `Exited` if the followed process has ended: the sidecar then sent its final report unasked. `Stopped` if it is
    /// gone without a report: it was stopped or killed.
    pub fn state(&self) -> State {
        // Checked first: a sidecar sends its report before it ends, so the report of a dead sidecar is in the socket.
        let is_alive = self.is_alive();
        if self.had_exited || self.connection.has_unread() {
            State::Exited
        } else if is_alive {
            State::Running
        } else {
            State::Stopped
        }
    }

    /// Makes the sidecar write the last row, and waits until it has ended.
    pub fn stop(&mut self, journal: &Path) {
        if self.owner_pid != process::id() {
            return;
        }
        let deadline = Instant::now() + STOP_TIMEOUT;
        self.had_exited = self.state() == State::Exited;
        // A program that has changed its user since the start may not be allowed to read the journal.
        let is_denied = |error: io::Error| error.kind() == io::ErrorKind::PermissionDenied;
        let command = if File::open(journal).is_err_and(is_denied) { Command::Save } else { Command::Stop };
        match self.ask_for_report(command) {
            Ok(Some(report)) => {
                self.report = report;
                self.wait_for_end(deadline);
            }
            Ok(None) => {
                self.report.notes.push("the sidecar was killed: rows after that are missing".to_owned());
                self.wait_for_end(deadline);
            }
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                let effect = if self.is_alive() {
                    "the sidecar cannot be stopped: it records until this program ends, and saves the recording in \
                     the history"
                } else {
                    "the sidecar's final report is lost, and with it rows that it could not write"
                };
                self.report.notes.push(format!("this program closed the sidecar's socket; {effect}"));
            }
            Err(error) => {
                self.report
                    .notes
                    .push(format!("the sidecar did not stop: {error}; its last rows are missing"));
            }
        }
    }

    /// The final report; `None` if the sidecar is gone without a report.
    fn ask_for_report(&mut self, command: Command) -> io::Result<Option<FinalReport>> {
        let (pid, start_ticks) = (self.pid, self.start_ticks);
        match self.connection.send(&command, || false) {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => return Err(error),
            // A sidecar that has ended by itself may have left its report in the socket.
            Ok(()) | Err(_) => {}
        }
        if let Some(pid) = Pid::from_raw(pid.cast_signed()).filter(|_| self.is_alive()) {
            // It may be stopped by SIGSTOP. The error is ignored: a host that changed its user may not signal it.
            let _ = kill_process(pid, Signal::CONT);
        }
        self.connection.receive(STOP_TIMEOUT, || is_alive(pid, start_ticks))
    }

    fn wait_for_end(&self, deadline: Instant) {
        let wait_while = |is_there: &dyn Fn() -> bool| {
            while is_there() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        wait_while(&|| self.is_alive());
        // Orphans become children of process 1 of their container, or of a subreaper. A host that is either must reap
        // the sidecar. No other child is waited for.
        if self.start_ticks.is_some() && process_start(self.pid) == self.start_ticks {
            let pid = Pid::from_raw(self.pid.cast_signed());
            wait_while(&|| matches!(waitpid(pid, WaitOptions::NOHANG), Ok(None)));
        }
    }
}

/// Starts the command and receives its answer.
fn launch(program: &Path, orders: &Orders) -> io::Result<(Connection, Answer)> {
    let (socket, of_sidecar) = UnixStream::pair()?;
    let mut connection = Connection::new(socket)?;
    let mut child = process::Command::new(program)
        .arg(SUBCOMMAND)
        .arg(serde_json::to_string(orders)?)
        .stdin(OwnedFd::from(of_sidecar))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    // This child forks and exits at once. The wait fails if the host ignores SIGCHLD: the kernel has reaped the child.
    let _ = child.wait();
    // From here on, no CPU time of the sidecar can be added to the host's cutime. If this fails, there is no answer.
    let _ = connection.send(&Command::Go, || false);
    let answer = connection.receive(START_TIMEOUT, || true)?;
    answer.map(|answer| (connection, answer)).ok_or_else(|| io::Error::other("it exited without an answer"))
}
