//! Recordings of trackers that died: what they left behind is not lost.
//!
//! In:  journals, in the history or among temporary files, whose writer is gone. Out: recordings like any other, whose status says so.
//! Not here: what a journal holds (`journal`), how a run is kept (`history`).

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::Map;

use crate::history::{Entry, History, HistoryError};
use crate::journal::{Reader, notes_path};
use crate::metric::Metric;
use crate::record::Rows;
use crate::recording::{Head, Metadata, Run, Status};
use crate::source;
use crate::summary::{Scope, Summary};
use crate::sys;

/// What a journal says about its recording.
#[derive(Deserialize)]
struct About {
    metadata: Metadata,
    #[serde(default)]
    run: Run,
    tracker: Writer,
}

#[derive(Deserialize)]
struct Writer {
    pid: u32,
    start_ticks: Option<u64>,
    /// Not in journals of old.
    #[serde(default)]
    pid_namespace: Option<String>,
}

/// What stands before and after process and id in the name of a journal among temporary files.
const TEMPORARY_PREFIX: &str = "resource-tracker-";
const TEMPORARY_SUFFIX: &str = ".journal";

/// A session of R has a folder of its own for temporary files, whose name starts so; one that was killed leaves it.
const OF_R: &str = "Rtmp";

/// Makes recordings of all journals in `history` whose trackers died; their ids.
///
/// A journal that cannot be read stays where it is, for whoever wants to look at it.
///
/// # Errors
/// When the history cannot be read or written.
pub fn recover(history: &History) -> Result<Vec<String>, HistoryError> {
    let mut recovered = Vec::new();
    for id in history.unfinished()? {
        if recover_one(history, &id, &history.journal_path(&id))? {
            recovered.push(id);
        }
    }
    Ok(recovered)
}

/// The same for journals that programs with a tracker inside left in a folder for temporary files when they were killed.
///
/// # Errors
/// When the history cannot be written.
pub fn recover_temporary(history: &History, folder: &Path) -> Result<Vec<String>, HistoryError> {
    let mut recovered = recover_files(history, folder)?;
    // A folder that cannot be read has nothing for us.
    for file in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_of_r = file.file_name().to_str().is_some_and(|name| name.starts_with(OF_R));
        if is_of_r && file.metadata().is_ok_and(|found| found.is_dir() && sys::is_own_file(&found)) {
            recovered.extend(recover_files(history, &file.path())?);
        }
    }
    Ok(recovered)
}

fn recover_files(history: &History, folder: &Path) -> Result<Vec<String>, HistoryError> {
    let mut recovered = Vec::new();
    for file in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = file.file_name();
        let Some(id) = name.to_str().and_then(temporary_id) else { continue };
        // Anybody may write into such a folder; only what is our own is believed.
        let is_ours = file.metadata().is_ok_and(|found| found.is_file() && sys::is_own_file(&found));
        if is_ours && recover_one(history, id, &file.path())? {
            recovered.push(id.to_owned());
        }
    }
    Ok(recovered)
}

/// The name of a journal among temporary files; it tells whose it is without opening it.
#[must_use]
pub fn temporary_name(pid: u32, id: &str) -> String {
    format!("{TEMPORARY_PREFIX}{pid}-{id}{TEMPORARY_SUFFIX}")
}

