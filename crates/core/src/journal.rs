//! Rows on disk as they come, so that they survive a kill of the tracker or of the job.
//!
//! In:  rows, one at a time. Out: the same rows, up to the last one that was written whole.
//!
//! The file starts with one line of JSON: the format's version, the columns, and the recording's head. Then
//! records: length (u16), a block of cells, another block for each GPU, CRC-32 of all that; a block is a bitmap of the
//! cells that hold a value (u64) and those values (f64), little-endian. A torn or damaged record ends the reading: what
//! stands before it is good. A record without a block says that no more rows are to come.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::metric::{GpuCells, MOST_GPUS, Metric, Row, Table};
use crate::sys;

const VERSION: u32 = 1;
/// The longest head that is believed: command lines are long, but not that long.
const MOST_HEAD_BYTES: u64 = 16 << 20;

const _: () = assert!(Metric::ONCE.len() <= 64, "the bitmap of a record has 64 bits");

/// Why a file is no journal of ours.
#[derive(Debug, Error)]
pub enum JournalError {
    /// Reading failed.
    #[error("cannot read `{path}`")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Its first line is not a head.
    #[error("`{path}` is no journal of resource-tracker: {why}")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

impl From<JournalError> for io::Error {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::Io { source, .. } => source,
            foreign @ JournalError::Foreign { .. } => Self::other(foreign),
        }
    }
}

#[derive(Deserialize, Serialize)]
struct Head {
    resource_tracker_journal: u32,
    columns: Vec<String>,
    #[serde(default)]
    gpu_columns: Vec<String>,
    recording: serde_json::Value,
}

fn column_name(metric: Metric) -> String {
    match metric.table() {
        Table::Every => metric.column().to_owned(),
        table => format!("{}.{}", table.key(), metric.column()),
    }
}

/// Who holds the file open between two rows.
#[derive(Debug)]
enum Handle {
    /// We are a process of our own: the file stays open.
    Open(File),
    /// We are a guest in somebody's process, who may close or reuse any descriptor: opened for each row.
    Anew,
}

/// A journal that is being written.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    handle: Handle,
    tail: Tail,
}

/// Where a journal ends, for whoever reads it in the process of its writer: in the file, and in memory after that.
#[derive(Clone, Debug, Default)]
pub struct Tail(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    length: u64,
    /// Records that are not in the file yet.
    waiting: Vec<u8>,
}

/// The end as it was at one moment.
#[derive(Debug, PartialEq)]
pub struct End {
    /// Where the file's records end; what is after that came later. `None` where somebody else writes.
    pub length: Option<u64>,
    /// Rows that are not in the file.
    pub waiting: Vec<Row>,
}

impl Tail {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As it is now.
    #[must_use]
    pub fn end(&self) -> End {
        let inner = self.lock();
        let mut records = inner.waiting.as_slice();
        let known = |metrics: &[Metric]| metrics.iter().copied().map(Some).collect::<Vec<_>>();
        let (columns, gpu_columns) = (known(Metric::ONCE), known(Metric::PER_GPU));
        let rows = iter::from_fn(|| {
            let length = usize::from(u16::from_le_bytes(*records.first_chunk()?));
            let (record, rest) = records.split_at_checked(2 + length + 4)?;
            records = rest;
            decode(record, &columns, &gpu_columns)
        });
        End { length: (inner.length > 0).then_some(inner.length), waiting: rows.collect() }
    }
}

/// So much may wait for a disk that is full: some hours of rows.
const MOST_WAITING_BYTES: usize = 4 << 20;

