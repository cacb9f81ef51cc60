//! The rows of a recording in progress. They are in a journal, which is converted into a recording at the end.
//!
//! In:  a description of the recording, rows, and the final head.
//! Out: the recording, written in constant memory with one pass over the journal for each table.
//!
//! The journal is removed after the recording is saved. If a journal exists and its tracker does not run, the tracker
//! has died.

use std::fs;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::metric::Row;
use crate::os::paths;
use crate::probe::{self, process_start};
use crate::sampler::Sink;
use crate::store::journal::{self, End, Journal, JournalError, Reader, Tail};
use crate::store::recording::{Head, Metadata, Recording, Run, gzip, write_snapshot};

/// Owns a journal file and removes it when dropped.
#[derive(Debug)]
pub struct Rows {
    path: PathBuf,
    owner_pid: u32,
    /// Rows that are not in the file yet. Empty if another process writes the journal.
    tail: Tail,
}

impl Rows {
    /// Path of the journal of run `id` in the folder for temporary files.
    pub fn temporary_path(id: &str) -> PathBuf {
        paths::temporary().join(temporary_name(std::process::id(), id))
    }

    /// Creates a journal at `path`, and a sink that appends rows to the journal.
    pub fn start(path: &Path, description: &Value, in_process: bool) -> io::Result<(Self, Box<dyn Sink>)> {
        let journal = Journal::create(path, description.clone(), in_process)?;
        let mut rows = Self::of(path.to_owned());
        rows.tail = journal.tail();
        Ok((rows, Box::new(JournalSink(journal))))
    }

    /// Takes ownership of a journal that another process writes or has written.
    pub fn of(path: PathBuf) -> Self {
        Self { path, owner_pid: std::process::id(), tail: Tail::default() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The description of a recording in the first line of its journal. `recover` needs it to create the recording.
    pub fn describe(metadata: &Metadata, run: &Run) -> Value {
        let own = std::process::id();
        json!({
            "metadata": metadata,
            "run": run,
            "tracker": { "pid": own, "start_ticks": process_start(own), "pid_namespace": probe::pid_namespace() },
        })
    }

    /// Writes the recording as gzipped JSON.
    pub fn write_snapshot(&self, out: &mut impl Write, head: &Head) -> io::Result<()> {
        let (mut reader, end) = (self.reader()?, self.end());
        let mut compressed = gzip(out);
        write_snapshot(&mut compressed, head, &mut |take| reader.replay(&end, take))?;
        compressed.finish()?.flush()
    }

    /// Loads all rows into memory.
    pub fn recording(&self, head: Head) -> io::Result<Recording> {
        let mut recording = Recording::new(head);
        self.reader()?.replay(&self.end(), &mut |row| {
            recording.push(row);
            Ok(())
        })?;
        Ok(recording)
    }

    /// The current end of the journal, including rows that could not be written to the disk yet.
    pub fn end(&self) -> End {
        self.tail.end()
    }

    pub fn reader(&self) -> Result<Reader, JournalError> {
        Reader::open(&self.path)
    }

    /// Marks the journal as complete. If this fails, recovery assumes that the tracker died.
    pub fn close(&self) {
        if self.is_owner() {
            let _ = journal::close(&self.path);
        }
    }

    /// Whether this process may remove the journal. False in a forked child.
    fn is_owner(&self) -> bool {
        self.owner_pid == std::process::id()
    }

    /// Keeps the journal on disk and returns its path: the recording could not be saved, and recovery needs the rows.
    pub fn leave_on_disk(mut self) -> PathBuf {
        std::mem::take(&mut self.path)
    }
}

const TEMPORARY_PREFIX: &str = "resource-tracker-";
const TEMPORARY_SUFFIX: &str = ".journal";

/// File name of a journal in a folder for temporary files.
pub(crate) fn temporary_name(pid: u32, id: &str) -> String {
    format!("{TEMPORARY_PREFIX}{pid}-{id}{TEMPORARY_SUFFIX}")
}

/// The id of the run in a file name made by [`temporary_name`].
pub(crate) fn temporary_id(name: &str) -> Option<&str> {
    let (_, id) = name.strip_prefix(TEMPORARY_PREFIX)?.strip_suffix(TEMPORARY_SUFFIX)?.split_once('-')?;
    (id.len() == 12 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(id)
}

impl Drop for Rows {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() && self.is_owner() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

struct JournalSink(Journal);

impl Sink for JournalSink {
    fn take(&mut self, row: &Row) -> io::Result<ControlFlow<()>> {
        self.0.append(row).map(ControlFlow::Continue)
    }

    fn name(&self) -> String {
        format!("`{}`", self.0.path().display())
    }
}
