//! `fleet pull`: a copy of a dataset in another store.
//!
//! In:  two datasets. Out: the files of the first in the second. Files that are there already are not copied again.
//!
//! A file that the first store no longer has was merged by its `compact`. It is removed from the copy if all its runs are
//! in other files of the copy, so that the copy does not grow, and runs that were stored in the copy itself stay.

use std::collections::HashSet;

use super::dataset::{Dataset, DatasetError, RUNS, SAMPLES, relisted};
use super::store::Object;
use super::table::Table;

/// What `pull` has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pulled {
    pub copied_files: usize,
    pub removed_files: usize,
}

impl Dataset {
    /// Copies the files of the days from `since_s` on, in Unix seconds, to `copy`.
    pub fn pull(&self, copy: &Self, since_s: Option<f64>) -> Result<Pulled, DatasetError> {
        let mut done = Pulled::default();
        let days = self.days_since(since_s)?;
        for (number, day) in days.iter().enumerate() {
            // Samples come first, so that every run that is listed is complete.
            for (kind, id_column) in [(SAMPLES, "run_id"), (RUNS, "id")] {
                let folder = format!("{kind}/{day}");
                let files = self.copy_files(copy, &folder, &mut done)?;
                copy.remove_merged(&folder, id_column, &files, &mut done)?;
            }
            self.report_progress(number + 1, days.len());
        }
        Ok(done)
    }

    /// Copies the missing files of a folder, and returns what the folder has.
    fn copy_files(&self, copy: &Self, folder: &str, done: &mut Pulled) -> Result<Vec<Object>, DatasetError> {
        relisted(|| {
            let mut files = self.files(folder)?;
            let present: HashSet<Object> = copy.files(folder)?.into_iter().collect();
            let missing: Vec<Object> = files.iter().filter(|file| !present.contains(file)).cloned().collect();
            let copied = self.each(&missing, |file| {
                let key = format!("{folder}/{}", file.name);
                match self.store.get(&key) {
                    Ok(content) => Ok(copy.store.put(&key, &content).map(|()| None)?),
                    Err(error) if error.is_of_object() => Ok(Some(error)),
                    Err(error) => Err(error.into()),
                }
            })?;
            for (file, failed) in missing.iter().zip(copied) {
                match failed {
                    None => done.copied_files += 1,
                    Some(error) => {
                        self.leave_out(format!("{folder}/{}", file.name), &error.into());
                        files.retain(|other| other != file);
                    }
                }
            }
            Ok(files)
        })
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
        let ids = |table: Table| -> HashSet<String> {
            (0..table.len()).filter_map(|row| table.text(id_column, row)).map(str::to_owned).collect()
        };
        let kept = self.read_all(folder, files, &[id_column], ids)?;
        let kept: HashSet<String> = kept.into_iter().flat_map(|(_, ids)| ids).collect();
        for (file, found) in self.read_all(folder, &stale, &[id_column], ids)? {
            if found.is_subset(&kept) {
                self.store.remove(&format!("{folder}/{}", file.name))?;
                done.removed_files += 1;
            }
        }
        Ok(())
    }
}