impl Journal {
    /// Starts a journal at `path`, which must not exist; readable by its owner only.
    ///
    /// # Errors
    /// What the file system says.
    pub fn create(path: &Path, recording: serde_json::Value, as_guest: bool) -> io::Result<Self> {
        let opened = sys::for_owner(OpenOptions::new().create_new(true).append(true)).open(path)?;
        let mut file = sys::above_stdio(opened)?;
        let names = |metrics: &[Metric]| metrics.iter().copied().map(column_name).collect();
        let mut head = serde_json::to_vec(&Head {
            resource_tracker_journal: VERSION,
            columns: names(Metric::ONCE),
            gpu_columns: names(Metric::PER_GPU),
            recording,
        })?;
        head.push(b'\n');
        if let Err(error) = file.write_all(&head) {
            // One without a head would be nobody's.
            let _ = std::fs::remove_file(path);
            return Err(error);
        }
        let handle = if as_guest { Handle::Anew } else { Handle::Open(file) };
        Ok(Self {
            path: path.to_owned(),
            handle,
            tail: Tail(Arc::new(Mutex::new(Inner {
                length: head.len() as u64,
                waiting: Vec::with_capacity(512),
            }))),
        })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its end, from now on.
    #[must_use]
    pub fn tail(&self) -> Tail {
        self.tail.clone()
    }

    /// Appends a row in one write, with those that are still waiting.
    ///
    /// # Errors
    /// What the file system says (a full disk, say); the file then still ends with a whole row, and this one waits for
    /// the next.
    pub fn append(&mut self, row: &Row) -> io::Result<()> {
        let tail = self.tail.clone();
        let mut tail = tail.lock();
        let before = tail.waiting.len();
        let gpus = row.gpus.iter().map(GpuCells::as_slice);
        encode(iter::once(row.cells()).chain(gpus), &mut tail.waiting);
        let written = self.write(&tail);
        if written.is_ok() {
            tail.length += tail.waiting.len() as u64;
            tail.waiting.clear();
        } else if tail.waiting.len() > MOST_WAITING_BYTES {
            tail.waiting.truncate(before);
        }
        written
    }

    fn write(&mut self, tail: &Inner) -> io::Result<()> {
        let mut opened;
        let file = match &mut self.handle {
            // One that somebody has removed takes rows that nobody will read.
            Handle::Open(file) if sys::is_removed(&file.metadata()?) => {
                return Err(io::Error::new(io::ErrorKind::NotFound, "somebody has removed it"));
            }
            Handle::Open(file) => file,
            Handle::Anew => {
                opened = sys::above_stdio(OpenOptions::new().append(true).open(&self.path)?)?;
                &mut opened
            }
        };
        if let Err(error) = file.write_all(&tail.waiting) {
            // Part of a record would hide all that follow it.
            file.set_len(tail.length)?;
            return Err(error);
        }
        Ok(())
    }
}

/// Says that no more rows are to come, for whoever finds the file when its writer is gone.
///
/// # Errors
/// What the file system says.
pub(crate) fn close(path: &Path) -> io::Result<()> {
    let mut file = sys::above_stdio(OpenOptions::new().append(true).open(path)?)?;
    let mut record = Vec::new();
    encode(iter::empty(), &mut record);
    file.write_all(&record)
}

fn encode<'a>(blocks: impl Iterator<Item = &'a [Option<f64>]>, records: &mut Vec<u8>) {
    let start = records.len();
    records.extend_from_slice(&[0; 2]);
    for cells in blocks {
        put(cells, records);
    }
    let (_, record) = records.split_at_mut(start);
    let length = u16::try_from(record.len() - 2).unwrap_or(u16::MAX);
    record[..2].copy_from_slice(&length.to_le_bytes());
    let checksum = crc32fast::hash(record);
    records.extend_from_slice(&checksum.to_le_bytes());
}

/// Appends a block.
fn put(cells: &[Option<f64>], record: &mut Vec<u8>) {
    let present = cells.iter().enumerate().filter(|(_, cell)| cell.is_some());
    let bitmap = present.fold(0_u64, |bitmap, (bit, _)| bitmap | 1 << bit);
    record.extend_from_slice(&bitmap.to_le_bytes());
    for value in cells.iter().flatten() {
        record.extend_from_slice(&value.to_le_bytes());
    }
}

