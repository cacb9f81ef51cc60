//! The history: recordings of past runs in the user's data folder.
//!
//! In:  an [`Entry`] and a function that writes the recording of the run; names of runs.
//! Out: entries, newest first; paths of recordings.
//! Not here: the format of a recording (`recording`), whether a run is saved (the fronts), removing old runs (`prune`).
//!
//! ```text
//! <folder>                 0700
//!   3f9c1a7b2d40.json.gz   0600, the recording
//!   3f9c1a7b2d40.run       0600, its entry: small JSON, written last
//!   3f9c1a7b2d40.journal   0600, the rows of an unfinished run
//!   .3f9c1a7b2d40-….tmp    incomplete: being written, or its writer was killed
//! ```
//!
//! Each run has its own entry file. Recordings and entries are written under a temporary name and then renamed. Many
//! runs can therefore end at the same time without a lock, and a killed writer loses only its own run. Files are not
//! synced to disk, because the end of a job must not wait for the disk. A power cut can therefore damage an entry.
//! Listings count and skip damaged entries.

mod prune;
mod run_object;
mod sizing_figures;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use prune::is_leftover_age;

use std::collections::{BTreeMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::os;
use crate::os::output::create_temporary;
use crate::os::paths::{self, Convention, Purpose};
use crate::probe::cgroup::OomKills;
use crate::store::plausible;
use crate::store::recording::{Head, LoadError, Recording, Status};
use crate::store::stats::Stats;
use crate::store::summary::Summary;

pub use run_object::UsageFigures;
pub use sizing_figures::SizingFigures;

const RECORDING_SUFFIX: &str = ".json.gz";
const ENTRY_SUFFIX: &str = ".run";
const TEMPORARY_SUFFIX: &str = ".tmp";
const JOURNAL_SUFFIX: &str = ".journal";

/// Maximum size of an entry. Larger entries count as damaged.
const MAX_ENTRY_BYTES: u64 = 1024 * 1024;

/// Why the history cannot be read or written.
#[derive(Debug, Error)]
pub enum HistoryError {
    #[error("cannot {doing} `{path}`")]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("no run named `{name}`")]
    NotFound { name: String },
    #[error("the history has no runs yet")]
    Empty,
    #[error("ambiguous id `{name}`: it matches {matches} runs")]
    Ambiguous { name: String, matches: usize },
    #[error("run `{id}` is still being recorded")]
    Running { id: String },
}

impl HistoryError {
    /// What the user can do about the error.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotFound { .. } => Some("`resource-tracker list` shows all runs"),
            Self::Empty => Some("`resource-tracker run -- COMMAND` records one"),
            Self::Ambiguous { .. } => Some("type more characters of the id"),
            Self::Io { .. } | Self::Running { .. } => None,
        }
    }
}

/// The facts about a run that `list` shows and that recommendations use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    pub id: String,
    #[serde(default)]
    pub job: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Id of the tracked run that this run is a part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The command and its arguments.
    #[serde(default)]
    pub command: Option<Vec<String>>,
    /// Host name.
    #[serde(default)]
    pub host: Option<String>,
    #[serde(default)]
    pub status: Option<Status>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default)]
    pub exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oom_kills: Option<OomKills>,
    /// Why the run did not end with status 0, as the `cause` of its verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Start of the run in Unix seconds.
    #[serde(default)]
    pub start_time: Option<f64>,
    #[serde(default)]
    pub duration_s: Option<f64>,
    /// The default statistics of the run.
    #[serde(default)]
    pub stats: Option<Stats>,
    /// `None` in entries of earlier versions.
    #[serde(default, deserialize_with = "sizing_figures::if_readable")]
    pub sizing: Option<SizingFigures>,
    /// `None` in entries of earlier versions.
    #[serde(default, deserialize_with = "sizing_figures::if_readable")]
    pub usage: Option<UsageFigures>,
    /// Warnings about the measurement.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Addresses of the stores that have the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stored: Vec<String>,
    /// Keys that only later versions know.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Entry {
    pub fn new(id: &str, head: &Head, summary: &Summary) -> Self {
        let run = head.run.clone().unwrap_or_default();
        // As in the summary and the report: until the last row.
        let duration_s = summary.duration_s();
        Self {
            id: id.to_owned(),
            job: run.job,
            tags: run.tags,
            parent: run.parent,
            command: run.command,
            host: run.host,
            status: run.status,
            error: run.error,
            exit_code: run.exit_code,
            signal: run.signal,
            oom_kills: run.oom_kills,
            cause: None,
            start_time: head.metadata.start_time,
            duration_s: duration_s.or(head.metadata.duration),
            stats: summary.stats().ok(),
            sizing: Some(SizingFigures::of(head, summary)),
            usage: Some(UsageFigures::of(head, summary)),
            notes: run.notes,
            stored: Vec::new(),
            other: Map::new(),
        }
    }

    /// Whether a name means this run by its id, its job or `last`, and not by the first characters of its id.
    pub fn has_name(&self, name: &str) -> bool {
        name == "last" || self.id == name || self.job.as_deref() == Some(name)
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// Entries of all runs, newest first.
    pub entries: Vec<Entry>,
    /// Ids of damaged entries.
    pub damaged: Vec<String>,
}

