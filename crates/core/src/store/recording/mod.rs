//! A recording: the resource usage of one job with one row per tick, and facts about the run.
//!
//! In:  a recording file ("snapshot") of resource-tracker or of the original package; rows of a live tracker.
//! Out: [`Recording`] with its tables as frames; recording files that both packages can load.
//! Not here: the journal of a recording in progress (`journal`), statistics (`summary`, `stats`).

pub(crate) mod command_line;
mod error;
pub mod head;
mod identity;
mod read;
mod requested;
mod rows;
mod window;
mod write;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

pub use error::{LoadError, SnapshotError};
pub use head::{Head, Metadata, Run, Status};
pub(crate) use identity::Identity;
pub(crate) use write::{Key, write_cells};
pub use write::{gzip, write_snapshot};

use crate::metric::{Metric, Row, Table};
use crate::sampler::marks::START;
use crate::store::frame::{CombinedOptions, Frame, FrameError, combined};
use crate::store::stats::{Spec, Stats, StatsError};
use crate::store::summary::{Scope, Summary};

/// A recording in memory. A table that is not recorded is `None`.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    pub head: Head,
    pub process: Option<Frame>,
    pub system: Option<Frame>,
    /// Columns that the original package does not have; `None` for files of the original package.
    pub extra: Option<Frame>,
}

impl Recording {
    /// A recording without rows.
    pub fn new(head: Head) -> Self {
        let table = |on: bool, table| on.then(|| Frame::for_table(table));
        Self {
            process: table(head.metadata.track_processes, Table::Process),
            system: table(head.metadata.track_system, Table::System),
            extra: table(true, Table::Extra),
            head,
        }
    }

    pub fn push(&mut self, row: &Row) {
        for frame in [&mut self.process, &mut self.system, &mut self.extra].into_iter().flatten() {
            frame.push(row);
        }
    }

    /// Loads a recording file, gzipped or plain.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let file = File::open(path).map_err(|source| LoadError::Open { path: path.to_owned(), source })?;
        let reader = BufReader::with_capacity(64 * 1024, file);
        Self::read(reader).map_err(|source| LoadError::Content { path: path.to_owned(), source })
    }

    /// Reads a recording, gzipped or plain.
    pub fn read(reader: impl BufRead) -> Result<Self, SnapshotError> {
        read::read(reader)
    }

    /// Writes the recording as plain JSON.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let tables = [
            (Table::Process, self.process.as_ref()),
            (Table::System, self.system.as_ref()),
            (Table::Extra, self.extra.as_ref()),
        ];
        write::write_frames(out, &self.head, tables)
    }

    /// Number of rows (`n_samples`). If the tables differ in length, the length of the shorter table.
    pub fn rows(&self) -> usize {
        self.tables().map(Frame::len).min().unwrap_or(0)
    }

    fn tables(&self) -> impl Iterator<Item = &Frame> {
        [&self.process, &self.system].into_iter().flatten()
    }

    /// Computes the same statistics as a live tracker.
    pub fn summary(&self) -> Summary {
        self.walk(|_| {})
    }

    /// Sums up the rows, and calls `see` with the length of each row in seconds.
    fn walk(&self, mut see: impl FnMut(f64)) -> Summary {
        let mut summary = Summary::new(Scope {
            process: self.process.is_some(),
            system: self.system.is_some(),
            start_time: self.head.metadata.start_time,
            interval_s: self.head.metadata.interval,
        });
        let columns = || self.tables().chain(&self.extra).flat_map(Frame::columns);
        // Every table has a column `timestamp`. That of the first table is used.
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
            see(summary.row_length_s(&row));
            summary.add(&row);
        }
        summary
    }

    /// The default statistics of the recording.
    pub fn stats(&self) -> Result<Stats, StatsError> {
        self.summary().stats()
    }

    /// The phase of each row, by the middle of the row; `None` without marks.
    pub fn phase_of_rows(&self) -> Option<Vec<&str>> {
        let marks =
            self.head.run.as_ref().map(|run| run.marks.as_slice()).filter(|marks| !marks.is_empty())?;
        let column = |frame: Option<&'_ Frame>, metric| Some(frame?.metric(metric)?.as_slice().to_vec());
        let timestamps = column(self.tables().next(), Metric::Timestamp)?;
        let elapsed = column(self.extra.as_ref(), Metric::Elapsed).unwrap_or_default();
        let start_time = self.head.metadata.start_time.or_else(|| timestamps.first().copied())?;
        let (mut end_s, mut phases) = (0.0, Vec::with_capacity(self.rows()));
        for (row, timestamp) in timestamps.iter().enumerate().take(self.rows()) {
            let begin_s = end_s;
            let length_s = elapsed.get(row).copied().filter(|length_s| length_s.is_finite());
            end_s = length_s.map_or(timestamp - start_time, |length_s| begin_s + length_s);
            let middle_s = f64::midpoint(begin_s, end_s);
            let marked = marks.iter().take_while(|mark| mark.seconds <= middle_s).last();
            phases.push(marked.map_or(START, |mark| mark.name.as_str()));
        }
        Some(phases)
    }

    /// Statistics of columns of the combined table and of the extra table, weighted by the length of each row.
    pub fn stats_of(&self, specs: &[Spec]) -> Result<Stats, StatsError> {
        let options = CombinedOptions { extra: true, ..CombinedOptions::default() };
        let mut lengths_s = Vec::with_capacity(self.rows());
        self.walk(|length_s| lengths_s.push(length_s));
        Stats::compute(&self.combined(&options)?, &lengths_s, specs)
    }

    /// Joins the tables of machine and job, and the extra table if the options ask for it.
    pub fn combined(&self, options: &CombinedOptions) -> Result<Frame, FrameError> {
        let mut all = combined(self.process.as_ref(), self.system.as_ref(), options)?;
        if let Some(extra) = self.extra.as_ref().filter(|_| options.extra) {
            all.append(Table::Extra, extra, options)?;
        }
        Ok(all)
    }
}
