//! Recovery: creates recordings from the journals of trackers that died.
//!
//! In:  journals in the history and in folders for temporary files. Out: recordings in the history, with a status and a
//! note about what happened.
//! Not here: the format of a journal (`journal`), files of the history (`history`).

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::Map;

use crate::metric::Metric;
use crate::store::history::{Entry, History, HistoryError};
use crate::store::journal::Reader;
use crate::store::recording::{Head, Metadata, Run, Status};
use crate::store::rows::{Rows, temporary_id};
use crate::store::summary::{Scope, Summary};
use crate::{os, probe};

/// Description of a recording, written by `Rows::describe`.
#[derive(Deserialize)]
struct Description {
    metadata: Metadata,
    #[serde(default)]
    run: Run,
    tracker: Writer,
}

#[derive(Deserialize)]
struct Writer {
    pid: u32,
    start_ticks: Option<u64>,
    /// `None` in journals of older versions.
    #[serde(default)]
    pid_namespace: Option<String>,
}

/// Name prefix of the temporary folder of an R session. A killed session does not remove this folder.
const R_FOLDER_PREFIX: &str = "Rtmp";

impl History {
    /// Recovers the journals of dead trackers in this history and returns the ids. Unreadable journals are kept.
    pub fn recover(&self) -> Result<Vec<String>, HistoryError> {
        let mut recovered = Vec::new();
        for id in self.unfinished()? {
            if recover_one(self, &id, &self.journal_path(&id))? {
                recovered.push(id);
            }
        }
        Ok(recovered)
    }

    /// Recovers journals in a folder for temporary files, to which trackers in in-process mode write.
    pub fn recover_temporary(&self, folder: &Path) -> Result<Vec<String>, HistoryError> {
        let mut recovered = recover_files(self, folder)?;
        for file in fs::read_dir(folder).into_iter().flatten().flatten() {
            let is_of_r = file.file_name().to_str().is_some_and(|name| name.starts_with(R_FOLDER_PREFIX));
            if is_of_r && file.metadata().is_ok_and(|found| found.is_dir() && os::is_own_file(&found)) {
                recovered.extend(recover_files(self, &file.path())?);
            }
        }
        Ok(recovered)
    }
}

/// Recovers the journals in a folder. An unreadable folder counts as empty.
fn recover_files(history: &History, folder: &Path) -> Result<Vec<String>, HistoryError> {
    let mut recovered = Vec::new();
    for file in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = file.file_name();
        let Some(id) = name.to_str().and_then(temporary_id) else { continue };
        // Files of other users are skipped: every user can write to the folder for temporary files.
        let is_own = file.metadata().is_ok_and(|found| found.is_file() && os::is_own_file(&found));
        if is_own && recover_one(history, id, &file.path())? {
            recovered.push(id.to_owned());
        }
    }
    Ok(recovered)
}

/// Whether the journal got no row for more than an hour and two intervals.
fn is_silent(path: &Path, interval_s: f64) -> bool {
    let age = fs::metadata(path).and_then(|found| found.modified()).ok().and_then(|then| then.elapsed().ok());
    age.is_some_and(|age| age.as_secs_f64() > 3600.0 + 2.0 * interval_s)
}

/// Recovers one journal; `false` if it is unreadable or its tracker may still run.
fn recover_one(history: &History, id: &str, path: &Path) -> Result<bool, HistoryError> {
    let Ok(mut reader) = Reader::open(path) else { return Ok(false) };
    let Ok(description) = serde_json::from_value::<Description>(reader.recording.clone()) else {
        return Ok(false);
    };
    let Writer { pid, start_ticks, pid_namespace } = &description.tracker;
    let is_elsewhere = pid_namespace.is_some() && *pid_namespace != probe::pid_namespace();
    // A tracker in another container or on another machine is not visible, so the age of its journal decides.
    if is_elsewhere && !is_silent(path, description.metadata.interval) {
        return Ok(false);
    }
    if !is_elsewhere && !start_ticks.is_some_and(|then| probe::is_gone(*pid, then)) {
        return Ok(false);
    }
    let (head, summary) = sum_up(description, &mut reader);
    let rows = Rows::of(path.to_owned());
    let entry = Entry::new(id, &head, summary.stats().ok());
    match history.store(&entry, |file| rows.write_snapshot(file, &head)) {
        // Dropping `rows` removes the journal.
        Ok(_) => Ok(true),
        Err(error) => {
            let _ = rows.leave_on_disk();
            Err(error)
        }
    }
}

