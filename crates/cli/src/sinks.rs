//! Where rows go as they come: CSV or JSON lines on a stream.

use std::fs::File;
use std::io::{self, Write as _};
use std::ops::ControlFlow;

use resource_tracker::csv;
use resource_tracker::export::JsonLines;
use resource_tracker::metric::{Row, Table};
use resource_tracker::sampler::Sink;

/// Rows, each written out at once.
pub struct RowSink {
    file: File,
    name: String,
    format: RowFormat,
    line: Vec<u8>,
    /// Rows that are still wanted; `None` for all.
    left: Option<u64>,
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
        let mut sink = Self { file, name, format, line, left: None };
        sink.file.write_all(&sink.line)?;
        Ok(sink)
    }

    /// Ends the recording after this many rows, and when nobody reads any more.
    pub fn until(mut self, rows: Option<u64>) -> Self {
        self.left = Some(rows.unwrap_or(u64::MAX));
        self
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
            return self.file.write_all(&self.line).map(ControlFlow::Continue);
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
