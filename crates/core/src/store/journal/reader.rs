//! Reads the rows of a journal. The journal may still be written at the same time.
//!
//! In:  the path of a journal. Out: its head, and its rows up to the first damaged or incomplete record.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::record::{Columns, Head, VERSION, blocks, column_name, record_bytes};
use super::tail::End;
use crate::metric::Row;
use crate::os;
use crate::store::plausible::{self, Implausible};

/// Maximum length of the first line, which contains the command line of the job.
const MOST_HEAD_BYTES: u64 = 16 << 20;

#[derive(Debug, Error)]
pub enum JournalError {
    #[error("cannot read `{path}`")]
    Io { path: PathBuf, source: io::Error },
    #[error("`{path}` is not a resource-tracker journal: {reason}")]
    Foreign { path: PathBuf, reason: String },
}

impl From<JournalError> for io::Error {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::Io { source, .. } => source,
            foreign @ JournalError::Foreign { .. } => Self::other(foreign),
        }
    }
}

#[derive(Debug)]
pub struct Reader {
    file: BufReader<File>,
    /// Description of the recording, as passed to `Journal::create`.
    pub recording: serde_json::Value,
    /// Whether the writer has the lock of the file as long as it uses the file.
    pub is_locked: bool,
    columns: Columns,
    first_record: u64,
    offset: u64,
    record: Vec<u8>,
    is_closed: bool,
    implausible: Option<Implausible>,
}

impl Reader {
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        let io_error = |source| JournalError::Io { path: path.to_owned(), source };
        let foreign = |reason: String| JournalError::Foreign { path: path.to_owned(), reason };
        let mut file = BufReader::with_capacity(32 << 10, os::open_regular(path).map_err(io_error)?);
        let mut line = Vec::new();
        let first_record =
            (&mut file).take(MOST_HEAD_BYTES).read_until(b'\n', &mut line).map_err(io_error)? as u64;
        if line.pop() != Some(b'\n') {
            return Err(foreign("the first line is incomplete".to_owned()));
        }
        let head: Head = serde_json::from_slice(&line).map_err(|error| foreign(error.to_string()))?;
        if head.resource_tracker_journal != VERSION {
            let version = head.resource_tracker_journal;
            return Err(foreign(format!("unsupported version {version}, expected {VERSION}")));
        }
        plausible::check("", &head.recording).map_err(|error| foreign(error.to_string()))?;
        let columns = Columns::of(&head).ok_or_else(|| foreign("it has more than 64 columns".to_owned()))?;
        Ok(Self {
            file,
            recording: head.recording,
            is_locked: head.is_locked,
            columns,
            first_record,
            offset: first_record,
            record: Vec::new(),
            is_closed: false,
            implausible: None,
        })
    }

    /// Moves to the first row.
    pub fn rewind(&mut self) -> io::Result<()> {
        self.skip_to(self.first_record)
    }

    /// Passes all rows to `take`, from the first row up to `end`.
    pub fn replay(&mut self, end: &End, take: &mut dyn FnMut(&Row) -> io::Result<()>) -> io::Result<()> {
        self.rewind()?;
        while end.length.is_none_or(|length| self.offset < length) {
            let Some(row) = self.next_row() else { break };
            take(&row)?;
        }
        end.waiting.iter().try_for_each(take)
    }

    /// Continues at the [`offset`](Self::offset) of another reader.
    pub fn skip_to(&mut self, offset: u64) -> io::Result<()> {
        self.offset = offset.max(self.first_record);
        self.file.seek(SeekFrom::Start(self.offset)).map(|_| ())
    }

    /// Position in the file after the last row that was read.
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether the end record was read. The writer appends it after the last row.
    pub const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Position of the last row, or of the end of the first line if there are no rows.
    pub(super) fn last_offset(mut self) -> u64 {
        let mut last = self.offset;
        loop {
            let offset = self.offset;
            if self.next_row().is_none() {
                return last;
            }
            last = offset;
        }
    }

    /// The final description after the end record, if the writer could not save the recording.
    pub fn final_description(&mut self) -> Option<serde_json::Value> {
        let mut text = Vec::new();
        (&mut self.file).take(MOST_HEAD_BYTES).read_to_end(&mut text).ok()?;
        serde_json::from_slice(&text).ok().filter(|_| self.is_closed)
    }

    /// The number that ended the journal, because no tracker can have written it.
    pub const fn implausible(&self) -> Option<&Implausible> {
        self.implausible.as_ref()
    }

    /// The next row; `None` at the end of the journal, or if the next record is damaged or incomplete.
    pub fn next_row(&mut self) -> Option<Row> {
        let mut length = [0; 2];
        self.file.read_exact(&mut length).ok()?;
        self.record.clear();
        self.record.extend_from_slice(&length);
        self.record.resize(record_bytes(length), 0);
        self.file.read_exact(self.record.get_mut(2..)?).ok()?;
        if length == [0; 2] {
            self.is_closed = blocks(&self.record).is_some();
            return None;
        }
        let row = self.columns.decode(&self.record)?;
        let mut cells = row.measured();
        let checked = cells.try_for_each(|(metric, value)| {
            plausible::cell(&column_name(metric), value, &metric.unit().range())
        });
        drop(cells);
        if let Err(implausible) = checked {
            self.implausible = Some(implausible);
            return None;
        }
        self.offset += self.record.len() as u64;
        Some(row)
    }
}

impl Iterator for Reader {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        self.next_row()
    }
}
