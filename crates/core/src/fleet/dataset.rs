//! The dataset of many runs: Parquet files by day.
//!
//! ```text
//! runs/date=2026-03-12/3f9c1a7b2d40.parquet       one row: identity, requested, used, wasted, cost, advice, cause
//! runs/date=2026-03-12/merged-….parquet           the rows of many runs, in place of their files
//! samples/date=2026-03-12/3f9c1a7b2d40.parquet    the rows of the recording
//! ```
//!
//! In:  rows of runs, and samples. Out: the runs of a day, each once.
//! Not here: the columns (`columns`), the place (`store`), sums (`summary`).
//!
//! Any number of processes can write: each run has its own file, which is never seen in part. `compact` writes the merged
//! file before it removes the files that it merged. A run and its samples may therefore be in two files, and readers count
//! them once; a reader whose file has just been removed lists the day again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use jiff::Timestamp;
use parquet::errors::ParquetError;
use thiserror::Error;

use super::columns;
use super::store::{self, Environment, Object, Store, StoreError};
use super::table::Table;
use crate::os::network;

pub(super) const RUNS: &str = "runs";
pub(super) const SAMPLES: &str = "samples";
const SUFFIX: &str = ".parquet";
const MERGED: &str = "merged-";
/// Files of a day are listed again this often, if files of the listing have been removed.
pub(super) const MOST_LISTINGS: usize = 50;
/// Rows of this many bytes of files go into one merged file.
const MERGED_BYTES: u64 = 64 << 20;

/// Why a dataset cannot be read or written.
#[derive(Debug, Error)]
pub enum DatasetError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot read `{key}` as Parquet")]
    Content { key: String, source: ParquetError },
    #[error("cannot encode Parquet")]
    Encode(#[source] ParquetError),
    #[error("a thread that reads the store has ended")]
    Reader,
    #[error("cannot read the run `{id}` of the history")]
    Run { id: String, source: Box<dyn std::error::Error + Send + Sync> },
}

impl DatasetError {
    /// Whether one run is the cause, and not the store.
    pub const fn is_of_run(&self) -> bool {
        matches!(self, Self::Run { .. })
    }

    /// Whether the address is not a valid store address.
    pub const fn is_usage(&self) -> bool {
        matches!(self, Self::Store(StoreError::Url { .. }))
    }

    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Store(error) => error.hint(),
            Self::Content { .. } => Some("remove the file, or move it out of the store"),
            Self::Encode(_) | Self::Reader | Self::Run { .. } => None,
        }
    }
}

/// What `compact` has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    pub days: usize,
    pub merged_files: usize,
    pub written_files: usize,
}

/// A dataset in a store.
#[derive(Clone, Debug)]
pub struct Dataset {
    pub(super) store: Arc<dyn Store>,
    progress: Option<Progress>,
}

/// Is told how many of how many days are done.
pub type Progress = fn(usize, usize);

impl Dataset {
    pub fn open(url: &str) -> Result<Self, DatasetError> {
        Self::open_with(url, Environment::of_process())
    }

    /// Credentials and endpoint of an object store are found by the environment.
    pub fn open_with(url: &str, environment: Environment) -> Result<Self, DatasetError> {
        Ok(Self { store: store::open(url, environment)?, progress: None })
    }

    /// The same dataset, which reports how far long work is.
    #[must_use]
    pub fn with_progress(&self, progress: Progress) -> Self {
        Self { progress: Some(progress), ..self.clone() }
    }

    pub(super) fn report_progress(&self, done: usize, of: usize) {
        if let Some(report) = self.progress {
            report(done, of);
        }
    }

    /// An error if the store needs the network, and `--offline` or `RESOURCE_TRACKER_OFFLINE` switches it off.
    pub fn check_network(&self, is_offline: bool) -> Result<(), DatasetError> {
        if self.store.is_remote() && (is_offline || network::offline()) {
            return Err(StoreError::Offline { url: self.url() }.into());
        }
        Ok(())
    }

    /// Address of the store.
    pub fn url(&self) -> String {
        self.store.url()
    }

    /// Stores a run. Its samples come first, so that every run that is listed is complete.
    pub fn put(&self, id: &str, start_s: f64, row: &Table, samples: &Table) -> Result<(), DatasetError> {
        let key = format!("{SAMPLES}/{}/{id}{SUFFIX}", day_of(start_s));
        self.store.put(&key, &encode(samples)?, false)?;
        self.put_run(id, start_s, row)
    }

