//! Removes runs from the history, and files that killed writers left.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::{
    ENTRY_SUFFIX, History, HistoryError, JOURNAL_SUFFIX, RECORDING_SUFFIX, TEMPORARY_SUFFIX, id_of,
    remove_file,
};
use crate::os;

/// Minimum age before a file without an entry is removed. A writer may still use a younger file.
pub(super) const LEFTOVER_AGE: Duration = Duration::from_hours(24);

impl History {
    /// Keeps the newest `runs` runs and removes all others; returns the number of removed runs. Also removes old files of
    /// killed writers.
    pub fn prune(&self, runs: usize, now: SystemTime) -> Result<usize, HistoryError> {
        let mut removed = 0;
        for entry in self.list()?.entries.iter().skip(runs) {
            self.remove(&entry.id)?;
            removed += 1;
        }
        self.remove_leftovers(now)?;
        Ok(removed)
    }

    /// Prunes only if the history has over 10 % more than `runs` runs. Most calls therefore only list file names.
    pub fn prune_sometimes(&self, runs: usize, now: SystemTime) -> Result<usize, HistoryError> {
        let stored = self.file_names()?.iter().filter(|name| id_of(name, ENTRY_SUFFIX).is_some()).count();
        if stored > runs + runs / 10 { self.prune(runs, now) } else { Ok(0) }
    }

    /// Finds a run to remove, like [`find`](Self::find), but also a run that cannot be read: by its id or a file name.
    pub fn find_to_remove(&self, name: &str) -> Result<String, HistoryError> {
        let suffixes = [ENTRY_SUFFIX, RECORDING_SUFFIX, JOURNAL_SUFFIX];
        let names = self.file_names()?;
        let ids: BTreeSet<&str> =
            names.iter().filter_map(|name| suffixes.iter().find_map(|suffix| id_of(name, suffix))).collect();
        let exact = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name);
        if ids.contains(exact) {
            return Ok(exact.to_owned());
        }
        let starting: Vec<&str> = ids.into_iter().filter(|id| id.starts_with(name)).collect();
        match (self.find(name), &starting[..]) {
            // `last` or the name of a job.
            (Ok(entry), _) if !entry.id.starts_with(name) || entry.job.as_deref() == Some(name) => {
                Ok(entry.id)
            }
            (_, [id]) if !name.is_empty() => Ok((*id).to_owned()),
            (_, [_, _, ..]) if !name.is_empty() => {
                Err(HistoryError::Ambiguous { name: name.to_owned(), matches: starting.len() })
            }
            (found, _) => found.map(|entry| entry.id),
        }
    }

    fn remove_leftovers(&self, now: SystemTime) -> Result<(), HistoryError> {
        let names = self.file_names()?;
        let has_run = [ENTRY_SUFFIX, JOURNAL_SUFFIX];
        let known: HashSet<&str> =
            names.iter().filter_map(|name| has_run.iter().find_map(|suffix| id_of(name, suffix))).collect();
        let orphans = names
            .iter()
            .filter(|name| id_of(name, RECORDING_SUFFIX).is_some_and(|id| !known.contains(id)))
            .map(|name| self.directory.join(name));
        for path in orphans.chain(self.temporary_files()?) {
            // In a shared history, files of other users stay.
            let is_mine = fs::symlink_metadata(&path).is_ok_and(|found| os::is_mine(&found));
            let is_in_use =
                || os::open_regular_to_lock(&path).is_ok_and(|file| matches!(os::try_lock(&file), Ok(false)));
            if is_mine && is_leftover_age(&path, now) && !is_in_use() {
                remove_file(&path)?;
            }
        }
        Ok(())
    }

    /// Incomplete files: being written, or left by killed writers.
    pub(crate) fn temporary_files(&self) -> Result<Vec<PathBuf>, HistoryError> {
        let is_temporary = |name: &str| name.starts_with('.') && name.ends_with(TEMPORARY_SUFFIX);
        let names = self.file_names()?.into_iter();
        Ok(names
            .filter(|name| name.to_str().is_some_and(is_temporary))
            .map(|name| self.directory.join(name))
            .collect())
    }

    pub(crate) fn remove_journal(&self, id: &str) -> Result<(), HistoryError> {
        remove_file(&self.journal_path(id))
    }
}

/// Whether a file is so old that no running writer uses it; false if its age is unknown.
pub(crate) fn is_leftover_age(path: &Path, now: SystemTime) -> bool {
    let modified = fs::symlink_metadata(path).and_then(|metadata| metadata.modified());
    modified.is_ok_and(|modified| now.duration_since(modified).is_ok_and(|since| since > LEFTOVER_AGE))
}
