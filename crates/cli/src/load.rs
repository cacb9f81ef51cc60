//! The RECORDING argument of most commands: `last`, a job name or id of the history, or a file.
//!
//! In:  the argument. Out: the recording, and the facts about it that a summary and a report need.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, IsTerminal as _, Read};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use resource_tracker::{
    AdviceOptions, Catalog, CatalogSettings, Head, History, LoadError, Recording, ReportContext, Selection,
    Summary,
};

use crate::failure::Failure;
use crate::show;

/// Progress is shown if reading a file takes longer than this.
const PROGRESS_AFTER_S: f64 = 1.0;

pub fn load(name: &OsStr) -> Result<Recording, Failure> {
    Ok(load_with_path(name)?.0)
}

pub fn load_with_path(name: &OsStr) -> Result<(Recording, PathBuf), Failure> {
    let path = path_of(name)?;
    let file = File::open(&path).map_err(|source| LoadError::Open { path: path.clone(), source })?;
    let reader = BufReader::with_capacity(64 << 10, ProgressReader::new(file, &path));
    let recording = Recording::read(reader);
    let recording = recording.map_err(|source| LoadError::Content { path: path.clone(), source })?;
    Ok((recording, path))
}

/// `last`, an id or the name of a job is the run of that name, even if there is a file of this name; `./NAME` is the
/// file. A file is preferred to the first characters of an id.
fn path_of(name: &OsStr) -> Result<PathBuf, Failure> {
    let path = Path::new(name);
    let is_file = path.exists() && !path.is_dir();
    // If the argument looks like a path, the error of opening the file is more helpful than `no run named`.
    let is_path = path.components().count() != 1 || name.as_encoded_bytes().contains(&b'/');
    let Some(name) = name.to_str().filter(|_| !is_path) else { return Ok(path.to_owned()) };
    let found = recovered_history().and_then(|history| {
        let entry = history.find(name)?;
        Ok((history.recording_path(&entry.id), entry.has_name(name)))
    });
    match found {
        Ok((_, is_exact)) if is_file && !is_exact => Ok(path.to_owned()),
        // Opening a FIFO would block.
        Ok((path, _)) if path.exists() && !path.is_file() => {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "not a regular file");
            Err(LoadError::Open { path, source }.into())
        }
        Ok((path, _)) => Ok(path),
        Err(_) if is_file || path.extension().is_some() => Ok(path.to_owned()),
        Err(failure) => Err(failure),
    }
}

/// All finished runs of a job if `name` is the name of a job, else one run.
pub fn select(name: &OsStr) -> Result<Selection, Failure> {
    let job = name.to_str().and_then(|name| {
        let entry = recovered_history().ok()?.find(name).ok()?;
        (name != "last" && entry.id != name && entry.has_name(name)).then(|| name.to_owned())
    });
    if let Some(job) = job {
        return Ok(Selection::Job(job));
    }
    select_run(name)
}

/// One run; of a job, the newest.
pub fn select_run(name: &OsStr) -> Result<Selection, Failure> {
    let recording = Box::new(load(name)?);
    let run = recording.head.run.clone().unwrap_or_default();
    let name = match (run.job, run.id) {
        (Some(job), Some(id)) => format!("{job} {}", id.chars().take(6).collect::<String>()),
        (None, Some(id)) => id,
        _ => name.to_string_lossy().into_owned(),
    };
    Ok(Selection::Run { name, recording })
}

#[derive(Debug, thiserror::Error)]
#[error("job `{job}` has no finished run to compare with")]
pub struct NoFinishedRun {
    job: String,
}

impl NoFinishedRun {
    pub fn failure(job: &str) -> Failure {
        let hint = Some("`resource-tracker list` shows all runs; an id selects one run, however it ended");
        Failure::new(Self { job: job.to_owned() }, hint)
    }
}

/// The user's history, after the journals of killed trackers were turned into recordings.
pub fn recovered_history() -> Result<History, Failure> {
    let history = history()?;
    // A journal that cannot be recovered stays and is tried again by the next command.
    let _ = history.recover();
    let _ = history.recover_temporary();
    Ok(history)
}

#[derive(Debug, thiserror::Error)]
#[error("there is no history: `{HOME}` is not set to an absolute path")]
struct NoHome;

/// The variable that names the user's folder.
const HOME: &str = if cfg!(windows) { "LOCALAPPDATA" } else { "HOME" };

/// The user's history, without recovery of journals.
pub fn history() -> Result<History, Failure> {
    let hint = Some("set it, or XDG_DATA_HOME; `run -o FILE` saves a recording anywhere");
    History::of_user(|name| std::env::var_os(name)).ok_or_else(|| Failure::new(NoHome, hint))
}

/// Settings of a catalogue that uses neither the network nor the cache: only the built-in servers and prices.
pub fn embedded_only() -> CatalogSettings {
    CatalogSettings { cache_dir: None, ..CatalogSettings::offline() }
}

/// The context of a summary: earlier runs of the job, servers that fit, and prices.
pub fn context(
    head: &Head,
    summary: Summary,
    options: &AdviceOptions,
    catalog: &mut Catalog,
) -> ReportContext {
    let mut context = ReportContext::of_run(head, summary, options);
    context.ask(head, catalog);
    context
}

pub fn unix_now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Shows on a terminal how much of a file was read.
struct ProgressReader {
    file: File,
    name: String,
    size: u64,
    read: u64,
    started: Instant,
    shown_percent: Option<u64>,
    is_terminal: bool,
}

impl ProgressReader {
    fn new(file: File, path: &Path) -> Self {
        Self {
            size: file.metadata().map_or(0, |about| about.len()),
            file,
            name: show::one_line(&path.display().to_string(), 50),
            read: 0,
            started: Instant::now(),
            shown_percent: None,
            is_terminal: io::stderr().is_terminal(),
        }
    }
}

impl Read for ProgressReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.read += count as u64;
        let percent = (self.read * 100).checked_div(self.size);
        let is_slow = || self.started.elapsed().as_secs_f64() > PROGRESS_AFTER_S;
        if self.is_terminal && percent != self.shown_percent && is_slow() {
            self.shown_percent = percent;
            show::progress_line(&format!("reading {}: {} %", self.name, percent.unwrap_or_default()));
        }
        Ok(count)
    }
}

impl Drop for ProgressReader {
    fn drop(&mut self) {
        if self.shown_percent.is_some() {
            show::progress_line("");
        }
    }
}
