//! `fleet pull`: a copy of a dataset in another store.
//!
//! In:  two datasets. Out: the files of the first in the second. Files that are there already are not copied again.
//!
//! A file that the first store no longer has was merged by its `compact`. It is removed from the copy if all its runs are
//! in other files of the copy, so that the copy does not grow, and runs that were stored in the copy itself stay.

use std::collections::HashSet;

use super::dataset::{Dataset, DatasetError, MOST_LISTINGS, RUNS, SAMPLES, day_of};
use super::store::Object;

/// What `pull` has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pulled {
    pub copied_files: usize,
    pub removed_files: usize,
}

impl Dataset {
    /// Copies the files of the days from `since_s` on, in Unix seconds, to `copy`. Calls `progress` for each day.
    pub fn pull(
        &self,
        copy: &Self,
        since_s: Option<f64>,
        mut progress: impl FnMut(&str),
    ) -> Result<Pulled, DatasetError> {
        let mut done = Pulled::default();
        let first_day = since_s.map(day_of);
        for day in self.days()?.iter().filter(|day| first_day.as_ref().is_none_or(|first| *day >= first)) {
            progress(day);
            // Samples come first, so that every run that is listed is complete.
            for (kind, id_column) in [(SAMPLES, "run_id"), (RUNS, "id")] {
                let folder = format!("{kind}/{day}");
                let files = self.copy_files(copy, &folder, &mut done)?;
                copy.remove_merged(&folder, id_column, &files, &mut done)?;
            }
        }
        Ok(done)
    }

    /// Copies the missing files of a folder, and returns what the folder has.
    fn copy_files(&self, copy: &Self, folder: &str, done: &mut Pulled) -> Result<Vec<Object>, DatasetError> {
        let mut listings = 0;
        loop {
            listings += 1;
            let files = self.files(folder)?;
            let present: HashSet<Object> = copy.files(folder)?.into_iter().collect();
            let missing: Vec<Object> = files.iter().filter(|file| !present.contains(file)).cloned().collect();
            let copied = self.each(&missing, |file| {
                let key = format!("{folder}/{}", file.name);
                Ok(copy.store.put(&key, &self.store.get(&key)?, false)?)
            });
            match copied {
                Err(DatasetError::Store(error)) if error.is_not_found() && listings < MOST_LISTINGS => {}
                copied => {
                    done.copied_files += copied?.len();
                    return Ok(files);
                }
            }
        }
    }

    fn remove_merged(
        &self,
        folder: &str,
        id_column: &str,
        files: &[Object],
        done: &mut Pulled,
    ) -> Result<(), DatasetError> {
        let names: HashSet<&str> = files.iter().map(|file| file.name.as_str()).collect();
        let mut stale = self.files(folder)?;
        stale.retain(|file| !names.contains(file.name.as_str()));
        if stale.is_empty() {
            return Ok(());
        }
        let ids = |file: &Object| -> Result<HashSet<String>, DatasetError> {
            let table = self.read(&format!("{folder}/{}", file.name), &[id_column])?;
            Ok((0..table.len()).filter_map(|row| table.text(id_column, row)).map(str::to_owned).collect())
        };
        let kept: HashSet<String> = self.each(files, ids)?.into_iter().flatten().collect();
        for file in stale {
            if ids(&file)?.is_subset(&kept) {
                self.store.remove(&format!("{folder}/{}", file.name))?;
                done.removed_files += 1;
            }
        }
        Ok(())
    }
}