fn temporary_id(name: &str) -> Option<&str> {
    let (_, id) = name.strip_prefix(TEMPORARY_PREFIX)?.strip_suffix(TEMPORARY_SUFFIX)?.split_once('-')?;
    (id.len() == 12 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(id)
}

/// No row for an hour, and for longer than rows take to come.
fn is_silent(path: &Path, interval_s: f64) -> bool {
    let age = fs::metadata(path).and_then(|found| found.modified()).ok().and_then(|then| then.elapsed().ok());
    age.is_some_and(|age| age.as_secs_f64() > 3600.0 + 2.0 * interval_s)
}

/// Whether there was a recording to make of this journal; one whose tracker runs, or cannot be asked for, is left alone.
fn recover_one(history: &History, id: &str, path: &Path) -> Result<bool, HistoryError> {
    let Ok(mut reader) = Reader::open(path) else { return Ok(false) };
    let Ok(about) = serde_json::from_value::<About>(reader.recording.clone()) else { return Ok(false) };
    let Writer { pid, start_ticks, pid_namespace } = &about.tracker;
    let is_elsewhere = pid_namespace.is_some() && *pid_namespace != source::pid_namespace();
    // Of a tracker in another container or on another machine only its silence tells that it has ended.
    if is_elsewhere && !is_silent(path, about.metadata.interval) {
        return Ok(false);
    }
    if !is_elsewhere && !start_ticks.is_some_and(|then| source::is_gone(*pid, then)) {
        return Ok(false);
    }
    let (head, summary) = sum_up(about, &mut reader);
    let rows = Rows::of(path.to_owned());
    let entry = Entry::new(id, &head, summary.stats().ok());
    match history.store(&entry, |file| rows.write_snapshot(file, &head)) {
        // Dropped, `rows` removes the journal.
        Ok(_) => {
            let _ = fs::remove_file(notes_path(path));
            Ok(true)
        }
        Err(error) => {
            let _ = rows.keep();
            Err(error)
        }
    }
}

/// The head as it would have been, and the figures, from one pass over the rows.
fn sum_up(about: About, reader: &mut Reader) -> (Head, Summary) {
    let About { mut metadata, mut run, .. } = about;
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
            reason = "a pid, as the tracker wrote it"
        )]
        if let Some(pid) = row.get(Metric::Pid) {
            metadata.pid = pid as u32;
        }
    }
    let (status, note) = if reader.is_closed() {
        (Status::Detached, "the program stopped this recording and ended before it was done with it")
    } else {
        (Status::TrackerDied, "the tracker died before the job ended: rows after that are missing")
    };
    run.status = Some(status);
    run.coverage = summary.coverage();
    run.notes.push(note.to_owned());
    (Head { metadata, server_info: None, cloud_info: None, run: Some(run), other: Map::new() }, summary)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::config::Config;
    use crate::journal::Journal;

    #[test]
    fn a_name_tells_the_id_and_other_files_have_none() {
        assert_eq!(temporary_id(&temporary_name(42, "0123456789ab")), Some("0123456789ab"));
        for other in
            ["resource-tracker-1-xyz.journal", "resource-tracker-1.journal", "a-1-0123456789ab.journal", ""]
        {
            assert_eq!(temporary_id(other), None, "{other}");
        }
    }

    #[test]
    fn only_the_journals_of_dead_trackers_that_we_could_see_are_taken() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::at(folder.path().join("history"));
        let metadata =
            serde_json::to_value(crate::record::head(&Config::default(), 7, 0.0, Run::default()).metadata);
        let metadata = metadata.unwrap();
        let of_r = folder.path().join("Rtmp0Abc1d");
        fs::create_dir(&of_r).unwrap();
        let leave_in = |folder: &Path, id: &str, tracker: Value| {
            let about = json!({"metadata": &metadata, "tracker": tracker});
            let path = folder.join(temporary_name(7, id));
            drop(Journal::create(&path, about, true).unwrap());
            path
        };
        let leave = |id: &str, tracker: Value| leave_in(folder.path(), id, tracker);
        let own = std::process::id();
        let here = source::pid_namespace();
        let gone = json!({"pid": own, "start_ticks": 1, "pid_namespace": here});
        let left_by_r = leave_in(&of_r, "00000000000a", gone.clone());
        let dead = leave("00000000dead", gone);
        let alive = leave(
            "0000000a11fe",
            json!({"pid": own, "start_ticks": source::process_start(own), "pid_namespace": here}),
        );
        let elsewhere =
            leave("0000000e15e0", json!({"pid": own, "start_ticks": 1, "pid_namespace": "pid:[1]"}));
        // The first namespace of another machine has the name of ours.
        let name = here.as_deref().map_or("pid:[2]", |here| here.split(' ').next().unwrap_or(here));
        let machine = leave("000000ac4111", json!({"pid": own, "start_ticks": 1, "pid_namespace": name}));
        let mut recovered = recover_temporary(&history, folder.path()).unwrap();
        recovered.sort();
        assert_eq!(recovered, ["00000000000a", "00000000dead"]);
        assert_eq!((dead.exists(), alive.exists(), elsewhere.exists()), (false, true, true));
        assert!(machine.exists());
        assert_eq!((left_by_r.exists(), history.list().unwrap().entries.len()), (false, 2));
    }
}