    /// Stores the row of a run without samples.
    pub fn put_run(&self, id: &str, start_s: f64, row: &Table) -> Result<(), DatasetError> {
        let key = format!("{RUNS}/{}/{id}{SUFFIX}", day_of(start_s));
        Ok(self.store.put(&key, &encode(row)?, false)?)
    }

    /// Days with runs, such as `date=2026-03-12`, in order.
    pub fn days(&self) -> Result<Vec<String>, DatasetError> {
        let mut days = self.store.folders(RUNS)?;
        days.retain(|day| day.starts_with("date="));
        Ok(days)
    }

    /// The runs of a day, each once, with these columns, `id` and `stored_time`.
    pub fn runs(&self, day: &str, columns: &[&str]) -> Result<Table, DatasetError> {
        let columns = [&["id", "stored_time"], columns].concat();
        Ok(newest_runs(self.tables(&format!("{RUNS}/{day}"), &columns)?))
    }

    /// The files of a folder with these columns, or all columns if none are named.
    pub(super) fn tables(&self, folder: &str, columns: &[&str]) -> Result<Vec<Table>, DatasetError> {
        let mut listings = 0;
        loop {
            listings += 1;
            match self.read_all(folder, &self.files(folder)?, columns) {
                Err(DatasetError::Store(error)) if error.is_not_found() && listings < MOST_LISTINGS => {}
                tables => return tables,
            }
        }
    }

    /// The files of a folder in the order of their names: merged files are last, since ids are hexadecimal.
    ///
    /// A listing takes time. `compact` may write a merged file after its place in the listing, and then remove a file that
    /// is not listed yet: the runs of that file would be missing. The merged file is in the next listing.
    pub(super) fn files(&self, folder: &str) -> Result<Vec<Object>, DatasetError> {
        let mut listings = 0;
        loop {
            listings += 1;
            let mut files = self.store.objects(folder, "")?;
            let merged = self.store.objects(folder, MERGED)?;
            if merged.iter().all(|file| files.contains(file)) || listings == MOST_LISTINGS {
                files.retain(|file| file.name.ends_with(SUFFIX));
                return Ok(files);
            }
        }
    }

    fn read_all(&self, folder: &str, files: &[Object], columns: &[&str]) -> Result<Vec<Table>, DatasetError> {
        self.each(files, |file| self.read(&format!("{folder}/{}", file.name), columns))
    }

