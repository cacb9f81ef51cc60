//! Removes old runs from the history, and files that killed writers left.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::{ENTRY_SUFFIX, History, HistoryError, RECORDING_SUFFIX, TEMPORARY_SUFFIX, id_of, remove_file};

/// Minimum age before a file without an entry is removed. A writer may still use a younger file.
pub(super) const LEFTOVER_AGE: Duration = Duration::from_hours(24);

impl History {
    /// Keeps the newest `runs` runs and removes all others. Also removes old files of killed writers.
    pub fn prune(&self, runs: usize, now: SystemTime) -> Result<(), HistoryError> {
        for entry in self.list()?.entries.iter().skip(runs) {
            self.remove(&entry.id)?;
        }
        self.remove_leftovers(now)
    }

    /// Prunes only if the history has over 10 % more than `runs` runs. Most calls therefore only list file names.
    pub fn prune_sometimes(&self, runs: usize, now: SystemTime) -> Result<(), HistoryError> {
        let stored = self.file_names()?.iter().filter(|name| id_of(name, ENTRY_SUFFIX).is_some()).count();
        if stored > runs + runs / 10 { self.prune(runs, now) } else { Ok(()) }
    }

    fn remove_leftovers(&self, now: SystemTime) -> Result<(), HistoryError> {
        let names = self.file_names()?;
        let listed: HashSet<&str> = names.iter().filter_map(|name| id_of(name, ENTRY_SUFFIX)).collect();
        for name in &names {
            let temporary =
                name.to_str().is_some_and(|name| name.starts_with('.') && name.ends_with(TEMPORARY_SUFFIX));
            let orphan = id_of(name, RECORDING_SUFFIX).is_some_and(|id| !listed.contains(id));
            let path = self.directory.join(name);
            if (temporary || orphan) && is_older(&path, now, LEFTOVER_AGE) {
                remove_file(&path)?;
            }
        }
        Ok(())
    }
}

/// Whether a file is older than `age`; false if its age is unknown.
fn is_older(path: &Path, now: SystemTime, age: Duration) -> bool {
    let modified = fs::symlink_metadata(path).and_then(|metadata| metadata.modified());
    modified.is_ok_and(|modified| now.duration_since(modified).is_ok_and(|since| since > age))
}
