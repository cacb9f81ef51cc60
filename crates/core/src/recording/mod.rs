//! A recording: what one job used, a row per tick, and what is known about the run.
//!
//! In:  a snapshot file or text, ours or the original package's; rows as they are measured.
//! Out: [`Recording`] with its tables as frames; snapshots that both packages load.
//! Not here: the journal that rows are first written to (`journal`), figures (`summary`, `stats`).

mod error;
mod head;
mod read;
mod rows;
mod window;
mod write;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

pub use error::{LoadError, SnapshotError};
pub use head::{Head, Metadata, OomKills, Run, Software, Status, VERSION};
pub(crate) use write::{Key, write_cells};
pub use write::{Replay, gzip, write_snapshot};

use crate::frame::{CombinedOptions, Frame, FrameError, combined};
use crate::metric::{Metric, Row, Table};
use crate::stats::{Stats, StatsError};
use crate::summary::{Scope, Summary};

/// One recording in memory. A table that is off is `None`.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// Everything but the rows.
    pub head: Head,
    /// The job.
    pub process: Option<Frame>,
    /// The machine.
    pub system: Option<Frame>,
    /// What goes beyond the original's two tables; `None` in its files.
    pub extra: Option<Frame>,
}

impl Recording {
    /// An empty recording of the tables that the metadata call on.
    #[must_use]
    pub fn new(head: Head) -> Self {
        let table = |on: bool, table| on.then(|| Frame::for_table(table));
        Self {
            process: table(head.metadata.track_processes, Table::Process),
            system: table(head.metadata.track_system, Table::System),
            extra: table(true, Table::Extra),
            head,
        }
    }

    /// Adds what a tick measured.
    pub fn push(&mut self, row: &Row) {
        for frame in [&mut self.process, &mut self.system, &mut self.extra].into_iter().flatten() {
            frame.push(row);
        }
    }

    /// Loads a snapshot file, gzipped or plain.
    ///
    /// # Errors
    ///
    /// When the file cannot be opened or holds no complete recording; names the file and the reason.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let file = File::open(path).map_err(|source| LoadError::Open { path: path.to_owned(), source })?;
        let reader = BufReader::with_capacity(64 * 1024, file);
        Self::read(reader).map_err(|source| LoadError::Content { path: path.to_owned(), source })
    }

    /// Reads a snapshot, gzipped or plain.
    ///
    /// # Errors
    ///
    /// When it is no complete recording.
    pub fn read(reader: impl BufRead) -> Result<Self, SnapshotError> {
        read::read(reader)
    }

    /// Writes the snapshot as plain JSON.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let tables = [
            (Table::Process, self.process.as_ref()),
            (Table::System, self.system.as_ref()),
            (Table::Extra, self.extra.as_ref()),
        ];
        write::write_frames(out, &self.head, tables)
    }

    /// Rows that every table of the contract that is on has (`n_samples`).
    #[must_use]
    pub fn rows(&self) -> usize {
        self.tables().map(Frame::len).min().unwrap_or(0)
    }

    fn tables(&self) -> impl Iterator<Item = &Frame> {
        [&self.process, &self.system].into_iter().flatten()
    }

    /// The running figures over all rows, the same as a live tracker keeps.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let mut summary = Summary::new(Scope {
            process: self.process.is_some(),
            system: self.system.is_some(),
            start_time: self.head.metadata.start_time,
            interval_s: self.head.metadata.interval,
        });
        let columns = || self.tables().chain(&self.extra).flat_map(Frame::columns);
        // The first table that has a timestamp gives it.
        let cells: Vec<(Metric, &[f64])> = Metric::ONCE
            .iter()
            .filter_map(|metric| {
                let column = columns().find(|column| column.metric() == Some(*metric))?;
                Some((*metric, column.as_slice()))
            })
            .collect();
        let mut row = Row::default();
        for number in 0..self.rows() {
            for (metric, cells) in &cells {
                row.set(*metric, cells.get(number).copied().filter(|cell| !cell.is_nan()));
            }
            summary.add(&row);
        }
        summary
    }

    /// The default statistics.
    ///
    /// # Errors
    ///
    /// [`StatsError::NoMetrics`] when there is no row.
    pub fn stats(&self) -> Result<Stats, StatsError> {
        self.summary().stats()
    }

    /// Both tables side by side.
    ///
    /// # Errors
    ///
    /// Those of [`combined`].
    pub fn combined(&self, options: &CombinedOptions) -> Result<Frame, FrameError> {
        combined(self.process.as_ref(), self.system.as_ref(), options)
    }
}
