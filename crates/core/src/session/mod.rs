//! One recording as a host program holds it: started, looked at while it runs, stopped, kept, loaded again.
//!
//! In:  a [`Plan`], or a recording that was loaded. Out: its life and its running figures; the files beside this one
//! have what is made of them at any time.
//! Not here: the sampling (`tracker`), languages (the fronts convert, and turn errors into their own).
//!
//! We are a guest in the host's process: the rows lie in a file, what is asked for often is kept up to date row by
//! row, and a fork of the host changes nothing for the parent's recording.

mod figures;
mod load;
mod report;
mod save;
mod start;

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use thiserror::Error;

use crate::companion::{Companion, CompanionError};
use crate::config::Config;
use crate::host;
use crate::journal::Reader;
use crate::metric::Metric;
use crate::record::Rows;
use crate::recording::Recording;
use crate::snapshot::Moment;
use crate::summary::{Scope, Summary};
use crate::tracker::{State, Tracker, TrackerError};

pub use report::{Asker, report_for, report_of};

/// Between two looks of a host that waits for rows.
const SHORTEST_PAUSE_S: f64 = 0.001;
const LONGEST_PAUSE_S: f64 = 0.05;

/// What is to be recorded, and what else is to be found out.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What and how often.
    pub config: Config,
    /// Whom to follow.
    pub pid: u32,
    /// As the host named the way in which the sampler runs; `None` is a thread.
    pub method: Option<String>,
    /// The host let it start by itself.
    pub autostart: bool,
    /// Look at the machine.
    pub discover_server: bool,
    /// Look for the cloud.
    pub discover_cloud: bool,
    /// The program that samples in a process of its own; `None` for a thread of ours.
    pub companion: Option<PathBuf>,
}

/// Why a session does not do what was asked of it.
#[derive(Debug, Error)]
pub enum SessionError {
    /// It records already.
    #[error("Resource tracker already running, cannot start again.")]
    Running,
    /// It has recorded, and its rows are its own.
    #[error("Resource tracker already stopped. Create a new instance instead of trying to restart it.")]
    Stopped,
    /// The time is up before there are as many rows as were waited for.
    #[error("Timed out waiting for resource tracker to collect {wanted} samples")]
    TimedOut {
        /// As many as were waited for.
        wanted: u64,
    },
    /// There will never be as many rows as were waited for.
    #[error(
        "Resource tracker has been already stopped with {found} sample(s), cannot wait to collect the requested \
         {wanted} sample(s)."
    )]
    TooFew {
        /// As many as there are.
        found: u64,
        /// As many as were waited for.
        wanted: u64,
    },
    /// The sampler does not start.
    #[error(transparent)]
    Tracker(#[from] TrackerError),
    /// Nor does the process that was to sample.
    #[error(transparent)]
    Companion(#[from] CompanionError),
}

/// What makes the rows, or made them.
#[derive(Debug)]
enum Life {
    /// Not started.
    New,
    /// A thread of ours; the rows are in a file, unless none could be made.
    Thread { tracker: Box<Tracker>, rows: Option<Rows> },
    /// A process of its own.
    Companion { companion: Box<Companion>, rows: Option<Rows>, followed: Box<RefCell<Followed>> },
    /// All in memory.
    Loaded { recording: Box<Recording>, summary: Box<Summary> },
}

/// Rows of a journal that somebody else writes, summed up as far as they were read.
#[derive(Debug)]
struct Followed {
    summary: Summary,
    offset: u64,
}

impl Followed {
    fn read_on(&mut self, journal: &Path) {
        let Ok(mut reader) = Reader::open(journal) else { return };
        if reader.skip_to(self.offset).is_ok() {
            while let Some(row) = reader.next_row() {
                self.summary.add(&row);
            }
            self.offset = reader.offset();
        }
    }
}

/// A recording in the hands of a host program.
#[derive(Debug)]
pub struct Session {
    plan: Plan,
    life: Life,
    start_time: Option<f64>,
    stop_time: Option<f64>,
    server: Option<Map<String, Value>>,
    cloud: Option<Map<String, Value>>,
    /// Where the rows are to be; `None` for the system's folder of temporary files.
    rows_folder: Option<PathBuf>,
    /// What went wrong and the host has not been told yet.
    warnings: Vec<String>,
    /// Notes of the sampler that the host knows.
    notes_told: usize,
}

/// What a host should know, and how much it matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// How this host is read; as it is, and as the recording says too.
    Info(String),
    /// Something is missing from the figures.
    Warning(String),
}