/// A folder of runs.
#[derive(Clone, Debug)]
pub struct History {
    directory: PathBuf,
}

impl History {
    /// The user's history; `None` if the user has no home folder. `variable` looks up environment variables.
    pub fn of_user(variable: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        Convention::HERE.folder(Purpose::Data, variable).map(Self::at)
    }

    /// A history in any folder. Storing the first run creates the folder.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// A new id: 48 bits of a hash of the time, the pid and a random seed of this process.
    pub fn new_id() -> String {
        format!("{:012x}", paths::random_bits() >> 16)
    }

    pub fn recording_path(&self, id: &str) -> PathBuf {
        self.directory.join(format!("{id}{RECORDING_SUFFIX}"))
    }

    /// Path of the journal of an unfinished run. The journal remains if the tracker dies.
    pub fn journal_path(&self, id: &str) -> PathBuf {
        self.directory.join(format!("{id}{JOURNAL_SUFFIX}"))
    }

    /// Ids of runs that have a journal. Their trackers still run or have died.
    pub fn unfinished(&self) -> Result<Vec<String>, HistoryError> {
        let names = self.file_names()?;
        Ok(names.iter().filter_map(|name| Some(id_of(name, JOURNAL_SUFFIX)?.to_owned())).collect())
    }

    /// The entry of a run; an error if it is missing or damaged.
    pub(crate) fn entry(&self, id: &str) -> io::Result<Entry> {
        read_entry(&self.entry_path(id))
    }

    fn entry_path(&self, id: &str) -> PathBuf {
        self.directory.join(format!("{id}{ENTRY_SUFFIX}"))
    }

    /// Creates the folder of the history. Only its owner can access it.
    pub fn prepare(&self) -> Result<(), HistoryError> {
        os::folder_for_owner().recursive(true).create(&self.directory).map_err(|source| HistoryError::Io {
            doing: "create",
            path: self.directory.clone(),
            source,
        })
    }

    /// Saves a run. The recording is written before the entry, so every listed run is complete.
    pub fn store(
        &self,
        entry: &Entry,
        write_recording: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    ) -> Result<PathBuf, HistoryError> {
        self.prepare()?;
        let recording = self.recording_path(&entry.id);
        write_and_rename(&entry.id, &recording, write_recording)?;
        self.store_entry(entry)?;
        Ok(recording)
    }

    /// Saves the entry of a run whose recording exists.
    pub(crate) fn store_entry(&self, entry: &Entry) -> Result<(), HistoryError> {
        write_and_rename(&entry.id, &self.entry_path(&entry.id), |file| {
            serde_json::to_writer(file, entry).map_err(io::Error::from)
        })
    }

    /// Lists all runs. If the folder does not exist, the list is empty.
    pub fn list(&self) -> Result<Listing, HistoryError> {
        let mut listing = Listing::default();
        for name in self.file_names()? {
            let Some(id) = id_of(&name, ENTRY_SUFFIX) else { continue };
            match self.entry(id) {
                Ok(entry) if entry.id == id => listing.entries.push(entry),
                // Another process removed the entry after the file names were listed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Ok(_) | Err(_) => listing.damaged.push(id.to_owned()),
            }
        }
        sort(&mut listing.entries);
        Ok(listing)
    }

    fn file_names(&self) -> Result<Vec<OsString>, HistoryError> {
        let names = match fs::read_dir(&self.directory) {
            Ok(files) => files.map(|file| Ok(file?.file_name())).collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        };
        names.map_err(|source| HistoryError::Io { doing: "list", path: self.directory.clone(), source })
    }

