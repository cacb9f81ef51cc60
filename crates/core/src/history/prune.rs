//! What leaves the history again: runs that are not to be kept, and what killed writers left.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{ASIDE_SUFFIX, ENTRY_SUFFIX, History, HistoryError, RECORDING_SUFFIX, id_of, remove_file};

/// Files without an entry are being written, unless they are older than any write takes.
pub(super) const LEFTOVER_AGE: Duration = Duration::from_hours(24);

/// What to keep. `None` keeps all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// So many of the newest.
    pub runs: Option<usize>,
    /// Those that started no longer ago than this.
    pub age: Option<Duration>,
}

impl History {
    /// Forgets runs that are not to be kept, and what killed writers left; says how many runs.
    ///
    /// # Errors
    ///
    /// When the directory cannot be read or a file not removed.
    pub fn prune(&self, keep: Keep, now: SystemTime) -> Result<usize, HistoryError> {
        let entries = self.list()?.entries;
        let now_s = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let mut removed = 0;
        for (number, entry) in entries.iter().enumerate() {
            let age_s = entry.start_time.map(|start_time| now_s - start_time);
            let too_many = keep.runs.is_some_and(|runs| number >= runs);
            let too_old = keep.age.zip(age_s).is_some_and(|(age, age_s)| age_s > age.as_secs_f64());
            if too_many || too_old {
                self.remove(&entry.id)?;
                removed += 1;
            }
        }
        self.remove_leftovers(now)?;
        Ok(removed)
    }

    /// As [`prune`](Self::prune), but does nothing before there are a tenth more runs than are kept: a look at the
    /// names is all that it costs at the end of most runs.
    ///
    /// # Errors
    ///
    /// Those of `prune`.
    pub fn prune_sometimes(&self, runs: usize, now: SystemTime) -> Result<usize, HistoryError> {
        let kept = self.file_names()?.iter().filter(|name| id_of(name, ENTRY_SUFFIX).is_some()).count();
        if kept <= runs + runs / 10 {
            return Ok(0);
        }
        self.prune(Keep { runs: Some(runs), age: None }, now)
    }

    fn remove_leftovers(&self, now: SystemTime) -> Result<(), HistoryError> {
        let names = self.file_names()?;
        let listed: HashSet<&str> = names.iter().filter_map(|name| id_of(name, ENTRY_SUFFIX)).collect();
        for name in &names {
            let aside =
                name.to_str().is_some_and(|name| name.starts_with('.') && name.ends_with(ASIDE_SUFFIX));
            let orphan = id_of(name, RECORDING_SUFFIX).is_some_and(|id| !listed.contains(id));
            let path = self.directory.join(name);
            if (aside || orphan) && is_older(&path, now, LEFTOVER_AGE) {
                remove_file(&path)?;
            }
        }
        Ok(())
    }
}

/// A file that cannot be asked may be anything, so it stays.
fn is_older(path: &Path, now: SystemTime, age: Duration) -> bool {
    let modified = fs::symlink_metadata(path).and_then(|metadata| metadata.modified());
    modified.is_ok_and(|modified| now.duration_since(modified).is_ok_and(|since| since > age))
}
