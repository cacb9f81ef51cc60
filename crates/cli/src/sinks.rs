//! Where rows go as they come: CSV on a stream, the journal.

use std::fs::File;
use std::io::{self, Write as _};

use resource_tracker::csv;
use resource_tracker::journal::Journal;
use resource_tracker::metric::{Row, Table};
use resource_tracker::sampler::Sink;

/// CSV rows, each written out at once.
pub struct CsvSink {
    file: File,
    name: String,
    tables: CsvTables,
    line: Vec<u8>,
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
        let mut sink = Self { file, name, tables, line };
        sink.file.write_all(&sink.line)?;
        Ok(sink)
    }
}

impl Sink for CsvSink {
    fn take(&mut self, row: &Row) -> io::Result<()> {
        self.line.clear();
        match self.tables {
            CsvTables::One(table) => csv::write_row(&mut self.line, table, row),
            CsvTables::Combined(tables) => csv::write_combined_row(&mut self.line, tables, row),
        }
        self.file.write_all(&self.line)
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

/// The journal.
pub struct JournalSink(pub Journal);

impl Sink for JournalSink {
    fn take(&mut self, row: &Row) -> io::Result<()> {
        self.0.append(row)
    }

    fn name(&self) -> String {
        format!("`{}`", self.0.path().display())
    }
}