    /// Does something with each file in several threads. Results are in the order of the files.
    pub(super) fn each<T: Send>(
        &self,
        files: &[Object],
        work: impl Fn(&Object) -> Result<T, DatasetError> + Sync,
    ) -> Result<Vec<T>, DatasetError> {
        let next = AtomicUsize::new(0);
        let work = || {
            let mut done = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(file) = files.get(at) else { break };
                done.push((at, work(file)?));
            }
            Ok(done)
        };
        let threads = self.store.requests().min(files.len());
        let found: Vec<Result<Vec<_>, DatasetError>> = thread::scope(|scope| {
            let started: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let mut found = vec![work()];
            found.extend(
                started.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(DatasetError::Reader))),
            );
            found
        });
        let mut all = Vec::with_capacity(files.len());
        for done in found {
            all.extend(done?);
        }
        all.sort_unstable_by_key(|(at, _)| *at);
        Ok(all.into_iter().map(|(_, result)| result).collect())
    }

    pub(super) fn read(&self, key: &str, columns: &[&str]) -> Result<Table, DatasetError> {
        let content = self.store.get(key)?;
        Table::read(content.into(), columns)
            .map_err(|source| DatasetError::Content { key: key.to_owned(), source })
    }

    /// Merges the small files of each day.
    pub fn compact(&self) -> Result<Compacted, DatasetError> {
        let mut done = Compacted::default();
        let days = self.days()?;
        for (number, day) in days.iter().enumerate() {
            let before = done.merged_files;
            for kind in [RUNS, SAMPLES] {
                self.compact_folder(&format!("{kind}/{day}"), kind == RUNS, &mut done)?;
            }
            done.days += usize::from(done.merged_files > before);
            self.report_progress(number + 1, days.len());
        }
        Ok(done)
    }

    fn compact_folder(&self, folder: &str, is_runs: bool, done: &mut Compacted) -> Result<(), DatasetError> {
        let mut files = self.files(folder)?;
        files.retain(|file| file.bytes < MERGED_BYTES / 2);
        while files.len() > 1 {
            let mut bytes = 0;
            let fit = files.iter().take_while(|file| {
                bytes += file.bytes;
                bytes <= MERGED_BYTES
            });
            let merged: Vec<Object> = files.drain(..fit.count().max(2)).collect();
            // Another `compact` may have removed a file: what it wrote is merged the next time.
            let merged = match self.merge(folder, &merged, is_runs) {
                Err(DatasetError::Store(error)) if error.is_not_found() => return Ok(()),
                merged => merged?,
            };
            done.merged_files += merged;
            done.written_files += usize::from(merged > 0);
        }
        Ok(())
    }

    /// Writes the rows of these files to one file, and then removes these files. Files of a later version, or of another
    /// program, that would lose something stay. Returns how many files are merged.
    fn merge(&self, folder: &str, files: &[Object], is_runs: bool) -> Result<usize, DatasetError> {
        let tables = files.iter().zip(self.read_all(folder, files, &[])?);
        let (files, tables): (Vec<&Object>, Vec<Table>) =
            tables.filter(|(_, table)| table.can_be_merged(columns::VERSION)).unzip();
        if files.len() < 2 {
            return Ok(0);
        }
        let content = encode(&if is_runs { newest_runs(tables) } else { samples_once(tables, |_| true) })?;
        let target = format!("{MERGED}{:016x}{SUFFIX}", hash(&content));
        self.store.put(&format!("{folder}/{target}"), &content, true)?;
        let remove = |file: &Object| Ok(self.store.remove(&format!("{folder}/{}", file.name))?);
        let merged: Vec<Object> = files.iter().filter(|file| file.name != target).copied().cloned().collect();
        self.each(&merged, remove)?;
        Ok(files.len())
    }
}

fn encode(table: &Table) -> Result<Vec<u8>, DatasetError> {
    let mut content = Vec::new();
    table.write(&mut content, columns::VERSION).map_err(DatasetError::Encode)?;
    Ok(content)
}

/// The day of a moment in UTC; a moment out of range is in 1970.
pub(super) fn day_of(seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "a time beyond the range is its end")]
    let moment = Timestamp::from_second(seconds.floor() as i64).unwrap_or(Timestamp::UNIX_EPOCH);
    format!("date={}", moment.strftime("%Y-%m-%d"))
}

/// The rows of all tables; of several rows of one run, the row that was stored last.
fn newest_runs(tables: Vec<Table>) -> Table {
    let mut table = Table::default();
    for other in tables {
        table.append(other);
    }
    let mut newest: HashMap<&str, (usize, f64)> = HashMap::with_capacity(table.len());
    let mut kept = vec![true; table.len()];
    let mut drop_row = |row: usize| kept.iter_mut().skip(row).take(1).for_each(|kept| *kept = false);
    for row in 0..table.len() {
        let Some(id) = table.text("id", row) else { continue };
        let stored = table.number("stored_time", row).unwrap_or(f64::NEG_INFINITY);
        match newest.get(id) {
            Some((_, before)) if *before >= stored => drop_row(row),
            Some((other, _)) => {
                drop_row(*other);
                newest.insert(id, (row, stored));
            }
            None => {
                newest.insert(id, (row, stored));
            }
        }
    }
    if kept.contains(&false) {
        table.keep(&kept);
    }
    table
}

/// The samples of the wanted runs; of a run in several tables, those of the first.
pub(super) fn samples_once(tables: Vec<Table>, is_wanted: impl Fn(&str) -> bool) -> Table {
    let mut all = Table::default();
    let mut seen: HashSet<String> = HashSet::new();
    for mut table in tables {
        let run = |row| table.text("run_id", row).filter(|id| is_wanted(id) && !seen.contains(*id));
        let runs: Vec<Option<String>> = (0..table.len()).map(|row| run(row).map(str::to_owned)).collect();
        table.keep(&runs.iter().map(Option::is_some).collect::<Vec<_>>());
        seen.extend(runs.into_iter().flatten());
        all.append(table);
    }
    all
}

/// FNV-1a: a name that is the same for the same content.
fn hash(content: &[u8]) -> u64 {
    content
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}