impl Session {
    /// Nothing runs yet.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        Self {
            plan,
            life: Life::New,
            start_time: None,
            stop_time: None,
            server: None,
            cloud: None,
            rows_folder: None,
            warnings: Vec::new(),
            notes_told: 0,
        }
    }

    /// With its rows in a folder that the host has for temporary files of its own, and removes at its end.
    #[must_use]
    pub fn with_rows_in(self, folder: PathBuf) -> Self {
        Self { rows_folder: Some(folder), ..self }
    }

    /// What was planned.
    #[must_use]
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Nominal length of a row in seconds. One that we would not record with may still have been recorded.
    #[must_use]
    pub fn interval_s(&self) -> f64 {
        match &self.life {
            Life::Loaded { recording, .. } => recording.head.metadata.interval,
            _ => self.plan.config.interval.seconds(),
        }
    }

    /// Moment of the baseline, Unix seconds; `None` before the start.
    #[must_use]
    pub const fn start_time(&self) -> Option<f64> {
        self.start_time
    }

    /// Moment of the stop, Unix seconds; of the last row where the process that was followed has ended before. `None`
    /// while it records.
    #[must_use]
    pub fn stop_time(&self) -> Option<f64> {
        let has_ended =
            matches!(self.life, Life::Thread { .. } | Life::Companion { .. }) && !self.is_running();
        self.stop_time.or_else(|| if has_ended { self.summary().of(Metric::Timestamp).max() } else { None })
    }

    /// Where the rows are, for whoever reads them in another process.
    #[must_use]
    pub fn journal(&self) -> Option<&Path> {
        self.kept_rows().map(Rows::path)
    }

    const fn kept_rows(&self) -> Option<&Rows> {
        match &self.life {
            Life::Thread { rows, .. } | Life::Companion { rows, .. } => rows.as_ref(),
            Life::New | Life::Loaded { .. } => None,
        }
    }

    /// Whether somebody still appends rows: a companion that could not be stopped goes on.
    fn is_written(&self) -> bool {
        matches!(&self.life, Life::Companion { companion, .. } if companion.is_alive())
    }

    /// Makes the last row and ends the sampler. Once more does nothing.
    pub fn stop(&mut self) {
        if self.stop_time.is_some() {
            return;
        }
        let ended_at = self.stop_time();
        match &mut self.life {
            Life::Thread { tracker, .. } => tracker.stop(),
            Life::Companion { companion, .. } => companion.stop(),
            Life::New | Life::Loaded { .. } => return,
        }
        self.stop_time = Some(ended_at.unwrap_or_else(|| Moment::now().wall_s()));
        if let Some(rows) = self.kept_rows().filter(|_| !self.is_written()) {
            rows.close();
        }
        // From now on the figures may be looked at on another machine, or never again on this one.
        self.look_at_server(host::look_at_once);
    }

    /// Stops, and removes the files that the rows are in; statistics stay.
    pub fn remove_files(&mut self) {
        self.stop();
        // What is left of the rows is in the running figures.
        let _ = self.rows();
        if let Life::Thread { rows, .. } | Life::Companion { rows, .. } = &mut self.life {
            *rows = None;
        }
    }

    /// Whether rows are made.
    #[must_use]
    pub fn is_running(&self) -> bool {
        match &self.life {
            Life::Thread { tracker, .. } => self.stop_time.is_none() && tracker.state() == State::Running,
            Life::Companion { companion, .. } => self.stop_time.is_none() && companion.is_alive(),
            Life::New | Life::Loaded { .. } => false,
        }
    }

    /// Where the recording is in its life; `None` before the start.
    #[must_use]
    pub fn state(&self) -> Option<State> {
        match &self.life {
            Life::New => None,
            Life::Thread { tracker, .. } => Some(tracker.state()),
            // One that cannot be stopped records for the history, not for us.
            Life::Companion { companion, .. } => Some(match companion.state() {
                State::Running if self.stop_time.is_some() => State::Stopped,
                state => state,
            }),
            Life::Loaded { .. } => Some(State::Stopped),
        }
    }

    /// What is to be known and was not asked for before. What the sampler finds at its start is how this host is;
    /// what comes later went wrong.
    pub fn take_notes(&mut self) -> Vec<Note> {
        let mut notes: Vec<Note> = self.warnings.drain(..).map(Note::Warning).collect();
        let all = match &self.life {
            Life::Thread { tracker, .. } => tracker.notes(),
            Life::Companion { companion, .. } => companion.words.notes.clone(),
            Life::New | Life::Loaded { .. } => Vec::new(),
        };
        let has_begun = self.stop_time.is_some() || self.rows() > 0;
        let kind = if has_begun { Note::Warning } else { Note::Info };
        notes.extend(all.iter().skip(self.notes_told).cloned().map(kind));
        self.notes_told = all.len();
        notes
    }

    /// How CPU time is counted.
    #[must_use]
    pub fn cpu_source(&self) -> Option<String> {
        match &self.life {
            Life::Thread { tracker, .. } => Some(tracker.cpu_source().to_owned()),
            Life::Companion { companion, .. } => Some(companion.cpu_source.clone()),
            Life::Loaded { recording, .. } => recording.head.run.as_ref()?.cpu_source.clone(),
            Life::New => None,
        }
    }

    /// Running figures over all rows so far.
    #[must_use]
    pub fn summary(&self) -> Summary {
        match &self.life {
            Life::Thread { tracker, .. } => tracker.summary(),
            Life::Companion { companion, rows, followed } => {
                let mut followed = followed.borrow_mut();
                if let Some(rows) = rows {
                    followed.read_on(rows.path());
                }
                let mut summary = followed.summary.clone();
                companion.words.rest.iter().for_each(|row| summary.add(row));
                summary
            }
            Life::Loaded { summary, .. } => (**summary).clone(),
            Life::New => Summary::new(self.scope()),
        }
    }

    fn scope(&self) -> Scope {
        Scope {
            process: self.plan.config.track_processes,
            system: self.plan.config.track_system,
            start_time: self.start_time,
            interval_s: self.plan.config.interval.seconds(),
        }
    }

    /// Rows so far, of the tables that are on.
    #[must_use]
    pub fn rows(&self) -> u64 {
        let Config { track_processes, track_system, .. } = self.plan.config;
        if track_processes || track_system { self.summary().rows() } else { 0 }
    }

    /// Whether a host that has waited for `waited_s` may go on: `None` once there are `wanted` rows, else how many
    /// seconds to sleep before it asks again. The host sleeps in its own way, so that its signals and other threads get
    /// their turn.
    ///
    /// # Errors
    /// [`SessionError::TimedOut`], and [`SessionError::TooFew`] at once when no more rows will come.
    pub fn wait_on(&self, wanted: u64, waited_s: f64, timeout_s: f64) -> Result<Option<f64>, SessionError> {
        // In this order: the last row is there before the sampler is seen to have ended.
        let is_running = self.is_running();
        let found = self.rows();
        if found >= wanted {
            return Ok(None);
        }
        if !is_running {
            return Err(SessionError::TooFew { found, wanted });
        }
        let left_s = timeout_s - waited_s;
        if left_s.is_nan() || left_s <= 0.0 {
            return Err(SessionError::TimedOut { wanted });
        }
        let tenth_s = self.plan.config.interval.seconds() / 10.0;
        Ok(Some(tenth_s.clamp(SHORTEST_PAUSE_S, LONGEST_PAUSE_S).min(left_s)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Interval;
    use crate::frame::CombinedOptions;
    use crate::metric::Table;

    fn plan() -> Plan {
        let interval = Interval::from_seconds(0.02).unwrap();
        Plan {
            config: Config { interval, ..Config::default() },
            pid: std::process::id(),
            method: None,
            autostart: false,
            discover_server: true,
            discover_cloud: false,
            companion: None,
        }
    }

    fn recorded() -> Session {
        let mut session = Session::new(plan());
        session.start().unwrap();
        while session.rows() < 3 {
            std::thread::yield_now();
        }
        session.stop();
        session
    }

    #[test]
    fn a_session_starts_once_and_stops_for_good() {
        let mut session = Session::new(plan());
        assert!(!session.is_running() && session.server_info().is_none());
        session.start().unwrap();
        assert!(matches!(session.start(), Err(SessionError::Running)));
        session.stop();
        let stopped = session.stop_time();
        session.stop();
        assert_eq!(session.stop_time(), stopped);
        assert!(matches!(session.start(), Err(SessionError::Stopped)));
    }

    #[test]
    fn who_removes_the_file_takes_the_rows_and_nothing_else() {
        let mut session = recorded();
        std::fs::remove_file(session.journal().unwrap()).unwrap();
        let mut text = Vec::new();
        session.write_snapshot(&mut text, false).unwrap();
        let snapshot: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert!(snapshot["metadata"]["duration"].as_f64().unwrap() > 0.0);
        let notes = snapshot["run"]["notes"].to_string();
        assert!(notes.contains("the rows are lost: cannot read"), "{notes}");
    }

    #[test]
    fn who_waits_is_told_when_to_ask_again_and_when_it_is_in_vain() {
        let mut session = Session::new(plan());
        assert!(matches!(session.wait_on(1, 0.0, 1.0), Err(SessionError::TooFew { found: 0, .. })));
        session.start().unwrap();
        let never = 1_000_000;
        assert_eq!(session.wait_on(never, 0.0, 1.0).unwrap(), Some(0.002), "a tenth of the interval");
        assert_eq!(
            session.wait_on(never, 0.75, 0.7505).unwrap(),
            Some(0.7505 - 0.75),
            "no longer than there is time"
        );
        for (waited_s, timeout_s) in [(1.0, 1.0), (0.0, -1.0), (0.0, f64::NAN)] {
            let late = session.wait_on(never, waited_s, timeout_s);
            assert!(
                matches!(late, Err(SessionError::TimedOut { wanted: 1_000_000 })),
                "{waited_s} of {timeout_s}"
            );
        }
        session.stop();
        assert_eq!(session.wait_on(1, 1.0, 1.0).unwrap(), None);
        assert!(matches!(session.wait_on(never, 0.0, 1.0), Err(SessionError::TooFew { .. })));
    }

    #[test]
    fn what_is_written_reads_back_as_it_was() {
        let mut session = recorded();
        for compressed in [false, true] {
            let mut text = Vec::new();
            session.write_snapshot(&mut text, compressed).unwrap();
            let mut twin = Session::from_recording(Recording::read(text.as_slice()).unwrap());
            assert_eq!(twin.stats(), session.stats());
            assert_eq!(twin.frame(Table::Process), session.frame(Table::Process));
            assert_eq!(twin.server_info(), session.server_info());
            assert!(matches!(twin.start(), Err(SessionError::Stopped)));
        }
    }

    #[test]
    fn a_recording_without_a_guess_of_the_allocation_gets_one() {
        let mut text = Vec::new();
        let mut session = recorded();
        session.write_snapshot(&mut text, false).unwrap();
        let mut recording = Recording::read(text.as_slice()).unwrap();
        let guess = recording
            .head
            .server_info
            .as_mut()
            .and_then(|info| info.insert("allocation".into(), Value::Null));
        assert!(guess.is_some_and(|guess| guess.is_string()));
        let loaded = Session::from_recording(recording).server_info();
        assert_eq!(loaded, session.server_info());
    }

    #[test]
    fn rows_are_where_the_host_wants_them() {
        let folder = tempfile::tempdir().unwrap();
        let mut session = Session::new(plan()).with_rows_in(folder.path().to_owned());
        session.start().unwrap();
        assert_eq!(session.journal().unwrap().parent(), Some(folder.path()));
        assert!(session.take_notes().iter().all(|note| matches!(note, Note::Info(_))));
        drop(session);
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
        let mut session = Session::new(plan()).with_rows_in(folder.path().join("missing"));
        session.start().unwrap();
        assert!(matches!(&session.take_notes()[..], [Note::Warning(text), ..] if text.contains("no tables")));
    }

    #[test]
    fn files_are_removed_and_figures_stay() {
        let mut session = recorded();
        let journal = session.journal().unwrap().to_owned();
        let rows = session.rows();
        assert!(journal.exists());
        session.remove_files();
        assert!(!journal.exists());
        assert_eq!((session.rows(), session.frame(Table::Process).unwrap().len()), (rows, 0));
    }

    #[test]
    fn a_copy_in_another_process_reads_what_was_written_so_far() {
        let session = recorded();
        let start_time = session.start_time().unwrap();
        let copy = Session::from_journal(session.plan(), session.journal().unwrap(), start_time);
        assert_eq!(copy.frame(Table::System), session.frame(Table::System));
        assert_eq!(copy.stats(), session.stats());
    }

    #[test]
    fn the_columns_of_a_table_that_is_off_are_missing() {
        let mut off = plan();
        off.config.track_system = false;
        // No line of the grid comes before the end.
        off.config.interval = Interval::from_seconds(3600.0).unwrap();
        let mut session = Session::new(off);
        session.start().unwrap();
        session.stop();
        assert_eq!(session.frame(Table::System), None);
        let both = session.combined(&CombinedOptions::default()).unwrap();
        assert!(both.names().all(|name| !name.starts_with("system_")) && both.len() == 1);
    }
}
