//! The history: recordings of past runs in the user's data directory.
//!
//! In:  an [`Entry`] and a function that writes its recording; names to look up.
//! Out: entries by name, newest first; paths of their recordings.
//! Not here: what a recording holds (`recording`), whether to keep one (`config`), what is removed in time (`prune`).
//!
//! ```text
//! <directory>            0700
//!   3f9c1a7b2d40.json.gz 0600, the recording
//!   3f9c1a7b2d40.run     0600, its entry: small JSON, written last
//!   3f9c1a7b2d40.journal 0600, the rows of a run that is not finished
//!   .3f9c1a7b2d40.tmp    being written, or left by a writer that was killed
//! ```
//!
//! There is no index file to fight over: each run has an entry of its own, and every file is written
//! aside and renamed. So many runs may end at once, and a writer that is killed loses its own run
//! only. Nothing is synced to disk, since a job's end must not wait for that: after a power cut an
//! entry may be damaged, which is counted and otherwise passed over.

mod prune;

pub use prune::Keep;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::paths::{self, Convention, Purpose};
use crate::recording::{Head, Status};
use crate::stats::Stats;
use crate::sys;

const RECORDING_SUFFIX: &str = ".json.gz";
const ENTRY_SUFFIX: &str = ".run";
const ASIDE_SUFFIX: &str = ".tmp";
const JOURNAL_SUFFIX: &str = ".journal";

/// An entry beyond this is not ours.
const MAX_ENTRY_BYTES: u64 = 1024 * 1024;

/// Why the history cannot be used.
#[derive(Debug, Error)]
pub enum HistoryError {
    /// The system refused.
    #[error("cannot {doing} `{path}`")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// No run of that name.
    #[error("no run is called `{name}`")]
    NotFound {
        /// As it was asked for.
        name: String,
    },
    /// The start of several ids.
    #[error("`{name}` is the start of {matches} ids")]
    Ambiguous {
        /// As it was asked for.
        name: String,
        /// How many.
        matches: usize,
    },
}

impl HistoryError {
    /// What the reader can do about it, if anything.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotFound { .. } => Some("`resource-tracker list` shows all runs"),
            Self::Ambiguous { .. } => Some("give more of the id"),
            Self::Io { .. } => None,
        }
    }
}

/// What the list shows of a run, without loading its recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Of this run alone.
    pub id: String,
    /// Name of the job.
    #[serde(default)]
    pub job: Option<String>,
    /// The command and its arguments.
    #[serde(default)]
    pub command: Option<Vec<String>>,
    /// How it ended.
    #[serde(default)]
    pub status: Option<Status>,
    /// Exit code of the job.
    #[serde(default)]
    pub exit_code: Option<i32>,
    /// Unix seconds.
    #[serde(default)]
    pub start_time: Option<f64>,
    /// Length of the run.
    #[serde(default)]
    pub duration_s: Option<f64>,
    /// The default statistics, for recommendations from several runs.
    #[serde(default)]
    pub stats: Option<Stats>,
    /// Keys of a later version.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Entry {
    /// The entry of a recording with this head.
    #[must_use]
    pub fn new(id: &str, head: &Head, stats: Option<Stats>) -> Self {
        let run = head.run.clone().unwrap_or_default();
        Self {
            id: id.to_owned(),
            job: run.job,
            command: run.command,
            status: run.status,
            exit_code: run.exit_code,
            start_time: head.metadata.start_time,
            duration_s: head.metadata.duration,
            stats,
            other: Map::new(),
        }
    }
}

/// All runs, newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// The readable ones.
    pub entries: Vec<Entry>,
    /// How many entries could not be read.
    pub damaged: usize,
}

/// The folder for data of ours; the variables are given so that tests need not change the environment.
pub fn default_directory(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    Convention::HERE.folder(Purpose::Data, variable)
}

/// A directory of runs.
#[derive(Clone, Debug)]
pub struct History {
    directory: PathBuf,
}

impl History {
    /// The history in a directory, which is made when the first run is stored.
    #[must_use]
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    /// Where it is.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// An id that no other run has: 48 bits that differ by moment, process and chance.
    #[must_use]
    pub fn new_id() -> String {
        // Seeded by the system's own source of chance, once a process and then counted up.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let bits = RandomState::new().hash_one((now.as_nanos(), std::process::id()));
        format!("{:012x}", bits >> 16)
    }

