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

pub(crate) use prune::is_leftover_age;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::os;
use crate::os::output::create_temporary;
use crate::os::paths::{self, Convention, Purpose};
use crate::store::plausible;
use crate::store::recording::{Head, Status};
use crate::store::stats::Stats;

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
    /// The command and its arguments.
    #[serde(default)]
    pub command: Option<Vec<String>>,
    #[serde(default)]
    pub status: Option<Status>,
    #[serde(default)]
    pub exit_code: Option<i32>,
    /// Start of the run in Unix seconds.
    #[serde(default)]
    pub start_time: Option<f64>,
    #[serde(default)]
    pub duration_s: Option<f64>,
    /// The default statistics of the run.
    #[serde(default)]
    pub stats: Option<Stats>,
    /// Keys that only later versions know.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Entry {
    pub fn new(id: &str, head: &Head, stats: Option<Stats>) -> Self {
        let run = head.run.clone().unwrap_or_default();
        // As in the summary and the report: until the last row.
        let duration_s = stats.as_ref().and_then(|stats| stats.get("timestamp", "duration"));
        Self {
            id: id.to_owned(),
            job: run.job,
            command: run.command,
            status: run.status,
            exit_code: run.exit_code,
            start_time: head.metadata.start_time,
            duration_s: duration_s.or(head.metadata.duration),
            stats,
            other: Map::new(),
        }
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
            _ => Err(HistoryError::NotFound { name: name.to_owned() }),
        }
    }

    /// Statistics of earlier successful runs of the same job, newest first.
    pub fn earlier(&self, head: &Head, at_most: usize) -> Result<Vec<Stats>, HistoryError> {
        let job = head.run.as_ref().and_then(|run| run.job.as_deref());
        if job.is_none() {
            return Ok(Vec::new());
        }
        let is_earlier = |entry: &Entry| {
            entry.start_time.zip(head.metadata.start_time).is_some_and(|(earlier, this)| earlier < this)
        };
        let entries = self.list()?.entries.into_iter().filter(|entry| {
            entry.job.as_deref() == job && entry.status == Some(Status::Finished) && is_earlier(entry)
        });
        Ok(entries.filter_map(|entry| entry.stats).take(at_most).collect())
    }

    /// Removes a run. The entry is removed before the recording, so every listed run is complete.
    pub fn remove(&self, id: &str) -> Result<(), HistoryError> {
        remove_file(&self.entry_path(id))?;
        remove_file(&self.recording_path(id))
    }
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

#[cfg(test)]
mod tests {
    use super::prune::LEFTOVER_AGE;
    use super::*;
    use crate::store::recording::{Recording, Run};
    use std::collections::HashSet;
    use std::time::SystemTime;

    fn history() -> (tempfile::TempDir, History) {
        let directory = tempfile::tempdir().unwrap();
        let history = History::at(directory.path().join("deep/history"));
        (directory, history)
    }

    fn store(history: &History, id: &str, job: &str, status: Status, start_time: f64) {
        let (id, job, status, start_time) =
            (id.to_owned(), Some(job.to_owned()), Some(status), Some(start_time));
        let mut stats = Stats::default();
        stats.set("start", "max", start_time);
        let entry = Entry { id, job, status, start_time, stats: Some(stats), ..Entry::default() };
        history.store(&entry, |file| file.write_all(b"rows")).unwrap();
    }

    fn ids(history: &History) -> Vec<String> {
        history.list().unwrap().entries.into_iter().map(|entry| entry.id).collect()
    }

    #[test]
    fn duration_of_an_entry_does_not_follow_a_step_of_the_wall_clock() {
        use crate::metric::{Metric, Row};
        let mut head = Head::new(&crate::config::Config::default(), 1, 100.0, Run::default());
        let mut recording = Recording::new(head.clone());
        for (time, elapsed_s) in [(101.0, 1.0), (104.0, 1.0)] {
            let mut row = Row::default();
            row.set(Metric::Timestamp, Some(time));
            row.set(Metric::Elapsed, Some(elapsed_s));
            recording.push(&row);
        }
        let summary = recording.summary();
        head.metadata.set_stop_time(104.5, summary.clock_step_s());
        assert_eq!(head.metadata.duration, Some(2.5));
        assert_eq!(Entry::new("aa11", &head, summary.stats().ok()).duration_s, Some(2.0));
        assert_eq!(Entry::new("aa11", &head, None).duration_s, Some(2.5));
    }

