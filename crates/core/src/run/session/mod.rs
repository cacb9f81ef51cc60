//! One recording inside a host process such as Python or R: started, read while it runs, stopped, saved, loaded again.
//!
//! In:  a [`Plan`], or a recording that was loaded. Out: [`Session`]. This file has its state and its end; the files
//! beside it have the start, loading, the figures, the snapshot and the report.
//! Not here: sampling (`tracker`, `sidecar`), conversions for Python and R (the fronts), threads and forks (`shared`).
//!
//! The rows are in a file, and the summary is updated row by row, so the memory of the host process does not grow.

mod figures;
mod load;
mod report;
mod save;
mod start;
#[cfg(feature = "parquet")]
mod store;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};
use thiserror::Error;

use crate::error::with_causes;
use crate::metric::Metric;
use crate::os::Moment;
use crate::probe::host;
use crate::run::inputs::Inputs;
use crate::run::plan::Plan;
use crate::run::sidecar::{Sidecar, SidecarError};
use crate::run::tracker::{Tracker, TrackerError};
use crate::sampler::USUAL_NOTES;
use crate::sampler::phases::{PhaseFigures, PlacedMark};
use crate::sampler::progress::{Progress, State};
use crate::store::history::HistoryError;
use crate::store::recording::{Recording, Run, Status, command_line};
use crate::store::rows::Rows;
use crate::store::summary::Summary;

use figures::JournalSummary;
pub use report::ReportOptions;

/// Limits of the pause between two polls of a host that waits for rows.
const SHORTEST_PAUSE_S: f64 = 0.001;
const LONGEST_PAUSE_S: f64 = 0.05;