    /// The recording of a run.
    #[must_use]
    pub fn recording_path(&self, id: &str) -> PathBuf {
        self.directory.join(format!("{id}{RECORDING_SUFFIX}"))
    }

    /// The rows of a run that is not finished; what is left here tells of a tracker that died.
    #[must_use]
    pub fn journal_path(&self, id: &str) -> PathBuf {
        self.directory.join(format!("{id}{JOURNAL_SUFFIX}"))
    }

    /// Runs that are not finished: their trackers run, or have died.
    ///
    /// # Errors
    ///
    /// When the directory cannot be read.
    pub fn unfinished(&self) -> Result<Vec<String>, HistoryError> {
        let names = self.file_names()?;
        Ok(names.iter().filter_map(|name| Some(id_of(name, JOURNAL_SUFFIX)?.to_owned())).collect())
    }

    fn entry_path(&self, id: &str) -> PathBuf {
        self.directory.join(format!("{id}{ENTRY_SUFFIX}"))
    }

    /// Makes the directory, for its owner only.
    ///
    /// # Errors
    ///
    /// When it cannot be made.
    pub fn prepare(&self) -> Result<(), HistoryError> {
        sys::folder_for_owner().recursive(true).create(&self.directory).map_err(|source| HistoryError::Io {
            doing: "make",
            path: self.directory.clone(),
            source,
        })
    }

    /// Keeps a run: its recording first, then its entry, so that what is listed is complete.
    ///
    /// # Errors
    ///
    /// When the directory or a file cannot be written; the run is then not listed.
    pub fn store(
        &self,
        entry: &Entry,
        write_recording: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    ) -> Result<PathBuf, HistoryError> {
        self.prepare()?;
        let recording = self.recording_path(&entry.id);
        self.write_aside(&entry.id, &recording, write_recording)?;
        self.write_aside(&entry.id, &self.entry_path(&entry.id), |file| {
            serde_json::to_writer(file, entry).map_err(io::Error::from)
        })?;
        Ok(recording)
    }

    fn write_aside(
        &self,
        id: &str,
        path: &Path,
        write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    ) -> Result<(), HistoryError> {
        // Of this writer alone: what one that was killed left behind is in nobody's way.
        let aside = self.directory.join(format!(".{id}-{}{ASIDE_SUFFIX}", paths::writer()));
        let written =
            sys::for_owner(OpenOptions::new().write(true).create_new(true)).open(&aside).and_then(|file| {
                let mut file = BufWriter::new(file);
                let written =
                    write(&mut file).and_then(|()| file.flush()).and_then(|()| fs::rename(&aside, path));
                if written.is_err() {
                    // The first error is the one to tell; a file that stays is a leftover like any other.
                    let _ = fs::remove_file(&aside);
                }
                written
            });
        written.map_err(|source| HistoryError::Io { doing: "write", path: path.to_owned(), source })
    }