    #[test]
    fn runs_are_listed_newest_first() {
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
    fn files_are_accessible_to_their_owner_only() {
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
    fn run_is_found_by_last_id_job_or_prefix_of_its_id() {
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
        assert_eq!(found("a"), Err("ambiguous id `a`: it matches 2 runs".to_owned()));
        assert_eq!(found("x"), Err("no run named `x`".to_owned()));
        assert_eq!(found(""), Err("no run named ``".to_owned()));
    }

    #[test]
    fn damaged_entries_are_counted_and_skipped() {
        let (_directory, history) = history();
        store(&history, "aa11", "train", Status::Finished, 100.0);
        fs::write(history.entry_path("bb22"), b"{\"id\":\"bb2").unwrap();
        fs::write(history.entry_path("cc33"), b"{\"id\":\"other\"}").unwrap();
        fs::write(history.entry_path("dd44"), vec![b' '; 2 * 1024 * 1024]).unwrap();
        fs::write(history.entry_path("ee55"), b"{\"id\":\"ee55\",\"duration_s\":1e300}").unwrap();
        fs::write(history.directory().join("notes.txt"), b"mine").unwrap();
        #[cfg(unix)]
        rustix::fs::mknodat(
            rustix::fs::CWD,
            history.entry_path("ff66"),
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
        let listing = history.list().unwrap();
        assert_eq!(
            (listing.entries.len(), listing.damaged.len()),
            (1, 4 + usize::from(cfg!(unix))),
            "a FIFO does not block"
        );
    }

    #[test]
    fn only_earlier_successful_runs_of_the_same_job_count() {
        let (_directory, history) = history();
        store(&history, "aa11", "train", Status::Finished, 100.0);
        store(&history, "bb22", "train", Status::Failed, 200.0);
        store(&history, "cc33", "test", Status::Finished, 300.0);
        store(&history, "dd44", "train", Status::Finished, 400.0);
        let original = include_bytes!("../../../../../fixtures/original/snapshot.json");
        let mut head = Recording::read(&original[..]).unwrap().head;
        head.run = Some(Run { job: Some("train".to_owned()), ..Run::default() });
        let mut starts = |start_time, at_most| {
            head.metadata.start_time = Some(start_time);
            let earlier = history.earlier(&head, at_most).unwrap();
            earlier.iter().map(|stats| stats.get("start", "max").unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(starts(500.0, 5), [400.0, 100.0]);
        assert_eq!((starts(500.0, 1), starts(400.0, 5)), (vec![400.0], vec![100.0]));
    }

    #[test]
    fn pruning_removes_the_oldest_runs() {
        let (_directory, history) = history();
        for (number, id) in ["aa11", "bb22", "cc33", "dd44"].into_iter().enumerate() {
            store(&history, id, "train", Status::Finished, [100.0, 200.0, 300.0, 400.0][number]);
        }
        let now = SystemTime::now();
        history.prune_sometimes(4, now).unwrap();
        assert_eq!(ids(&history).len(), 4);
        history.prune(4, now).unwrap();
        assert_eq!(ids(&history).len(), 4);
        history.prune_sometimes(2, now).unwrap();
        assert_eq!(ids(&history), ["dd44", "cc33"]);
        assert!(!history.recording_path("aa11").exists() && history.recording_path("cc33").exists());
    }

    #[test]
    fn files_of_killed_writers_are_removed_after_a_day() {
        let (_directory, history) = history();
        store(&history, "aa11", "train", Status::Finished, 100.0);
        let (temporary, orphan) = (history.directory().join(".bb22.tmp"), history.recording_path("cc33"));
        fs::write(&temporary, b"half").unwrap();
        fs::write(&orphan, b"a complete recording without an entry").unwrap();
        let now = SystemTime::now();
        history.prune(1, now).unwrap();
        assert!(temporary.exists() && orphan.exists(), "a writer may still use them");
        history.prune(1, now + 2 * LEFTOVER_AGE).unwrap();
        assert!(!temporary.exists() && !orphan.exists() && history.recording_path("aa11").exists());
    }

    #[test]
    fn failed_write_leaves_no_files() {
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
    fn folder_of_the_history_depends_on_environment_variables() {
        let with = |pairs: &'static [(&str, &str)]| {
            History::of_user(move |name| {
                pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into())
            })
            .map(|history| history.directory)
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
    fn ids_are_unique() {
        let ids: HashSet<String> = (0..1000).map(|_| History::new_id()).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| id.len() == 12 && id.bytes().all(|byte| byte.is_ascii_hexdigit())));
    }
}
