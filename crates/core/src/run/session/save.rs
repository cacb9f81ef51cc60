//! The snapshot of a session, in a file or in memory. A snapshot does not stop the session.
//!
//! In:  the rows so far. Out: [`Head`], JSON, [`Recording`].
//! Not here: the format (`store::recording`), atomic writes (`os::output`).

use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::{Session, SessionError, Source};
use crate::error::with_causes;
use crate::os::Moment;
use crate::os::output::Output;
use crate::store::recording::{Head, Recording, Run, Status, gzip, write_snapshot};

impl Session {
    /// Everything in the recording except the rows.
    pub fn head(&mut self) -> Head {
        let gpus = match &self.source {
            Source::Loaded { recording, .. } => return recording.head.clone(),
            Source::Thread { tracker, .. } => tracker.gpus(),
            Source::Sidecar { sidecar, .. } => sidecar.report.gpus.clone(),
            Source::NotStarted => Vec::new(),
        };
        let run = Run {
            host: crate::os::host_name(),
            status: self.is_running().then_some(Status::Running),
            cpu_source: self.cpu_source(),
            coverage: self.summary().coverage(),
            notes: self.sampler_notes(),
            gpus,
            ..Run::default()
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