/// Reads a block, and gives what follows it.
fn take<'a>(
    bytes: &'a [u8],
    columns: &[Option<Metric>],
    mut set: impl FnMut(Metric, f64),
) -> Option<&'a [u8]> {
    let (bitmap, mut values) = bytes.split_first_chunk::<8>()?;
    let bitmap = u64::from_le_bytes(*bitmap);
    for bit in (0..64).filter(|bit| bitmap & (1 << bit) != 0) {
        let (value, rest) = values.split_first_chunk::<8>()?;
        values = rest;
        if let Some(metric) = columns.get(bit).copied().flatten() {
            set(metric, f64::from_le_bytes(*value));
        }
    }
    Some(values)
}

/// A journal that is being read.
#[derive(Debug)]
pub struct Reader {
    file: BufReader<File>,
    /// What the writer said about the recording.
    pub recording: serde_json::Value,
    columns: Vec<Option<Metric>>,
    gpu_columns: Vec<Option<Metric>>,
    first_record: u64,
    /// Where the next record starts.
    offset: u64,
    record: Vec<u8>,
    is_closed: bool,
}

impl Reader {
    /// Opens a journal, also one that is still being written.
    ///
    /// # Errors
    /// Where it cannot be read or is no journal.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        let io_error = |source| JournalError::Io { path: path.to_owned(), source };
        let foreign = |why: &str| JournalError::Foreign { path: path.to_owned(), why: why.to_owned() };
        let mut file = BufReader::with_capacity(32 << 10, File::open(path).map_err(io_error)?);
        let mut line = Vec::new();
        let first_record =
            (&mut file).take(MOST_HEAD_BYTES).read_until(b'\n', &mut line).map_err(io_error)? as u64;
        if line.pop() != Some(b'\n') {
            return Err(foreign("its first line is cut off"));
        }
        let head: Head = serde_json::from_slice(&line).map_err(|error| foreign(&error.to_string()))?;
        if head.resource_tracker_journal != VERSION {
            return Err(foreign(&format!(
                "its version is {}, this program reads {VERSION}",
                head.resource_tracker_journal
            )));
        }
        if head.columns.len().max(head.gpu_columns.len()) > 64 {
            return Err(foreign("it has more than 64 columns"));
        }
        // By name, so that a journal of another release is read as far as both know a column.
        let find = |names: &[String], among: &[Metric]| {
            let known = |name: &String| among.iter().copied().find(|metric| column_name(*metric) == *name);
            names.iter().map(known).collect()
        };
        Ok(Self {
            columns: find(&head.columns, Metric::ONCE),
            gpu_columns: find(&head.gpu_columns, Metric::PER_GPU),
            file,
            recording: head.recording,
            first_record,
            offset: first_record,
            record: Vec::new(),
            is_closed: false,
        })
    }

    /// Starts again with the first row.
    ///
    /// # Errors
    /// What the file system says.
    pub fn rewind(&mut self) -> io::Result<()> {
        self.skip_to(self.first_record)
    }

    /// Gives all rows up to an end, from the first on.
    ///
    /// # Errors
    /// What the file system says, and those of `take`.
    pub fn replay(&mut self, end: &End, take: &mut dyn FnMut(&Row) -> io::Result<()>) -> io::Result<()> {
        self.rewind()?;
        while end.length.is_none_or(|length| self.offset < length) {
            let Some(row) = self.next_row() else { break };
            take(&row)?;
        }
        end.waiting.iter().try_for_each(take)
    }

    /// Goes on where another reader stopped.
    ///
    /// # Errors
    /// What the file system says.
    pub fn skip_to(&mut self, offset: u64) -> io::Result<()> {
        self.offset = offset.max(self.first_record);
        self.file.seek(SeekFrom::Start(self.offset)).map(|_| ())
    }

    /// Where the rows that were read end.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether the last row was read and its writer had said that it is the last.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// The next whole row; `None` at the end, or where the rest is torn.
    pub fn next_row(&mut self) -> Option<Row> {
        let mut length = [0; 2];
        self.file.read_exact(&mut length).ok()?;
        let body = usize::from(u16::from_le_bytes(length));
        self.record.clear();
        self.record.extend_from_slice(&length);
        self.record.resize(2 + body + 4, 0);
        self.file.read_exact(self.record.get_mut(2..)?).ok()?;
        if body == 0 {
            self.is_closed = checked(&self.record).is_some();
            return None;
        }
        let row = decode(&self.record, &self.columns, &self.gpu_columns)?;
        self.offset += self.record.len() as u64;
        Some(row)
    }
}