    /// All runs, newest first. A directory that does not exist has none.
    ///
    /// # Errors
    ///
    /// When the directory cannot be read. A damaged entry is no error, but counted.
    pub fn list(&self) -> Result<Listing, HistoryError> {
        let mut listing = Listing::default();
        for name in self.file_names()? {
            let Some(id) = name.to_str().and_then(|name| name.strip_suffix(ENTRY_SUFFIX)) else { continue };
            match read_entry(&self.entry_path(id)) {
                Ok(entry) if entry.id == id => listing.entries.push(entry),
                // Removed since the directory was read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Ok(_) | Err(_) => listing.damaged += 1,
            }
        }
        let start = |entry: &Entry| entry.start_time.unwrap_or(f64::NEG_INFINITY);
        listing.entries.sort_by(|a, b| start(b).total_cmp(&start(a)).then_with(|| b.id.cmp(&a.id)));
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

    /// A run by `last`, by its id, by its job's name (the latest of that job), or by the start of its id
    /// if no other id starts so.
    ///
    /// # Errors
    ///
    /// When there is none, or more than one id starts so.
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
            _ => Err(HistoryError::NotFound { name: name.to_owned() }),
        }
    }

    /// The latest runs of a job that ended well, newest first.
    ///
    /// # Errors
    ///
    /// When the directory cannot be read.
    pub fn successful(&self, job: &str, at_most: usize) -> Result<Vec<Entry>, HistoryError> {
        let entries = self.list()?.entries.into_iter();
        let successful = entries
            .filter(|entry| entry.job.as_deref() == Some(job) && entry.status == Some(Status::Finished));
        Ok(successful.take(at_most).collect())
    }

    /// Statistics of the last runs of the same job that ended well before this one began, newest first.
    ///
    /// # Errors
    ///
    /// When the directory cannot be read.
    pub fn earlier(&self, head: &Head, at_most: usize) -> Result<Vec<Stats>, HistoryError> {
        let run = head.run.as_ref();
        let Some(job) = run.and_then(|run| run.job.as_deref()) else { return Ok(Vec::new()) };
        let is_earlier = |entry: &Entry| {
            entry.start_time.zip(head.metadata.start_time).is_some_and(|(earlier, this)| earlier < this)
        };
        let entries = self.successful(job, usize::MAX)?.into_iter().filter(is_earlier);
        Ok(entries.filter_map(|entry| entry.stats).take(at_most).collect())
    }

    /// Forgets a run: its entry first, so that what is listed is complete.
    ///
    /// # Errors
    ///
    /// When a file cannot be removed. One that is gone already is no error.
    pub fn remove(&self, id: &str) -> Result<(), HistoryError> {
        remove_file(&self.entry_path(id))?;
        remove_file(&self.recording_path(id))
    }
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
    File::open(path)?.take(MAX_ENTRY_BYTES).read_to_end(&mut text)?;
    serde_json::from_slice(&text).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::prune::LEFTOVER_AGE;
    use super::*;
    use std::collections::HashSet;
    use std::time::Duration;

    fn history() -> (tempfile::TempDir, History) {
        let directory = tempfile::tempdir().unwrap();
        let history = History::at(directory.path().join("deep/history"));
        (directory, history)
    }

    fn store(history: &History, id: &str, job: &str, status: Status, start_time: f64) {
        let (id, job, status, start_time) =
            (id.to_owned(), Some(job.to_owned()), Some(status), Some(start_time));
        let entry = Entry { id, job, status, start_time, ..Entry::default() };
        history.store(&entry, |file| file.write_all(b"rows")).unwrap();
    }

    fn ids(history: &History) -> Vec<String> {
        history.list().unwrap().entries.into_iter().map(|entry| entry.id).collect()
    }

    #[test]
    fn nothing_is_listed_before_the_first_run_and_the_newest_comes_first() {
        let (_directory, history) = history();
        assert_eq!(history.list().unwrap(), Listing::default());
        assert!(matches!(history.find("last"), Err(HistoryError::NotFound { .. })));
        store(&history, "aa11", "train", Status::Finished, 100.0);
        store(&history, "bb22", "train", Status::Failed, 300.0);
        store(&history, "cc33", "test", Status::Finished, 200.0);
        assert_eq!(ids(&history), ["bb22", "cc33", "aa11"]);
    }

    #[cfg(unix)]
    #[test]
    fn runs_are_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let (_directory, history) = history();
        store(&history, "aa11", "train", Status::Finished, 100.0);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(history.directory()), 0o700);
        assert_eq!(
            (mode(&history.entry_path("aa11")), mode(&history.recording_path("aa11"))),
            (0o600, 0o600)
        );
    }

    #[test]
    fn a_run_is_found_by_last_id_job_or_start_of_its_id() {
        let (_directory, history) = history();
        store(&history, "aa11", "train", Status::Finished, 100.0);
        store(&history, "ab22", "train", Status::Finished, 200.0);
        store(&history, "cc33", "aa", Status::Finished, 50.0);
        let found = |name: &str| history.find(name).map(|entry| entry.id).map_err(|error| error.to_string());
        for (name, id) in
            [("last", "ab22"), ("aa11", "aa11"), ("train", "ab22"), ("ab", "ab22"), ("aa", "cc33")]
        {
            assert_eq!(found(name).as_deref(), Ok(id), "{name}");
        }
        assert_eq!(found("a"), Err("`a` is the start of 2 ids".to_owned()));
        assert_eq!(found("x"), Err("no run is called `x`".to_owned()));
        assert_eq!(found(""), Err("no run is called ``".to_owned()));
    }

    #[test]
    fn damaged_entries_are_counted_and_the_rest_still_lists() {
        let (_directory, history) = history();
        store(&history, "aa11", "train", Status::Finished, 100.0);
        fs::write(history.entry_path("bb22"), b"{\"id\":\"bb2").unwrap();
        fs::write(history.entry_path("cc33"), b"{\"id\":\"other\"}").unwrap();
        fs::write(history.entry_path("dd44"), vec![b' '; 2 * 1024 * 1024]).unwrap();
        fs::write(history.directory().join("notes.txt"), b"mine").unwrap();
        let listing = history.list().unwrap();
        assert_eq!((listing.entries.len(), listing.damaged), (1, 3));
    }

    #[test]
    fn only_successful_runs_of_the_job_count_for_its_future() {
        let (_directory, history) = history();
        store(&history, "aa11", "train", Status::Finished, 100.0);
        store(&history, "bb22", "train", Status::Failed, 200.0);
        store(&history, "cc33", "test", Status::Finished, 300.0);
        store(&history, "dd44", "train", Status::Finished, 400.0);
        let recent = |at_most| {
            let entries = history.successful("train", at_most).unwrap();
            entries.into_iter().map(|entry| entry.id).collect::<Vec<_>>()
        };
        assert_eq!(
            (recent(5), recent(1)),
            (vec!["dd44".to_owned(), "aa11".to_owned()], vec!["dd44".to_owned()])
        );
    }

    #[test]
    fn pruning_keeps_the_newest_and_the_young() {
        let (_directory, history) = history();
        for (number, id) in ["aa11", "bb22", "cc33", "dd44"].into_iter().enumerate() {
            store(&history, id, "train", Status::Finished, [100.0, 200.0, 300.0, 400.0][number]);
        }
        let now = UNIX_EPOCH + Duration::from_secs(450);
        assert_eq!(history.prune(Keep::default(), now).unwrap(), 0);
        assert_eq!(history.prune(Keep { runs: Some(3), age: None }, now).unwrap(), 1);
        assert_eq!(history.prune(Keep { runs: None, age: Some(Duration::from_secs(200)) }, now).unwrap(), 1);
        assert_eq!(ids(&history), ["dd44", "cc33"]);
        assert!(!history.recording_path("aa11").exists() && history.recording_path("cc33").exists());
    }

    #[test]
    fn what_killed_writers_left_goes_when_it_is_old() {
        let (_directory, history) = history();
        store(&history, "aa11", "train", Status::Finished, 100.0);
        let (aside, orphan) = (history.directory().join(".bb22.tmp"), history.recording_path("cc33"));
        fs::write(&aside, b"half").unwrap();
        fs::write(&orphan, b"whole, but its entry was never written").unwrap();
        let now = SystemTime::now();
        history.prune(Keep::default(), now).unwrap();
        assert!(aside.exists() && orphan.exists(), "they may be in use");
        history.prune(Keep::default(), now + 2 * LEFTOVER_AGE).unwrap();
        assert!(!aside.exists() && !orphan.exists() && history.recording_path("aa11").exists());
    }

    #[test]
    fn a_recording_that_cannot_be_written_is_not_listed_and_leaves_nothing() {
        let (_directory, history) = history();
        let entry = Entry { id: "aa11".to_owned(), ..Entry::default() };
        let error = history.store(&entry, |_| Err(io::Error::other("disk full"))).unwrap_err();
        assert!(error.to_string().ends_with("aa11.json.gz`"), "{error}");
        assert_eq!(fs::read_dir(history.directory()).unwrap().count(), 0);
        store(&history, "aa11", "train", Status::Finished, 100.0);
        history.remove("aa11").unwrap();
        history.remove("aa11").unwrap();
        assert_eq!(fs::read_dir(history.directory()).unwrap().count(), 0);
    }

    #[cfg(unix)]
    #[test]
    fn the_directory_follows_the_users_environment() {
        let with = |pairs: &'static [(&str, &str)]| {
            default_directory(move |name| {
                pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into())
            })
        };
        assert_eq!(
            with(&[("XDG_DATA_HOME", "/data"), ("HOME", "/h")]),
            Some("/data/resource-tracker".into())
        );
        assert_eq!(
            with(&[("XDG_DATA_HOME", "data"), ("HOME", "/h")]),
            Some("/h/.local/share/resource-tracker".into())
        );
        assert_eq!(with(&[("HOME", "")]), None);
    }

    #[test]
    fn ids_differ() {
        let ids: HashSet<String> = (0..1000).map(|_| History::new_id()).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| id.len() == 12 && id.bytes().all(|byte| byte.is_ascii_hexdigit())));
    }
}
