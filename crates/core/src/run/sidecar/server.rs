//! The sidecar process: leave the host, sample, then send the final report or save the recording of a dead host.
//!
//! In:  [`Orders`] as JSON, the socket to the host as standard input. Out: rows in the journal; an [`Answer`] and a
//! [`FinalReport`] for the host; for a host that died, a recording in the history.
//! Not here: the host's handle (`host`), the messages (`protocol`).

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::protocol::{Answer, Command, Connection, Orders, START_TIMEOUT, is_alive, wait_readable};
use super::{FinalReport, SidecarError};
use crate::error::with_causes;
use crate::os::root::Root;
use crate::os::{self, Ending, Watch};
use crate::probe::process_start;
use crate::run::plan::Plan;
use crate::run::tracker::{Tracker, TrackerError};
use crate::sampler::marks::{create_marks, marks_beside};
use crate::sampler::progress::State;
use crate::sampler::{SamplerCommand, Target};
use crate::store::history::{Entry, History};
use crate::store::recording::{Run, Status};
use crate::store::rows::Rows;

/// A host without a pidfd (Linux before 5.3) is checked this often.
const HOST_CHECK: Duration = Duration::from_secs(1);

/// The hidden command `sidecar`: returns when the recording is over.
///
/// All signals are blocked: a scheduler that sends SIGTERM to every process of the job must not end the recording while
/// the host lives.
pub fn serve(orders: &str) -> Result<(), SidecarError> {
    let orders = serde_json::from_str(orders).map_err(SidecarError::Arguments)?;
    os::without_signals(|| serve_host(&orders))
}

fn serve_host(orders: &Orders) -> Result<(), SidecarError> {
    os::close_inherited();
    raise_descriptor_limit();
    let failed = |error: io::Error| SidecarError::Failed { why: error.to_string() };
    let mut connection = take_standard_input().map_err(failed)?;
    if let Err(error) = os::leave_parent() {
        let _ = connection.send(&Answer::Failed(error.to_string()), || false);
        return Err(failed(error));
    }
    let watch = Watch::open(orders.host_pid);
    if !matches!(connection.receive(START_TIMEOUT, || true), Ok(Some(Command::Go))) {
        return Ok(());
    }
    let host = Host { pid: orders.host_pid, start_ticks: process_start(orders.host_pid), watch };
    let plan = Plan::of(&orders.metadata);
    let started = start(orders, &plan);
    let answer = match &started {
        Ok(Started { tracker, .. }) => &Answer::Started {
            pid: std::process::id(),
            start_ticks: process_start(std::process::id()),
            start_time: tracker.started().wall_s(),
            cpu_source: tracker.cpu_source().to_owned(),
            notes: tracker.notes(),
        },
        Err(answer) => answer,
    };
    let is_answered = connection.send(answer, || host.is_alive()).is_ok();
    let Ok(mut started) = started else { return Ok(()) };
    if !is_answered && host.is_alive() {
        // The host has given up waiting for the answer, and samples in a thread.
        return Ok(());
    }
    // The sidecar must not keep the host's working folder in use: its file system could not be unmounted.
    let _ = rustix::process::chdir("/");
    let is_host_followed = plan.config.track_processes && plan.pid == host.pid;
    let unfollowed_host = (!is_host_followed).then_some(&host);
    let must_save =
        wait_for_end(&mut started.tracker, &mut connection, unfollowed_host) == Some(Command::Save);
    let mut report = started.final_report();
    if !must_save && host.is_alive() {
        // A report larger than the socket's buffer waits here until the host reads it.
        let is_sent = connection.send(&report, || host.is_alive()).is_ok();
        if is_sent || host.is_alive() {
            // The host owns the journal.
            let _ = started.rows.leave_on_disk();
            return Ok(());
        }
    }
    let place = started.save(orders, &plan, &host);
    if must_save {
        report.notes.push(format!("this program has no permission to read its recording any more; {place}"));
        let _ = connection.send(&report, || host.is_alive());
    }
    Ok(())
}

/// Takes the socket from standard input, which becomes `/dev/null`.
fn take_standard_input() -> io::Result<Connection> {
    use rustix::fs::{Mode, OFlags, open};
    let socket = OwnedFd::from(os::duplicate(0)?);
    rustix::stdio::dup2_stdin(open("/dev/null", OFlags::RDONLY, Mode::empty())?)?;
    Connection::new(UnixStream::from(socket))
}

/// Raises the soft limit on open files to the hard limit, since the host may have lowered its soft limit.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

struct Host {
    pid: u32,
    start_ticks: Option<u64>,
    /// `None` if the kernel has no pidfds (before 5.3).
    watch: Option<Watch>,
}

impl Host {
    fn is_alive(&self) -> bool {
        is_alive(self.pid, self.start_ticks)
    }