/// The blocks of a whole record; `None` where it is damaged.
fn checked(record: &[u8]) -> Option<&[u8]> {
    let (content, checksum) = record.split_last_chunk::<4>()?;
    (crc32fast::hash(content) == u32::from_le_bytes(*checksum)).then(|| content.get(2..))?
}

/// The row of a whole record; `None` where it is damaged.
fn decode(record: &[u8], columns: &[Option<Metric>], gpu_columns: &[Option<Metric>]) -> Option<Row> {
    let mut row = Row::default();
    let mut rest = take(checked(record)?, columns, |metric, value| row.set(metric, Some(value)))?;
    while !rest.is_empty() {
        if row.gpus.len() == MOST_GPUS {
            return None;
        }
        let mut cells = GpuCells::default();
        rest = take(rest, gpu_columns, |metric, value| {
            if let Some(cell) = metric.place_of_gpu().and_then(|place| cells.get_mut(place)) {
                *cell = Some(value);
            }
        })?;
        row.gpus.push(cells);
    }
    Some(row)
}

impl Iterator for Reader {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        self.next_row()
    }
}

/// Where a companion leaves what its host should know, beside the rows.
pub(crate) fn notes_path(journal: &Path) -> PathBuf {
    journal.with_extension("notes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn row(seed: f64) -> Row {
        let mut row = Row::default();
        let value = |at: usize| (at % 3 != 1).then(|| seed + f64::from(u32::try_from(at).unwrap()));
        for (at, metric) in Metric::ONCE.iter().enumerate() {
            row.set(*metric, value(at));
        }
        // A GPU more from the fifth row on, the first of them silent.
        row.gpus = vec![GpuCells::default()];
        if seed >= 4.0 {
            row.gpus.push(std::array::from_fn(value));
        }
        row
    }

    fn written(as_guest: bool) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let mut journal = Journal::create(&path, serde_json::json!({"job": "a"}), as_guest).unwrap();
        for seed in 0..10_u32 {
            journal.append(&row(f64::from(seed))).unwrap();
        }
        (folder, path)
    }

    #[test]
    fn rows_come_back_as_they_were_and_can_be_read_again() {
        for as_guest in [false, true] {
            let (_folder, path) = written(as_guest);
            let mut reader = Reader::open(&path).unwrap();
            assert_eq!(reader.recording, serde_json::json!({"job": "a"}));
            let first: Vec<Row> = reader.by_ref().collect();
            reader.rewind().unwrap();
            assert_eq!(first, (0..10_u32).map(|seed| row(f64::from(seed))).collect::<Vec<_>>());
            assert_eq!(reader.collect::<Vec<_>>(), first);
        }
    }

    #[test]
    fn rows_that_could_not_be_written_come_with_the_next_that_can() {
        let folder = tempfile::tempdir().unwrap();
        let (path, away) = (folder.path().join("journal"), folder.path().join("away"));
        let mut journal = Journal::create(&path, serde_json::Value::Null, true).unwrap();
        let rows: Vec<Row> = (0..5_u32).map(|seed| row(f64::from(seed))).collect();
        journal.append(&rows[0]).unwrap();
        std::fs::rename(&path, &away).unwrap();
        assert!(journal.append(&rows[1]).is_err() && journal.append(&rows[2]).is_err());
        assert_eq!(journal.tail().end().waiting, &rows[1..3]);
        std::fs::rename(&away, &path).unwrap();
        journal.append(&rows[3]).unwrap();
        assert_eq!(journal.tail().end().waiting, []);
        let end = journal.tail().end();
        journal.append(&rows[4]).unwrap();
        assert_eq!(Reader::open(&path).unwrap().collect::<Vec<_>>(), rows);
        let mut until_then = Vec::new();
        let mut take = |row: &Row| {
            until_then.push(row.clone());
            Ok(())
        };
        Reader::open(&path).unwrap().replay(&end, &mut take).unwrap();
        assert_eq!(until_then, &rows[..4], "what came later is not of that moment");

        std::fs::rename(&path, &away).unwrap();
        while journal.tail.lock().waiting.len() + 1024 < MOST_WAITING_BYTES {
            journal.append(&rows[4]).unwrap_err();
        }
        for _ in 0..1_000 {
            journal.append(&rows[4]).unwrap_err();
        }
        assert!(journal.tail.lock().waiting.len() <= MOST_WAITING_BYTES);
    }

    #[test]
    fn a_record_of_more_gpus_than_there_can_be_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let mut journal = Journal::create(&path, serde_json::Value::Null, false).unwrap();
        for gpus in [MOST_GPUS, MOST_GPUS + 1] {
            journal.append(&row(0.0).with_gpus(vec![GpuCells::default(); gpus])).unwrap();
        }
        let rows: Vec<usize> = Reader::open(&path).unwrap().map(|row| row.gpus.len()).collect();
        assert_eq!(rows, [MOST_GPUS]);
    }

    #[test]
    fn a_reader_goes_on_where_another_stopped() {
        let (_folder, path) = written(false);
        let mut first = Reader::open(&path).unwrap();
        assert_eq!(first.by_ref().take(4).count(), 4);
        let mut second = Reader::open(&path).unwrap();
        second.skip_to(first.offset()).unwrap();
        assert_eq!(second.by_ref().count(), 6);
        assert_eq!(second.offset(), std::fs::metadata(&path).unwrap().len());
    }

    #[cfg(unix)]
    #[test]
    fn rows_are_not_written_where_nobody_finds_them() {
        let (folder, row) = (tempfile::tempdir().unwrap(), row(1.0));
        for as_guest in [false, true] {
            let path = folder.path().join("journal");
            let mut journal = Journal::create(&path, serde_json::Value::Null, as_guest).unwrap();
            journal.append(&row).unwrap();
            std::fs::remove_file(&path).unwrap();
            assert_eq!(journal.append(&row).unwrap_err().kind(), io::ErrorKind::NotFound);
            assert_eq!(journal.tail().end().waiting, std::slice::from_ref(&row));
        }
    }

    #[test]
    fn only_a_whole_mark_says_that_there_is_no_more_to_come() {
        let (_folder, path) = written(false);
        let read = || {
            let mut reader = Reader::open(&path).unwrap();
            (reader.by_ref().count(), reader.is_closed())
        };
        assert_eq!(read(), (10, false));
        close(&path).unwrap();
        assert_eq!(read(), (10, true));
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        assert_eq!(read(), (10, false));
    }

    #[test]
    fn a_torn_tail_costs_one_row_wherever_it_is_torn() {
        let (_folder, path) = written(false);
        let whole = std::fs::read(&path).unwrap();
        let record = (whole.len() - whole.iter().position(|byte| *byte == b'\n').unwrap() - 1) / 10;
        for cut in 1..record {
            std::fs::write(&path, &whole[..whole.len() - cut]).unwrap();
            assert_eq!(Reader::open(&path).unwrap().count(), 9, "{cut} bytes cut");
        }
    }

    proptest! {
        /// No byte of a journal can make the reader panic, or invent a row that was not written.
        #[test]
        fn a_damaged_journal_gives_a_prefix_of_its_rows(at in 0_usize..4_000, byte: u8) {
            let (_folder, path) = written(false);
            let mut bytes = std::fs::read(&path).unwrap();
            let head = bytes.iter().position(|byte| *byte == b'\n').unwrap();
            let at = at % bytes.len();
            bytes[at] = byte;
            std::fs::write(&path, &bytes).unwrap();
            if let Ok(reader) = Reader::open(&path) {
                let rows: Vec<_> = reader.collect();
                if at > head {
                    let expected: Vec<_> = (0..10_u32).map(|seed| row(f64::from(seed))).collect();
                    prop_assert!(expected.starts_with(&rows));
                }
            }
        }
    }
}
