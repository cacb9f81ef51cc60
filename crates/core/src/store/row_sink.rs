//! A sink that writes each row immediately, as CSV or JSON lines, to a file or a standard stream.
//!
//! In:  rows of the sampler. Out: text. Not here: the text of a row (`csv`, `export`).

use std::fs::File;
use std::io::{self, Write as _};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use crate::metric::{Row, Table};
use crate::os;
use crate::os::output::Output;
use crate::sampler::Sink;
use crate::store::csv;
use crate::store::export::JsonLines;

/// If a pipe has no room for a row for this long, its reader counts as stopped.
const READER_TIMEOUT: Duration = Duration::from_millis(500);

/// Writes each row to a file or standard stream as soon as it is made.
pub struct RowSink {
    file: File,
    /// Name of the file or stream, for messages.
    name: String,
    format_row: FormatRow,
    line: Vec<u8>,
    /// Number of rows to write before the recording ends; `None` if the recording ends with the job.
    left: Option<u64>,
    has_given_up: bool,
}

/// The format of [`RowSink`].
#[derive(Clone, Copy, Debug)]
pub enum RowFormat {
    Csv(Table),
    /// CSV of the combined table: column names have the prefix of their table.
    CombinedCsv(&'static [Table]),
    JsonLines(Table),
}

type FormatRow = Box<dyn Fn(&mut Vec<u8>, &Row) + Send>;

impl RowSink {
    /// Writes to standard output, and ends the recording after `rows` rows or when the reader closes the stream.
    pub fn to_stdout(format: RowFormat, rows: Option<u64>) -> io::Result<Self> {
        let mut sink = Self::new(os::duplicate(1)?, "standard output".to_owned(), format)?;
        sink.left = Some(rows.unwrap_or(u64::MAX));
        Ok(sink)
    }

    /// Writes to a file while a job runs; path `-` means standard error. Without `force`, only a file of this package is
    /// replaced. A reader that stops reading does not delay the job.
    pub fn to_path(path: &Path, force: bool, format: RowFormat) -> io::Result<Self> {
        let file = if path == Path::new("-") {
            os::duplicate(2)?
        } else {
            Output::open_argument(path, force)?.into_stream()?
        };
        Self::new(file, format!("`{}`", path.display()), format)
    }

    fn new(file: File, name: String, format: RowFormat) -> io::Result<Self> {
        let mut line = Vec::new();
        let format_row: FormatRow = match format {
            RowFormat::Csv(table) => {
                csv::write_header(&mut line, table);
                Box::new(move |line, row| csv::write_row(line, table, row))
            }
            RowFormat::CombinedCsv(tables) => {
                csv::write_combined_header(&mut line, tables);
                Box::new(move |line, row| csv::write_combined_row(line, tables, row))
            }
            RowFormat::JsonLines(table) => {
                let lines = JsonLines::new(table);
                Box::new(move |line, row| lines.write(line, row))
            }
        };
        let mut sink = Self { file, name, format_row, line, left: None, has_given_up: false };
        sink.file.write_all(&sink.line)?;
        Ok(sink)
    }

    fn write_unless_stuck(&mut self) -> io::Result<()> {
        if self.has_given_up {
            return Ok(());
        }
        if !os::takes_text_within(&self.file, READER_TIMEOUT) {
            self.has_given_up = true;
            let why = "the reader stopped reading, so no more rows are written";
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        self.file.write_all(&self.line)
    }
}

impl Sink for RowSink {
    fn take(&mut self, row: &Row) -> io::Result<ControlFlow<()>> {
        self.line.clear();
        (self.format_row)(&mut self.line, row);
        let Some(left) = &mut self.left else {
            return self.write_unless_stuck().map(ControlFlow::Continue);
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