/// Why a session cannot start, wait for rows or save them. Texts that the original package has are the same here.
#[derive(Debug, Error)]
pub enum SessionError {
    #[error("Resource tracker already running, cannot start again.")]
    Running,
    #[error("Resource tracker already stopped. Create a new instance instead of trying to restart it.")]
    Stopped,
    #[error(
        "Resource tracker has not been started, cannot wait to collect the requested {wanted} sample(s)."
    )]
    NotStarted { wanted: u64 },
    #[error("Timed out waiting for resource tracker to collect {wanted} samples")]
    TimedOut { wanted: u64 },
    #[error(
        "Resource tracker has been already stopped with {found} sample(s), cannot wait to collect the requested \
         {wanted} sample(s)."
    )]
    TooFew { found: u64, wanted: u64 },
    #[error("The samples of this resource tracker were removed by cleanup. Save the recording before that.")]
    Removed,
    #[error("there is no history: the user has no home folder")]
    NoHome,
    #[error(transparent)]
    History(#[from] HistoryError),
    #[error(transparent)]
    Write(#[from] std::io::Error),
    #[error(transparent)]
    Tracker(#[from] TrackerError),
    #[error(transparent)]
    Sidecar(#[from] SidecarError),
}

/// A message for the user of the host process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// How this machine is measured. The recording contains this text too.
    Info(String),
    /// Something is missing from the figures.
    Warning(String),
}

/// Where the rows come from.
#[derive(Debug)]
enum Source {
    NotStarted,
    /// A sampling thread in this process; `rows` is `None` if no journal could be created, or it was removed.
    Thread {
        tracker: Box<Tracker>,
        rows: Option<Rows>,
    },
    /// A sampling process; `rows` is `None` once the journal was removed.
    Sidecar {
        sidecar: Box<Sidecar>,
        rows: Option<Rows>,
        summary: Box<RefCell<JournalSummary>>,
    },
    /// A recording in memory.
    Loaded {
        recording: Box<Recording>,
        summary: Box<Summary>,
    },
}

/// One recording inside another program: started, read while it runs, stopped, saved or loaded.
#[derive(Debug)]
pub struct Session {
    plan: Plan,
    /// What is known about the run beside its figures.
    run: Run,
    /// The size of the inputs, while it is measured.
    inputs: Option<Inputs>,
    source: Source,
    start_time: Option<f64>,
    stop_time: Option<f64>,
    server: Option<Map<String, Value>>,
    cloud: Option<Map<String, Value>>,
    /// Folder of the journal; `None` is the system's folder for temporary files.
    rows_folder: Option<PathBuf>,
    /// Whether `remove_files` has removed the journal.
    are_rows_removed: bool,
    /// Warnings that `take_notes` has not returned yet.
    warnings: Vec<String>,
    /// How many of the sampler's notes `take_notes` has returned.
    notes_taken: usize,
}

impl Session {
    pub fn new(plan: Plan) -> Self {
        Self {
            plan,
            run: Run::default(),
            inputs: None,
            source: Source::NotStarted,
            start_time: None,
            stop_time: None,
            server: None,
            cloud: None,
            rows_folder: None,
            are_rows_removed: false,
            warnings: Vec::new(),
            notes_taken: 0,
        }
    }

    /// Puts the journal of a sampling thread into this folder, which the host process removes when it exits.
    pub fn with_rows_in(self, folder: PathBuf) -> Self {
        Self { rows_folder: Some(folder), ..self }
    }

    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Path of the journal, for a forked child that reads it.
    pub fn journal(&self) -> Option<&Path> {
        self.journal_rows().map(Rows::path)
    }

    const fn journal_rows(&self) -> Option<&Rows> {
        match &self.source {
            Source::Thread { rows, .. } | Source::Sidecar { rows, .. } => rows.as_ref(),
            Source::NotStarted | Source::Loaded { .. } => None,
        }
    }

    /// Nominal length of a row in seconds. A loaded recording may have a length that `Config` does not allow.
    pub fn interval_s(&self) -> f64 {
        match &self.source {
            Source::Loaded { recording, .. } => recording.head.metadata.interval,
            _ => self.plan.config.interval.seconds(),
        }
    }

    /// Time of the baseline, Unix seconds; `None` before the start.
    pub const fn start_time(&self) -> Option<f64> {
        self.start_time
    }

    /// Unix seconds: time of the stop, or of the last row if the followed process ended before the stop. `None` while
    /// the session runs.
    pub fn stop_time(&self) -> Option<f64> {
        let has_started = matches!(self.source, Source::Thread { .. } | Source::Sidecar { .. });
        let last_row = || self.summary().of(Metric::Timestamp).max();
        self.stop_time.or_else(|| if has_started && !self.is_running() { last_row() } else { None })
    }

    /// Makes the last row and ends the sampler. Calling it again has no effect.
    pub fn stop(&mut self) {
        if self.stop_time.is_some() {
            return;
        }
        let ended_at = self.stop_time();
        match &mut self.source {
            Source::Thread { tracker, .. } => {
                tracker.stop();
                if self.run.error.is_some() {
                    let facts = tracker.evidence(self.run.command.as_deref());
                    self.run.evidence = Some(facts).filter(|facts| !facts.is_empty());
                }
            }
            Source::Sidecar { sidecar, rows, .. } => {
                sidecar.stop(rows.as_ref().map_or(Path::new(""), Rows::path));
            }
            Source::NotStarted | Source::Loaded { .. } => return,
        }
        self.stop_time = Some(ended_at.unwrap_or_else(|| Moment::now().wall_s()));
        // A sidecar that could not be stopped still writes the journal.
        if let Some(rows) = self.journal_rows().filter(|_| !self.has_live_sidecar()) {
            rows.close();
        }
        // Read now: the snapshot may be written later, on another machine.
        self.read_server(host::read_without_waiting);
        if let Some((bytes, warnings)) = self.inputs.take().map(Inputs::finish) {
            self.run.input_bytes = bytes;
            self.warnings.extend(warnings);
        }
        if self.plan.job.is_some()
            && let Err(error) = self.save()
        {
            self.warnings.push(format!("the run is not in the history: {}", with_causes(&error)));
        }
    }

    /// Marks the run as failed, by an error with its type, such as `ValueError: no data`. Call it before `stop`. Secrets
    /// in the error are hidden as in command lines.
    pub fn set_error(&mut self, error: String) {
        self.run.error = command_line::stored(&[error]).pop();
    }

    /// How the run ended; `None` before the start.
    fn status(&self) -> Option<Status> {
        Some(match self.state()? {
            _ if self.run.error.is_some() => Status::Failed,
            State::Running => Status::Running,
            State::Exited => Status::Ended,
            State::Stopped => Status::Finished,
        })
    }

    /// Stops, and removes the journal; the statistics stay.
    pub fn remove_files(&mut self) {
        self.stop();
        // The summary must have all rows before the journal is removed.
        let _ = self.rows();
        let is_in_use = self.has_live_sidecar();
        if let Source::Thread { rows, .. } | Source::Sidecar { rows, .. } = &mut self.source {
            self.are_rows_removed |= rows.is_some();
            match rows.take() {
                Some(rows) if is_in_use => drop(rows.leave_on_disk()),
                rows => drop(rows),
            }
        }
    }

    /// True while a sidecar writes the journal. After `stop` it means that the sidecar could not be stopped.
    fn has_live_sidecar(&self) -> bool {
        matches!(&self.source, Source::Sidecar { sidecar, .. } if sidecar.is_alive())
    }

    pub fn is_running(&self) -> bool {
        self.state() == Some(State::Running)
    }

    /// `None` before the start.
    pub fn state(&self) -> Option<State> {
        let state = match &self.source {
            Source::NotStarted => return None,
            Source::Thread { tracker, .. } => tracker.state(),
            Source::Sidecar { sidecar, .. } => sidecar.state(),
            Source::Loaded { .. } => State::Stopped,
        };
        // A sidecar that could not be stopped still runs, but it records for the history and not for this session.
        let is_stopped = state == State::Running && self.stop_time.is_some();
        Some(if is_stopped { State::Stopped } else { state })
    }

    /// Notes that were not returned before: as [`Note::Info`] before the first row or if they are usual, else as
    /// [`Note::Warning`].
    pub fn take_notes(&mut self) -> Vec<Note> {
        let mut notes: Vec<Note> = self.warnings.drain(..).map(Note::Warning).collect();
        let all = self.sampler_notes();
        let has_begun = self.stop_time.is_some() || self.rows() > 0;
        let kind = |note: &String| {
            let is_warning = has_begun && !USUAL_NOTES.contains(&note.as_str());
            (if is_warning { Note::Warning } else { Note::Info })(note.clone())
        };
        notes.extend(all.iter().skip(self.notes_taken).map(kind));
        self.notes_taken = all.len();
        notes
    }

    /// Usage by phase so far, and the marks with their time. A sidecar sends them when it stops.
    pub fn phases(&self) -> (Vec<PhaseFigures>, Vec<PlacedMark>) {
        match &self.source {
            Source::Thread { tracker, .. } => tracker.phases(),
            Source::Sidecar { sidecar, .. } => sidecar.report.phases.clone(),
            Source::Loaded { recording, .. } => {
                let run = recording.head.run.clone().unwrap_or_default();
                (run.phases, run.marks)
            }
            Source::NotStarted => Default::default(),
        }
    }

    /// The sampling thread of this process, which takes marks.
    pub(super) fn progress(&self) -> Option<Arc<Progress>> {
        match &self.source {
            Source::Thread { tracker, .. } => Some(tracker.progress()),
            _ => None,
        }
    }

    fn sampler_notes(&self) -> Vec<String> {
        match &self.source {
            Source::Thread { tracker, .. } => tracker.notes(),
            Source::Sidecar { sidecar, .. } => sidecar.report.notes.clone(),
            Source::NotStarted | Source::Loaded { .. } => Vec::new(),
        }
    }

    /// For a host process that waits for rows: `None` once there are `wanted` rows, else the seconds to sleep before
    /// the next poll. The host process sleeps with its own functions, so that it can handle signals and run other
    /// threads.
    pub fn poll_rows(&self, wanted: u64, waited_s: f64, timeout_s: f64) -> Result<Option<f64>, SessionError> {
        // The state first: the last row is written before the sampler ends, so `found` includes it.
        let is_running = self.is_running();
        let found = self.rows();
        if found >= wanted {
            return Ok(None);
        }
        if matches!(self.source, Source::NotStarted) {
            return Err(SessionError::NotStarted { wanted });
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
