//! A session as a whole: its snapshot in a file, or the recording in memory.
//!
//! In:  the rows so far. Out: [`Head`], JSON, [`Recording`]; the session goes on.
//! Not here: the format (`recording`), how a file appears whole or not at all (`output`).

use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::{Life, Session};
use crate::error::with_causes;
use crate::output::Output;
use crate::record;
use crate::recording::{Head, Recording, Run, Status, gzip, write_snapshot};
use crate::snapshot::Moment;

impl Session {
    /// Everything but the rows, as of now.
    pub fn head(&mut self) -> Head {
        if let Life::Loaded { recording, .. } = &self.life {
            return recording.head.clone();
        }
        let plan = &self.plan;
        let summary = self.summary();
        let (notes, gpus) = match &self.life {
            Life::Thread { tracker, .. } => (tracker.notes(), tracker.gpus()),
            Life::Companion { companion, .. } => {
                (companion.words.notes.clone(), companion.words.gpus.clone())
            }
            Life::New | Life::Loaded { .. } => Default::default(),
        };
        let run = Run {
            host: crate::sys::host_name(),
            status: self.is_running().then_some(Status::Running),
            cpu_source: self.cpu_source(),
            coverage: summary.coverage(),
            notes,
            gpus,
            ..Run::default()
        };
        let mut head = record::head(&plan.config, plan.pid, self.start_time.unwrap_or_default(), run);
        head.metadata.method.clone_from(&plan.method);
        head.metadata.autostart = plan.autostart;
        head.metadata.discover_server = plan.discover_server;
        head.metadata.discover_cloud = plan.discover_cloud;
        head.metadata.start_time = self.start_time;
        if self.start_time.is_some() {
            head.metadata.set_stop_time(self.stop_time().unwrap_or_else(|| Moment::now().wall_s()));
        }
        head.server_info = self.server_info();
        head.cloud_info = self.cloud_info();
        head
    }

    /// Writes the snapshot as JSON, gzipped or plain.
    ///
    /// # Errors
    /// Those of `out`, and of reading the rows.
    pub fn write_snapshot(&mut self, out: &mut impl Write, compressed: bool) -> io::Result<()> {
        if compressed {
            let mut out = gzip(out);
            self.write_plain(&mut out)?;
            return out.finish()?.flush();
        }
        self.write_plain(out)
    }

    /// Writes the snapshot to a gzipped file, whole or not at all.
    ///
    /// # Errors
    /// What the file system says.
    pub fn dump(&mut self, path: &Path) -> io::Result<()> {
        let mut file = BufWriter::with_capacity(64 << 10, Output::open(path)?);
        self.write_snapshot(&mut file, true)?;
        file.into_inner().map_err(io::IntoInnerError::into_error)?.commit()
    }

    fn write_plain(&mut self, out: &mut impl Write) -> io::Result<()> {
        if let Life::Loaded { recording, .. } = &self.life {
            return recording.write(out);
        }
        let mut head = self.head();
        let mut kept =
            match self.kept_rows().map(|rows| rows.reader().map(|reader| (reader, self.end_of(rows)))) {
                Some(Ok(kept)) => Some(kept),
                Some(Err(error)) => {
                    // Whoever removed the file took the rows; what else is known is kept.
                    let note = format!("the rows are lost: {}", with_causes(&error));
                    head.run.get_or_insert_default().notes.push(note);
                    None
                }
                None => None,
            };
        write_snapshot(out, &head, &mut |take| {
            kept.as_mut().map_or(Ok(()), |(reader, end)| reader.replay(end, take))
        })
    }

    /// The whole recording in memory, as of now.
    pub fn recording(&mut self) -> Recording {
        if let Life::Loaded { recording, .. } = &self.life {
            return (**recording).clone();
        }
        let mut recording = Recording::new(self.head());
        self.each_row(|row| recording.push(row));
        recording
    }
}
