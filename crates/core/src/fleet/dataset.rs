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
//! Any number of processes can write: each run has its own file, which is never seen in part. `compact` writes all merged
//! files before it removes the files that it merged. A run and its samples may therefore be in two files, and readers count
//! them once; a reader whose file has just been removed lists the day again. A file that cannot be read is left out with a
//! warning, and is neither merged nor removed.

use std::collections::{HashMap, HashSet};
use std::iter;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use parquet::errors::ParquetError;
use thiserror::Error;

use super::columns;
use super::store::{self, Environment, Object, Store, StoreError};
use super::table::Table;
use crate::error::with_causes;
use crate::os::network;

pub(super) const RUNS: &str = "runs";
pub(super) const SAMPLES: &str = "samples";
const SUFFIX: &str = ".parquet";
const MERGED: &str = "merged-";
/// Files of a day are listed again this often after a pause, if files of the listing have been removed. The pauses double.
const MOST_PAUSES: u32 = 11;
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// Rows of this many bytes of files go into one merged file. Samples are much larger in memory.
const MERGED_RUNS_BYTES: u64 = 64 << 20;
const MERGED_SAMPLES_BYTES: u64 = 16 << 20;
/// An engine lists a day within this time: it finds the merged file, or the files that were merged and not removed yet.
const LISTING_TIME: Duration = Duration::from_secs(2);
/// Files that a warning names.
const MOST_NAMED: usize = 3;

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

    /// Whether one file is the cause, while others can be read.
    fn is_of_object(&self) -> bool {
        match self {
            Self::Content { .. } => true,
            Self::Store(error) => error.is_of_object(),
            _ => false,
        }
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
    left_out: Arc<Mutex<LeftOut>>,
}

/// Files that could not be read.
#[derive(Debug, Default)]
struct LeftOut {
    files: usize,
    /// Keys of the first files.
    named: Vec<String>,
    /// Why the first file could not be read.
    why: String,
}

/// A merged file in a folder, and the files that it replaces.
struct Merged {
    folder: String,
    name: String,
    replaced: Vec<Object>,
}

/// Is told how many of how many days are done.
pub type Progress = fn(usize, usize);

impl Dataset {
    pub fn open(url: &str) -> Result<Self, DatasetError> {
        Self::open_with(url, Environment::of_process())
    }

