//! Where rows go as they come: CSV on a stream.

use std::fs::File;
use std::io::{self, Write as _};
use std::ops::ControlFlow;

use resource_tracker::csv;
use resource_tracker::metric::{Row, Table};
use resource_tracker::sampler::Sink;

/// CSV rows, each written out at once.
pub struct CsvSink {
    file: File,
    name: String,
    tables: CsvTables,
    line: Vec<u8>,
    /// Rows that are still wanted; `None` for all.
    left: Option<u64>,
}

/// Which columns a CSV has.
#[derive(Clone, Copy)]
pub enum CsvTables {
    /// One table's own.
    One(Table),
    /// Several, behind their prefixes.
    Combined(&'static [Table]),
}

impl CsvSink {
    /// Writes the header.
    pub fn new(file: File, name: String, tables: CsvTables) -> io::Result<Self> {
        let mut line = Vec::new();
        match tables {
            CsvTables::One(table) => csv::write_header(&mut line, table),
            CsvTables::Combined(tables) => csv::write_combined_header(&mut line, tables),
        }
        let mut sink = Self { file, name, tables, line, left: None };
        sink.file.write_all(&sink.line)?;
        Ok(sink)
    }

    /// Ends the recording after this many rows, and when nobody reads any more.
    pub fn until(mut self, rows: Option<u64>) -> Self {
        self.left = Some(rows.unwrap_or(u64::MAX));
        self
    }
}

impl Sink for CsvSink {
    fn take(&mut self, row: &Row) -> io::Result<ControlFlow<()>> {
        self.line.clear();
        match self.tables {
            CsvTables::One(table) => csv::write_row(&mut self.line, table, row),
            CsvTables::Combined(tables) => csv::write_combined_row(&mut self.line, tables, row),
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
