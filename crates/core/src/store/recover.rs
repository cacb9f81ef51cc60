//! Recovery: creates recordings from the journals of trackers that died.
//!
//! In:  journals in the history and in folders for temporary files. Out: recordings in the history, with a status and a
//! note about what happened.
//! Not here: the format of a journal (`journal`), files of the history (`history`).
//!
//! A journal belongs to the user who owns the file, and to its tracker (and the host process of a sidecar) while that
//! lives. `list` of another user, of another history or of another machine must not take it away:
//!
//! | the tracker | decides |
//! |---|---|
//! | keeps its journal open | the lock of the file, which the kernel frees when the tracker ends |
//! | runs in this PID namespace | pid and start time |
//! | ran before the last boot, on a local disk | the boot id |
//! | may be elsewhere (a container, another machine) | nothing: the journal is never removed |
//!
//! Recovery has the lock of the journal, so that two recoveries do not disturb each other. A recording that is complete
//! is never replaced.

use std::fs::{self, File};
use std::path::Path;
use std::time::SystemTime;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::metric::Metric;
use crate::os::output::remove_if_dead;
use crate::os::paths;
use crate::sampler::marks::marks_beside;
use crate::sampler::phases::Replay;
use crate::store::history::{Entry, History, HistoryError, is_leftover_age};
use crate::store::journal::Reader;
use crate::store::recording::{Head, Metadata, Recording, Run, Status};
use crate::store::rows::{Rows, temporary_id};
use crate::store::summary::{Scope, Summary};
use crate::{os, probe};

/// Description of a recording, written by `Rows::describe`.
#[derive(Deserialize)]
struct Description {
    metadata: Metadata,
    #[serde(default)]
    run: Run,
    tracker: Process,
    /// The process that reads the journal, if the tracker is a sidecar.
    #[serde(default)]
    host: Option<Process>,
    /// Namespace of the pids, and the boot id.
    #[serde(default)]
    pid_namespace: Option<String>,
    /// The history of the user who recorded.
    #[serde(default)]
    history: Option<String>,
}

#[derive(Deserialize)]
struct Process {
    pid: u32,
    start_ticks: Option<u64>,
}

impl Process {
    fn is_gone(&self) -> bool {
        self.start_ticks.is_some_and(|then| probe::is_gone(self.pid, then))
    }
}

/// The end of a finished run whose recording could not be saved, written by `Rows::leave_finished`.
#[derive(Deserialize)]
struct Finished {
    run: Run,
    /// Only if the disk had room for the whole head.
    metadata: Option<Metadata>,
    server_info: Option<Map<String, Value>>,
    cloud_info: Option<Map<String, Value>>,
}

/// Whether the processes that use a journal have ended.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Alive,
    Dead,
    /// They are in another container or on another machine.
    Unknown,
}

/// Name prefix of the temporary folder of an R session. A killed session does not remove this folder.
const R_FOLDER_PREFIX: &str = "Rtmp";

impl History {
    /// Recovers the journals of dead trackers in this history and returns the ids. Unreadable journals are kept. Removes
    /// temporary files of killed writers.
    pub fn recover(&self) -> Result<Vec<String>, HistoryError> {
        let mut recovered = Vec::new();
        for id in self.unfinished()? {
            if recover_one(self, &id, &self.journal_path(&id), false)? {
                recovered.push(id);
            }
        }
        for file in self.temporary_files()? {
            remove_if_dead(&file);
        }
        Ok(recovered)
    }

    /// Recovers journals in the folders for temporary files, to which trackers in in-process mode write.
    pub fn recover_temporary(&self) -> Result<Vec<String>, HistoryError> {
        let mut recovered = Vec::new();
        for folder in paths::folders_for_temporary_files(&std::env::temp_dir()) {
            recovered.extend(self.recover_folder(&folder)?);
        }
        Ok(recovered)
    }

    fn recover_folder(&self, folder: &Path) -> Result<Vec<String>, HistoryError> {
        let mut recovered = recover_files(self, folder)?;
        for file in fs::read_dir(folder).into_iter().flatten().flatten() {
            let is_of_r = file.file_name().to_str().is_some_and(|name| name.starts_with(R_FOLDER_PREFIX));
            if is_of_r && file.metadata().is_ok_and(|found| found.is_dir() && os::is_mine(&found)) {
                recovered.extend(recover_files(self, &file.path())?);
            }
        }
        Ok(recovered)
    }

