//! The journal: a file to which each row is appended immediately. The rows survive if the tracker or the job is killed.
//!
//! In:  rows, one at a time. Out: the same rows, up to the last complete record.
//!
//! The file starts with one line of JSON: format version, columns, and a description of the recording. Binary records
//! follow: length (u16), one block of cells for the machine and the job, one block for each GPU, CRC-32 of the record.
//! A block is a bitmap of the cells that have a value (u64), and these values (f64), all little-endian. A damaged or
//! incomplete record ends the journal; the rows before it are valid. The end record has no blocks. JSON may follow it: the
//! final description of a recording that could not be saved.

mod reader;
mod record;
mod tail;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use reader::{JournalError, Reader};
pub use tail::{End, Tail};

use crate::metric::Row;
use crate::os;

/// Limit for rows that wait in memory while the disk is full. It is enough for several hours.
const MOST_WAITING_BYTES: usize = 4 << 20;

#[derive(Debug)]
enum Handle {
    Open(Arc<File>),
    /// In in-process mode the host process may close or reuse any descriptor, so the file is opened for each row.
    PerRow,
}

/// A journal that is being written.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    handle: Handle,
    tail: Tail,
}

impl Journal {
    /// Creates the file, readable by its owner only. The path must not exist. The file is locked while it is open, so that
    /// recovery leaves it alone; in in-process mode it is not kept open.
    pub fn create(path: &Path, recording: serde_json::Value, in_process: bool) -> io::Result<Self> {
        let opened = os::for_owner(OpenOptions::new().create_new(true).append(true)).open(path)?;
        let file = os::above_stdio(opened)?;
        let is_locked = !in_process && os::try_lock(&file).unwrap_or(false);
        let mut head = serde_json::to_vec(&record::Head::new(recording, is_locked))?;
        head.push(b'\n');
        if let Err(error) = append(&file, &head) {
            // Recovery cannot use a journal with an incomplete first line.
            let _ = fs::remove_file(path);
            return Err(error);
        }
        let handle = if in_process { Handle::PerRow } else { Handle::Open(Arc::new(file)) };
        Ok(Self { path: path.to_owned(), handle, tail: Tail::new(head.len() as u64) })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The locked file; `None` in in-process mode.
    pub fn lock(&self) -> Option<Arc<File>> {
        match &self.handle {
            Handle::Open(file) => Some(Arc::clone(file)),
            Handle::PerRow => None,
        }
    }

    pub fn tail(&self) -> Tail {
        self.tail.clone()
    }

    /// Appends a row with one write, together with earlier rows that could not be written.
    pub fn append(&mut self, row: &Row) -> io::Result<()> {
        let tail = self.tail.clone();
        let mut tail = tail.lock();
        let before = tail.waiting.len();
        record::encode(row, &mut tail.waiting);
        let written = self.write(&tail);
        if written.is_ok() {
            tail.length += tail.waiting.len() as u64;
            tail.waiting.clear();
        } else if tail.waiting.len() > MOST_WAITING_BYTES {
            tail.waiting.truncate(before);
        }
        written
    }

    fn write(&self, tail: &tail::Inner) -> io::Result<()> {
        let opened;
        let file: &File = match &self.handle {
            // Rows that are written to a removed file would be lost.
            Handle::Open(file) if os::is_removed(&file.metadata()?) => {
                return Err(io::Error::new(io::ErrorKind::NotFound, "the file was removed"));
            }
            Handle::Open(file) => file,
            Handle::PerRow => {
                opened = os::above_stdio(OpenOptions::new().append(true).open(&self.path)?)?;
                &opened
            }
        };
        if let Err(error) = append(file, &tail.waiting) {
            // Removes the incomplete record: readers would ignore all records after it.
            file.set_len(tail.length)?;
            return Err(error);
        }
        Ok(())
    }
}

/// Appends the end record, which marks the journal as complete, and the first of `descriptions` that the disk has room for.
pub(crate) fn close(path: &Path, descriptions: &[&str]) -> io::Result<()> {
    let file = os::above_stdio(OpenOptions::new().append(true).open(path)?)?;
    let (length, end) = (file.metadata()?.len(), record::encode_end());
    for description in descriptions {
        if append(&file, &[&end, description.as_bytes()].concat()).is_ok() {
            return Ok(());
        }
        file.set_len(length)?;
    }
    // The disk is full: the end takes the place of the last row.
    file.set_len(Reader::open(path)?.last_offset())?;
    let shortest = descriptions.last().copied().unwrap_or_default();
    append(&file, &[&end, shortest.as_bytes()].concat())
}

fn append(mut file: &File, bytes: &[u8]) -> io::Result<()> {
    os::without_size_signal(|| file.write_all(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::{GpuCells, MOST_GPUS, Metric};
    use proptest::prelude::*;

    fn row(seed: f64) -> Row {
        let mut row = Row::default();
        let value = |at: usize| (at % 3 != 1).then(|| seed + f64::from(u32::try_from(at).unwrap()));
        for (at, metric) in Metric::ONCE.iter().enumerate() {
            row.set(*metric, value(at));
        }
        // The first GPU has no values. A second GPU appears in the fifth row.
        row.gpus = vec![GpuCells::default()];
        if seed >= 4.0 {
            row.gpus.push(std::array::from_fn(value));
        }
        row
    }

    fn written(in_process: bool) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let mut journal = Journal::create(&path, serde_json::json!({"job": "a"}), in_process).unwrap();
        for seed in 0..10_u32 {
            journal.append(&row(f64::from(seed))).unwrap();
        }
        (folder, path)
    }

    #[test]
    fn rows_are_read_back_unchanged_and_can_be_read_twice() {
        for in_process in [false, true] {
            let (_folder, path) = written(in_process);
            let mut reader = Reader::open(&path).unwrap();
            assert_eq!(reader.recording, serde_json::json!({"job": "a"}));
            let first: Vec<Row> = reader.by_ref().collect();
            reader.rewind().unwrap();
            assert_eq!(first, (0..10_u32).map(|seed| row(f64::from(seed))).collect::<Vec<_>>());
            assert_eq!(reader.collect::<Vec<_>>(), first);
        }
    }

    #[test]
    fn rows_that_could_not_be_written_are_written_with_a_later_row() {
        let folder = tempfile::tempdir().unwrap();
        let (path, away) = (folder.path().join("journal"), folder.path().join("away"));
        let mut journal = Journal::create(&path, serde_json::Value::Null, true).unwrap();
        let rows: Vec<Row> = (0..5_u32).map(|seed| row(f64::from(seed))).collect();
        journal.append(&rows[0]).unwrap();
        fs::rename(&path, &away).unwrap();
        assert!(journal.append(&rows[1]).is_err() && journal.append(&rows[2]).is_err());
        assert_eq!(journal.tail().end().waiting, &rows[1..3]);
        fs::rename(&away, &path).unwrap();
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
        assert_eq!(until_then, &rows[..4], "later rows are not replayed");

        fs::rename(&path, &away).unwrap();
        while journal.tail.lock().waiting.len() + 1024 < MOST_WAITING_BYTES {
            journal.append(&rows[4]).unwrap_err();
        }
        for _ in 0..1_000 {
            journal.append(&rows[4]).unwrap_err();
        }
        assert!(journal.tail.lock().waiting.len() <= MOST_WAITING_BYTES);
    }

    #[test]
    fn record_with_too_many_gpus_is_damaged() {
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
    fn implausible_number_ends_the_journal_and_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let mut journal = Journal::create(&path, serde_json::Value::Null, false).unwrap();
        for memory_kib in [7.0, 1e300, 8.0] {
            let mut row = Row::default();
            row.set(Metric::ProcessMemory, Some(memory_kib));
            journal.append(&row).unwrap();
        }
        let mut reader = Reader::open(&path).unwrap();
        assert_eq!((reader.by_ref().count(), reader.implausible().is_some()), (1, true));
        assert_eq!(
            reader.implausible().unwrap().to_string(),
            "`process_metrics.memory` is 1e300, not a number from 0 to 1e18"
        );
        let head = folder.path().join("head");
        drop(Journal::create(&head, serde_json::json!({"metadata": {"start_time": 1e16}}), false).unwrap());
        let error = Reader::open(&head).unwrap_err().to_string();
        assert!(error.ends_with("`metadata.start_time` is 1e16, not a number from 0 to 253402300799"));
    }

    #[test]
    fn reader_continues_at_the_offset_of_another_reader() {
        let (_folder, path) = written(false);
        let mut first = Reader::open(&path).unwrap();
        assert_eq!(first.by_ref().take(4).count(), 4);
        let mut second = Reader::open(&path).unwrap();
        second.skip_to(first.offset()).unwrap();
        assert_eq!(second.by_ref().count(), 6);
        assert_eq!(second.offset(), fs::metadata(&path).unwrap().len());
    }

    #[cfg(unix)]
    #[test]
    fn append_fails_if_the_file_was_removed() {
        let (folder, row) = (tempfile::tempdir().unwrap(), row(1.0));
        for in_process in [false, true] {
            let path = folder.path().join("journal");
            let mut journal = Journal::create(&path, serde_json::Value::Null, in_process).unwrap();
            journal.append(&row).unwrap();
            fs::remove_file(&path).unwrap();
            assert_eq!(journal.append(&row).unwrap_err().kind(), io::ErrorKind::NotFound);
            assert_eq!(journal.tail().end().waiting, std::slice::from_ref(&row));
        }
    }

    #[test]
    fn only_a_complete_end_record_closes_the_journal() {
        let (_folder, path) = written(false);
        let read = || {
            let mut reader = Reader::open(&path).unwrap();
            (reader.by_ref().count(), reader.is_closed())
        };
        assert_eq!(read(), (10, false));
        close(&path, &[""]).unwrap();
        assert_eq!(read(), (10, true));
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        assert_eq!(read(), (10, false));
    }

    #[test]
    fn incomplete_last_record_loses_one_row() {
        let (_folder, path) = written(false);
        let whole = fs::read(&path).unwrap();
        let record = (whole.len() - whole.iter().position(|byte| *byte == b'\n').unwrap() - 1) / 10;
        for cut in 1..record {
            fs::write(&path, &whole[..whole.len() - cut]).unwrap();
            assert_eq!(Reader::open(&path).unwrap().count(), 9, "{cut} bytes cut");
        }
    }

    proptest! {
        #[test]
        fn damaged_journal_gives_a_prefix_of_its_rows(at in 0_usize..4_000, byte: u8) {
            let (_folder, path) = written(false);
            let mut bytes = fs::read(&path).unwrap();
            let head = bytes.iter().position(|byte| *byte == b'\n').unwrap();
            let at = at % bytes.len();
            bytes[at] = byte;
            fs::write(&path, &bytes).unwrap();
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
