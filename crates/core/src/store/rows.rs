//! The rows of a recording in progress. They are in a journal, which is converted into a recording at the end.
//!
//! In:  a description of the recording, rows, and the final head.
//! Out: the recording, written in constant memory with one pass over the journal for each table.
//!
//! The journal is removed after the recording is saved. If a journal exists and its tracker does not run, the tracker
//! has died.

use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::metric::Row;
use crate::os::paths;
use crate::probe::{self, process_start};
use crate::sampler::Sink;
use crate::sampler::marks::marks_beside;
use crate::store::history::History;
use crate::store::journal::{self, End, Journal, JournalError, Reader, Tail};
use crate::store::recording::{Head, Metadata, Recording, Run, gzip, write_snapshot};

/// Owns a journal file, and removes it and the file with marks beside it when dropped.
#[derive(Debug)]
pub struct Rows {
    path: PathBuf,
    owner_pid: u32,
    /// Rows that are not in the file yet. Empty if another process writes the journal.
    tail: Tail,
    /// The lock of the journal, held until the recording is saved and the journal removed.
    lock: Option<Arc<File>>,
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
        rows.lock = journal.lock();
        Ok((rows, Box::new(JournalSink(journal))))
    }

    /// Takes ownership of a journal that another process writes or has written.
    pub fn of(path: PathBuf) -> Self {
        Self { path, owner_pid: std::process::id(), tail: Tail::default(), lock: None }
    }

    /// [`Self::of`] for recovery, which has locked the journal.
    pub(crate) fn of_locked(path: PathBuf, lock: File) -> Self {
        let mut rows = Self::of(path);
        rows.lock = Some(Arc::new(lock));
        rows
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The description of a recording in the first line of its journal. `recover` needs it to create the recording.
    /// `host_pid` is the process that reads the journal of its sidecar.
    pub fn describe(metadata: &Metadata, run: &Run, host_pid: Option<u32>) -> Value {
        let process = |pid| json!({ "pid": pid, "start_ticks": process_start(pid) });
        let history = History::of_user(|name| std::env::var_os(name));
        json!({
            "metadata": metadata,
            "run": run,
            "tracker": process(std::process::id()),
            "host": host_pid.map(process),
            "pid_namespace": probe::pid_namespace(),
            "history": history.map(|history| history.directory().to_string_lossy().into_owned()),
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
            let _ = journal::close(&self.path, &[""]);
        }
    }

    /// Whether this process may remove the journal. False in a forked child.
    fn is_owner(&self) -> bool {
        self.owner_pid == std::process::id()
    }

    /// Keeps the journal of a finished run on disk, because its recording could not be saved, and returns its path. `why`
    /// becomes a note of the recording that recovery creates.
    pub fn leave_finished(self, head: &Head, why: &str) -> PathBuf {
        let mut run = head.run.clone().unwrap_or_default();
        run.notes.push(format!("the recording could not be written when the run ended ({why})"));
        let Head { metadata, server_info, cloud_info, .. } = head;
        let whole =
            json!({ "metadata": metadata, "server_info": server_info, "cloud_info": cloud_info, "run": run });
        let ending = json!({
            "run": { "status": run.status, "exit_code": run.exit_code, "signal": run.signal, "oom_kills": run.oom_kills },
        });
        if self.is_owner() {
            let _ = journal::close(&self.path, &[&whole.to_string(), &ending.to_string()]);
        }
        self.leave_on_disk()
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
            let _ = fs::remove_file(marks_beside(&self.path));
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
