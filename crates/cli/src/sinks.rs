//! Where rows go as they come: CSV or JSON lines on a stream.

use std::fs::File;
use std::io::{self, Write as _};
use std::ops::ControlFlow;
use std::time::Duration;

use resource_tracker::csv;
use resource_tracker::export::JsonLines;
use resource_tracker::metric::{Row, Table};
use resource_tracker::sampler::Sink;
use resource_tracker::sys;

/// How long a reader may take to make room for a row.
const PATIENCE: Duration = Duration::from_millis(500);

/// Rows, each written out at once.
pub struct RowSink {
    file: File,
    name: String,
    format: RowFormat,
    line: Vec<u8>,
    /// Rows that are still wanted; `None` for all.
    left: Option<u64>,
    /// Nobody reads what we write beside a job.
    is_stuck: bool,
}

/// How a row is written.
pub enum RowFormat {
    /// CSV of one table.
    Csv(Table),
    /// CSV of several, behind their prefixes.
    CombinedCsv(&'static [Table]),
    /// A JSON object a line.
    Json(JsonLines),
}

impl RowSink {
    /// Writes the header, if the format has one.
    pub fn new(file: File, name: String, format: RowFormat) -> io::Result<Self> {
        let mut line = Vec::new();
        match &format {
            RowFormat::Csv(table) => csv::write_header(&mut line, *table),
            RowFormat::CombinedCsv(tables) => csv::write_combined_header(&mut line, tables),
            RowFormat::Json(_) => {}
        }
        let mut sink = Self { file, name, format, line, left: None, is_stuck: false };
        sink.file.write_all(&sink.line)?;
        Ok(sink)
    }

    /// Ends the recording after this many rows, and when nobody reads any more.
    pub fn until(mut self, rows: Option<u64>) -> Self {
        self.left = Some(rows.unwrap_or(u64::MAX));
        self
    }

    /// A reader that has stopped reading must not hold up the recording, nor the end of the job.
    fn write_beside_a_job(&mut self) -> io::Result<()> {
        if self.is_stuck {
            return Ok(());
        }
        if !sys::takes_text_within(&self.file, PATIENCE) {
            self.is_stuck = true;
            let why = "nobody reads it, so no more rows are written there";
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        self.file.write_all(&self.line)
    }
}

impl Sink for RowSink {
    fn take(&mut self, row: &Row) -> io::Result<ControlFlow<()>> {
        self.line.clear();
        match &self.format {
            RowFormat::Csv(table) => csv::write_row(&mut self.line, *table, row),
            RowFormat::CombinedCsv(tables) => csv::write_combined_row(&mut self.line, tables, row),
            RowFormat::Json(lines) => lines.write(&mut self.line, row),
        }
        let Some(left) = &mut self.left else {
            return self.write_beside_a_job().map(ControlFlow::Continue);
        };
        *left = left.saturating_sub(1);
        match self.file.write_all(&self.line) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
            written => {
                written.map(|()| if *left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            }
        }
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}