    /// Credentials and endpoint of an object store are found by the environment.
    pub fn open_with(url: &str, environment: Environment) -> Result<Self, DatasetError> {
        Ok(Self { store: store::open(url, environment)?, progress: None, left_out: Arc::default() })
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

    /// A warning about the files that could not be read since the last call.
    pub fn take_warning(&self) -> Option<String> {
        let warning = self.warning();
        *self.left_out.lock().unwrap_or_else(PoisonError::into_inner) = LeftOut::default();
        warning
    }

    pub(super) fn warning(&self) -> Option<String> {
        let left_out = self.left_out.lock().unwrap_or_else(PoisonError::into_inner);
        let LeftOut { files, named, why } = &*left_out;
        let (noun, verb) = if *files == 1 { ("file", "is") } else { ("files", "are") };
        let more = if *files > named.len() { ", …" } else { "" };
        (*files > 0).then(|| {
            let names = named.join(", ");
            format!("{files} {noun} of the store `{}` {verb} left out: {names}{more}: {why}", self.url())
        })
    }

    /// Notes a file that cannot be read.
    pub(super) fn leave_out(&self, key: String, error: &DatasetError) {
        let mut left_out = self.left_out.lock().unwrap_or_else(PoisonError::into_inner);
        if left_out.files == 0 {
            left_out.why = with_causes(error);
        }
        left_out.files += 1;
        if left_out.named.len() < MOST_NAMED {
            left_out.named.push(key);
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
        self.store.put(&key, &encode(samples)?)?;
        self.put_run(id, start_s, row)
    }

    /// Stores the row of a run without samples.
    pub fn put_run(&self, id: &str, start_s: f64, row: &Table) -> Result<(), DatasetError> {
        let key = format!("{RUNS}/{}/{id}{SUFFIX}", day_of(start_s));
        Ok(self.store.put(&key, &encode(row)?)?)
    }

    /// Days with runs, such as `date=2026-03-12`, in order.
    pub fn days(&self) -> Result<Vec<String>, DatasetError> {
        let mut days = self.store.folders(RUNS)?;
        days.retain(|day| day.starts_with("date="));
        Ok(days)
    }

    /// Days with runs that started at `since_s` or later, in Unix seconds, and maybe other runs.
    pub(super) fn days_since(&self, since_s: Option<f64>) -> Result<Vec<String>, DatasetError> {
        let first = since_s.map(day_of);
        let mut days = self.days()?;
        days.retain(|day| first.as_ref().is_none_or(|first| day >= first));
        Ok(days)
    }

    /// The runs of a day, each once, with these columns, `id` and `stored_time`.
    pub fn runs(&self, day: &str, columns: &[&str]) -> Result<Table, DatasetError> {
        let columns = [&["id", "stored_time"], columns].concat();
        Ok(newest_runs(self.tables(&format!("{RUNS}/{day}"), &columns)?))
    }

    /// The files of a folder with these columns, or all columns if none are named.
    pub(super) fn tables(&self, folder: &str, columns: &[&str]) -> Result<Vec<Table>, DatasetError> {
        let read = relisted(|| self.read_all(folder, &self.files(folder)?, columns, |table| table))?;
        Ok(read.into_iter().map(|(_, table)| table).collect())
    }

    /// The files of a folder in the order of their names: merged files are last, since ids are hexadecimal.
    ///
    /// A listing takes time. `compact` may write a merged file after its place in the listing, and then remove a file that
    /// is not listed yet: the runs of that file would be missing. The merged file is in the next listing.
    pub(super) fn files(&self, folder: &str) -> Result<Vec<Object>, DatasetError> {
        let mut pauses = pauses();
        loop {
            let mut files = self.store.objects(folder, "")?;
            let merged = self.store.objects(folder, MERGED)?;
            if merged.iter().all(|file| files.contains(file)) || pauses.next().map(thread::sleep).is_none() {
                files.retain(|file| file.name.ends_with(SUFFIX));
                return Ok(files);
            }
        }
    }

    /// Those of these files that can be read, with what `take` makes of their tables.
    pub(super) fn read_all<T: Send>(
        &self,
        folder: &str,
        files: &[Object],
        columns: &[&str],
        take: impl Fn(Table) -> T + Sync,
    ) -> Result<Vec<(Object, T)>, DatasetError> {
        let key = |file: &Object| format!("{folder}/{}", file.name);
        let read = self.each(files, |file| match self.read(&key(file), columns) {
            Err(error) if error.is_of_object() => Ok(Err(error)),
            read => Ok(Ok(take(read?))),
        })?;
        let mut taken = Vec::with_capacity(files.len());
        for (file, read) in files.iter().zip(read) {
            match read {
                Ok(found) => taken.push((file.clone(), found)),
                Err(error) => self.leave_out(key(file), &error),
            }
        }
        Ok(taken)
    }

    /// Does something with each file in several threads, up to the first error. Results are in the order of the files.
    pub(super) fn each<T: Send>(
        &self,
        files: &[Object],
        work: impl Fn(&Object) -> Result<T, DatasetError> + Sync,
    ) -> Result<Vec<T>, DatasetError> {
        let (next, has_failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let work = || {
            let mut done = Vec::new();
            while !has_failed.load(Ordering::Relaxed) {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(file) = files.get(at) else { break };
                let result = work(file).inspect_err(|_| has_failed.store(true, Ordering::Relaxed))?;
                done.push((at, result));
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

    fn read(&self, key: &str, columns: &[&str]) -> Result<Table, DatasetError> {
        if let Some(Ok(table)) = self.store.file(key)?.map(|file| Table::read(file, columns)) {
            return Ok(table);
        }
        let content = Bytes::from(self.store.get(key)?);
        Table::read(content, columns).map_err(|source| DatasetError::Content { key: key.to_owned(), source })
    }

    /// Merges the small files of each day.
    pub fn compact(&self) -> Result<Compacted, DatasetError> {
        self.compact_after(LISTING_TIME)
    }

    /// [`Self::compact`] with this time between the last merged file and the first removal.
    pub fn compact_after(&self, pause: Duration) -> Result<Compacted, DatasetError> {
        let mut done = Compacted::default();
        let mut written = Vec::new();
        let days = self.days()?;
        for (number, day) in days.iter().enumerate() {
            let before = done.merged_files;
            for kind in [RUNS, SAMPLES] {
                let folder = format!("{kind}/{day}");
                self.store.remove_leftovers(&folder);
                self.compact_folder(&folder, kind == RUNS, &mut done, &mut written)?;
            }
            done.days += usize::from(done.merged_files > before);
            self.report_progress(number + 1, days.len());
        }
        if !written.is_empty() {
            thread::sleep(pause);
        }
        for merged in written {
            self.remove_replaced(merged)?;
        }
        Ok(done)
    }

    /// Writes the merged files of a folder.
    fn compact_folder(
        &self,
        folder: &str,
        is_runs: bool,
        done: &mut Compacted,
        written: &mut Vec<Merged>,
    ) -> Result<(), DatasetError> {
        let most_bytes = if is_runs { MERGED_RUNS_BYTES } else { MERGED_SAMPLES_BYTES };
        let mut files = self.files(folder)?;
        files.retain(|file| file.bytes < most_bytes / 2);
        while files.len() > 1 {
            let mut bytes = 0;
            let fit = files.iter().take_while(|file| {
                bytes += file.bytes;
                bytes <= most_bytes
            });
            let small: Vec<Object> = files.drain(..fit.count().max(2)).collect();
            // Another `compact` may have removed a file: what it wrote is merged the next time.
            let merged = match self.merge(folder, &small, is_runs) {
                Err(DatasetError::Store(error)) if error.is_not_found() => return Ok(()),
                merged => merged?,
            };
            if let Some((count, merged)) = merged {
                done.merged_files += count;
                done.written_files += 1;
                written.push(merged);
            }
        }
        Ok(())
    }

    /// Writes the rows of these files to one file, and returns the number of files in it. Files of a later version, or of another
    /// program, that would lose something stay. `None` if fewer than two can be merged.
    fn merge(
        &self,
        folder: &str,
        files: &[Object],
        is_runs: bool,
    ) -> Result<Option<(usize, Merged)>, DatasetError> {
        let tables = self.read_all(folder, files, &[], |table| table)?.into_iter();
        let (mut replaced, tables): (Vec<Object>, Vec<Table>) =
            tables.filter(|(_, table)| table.can_be_merged(columns::VERSION)).unzip();
        let count = replaced.len();
        if count < 2 {
            return Ok(None);
        }
        let content = encode(&if is_runs { newest_runs(tables) } else { samples_once(tables, |_| true) })?;
        let name = format!("{MERGED}{:016x}{SUFFIX}", hash(&content));
        self.store.put(&format!("{folder}/{name}"), &content)?;
        replaced.retain(|file| file.name != name);
        Ok(Some((count, Merged { folder: folder.to_owned(), name, replaced })))
    }

    /// Removes the files whose rows a merged file has, and that have not changed. Another `compact` may have merged that file
    /// with others, and removed it: then nothing is removed.
    fn remove_replaced(&self, merged: Merged) -> Result<(), DatasetError> {
        let Merged { folder, name, mut replaced } = merged;
        let present: HashSet<Object> = self.store.objects(&folder, "")?.into_iter().collect();
        if !present.iter().any(|file| file.name == name) {
            return Ok(());
        }
        replaced.retain(|file| present.contains(file));
        let remove = |file: &Object| Ok(self.store.remove(&format!("{folder}/{}", file.name))?);
        self.each(&replaced, remove).map(|_| ())
    }
}

/// Pauses before a folder is listed again: none, and then longer ones.
fn pauses() -> impl Iterator<Item = Duration> {
    iter::once(Duration::ZERO).chain((0..MOST_PAUSES).map(|number| FIRST_PAUSE * 2_u32.pow(number)))
}

/// Does something again after a pause, if it has failed because a file of a listing was removed meanwhile.
pub(super) fn relisted<T>(mut work: impl FnMut() -> Result<T, DatasetError>) -> Result<T, DatasetError> {
    let mut pauses = pauses();
    loop {
        match work() {
            Err(DatasetError::Store(error)) if error.is_not_found() => match pauses.next() {
                Some(pause) => thread::sleep(pause),
                None => return Err(error.into()),
            },
            done => return done,
        }
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

/// The rows of all tables; of several rows of one run, the row that was stored last. A row without an id is no run.
fn newest_runs(tables: Vec<Table>) -> Table {
    let mut table = Table::default();
    for other in tables {
        table.append(other);
    }
    let mut newest: HashMap<&str, (usize, f64)> = HashMap::with_capacity(table.len());
    let mut kept = vec![false; table.len()];
    for row in 0..table.len() {
        let Some(id) = table.text("id", row) else { continue };
        let stored = table.number("stored_time", row).unwrap_or(f64::NEG_INFINITY);
        if newest.get(id).is_some_and(|(_, before)| *before >= stored) {
            continue;
        }
        kept[row] = true;
        if let Some((other, _)) = newest.insert(id, (row, stored)) {
            kept[other] = false;
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
