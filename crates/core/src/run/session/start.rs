//! The start of a session: a sampling thread or a sidecar, and a journal for the rows.
//!
//! In:  the plan. Out: a [`Session`] that records.
//! Not here: the sampling (`tracker`), the sidecar process (`sidecar`).

use std::cell::RefCell;

use super::{JournalSummary, Session, SessionError, Source};
use crate::config::Config;
use crate::error::with_causes;
use crate::market::cloud::CloudInfo;
use crate::os::{self, Moment, paths};
use crate::run::inputs::Inputs;
use crate::run::sidecar::Sidecar;
use crate::run::tracker::Tracker;
use crate::sampler::marks::marks_beside;
use crate::sampler::{SamplerCommand, Sink, Target};
use crate::store::history::History;
use crate::store::recording::Run;
use crate::store::rows::Rows;
use crate::store::rows::temporary_name;

impl Session {
    /// Starts the sampler, and the discovery of the cloud in the background. If the system refuses what the sampler
    /// needs, the session stays as it is, with a warning: the host program must not fail because of its tracker.
    pub fn start(&mut self) -> Result<(), SessionError> {
        if self.is_running() {
            return Err(SessionError::Running);
        }
        if !matches!(self.source, Source::NotStarted) {
            return Err(SessionError::Stopped);
        }
        if let Err(error) = self.plan.take_environment() {
            self.warnings.push(error.to_string());
        }
        #[cfg(feature = "parquet")]
        if let Err(error) = self.plan.take_store() {
            self.warnings.push(format!("{}; the run is not stored", with_causes(&error)));
        }
        self.run = self.plan.run(&History::new_id());
        match self.plan.sidecar.as_ref().map(|program| Sidecar::start(program, &self.plan, self.run.clone()))
        {
            Some(Ok((sidecar, rows))) => {
                self.start_time = Some(sidecar.start_time);
                let summary = Box::new(RefCell::new(JournalSummary::new(self.scope())));
                self.source = Source::Sidecar { sidecar: Box::new(sidecar), rows: Some(rows), summary };
            }
            Some(Err(error)) if error.is_shortage() => {
                self.warnings.push(format!(
                    "{}; sampling in a thread instead, so the recording ends if this program is killed",
                    with_causes(&error)
                ));
                self.start_thread()?;
            }
            Some(Err(error)) => return Err(error.into()),
            None => self.start_thread()?,
        }
        if !matches!(self.source, Source::NotStarted) {
            self.inputs = Inputs::measure(&self.plan.inputs);
        }
        if self.plan.discover_cloud && !matches!(self.source, Source::NotStarted) {
            self.discover_cloud();
        }
        Ok(())
    }

    fn discover_cloud(&self) {
        if let Source::Thread { tracker, .. } = &self.source {
            return tracker.send(SamplerCommand::Start(|| CloudInfo::discover_in_background(false)));
        }
        os::without_signals(|| CloudInfo::discover_in_background(false));
    }

    fn start_thread(&mut self) -> Result<(), SessionError> {
        let target =
            if self.plan.config.track_processes { Target::Running(self.plan.pid) } else { Target::None };
        let warnings = self.warnings.len();
        let (rows, sink) = self.start_rows().unzip();
        let config = Config { in_process: true, ..self.plan.config };
        if config.resets_peak && self.plan.pid == std::process::id() {
            os::reset_peak_rss();
        }
        let tracker = match Tracker::start(config, target, sink.into_iter().collect()) {
            Ok(tracker) => tracker,
            Err(error) if error.is_shortage() => {
                // Instead of a warning that the journal cannot be written.
                self.warnings.truncate(warnings);
                self.warnings.push(format!("{}; nothing is recorded", with_causes(&error)));
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        // Forked children of this program write their marks to a file.
        if let Some(rows) = &rows {
            tracker.send(SamplerCommand::ReadMarks(marks_beside(rows.path())));
        }
        self.start_time = Some(tracker.started().wall_s());
        self.source = Source::Thread { tracker: Box::new(tracker), rows };
        Ok(())
    }

    /// Creates the journal; `None` if it cannot be written. The session then has statistics but no tables.
    fn start_rows(&mut self) -> Option<(Rows, Box<dyn Sink>)> {
        let id = self.run.id.as_deref().unwrap_or_default();
        let folder = self.rows_folder.clone().unwrap_or_else(paths::temporary);
        let path = folder.join(temporary_name(std::process::id(), id));
        // The facts about the run are needed if this program is killed and its recording is recovered from the journal.
        let head = self.plan.head(Moment::now().wall_s(), Run::default());
        match Rows::start(&path, &Rows::describe(&head.metadata, &self.run, None), true) {
            Ok(started) => Some(started),
            Err(error) => {
                self.warnings.push(format!(
                    "cannot write `{}`: {error}; there are statistics, but no tables",
                    path.display()
                ));
                None
            }
        }
    }
}
