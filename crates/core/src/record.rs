//! A recording on its way from the first row to a file: journal, then snapshot.
//!
//! In:  a head at the start, rows as they come, the head as it is at the end.
//! Out: the snapshot, written in bounded memory by reading the journal once a table. The journal is removed when
//! the recording is, so what is left of one tells of a tracker that died.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::allocation::with_allocation;
use crate::config::Config;
use crate::host;
use crate::journal::{self, End, Journal, JournalError, Reader, Tail};
use crate::metric::Row;
use crate::recording::{Head, Metadata, Recording, Run, Software, Status, VERSION, gzip, write_snapshot};
use crate::root::Root;
use crate::sampler::Sink;
use crate::snapshot::Moment;
use crate::source::{self, process_start};
use crate::sys::Ending;
use crate::tracker::Tracker;

/// The version of this program, as recordings name it.
pub const PROGRAM_VERSION: &str = env!("CARGO_PKG_VERSION");

/// The head of a recording that starts now.
#[must_use]
pub fn head(config: &Config, pid: u32, start_time: f64, run: Run) -> Head {
    Head {
        metadata: Metadata {
            version: VERSION,
            resource_tracker: Software {
                version: PROGRAM_VERSION.to_owned(),
                implementation: config.backend.name().to_owned(),
                ..Software::default()
            },
            pid,
            children: config.children,
            interval: config.interval.seconds(),
            method: None,
            autostart: true,
            track_processes: config.track_processes,
            track_system: config.track_system,
            discover_server: true,
            discover_cloud: true,
            start_time: Some(start_time),
            stop_time: None,
            duration: None,
            other: serde_json::Map::new(),
        },
        server_info: None,
        cloud_info: None,
        run: Some(run),
        other: serde_json::Map::new(),
    }
}

/// Writes what the tracker knows at the end of its recording into the head: the moment, how it counted, and the machine
/// if that is to be looked at. Notes that the run has already come after the tracker's.
pub fn finish(head: &mut Head, tracker: &Tracker) {
    let summary = tracker.summary();
    let run = head.run.get_or_insert_default();
    run.cpu_source = Some(tracker.cpu_source().to_owned());
    run.coverage = summary.coverage();
    run.notes.splice(..0, tracker.notes());
    run.gpus = tracker.gpus();
    head.metadata.set_stop_time(Moment::now().wall_s());
    if head.metadata.discover_server {
        let info = Root::host().ok().map(|root| host::look_at_once(&root, "self").server_info());
        head.server_info = info.map(|info| with_allocation(info, &summary));
    }
}

/// Writes how a job ended into its run.
pub fn set_ending(run: &mut Run, ending: Ending) {
    match ending {
        Ending::Code(code) => {
            run.status = Some(if code == 0 { Status::Finished } else { Status::Failed });
            run.exit_code = Some(code);
        }
        Ending::Signal(signal) => {
            run.status = Some(Status::Killed);
            run.signal = Some(signal);
        }
    }
}

/// The rows of a recording in progress.
#[derive(Debug)]
pub struct Rows {
    path: PathBuf,
    owner_pid: u32,
    /// Of a journal that this process writes.
    tail: Tail,
}

impl Rows {
    /// Starts the journal `path`, and gives what takes the rows.
    ///
    /// # Errors
    /// What the file system says.
    pub fn start(path: &Path, about: &Value, as_guest: bool) -> io::Result<(Self, Box<dyn Sink>)> {
        let journal = Journal::create(path, about.clone(), as_guest)?;
        let mut rows = Self::of(path.to_owned());
        rows.tail = journal.tail();
        Ok((rows, Box::new(JournalSink(journal))))
    }

    /// The rows of a journal that somebody else writes or wrote, and that is ours from now on.
    #[must_use]
    pub fn of(path: PathBuf) -> Self {
        Self { path, owner_pid: std::process::id(), tail: Tail::default() }
    }

    /// Where they are.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What a journal says about its recording, before it has an end.
    #[must_use]
    pub fn about(metadata: &Metadata, run: &Run) -> Value {
        let own = std::process::id();
        json!({
            "metadata": metadata,
            "run": run,
            "tracker": { "pid": own, "start_ticks": process_start(own), "pid_namespace": source::pid_namespace() },
        })
    }

    /// Writes the gzipped snapshot.
    ///
    /// # Errors
    /// Those of `out`, and of reading the journal.
    pub fn write_snapshot(&self, out: &mut impl Write, head: &Head) -> io::Result<()> {
        let (mut reader, end) = (self.reader()?, self.end());
        let mut compressed = gzip(out);
        write_snapshot(&mut compressed, head, &mut |take| reader.replay(&end, take))?;
        compressed.finish()?.flush()
    }

    /// The recording in memory, for what is computed from all rows.
    ///
    /// # Errors
    /// Those of reading the journal.
    pub fn recording(&self, head: Head) -> io::Result<Recording> {
        let mut recording = Recording::new(head);
        self.reader()?.replay(&self.end(), &mut |row| {
            recording.push(row);
            Ok(())
        })?;
        Ok(recording)
    }

    /// Where they end now: rows that come later, and those that a disk has no room for, are told apart.
    #[must_use]
    pub fn end(&self) -> End {
        self.tail.end()
    }

    /// Reads them from the first on.
    ///
    /// # Errors
    /// [`JournalError`] where the file is gone, or no longer ours.
    pub fn reader(&self) -> Result<Reader, JournalError> {
        Reader::open(&self.path)
    }

    /// Says in the journal that it is whole. One that cannot be written stands as one whose writer was interrupted.
    pub fn close(&self) {
        if self.is_ours() {
            let _ = journal::close(&self.path);
        }
    }

    /// The copy that a fork left in a child does not own the file.
    fn is_ours(&self) -> bool {
        self.owner_pid == std::process::id()
    }

    /// Leaves the journal where it is: the recording could not be written, and the rows are not to be lost.
    #[must_use]
    pub fn keep(mut self) -> PathBuf {
        std::mem::take(&mut self.path)
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() && self.is_ours() {
            let _ = std::fs::remove_file(&self.path);
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