    /// How the host ended, read from its zombie or, after it was reaped, from its pidfd (Linux 6.15).
    fn ending(&self) -> Option<Ending> {
        let root = Root::host_in_process().ok()?;
        // For 100 ms: a host that is about to end is not a zombie yet. A reaped host has no status before Linux 6.15.
        for _ in 0..50 {
            if let Some(ending) = self.watch.as_ref().and_then(|watch| os::ending_of(watch.as_fd())) {
                return Some(ending);
            }
            // `exit_code` is the last field of `/proc/PID/stat`: the status that `waitpid` would return for the zombie.
            let text = root.text(&format!("/proc/{}/stat", self.pid));
            let status = text.as_deref().and_then(|text| {
                let (_, fields) = text.rsplit_once(") Z ")?;
                fields.rsplit(' ').next()?.parse::<i32>().ok()
            });
            if let Some(status) = status {
                return Some(os::ending_of_status(status));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        None
    }
}

/// Waits for a command of the host, for the end of the followed process, or for the end of a host that is not followed.
/// Returns the command, if one arrived.
fn wait_for_end(tracker: &mut Tracker, connection: &mut Connection, host: Option<&Host>) -> Option<Command> {
    let mut is_connected = true;
    let watch = host.and_then(|host| host.watch.as_ref());
    let host_without_watch = host.filter(|_| watch.is_none());
    loop {
        let socket = connection.descriptor().ok().filter(|_| is_connected);
        let descriptors =
            [tracker.ended().map(|ended| ended.as_fd()), watch.map(|watch| watch.as_fd()), socket];
        let [has_ended, is_host_gone, has_command] =
            wait_readable(descriptors, host_without_watch.map(|_| HOST_CHECK));
        if has_ended {
            tracker.wait_for_end();
            return None;
        }
        let mut command = None;
        if has_command {
            match connection.receive(Duration::ZERO, || true) {
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
                Ok(Some(received)) => command = Some(received),
                // The host is dead, or it is alive and has closed the socket.
                Ok(None) | Err(_) => is_connected = false,
            }
        }
        if command.is_some() || is_host_gone || host_without_watch.is_some_and(|host| !host.is_alive()) {
            tracker.stop();
            return command;
        }
    }
}

struct Started {
    tracker: Tracker,
    rows: Rows,
    run: Run,
}

fn start(orders: &Orders, plan: &Plan) -> Result<Started, Answer> {
    let run = orders.run.clone();
    let about = Rows::describe(&orders.metadata, &run, Some(orders.host_pid));
    let (rows, journal) = Rows::start(&orders.journal, &about, false)
        .map_err(|error| Answer::Failed(format!("cannot write `{}`: {error}", orders.journal.display())))?;
    let target = if plan.config.track_processes { Target::Running(plan.pid) } else { Target::None };
    let tracker = Tracker::start(plan.config, target, vec![journal]).map_err(|error| {
        let why = with_causes(&error);
        let is_missing = matches!(error, TrackerError::Target { pid, .. } if process_start(pid).is_none());
        if is_missing { Answer::Refused(why) } else { Answer::Failed(why) }
    })?;
    let marks = marks_beside(&orders.journal);
    if create_marks(&marks, tracker.started()).is_ok() {
        tracker.send(SamplerCommand::ReadMarks(marks));
    }
    Ok(Started { tracker, rows, run })
}

impl Started {
    fn final_report(&self) -> FinalReport {
        FinalReport {
            notes: self.tracker.notes(),
            gpus: self.tracker.gpus(),
            programs: self.tracker.programs(),
            phases: self.tracker.phases(),
            unwritten_rows: self.rows.end().waiting,
        }
    }

    /// Saves the recording in the history, or else leaves the journal. Returns a sentence that says where the rows are.
    fn save(mut self, orders: &Orders, plan: &Plan, host: &Host) -> String {
        let (tracker, run) = (&self.tracker, &mut self.run);
        let is_host_alive = host.is_alive();
        let ending = (!is_host_alive && plan.pid == host.pid).then(|| host.ending()).flatten();
        if let Some(ending) = ending {
            run.set_ending(ending);
            run.notes.push(match ending {
                Ending::Code(code) => {
                    format!("the program ended with code {code} without stopping its tracker")
                }
                Ending::Signal(signal) => format!("the program was killed by signal {signal}"),
            });
        } else {
            run.status =
                Some(if tracker.state() == State::Exited { Status::Ended } else { Status::Detached });
            run.notes.push(if is_host_alive {
                "the program changed its user before it stopped its tracker".to_owned()
            } else {
                "the program ended without stopping its tracker".to_owned()
            });
        }
        let mut head = plan.head(tracker.started().wall_s(), self.run);
        tracker.complete(&mut head);
        let entry = Entry::with_cause(&orders.id, &head, &tracker.summary());
        let history = History::of_user(|name| std::env::var_os(name));
        let saved = history
            .as_ref()
            .map(|history| history.store(&entry, |file| self.rows.write_snapshot(file, &head)));
        #[cfg(feature = "parquet")]
        if let (Some(url), Some(history), Some(Ok(_)), false) =
            (&orders.store, &history, &saved, is_host_alive)
        {
            // A run that cannot be stored now is stored by `fleet push`.
            let _ = crate::run::push::push_to(url, history, &entry);
        }
        let why = match saved {
            Some(Ok(_)) => return format!("it is saved in the history as `{}`", orders.id),
            Some(Err(error)) => with_causes(&error),
            None => "no home folder".to_owned(),
        };
        format!("its rows are in `{}`", self.rows.leave_finished(&head, &why).display())
    }
}