    /// Removes a run and its journal, unless the run is still being recorded.
    pub fn remove_with_journal(&self, id: &str) -> Result<(), HistoryError> {
        let journal = self.journal_path(id);
        let is_alive = match lock(&journal) {
            Lock::Missing => false,
            Lock::InUse => true,
            Lock::Locked(lock) => read(&journal)
                .is_some_and(|(reader, about)| fate(&lock, reader.is_locked, &about) == Fate::Alive),
        };
        if is_alive {
            return Err(HistoryError::Running { id: id.to_owned() });
        }
        self.remove(id)?;
        self.remove_journal(id)
    }
}

/// Recovers the journals in a folder. An unreadable folder counts as empty.
fn recover_files(history: &History, folder: &Path) -> Result<Vec<String>, HistoryError> {
    let mut recovered = Vec::new();
    for file in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = file.file_name();
        let Some(id) = name.to_str().and_then(temporary_id) else { continue };
        if recover_one(history, id, &file.path(), true)? {
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

enum Lock {
    Missing,
    /// Another process has the lock.
    InUse,
    Locked(File),
}

/// Opens and locks a journal.
fn lock(path: &Path) -> Lock {
    let Ok(file) = os::open_regular_to_lock(path) else { return Lock::Missing };
    // On a file system without locks, two recoveries at the same time write the same recording.
    if !os::try_lock(&file).unwrap_or(true) {
        return Lock::InUse;
    }
    // Another recovery may have removed the file in the meantime.
    let is_removed = file.metadata().is_ok_and(|found| os::is_removed(&found));
    if is_removed { Lock::Missing } else { Lock::Locked(file) }
}

fn read(path: &Path) -> Option<(Reader, Description)> {
    let reader = Reader::open(path).ok()?;
    let description = serde_json::from_value(reader.recording.clone()).ok()?;
    Some((reader, description))
}

/// Whether the users of a journal have ended; `lock` is the journal, which nobody else has locked.
fn fate(lock: &File, is_locked_by_writer: bool, about: &Description) -> Fate {
    let here = probe::pid_namespace();
    let boot = |namespace: &Option<String>| Some(namespace.as_ref()?.split_once(' ')?.1.to_owned());
    let boots = boot(&here).zip(boot(&about.pid_namespace));
    let is_local = os::is_on_local_disk(lock);
    let is_this_boot = boots.as_ref().is_some_and(|(here, there)| here == there);
    let is_lock_known = os::try_lock(lock).is_ok() && (is_local || is_this_boot);
    if is_locked_by_writer && is_lock_known && about.host.is_none() {
        Fate::Dead
    } else if about.pid_namespace == here {
        let is_gone = about.tracker.is_gone() && about.host.as_ref().is_none_or(Process::is_gone);
        if is_gone { Fate::Dead } else { Fate::Alive }
    } else if boots.is_some_and(|(here, there)| here != there) && is_local {
        Fate::Dead
    } else {
        Fate::Unknown
    }
}

/// Recovers one journal; `false` if it is unreadable, its tracker may still run, or it belongs to another history.
fn recover_one(history: &History, id: &str, path: &Path, is_temporary: bool) -> Result<bool, HistoryError> {
    // Root could read the journals of all users.
    if !fs::symlink_metadata(path).is_ok_and(|found| os::is_mine(&found)) {
        return Ok(false);
    }
    let Lock::Locked(lock) = lock(path) else { return Ok(false) };
    let Some((mut reader, description)) = read(path) else {
        // A tracker that is killed at its start leaves an empty file.
        if lock.metadata().is_ok_and(|found| found.len() == 0) && is_leftover_age(path, SystemTime::now()) {
            let _ = fs::remove_file(path);
        }
        return Ok(false);
    };
    let is_of_this_history =
        description.history.as_ref().is_none_or(|name| *name == history.directory().to_string_lossy());
    let fate = fate(&lock, reader.is_locked, &description);
    if fate == Fate::Alive || (is_temporary && !is_of_this_history) {
        return Ok(false);
    }
    let rows = Rows::of_locked(path.to_owned(), lock);
    let finish = |rows: Rows| {
        // Dropping `rows` removes the journal.
        if fate == Fate::Unknown { drop(rows.leave_on_disk()) } else { drop(rows) }
    };
    if is_complete(history, id)? {
        finish(rows);
        return Ok(false);
    }
    let is_known = history.entry(id).is_ok();
    if fate == Fate::Unknown && (is_known || !is_silent(path, description.metadata.interval)) {
        let _ = rows.leave_on_disk();
        return Ok(false);
    }
    let (head, summary) = sum_up(description, &mut reader, Replay::open(marks_beside(path)), fate);
    let entry = Entry::new(id, &head, &summary);
    match history.store(&entry, |file| rows.write_snapshot(file, &head)) {
        Ok(_) => finish(rows),
        Err(error) => {
            let _ = rows.leave_on_disk();
            return Err(error);
        }
    }
    Ok(true)
}

/// Whether the recording of a run is complete: its tracker was killed after it had saved the recording. The entry, which
/// is saved last, may be missing.
fn is_complete(history: &History, id: &str) -> Result<bool, HistoryError> {
    let is_final = |status: Option<&Status>| status.is_some_and(|status| *status != Status::TrackerDied);
    if history.entry(id).is_ok_and(|entry| is_final(entry.status.as_ref())) {
        return Ok(true);
    }
    let path = history.recording_path(id);
    if !fs::metadata(&path).is_ok_and(|found| found.is_file()) {
        return Ok(false);
    }
    let Ok(recording) = Recording::load(&path) else { return Ok(false) };
    if !is_final(recording.head.run.as_ref().and_then(|run| run.status.as_ref())) {
        return Ok(false);
    }
    history.store_entry(&Entry::new(id, &recording.head, &recording.summary()))?;
    Ok(true)
}

/// Computes the final head and the statistics in one pass over the rows.
fn sum_up(description: Description, reader: &mut Reader, mut phases: Replay, fate: Fate) -> (Head, Summary) {
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
        phases.add(&row);
        last = Some(row);
    }
    let finished = reader.final_description().and_then(|text| serde_json::from_value::<Finished>(text).ok());
    if let Some(Finished { metadata: Some(metadata), run, server_info, cloud_info }) = finished {
        return (Head { metadata, server_info, cloud_info, run: Some(run), other: Map::new() }, summary);
    }
    if let Some(row) = last {
        if let Some(time) = row.get(Metric::Timestamp) {
            metadata.set_stop_time(time, summary.clock_step_s());
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
    let (status, note) = if let Some(Finished { run: ending, .. }) = finished {
        (run.exit_code, run.signal, run.oom_kills) = (ending.exit_code, ending.signal, ending.oom_kills);
        (ending.status, "the recording could not be written when the run ended; the last rows may be missing")
    } else if reader.is_closed() {
        (Some(Status::Detached), "the program stopped the tracker and exited before the recording was saved")
    } else if fate == Fate::Unknown {
        (
            Some(Status::TrackerDied),
            "no row for over an hour: the tracker, in another container or on another machine, may be dead",
        )
    } else {
        (Some(Status::TrackerDied), "the tracker died before the job ended; later rows are missing")
    };
    run.status = status;
    run.coverage = summary.coverage();
    (run.phases, run.marks) = phases.finish();
    run.notes.push(note.to_owned());
    run.notes.extend(reader.implausible().map(|number| format!("the journal is damaged: {number}")));
    (Head { metadata, server_info: None, cloud_info: None, run: Some(run), other: Map::new() }, summary)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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

    const ID: &str = "0123456789ab";

    /// A folder for temporary files and a history in it.
    struct Place {
        folder: tempfile::TempDir,
        history: History,
    }

    impl Place {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            Self { history: History::at(folder.path().join("history")), folder }
        }

        fn description(&self) -> Value {
            let head = Head::new(&Config::default(), 7, 0.0, Run::default());
            let mut description = Rows::describe(&head.metadata, &Run::default(), None);
            description["history"] = json!(self.history.directory());
            description
        }

        /// A description by a dead process of this namespace.
        fn dead(&self) -> Value {
            let mut description = self.description();
            description["tracker"]["start_ticks"] = json!(1);
            description
        }

        fn leave_in(folder: &Path, description: Value) -> std::path::PathBuf {
            let path = folder.join(temporary_name(7, &History::new_id()));
            drop(Journal::create(&path, description, true).unwrap());
            path
        }

        /// Recovers the temporary journals; returns whether the journal is gone, and the number of runs in the history.
        fn recover(&self, path: &Path) -> (bool, usize) {
            self.history.recover_folder(self.folder.path()).unwrap();
            (!path.exists(), self.history.list().unwrap().entries.len())
        }
    }

    fn make_old(path: &Path) {
        let then = SystemTime::now() - std::time::Duration::from_hours(3);
        File::options().append(true).open(path).unwrap().set_modified(then).unwrap();
    }

    #[test]
    fn journals_of_dead_trackers_are_recovered_and_those_of_live_ones_are_not() {
        let place = Place::new();
        let of_r = place.folder.path().join("Rtmp0Abc1d");
        fs::create_dir(&of_r).unwrap();
        let dead = Place::leave_in(&of_r, place.dead());
        assert_eq!(place.recover(&dead), (true, 1));
        let dead = Place::leave_in(place.folder.path(), place.dead());
        assert_eq!(place.recover(&dead), (true, 2));
        let alive = Place::leave_in(place.folder.path(), place.description());
        assert_eq!(place.recover(&alive), (false, 2));
        let mut of_live_host = place.dead();
        of_live_host["host"] = place.description()["tracker"].clone();
        let of_live_host = Place::leave_in(place.folder.path(), of_live_host);
        assert_eq!(
            place.recover(&of_live_host),
            (false, 2),
            "the host reads the journal of its dead sidecar"
        );
    }

    #[test]
    fn journal_of_another_history_or_user_is_left_alone() {
        let place = Place::new();
        let mut of_other_home = place.dead();
        of_other_home["history"] = json!("/home/other/.local/share/resource-tracker");
        let path = Place::leave_in(place.folder.path(), of_other_home);
        assert_eq!(place.recover(&path), (false, 0));
        let mut without_home = place.dead();
        without_home["history"] = Value::Null;
        let path = Place::leave_in(place.folder.path(), without_home);
        assert_eq!(place.recover(&path), (true, 1));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn journal_of_another_container_or_machine_is_never_removed() {
        let place = Place::new();
        let mut of_container = place.dead();
        let namespace = probe::pid_namespace().unwrap();
        let (_, boot_id) = namespace.split_once(' ').unwrap();
        of_container["pid_namespace"] = json!(format!("pid:[1] {boot_id}"));
        let path = Place::leave_in(place.folder.path(), of_container.clone());
        assert_eq!(place.recover(&path), (false, 0));
        make_old(&path);
        assert_eq!(place.recover(&path), (false, 1), "rows older than an hour are copied to the history");
        assert_eq!(place.recover(&path), (false, 1));
        fs::remove_file(&path).unwrap();

        let path = place.folder.path().join(temporary_name(7, ID));
        let writer = Journal::create(&path, of_container, false).unwrap();
        make_old(&path);
        assert_eq!(place.recover(&path), (false, 1), "a suspended tracker has the lock");
        drop(writer);
        assert_eq!(place.recover(&path), (true, 2), "the kernel of both containers frees the lock");

        let mut before_boot = place.dead();
        before_boot["pid_namespace"] = json!("pid:[1] another-boot");
        let path = Place::leave_in(place.folder.path(), before_boot);
        assert_eq!(place.recover(&path), (true, 3), "no other machine uses a local disk");
    }

    #[test]
    fn finished_run_is_not_overwritten() {
        for has_entry in [true, false] {
            let place = Place::new();
            let journal = place.folder.path().join(temporary_name(7, ID));
            drop(Journal::create(&journal, place.dead(), true).unwrap());
            let run = Run { status: Some(Status::Finished), exit_code: Some(0), ..Run::default() };
            let head = Head::new(&Config::default(), 7, 0.0, run);
            let rows = Rows::of(journal.clone());
            let entry = Entry::new(ID, &head, &Recording::new(head.clone()).summary());
            let recording = place.history.store(&entry, |file| rows.write_snapshot(file, &head)).unwrap();
            let _ = rows.leave_on_disk();
            let before = fs::read(&recording).unwrap();
            if !has_entry {
                fs::remove_file(place.history.directory().join(format!("{ID}.run"))).unwrap();
            }
            assert_eq!(place.recover(&journal), (true, 1));
            assert_eq!(fs::read(&recording).unwrap(), before);
            assert_eq!(place.history.entry(ID).unwrap().status, Some(Status::Finished));
        }
    }

    #[test]
    fn temporary_file_of_a_killed_writer_is_removed_and_that_of_a_live_one_is_not() {
        let place = Place::new();
        place.history.prepare().unwrap();
        let path = place.history.recording_path(ID);
        let create = || {
            let mut options = fs::OpenOptions::new();
            os::output::create_temporary(options.write(true), &path, &format!(".{ID}-").into()).unwrap()
        };
        let (dead, dead_path) = create();
        drop(dead);
        let (_alive, alive_path) = create();
        place.history.recover().unwrap();
        assert_eq!((dead_path.exists(), alive_path.exists()), (cfg!(windows), true));
    }
}
