//! The snapshot of a session, in a file or in memory. A snapshot does not stop the session.
//!
//! In:  the rows so far. Out: [`Head`], JSON, [`Recording`].
//! Not here: the format (`store::recording`), atomic writes (`os::output`).

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::SystemTime;

use serde_json::{Map, Value};

use super::{Session, SessionError, Source};
use crate::analysis::recommend::AdviceOptions;
use crate::error::with_causes;
use crate::os::Moment;
use crate::os::output::Output;
use crate::report::Context;
use crate::store::history::{Entry, History};
use crate::store::recording::{Head, Recording, Run, gzip, write_snapshot};

/// Number of runs to keep in the history, as the command does by default.
const KEEP_RUNS: usize = 1000;

impl Session {
    /// Everything in the recording except the rows.
    pub fn head(&mut self) -> Head {
        let (gpus, programs) = match &self.source {
            Source::Loaded { recording, .. } => return recording.head.clone(),
            Source::Thread { tracker, .. } => (tracker.gpus(), tracker.programs()),
            Source::Sidecar { sidecar, .. } => (sidecar.report.gpus.clone(), sidecar.report.programs.clone()),
            Source::NotStarted => (Vec::new(), Vec::new()),
        };
        let (phases, marks) = self.phases();
        let run = Run {
            status: self.status(),
            cpu_source: self.cpu_source(),
            coverage: self.summary().coverage(),
            notes: self.sampler_notes(),
            gpus,
            programs,
            phases,
            marks,
            ..self.run.clone()
        };
        let mut head = self.plan.head(self.start_time.unwrap_or_default(), run);
        head.metadata.start_time = self.start_time;
        if self.start_time.is_some() {
            let stop_time = self.stop_time().unwrap_or_else(|| Moment::now().wall_s());
            head.metadata.set_stop_time(stop_time, self.summary().clock_step_s());
        }
        head.server_info = self.server_info();
        head.cloud_info = self.cloud_info();
        head
    }

    /// The run so far, as the command prints it with `--json`.
    pub fn run_object(&mut self) -> Map<String, Value> {
        Entry::object_of(&self.head(), &self.summary())
    }

    /// What explains the run so far.
    pub fn explain(&mut self) -> Map<String, Value> {
        let head = self.head();
        Context::of_run(&head, self.summary(), &AdviceOptions::default()).explain(&head)
    }

    /// Writes the snapshot as JSON, gzipped or plain.
    pub fn write_snapshot(&mut self, out: &mut impl Write, compressed: bool) -> Result<(), SessionError> {
        self.check_rows()?;
        if compressed {
            let mut out = gzip(out);
            self.write_plain(&mut out)?;
            return Ok(out.finish()?.flush()?);
        }
        Ok(self.write_plain(out)?)
    }

    /// Saves the recording so far in the user's history, and returns its id. Saving again replaces it. A run that has ended
    /// is also put into the store of the plan.
    pub fn save(&mut self) -> Result<String, SessionError> {
        self.check_rows()?;
        let history = History::of_user(|name| std::env::var_os(name)).ok_or(SessionError::NoHome)?;
        let (head, summary) = (self.head(), self.summary());
        // Recordings of the original package have no id.
        let id = head.run.as_ref().and_then(|run| run.id.clone()).unwrap_or_else(History::new_id);
        let entry = Entry::with_cause(&id, &head, &summary);
        history.store(&entry, |file| {
            self.write_snapshot(file, true).map_err(|error| match error {
                SessionError::Write(error) => error,
                error => io::Error::other(error),
            })
        })?;
        // A failed removal of old runs is retried by a later run.
        let _ = history.prune_sometimes(KEEP_RUNS, SystemTime::now());
        #[cfg(feature = "parquet")]
        self.store(history, entry);
        Ok(id)
    }

    const fn check_rows(&self) -> Result<(), SessionError> {
        if self.are_rows_removed { Err(SessionError::Removed) } else { Ok(()) }
    }

    /// Writes the snapshot to a gzipped file. If this fails, an earlier file of that name stays unchanged.
    pub fn dump(&mut self, path: &Path) -> Result<(), SessionError> {
        self.check_rows()?;
        let mut file = BufWriter::with_capacity(64 << 10, Output::open(path)?);
        self.write_snapshot(&mut file, true)?;
        Ok(file.into_inner().map_err(io::IntoInnerError::into_error)?.commit()?)
    }

    fn write_plain(&mut self, out: &mut impl Write) -> io::Result<()> {
        if let Source::Loaded { recording, .. } = &self.source {
            return recording.write(out);
        }
        let mut head = self.head();
        let mut journal = None;
        if let Some(rows) = self.journal_rows() {
            match rows.reader() {
                Ok(reader) => journal = Some((reader, self.end_of(rows))),
                Err(error) => {
                    // The journal was removed or damaged; the snapshot has everything except the rows.
                    let note = format!("the rows are lost: {}", with_causes(&error));
                    head.run.get_or_insert_default().notes.push(note);
                }
            }
        }
        write_snapshot(out, &head, &mut |take| {
            journal.as_mut().map_or(Ok(()), |(reader, end)| reader.replay(end, take))
        })
    }

    /// The whole recording in memory.
    pub fn recording(&mut self) -> Result<Recording, SessionError> {
        self.check_rows()?;
        if let Source::Loaded { recording, .. } = &self.source {
            return Ok((**recording).clone());
        }
        let mut recording = Recording::new(self.head());
        self.each_row(|row| recording.push(row));
        Ok(recording)
    }
}