/// Computes the final head and the statistics in one pass over the rows.
fn sum_up(description: Description, reader: &mut Reader) -> (Head, Summary) {
    let Description { mut metadata, mut run, .. } = description;
    let mut summary = Summary::new(Scope {
        process: metadata.track_processes,
        system: metadata.track_system,
        start_time: metadata.start_time,
        interval_s: metadata.interval,
    });
    let mut last = None;
    for row in reader.by_ref() {
        summary.add(&row);
        last = Some(row);
    }
    if let Some(row) = last {
        if let Some(time) = row.get(Metric::Timestamp) {
            metadata.set_stop_time(time);
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the tracker wrote a pid"
        )]
        if let Some(pid) = row.get(Metric::Pid) {
            metadata.pid = pid as u32;
        }
    }
    let (status, note) = if reader.is_closed() {
        (Status::Detached, "the program stopped the tracker and exited before the recording was saved")
    } else {
        (Status::TrackerDied, "the tracker died before the job ended; later rows are missing")
    };
    run.status = Some(status);
    run.coverage = summary.coverage();
    run.notes.push(note.to_owned());
    run.notes.extend(reader.implausible().map(|number| format!("the journal is damaged: {number}")));
    (Head { metadata, server_info: None, cloud_info: None, run: Some(run), other: Map::new() }, summary)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::config::Config;
    use crate::store::journal::Journal;
    use crate::store::rows::temporary_name;

    #[test]
    fn temporary_name_contains_the_id() {
        assert_eq!(temporary_id(&temporary_name(42, "0123456789ab")), Some("0123456789ab"));
        for other in
            ["resource-tracker-1-xyz.journal", "resource-tracker-1.journal", "a-1-0123456789ab.journal", ""]
        {
            assert_eq!(temporary_id(other), None, "{other}");
        }
    }

    #[test]
    fn only_journals_of_visible_dead_trackers_are_recovered() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::at(folder.path().join("history"));
        let metadata = serde_json::to_value(Head::new(&Config::default(), 7, 0.0, Run::default()).metadata);
        let metadata = metadata.unwrap();
        let of_r = folder.path().join("Rtmp0Abc1d");
        fs::create_dir(&of_r).unwrap();
        let leave_in = |folder: &Path, id: &str, tracker: Value| {
            let description = json!({"metadata": &metadata, "tracker": tracker});
            let path = folder.join(temporary_name(7, id));
            drop(Journal::create(&path, description, true).unwrap());
            path
        };
        let leave = |id: &str, tracker: Value| leave_in(folder.path(), id, tracker);
        let own = std::process::id();
        let here = probe::pid_namespace();
        let gone = json!({"pid": own, "start_ticks": 1, "pid_namespace": here});
        let left_by_r = leave_in(&of_r, "00000000000a", gone.clone());
        let dead = leave("00000000dead", gone);
        let alive = leave(
            "0000000a11fe",
            json!({"pid": own, "start_ticks": probe::process_start(own), "pid_namespace": here}),
        );
        let elsewhere =
            leave("0000000e15e0", json!({"pid": own, "start_ticks": 1, "pid_namespace": "pid:[1]"}));
        // The namespace on another machine has the same name, but another boot id.
        let name = here.as_deref().map_or("pid:[2]", |here| here.split(' ').next().unwrap_or(here));
        let machine = leave("000000ac4111", json!({"pid": own, "start_ticks": 1, "pid_namespace": name}));
        let mut recovered = history.recover_temporary(folder.path()).unwrap();
        recovered.sort();
        assert_eq!(recovered, ["00000000000a", "00000000dead"]);
        assert_eq!((dead.exists(), alive.exists(), elsewhere.exists()), (false, true, true));
        assert!(machine.exists());
        assert_eq!((left_by_r.exists(), history.list().unwrap().entries.len()), (false, 2));
    }
}