    /// Finds a run by name: `last`, an id, the name of a job (its newest run), or the first characters of an id.
    pub fn find(&self, name: &str) -> Result<Entry, HistoryError> {
        let entries = self.list()?.entries;
        let exact = entries
            .iter()
            .find(|entry| name == "last" || entry.id == name)
            .or_else(|| entries.iter().find(|entry| entry.job.as_deref() == Some(name)));
        if let Some(entry) = exact {
            return Ok(entry.clone());
        }
        let starting: Vec<&Entry> = entries.iter().filter(|entry| entry.id.starts_with(name)).collect();
        match starting[..] {
            [entry] if !name.is_empty() => Ok(entry.clone()),
            [_, _, ..] if !name.is_empty() => {
                Err(HistoryError::Ambiguous { name: name.to_owned(), matches: starting.len() })
            }
            _ if entries.is_empty() => Err(HistoryError::Empty),
            _ => Err(HistoryError::NotFound { name: name.to_owned() }),
        }
    }

    /// Earlier runs of the same job, however they ended, newest first.
    pub fn earlier(&self, head: &Head, at_most: usize) -> Result<Vec<Entry>, HistoryError> {
        let Some(job) = head.run.as_ref().and_then(|run| run.job.as_deref()) else { return Ok(Vec::new()) };
        let is_earlier = |entry: &Entry| {
            entry.start_time.zip(head.metadata.start_time).is_some_and(|(earlier, this)| earlier < this)
        };
        Ok(self.of_job(job)?.into_iter().filter(is_earlier).take(at_most).collect())
    }

    /// All runs of a job, however they ended, newest first.
    pub fn of_job(&self, job: &str) -> Result<Vec<Entry>, HistoryError> {
        let mut entries = self.list()?.entries;
        entries.retain(|entry| entry.job.as_deref() == Some(job));
        Ok(without_repetition(entries))
    }

    /// Loads the recording of a run.
    pub fn load(&self, id: &str) -> Result<Recording, LoadError> {
        let path = self.recording_path(id);
        let file =
            os::open_regular(&path).map_err(|source| LoadError::Open { path: path.clone(), source })?;
        Recording::read(BufReader::new(file)).map_err(|source| LoadError::Content { path, source })
    }

    /// Removes a run. The entry is removed before the recording, so every listed run is complete.
    pub fn remove(&self, id: &str) -> Result<(), HistoryError> {
        remove_file(&self.entry_path(id))?;
        remove_file(&self.recording_path(id))
    }
}

/// The runs of a job, each once, newest first.
pub(crate) fn without_repetition(mut entries: Vec<Entry>) -> Vec<Entry> {
    let mut ids = HashSet::new();
    entries.retain(|entry| ids.insert(entry.id.clone()));
    // A tracker inside a tracked run of the same job has measured the same work again.
    entries.retain(|entry| entry.parent.as_ref().is_none_or(|parent| !ids.contains(parent)));
    sort(&mut entries);
    entries
}

/// Newest first.
fn sort(entries: &mut [Entry]) {
    let start = |entry: &Entry| entry.start_time.unwrap_or(f64::NEG_INFINITY);
    entries.sort_by(|a, b| start(b).total_cmp(&start(a)).then_with(|| b.id.cmp(&a.id)));
}

fn write_and_rename(
    id: &str,
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), HistoryError> {
    let created =
        create_temporary(os::for_owner(OpenOptions::new().write(true)), path, &format!(".{id}-").into());
    let written = created.and_then(|(file, temporary)| {
        let mut file = BufWriter::new(file);
        let written = os::without_size_signal(|| write(&mut file).and_then(|()| file.flush()))
            .and_then(|()| fs::rename(&temporary, path));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    });
    written.map_err(|source| HistoryError::Io { doing: "write", path: path.to_owned(), source })
}

fn id_of<'a>(name: &'a OsStr, suffix: &str) -> Option<&'a str> {
    name.to_str()?.strip_suffix(suffix).filter(|id| !id.starts_with('.'))
}

fn remove_file(path: &Path) -> Result<(), HistoryError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(HistoryError::Io { doing: "remove", path: path.to_owned(), source: error })
        }
        _ => Ok(()),
    }
}

fn read_entry(path: &Path) -> io::Result<Entry> {
    let mut text = Vec::new();
    os::open_regular(path)?.take(MAX_ENTRY_BYTES).read_to_end(&mut text)?;
    let entry: Value = serde_json::from_slice(&text)?;
    plausible::check("", &entry).map_err(io::Error::other)?;
    Entry::deserialize(entry).map_err(io::Error::from)
}
