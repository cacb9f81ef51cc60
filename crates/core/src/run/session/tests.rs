//! A session from start to snapshot, with a sampling thread.

use super::*;
use crate::config::{Config, Interval};
use crate::metric::Table;
use crate::store::frame::CombinedOptions;

fn plan() -> Plan {
    let interval = Interval::from_seconds(0.02).unwrap();
    let config = Config { interval, ..Config::default() };
    Plan { discover_server: true, ..Plan::new(config, std::process::id()) }
}

fn recorded() -> Session {
    let mut session = Session::new(plan());
    session.start().unwrap();
    while session.rows() < 3 {
        std::thread::yield_now();
    }
    session.stop();
    session
}

#[test]
fn session_starts_once_and_stops_once() {
    let mut session = Session::new(plan());
    assert!(!session.is_running() && session.server_info().is_none());
    session.start().unwrap();
    assert!(matches!(session.start(), Err(SessionError::Running)));
    session.stop();
    let stopped = session.stop_time();
    session.stop();
    assert_eq!(session.stop_time(), stopped);
    assert!(matches!(session.start(), Err(SessionError::Stopped)));
}

#[test]
fn request_of_the_plan_is_that_of_the_run() {
    let mut session = Session::new(Plan { asked: [Some(2.0), None, Some(0.0)], ..plan() });
    session.start().unwrap();
    session.stop();
    let run = session.head().run.unwrap();
    let identity = run.identity.unwrap();
    assert_eq!((identity.asked_cpus, identity.asked_gpus), (Some(2.0), Some(0.0)));
}

#[test]
fn removed_journal_costs_only_the_rows() {
    let mut session = recorded();
    std::fs::remove_file(session.journal().unwrap()).unwrap();
    let mut text = Vec::new();
    session.write_snapshot(&mut text, false).unwrap();
    let snapshot: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert!(snapshot["metadata"]["duration"].as_f64().unwrap() > 0.0);
    let notes = snapshot["run"]["notes"].to_string();
    assert!(notes.contains("the rows are lost: cannot read"), "{notes}");
}

#[test]
fn poll_gives_the_pause_or_the_reason_to_give_up() {
    let mut session = Session::new(plan());
    assert!(matches!(session.poll_rows(1, 0.0, 1.0), Err(SessionError::NotStarted { wanted: 1 })));
    session.start().unwrap();
    let never = 1_000_000;
    assert_eq!(session.poll_rows(never, 0.0, 1.0).unwrap(), Some(0.002), "a tenth of the interval");
    assert_eq!(
        session.poll_rows(never, 0.75, 0.7505).unwrap(),
        Some(0.7505 - 0.75),
        "at most the time that is left"
    );
    for (waited_s, timeout_s) in [(1.0, 1.0), (0.0, -1.0), (0.0, f64::NAN)] {
        let late = session.poll_rows(never, waited_s, timeout_s);
        assert!(
            matches!(late, Err(SessionError::TimedOut { wanted: 1_000_000 })),
            "{waited_s} of {timeout_s}"
        );
    }
    session.stop();
    assert_eq!(session.poll_rows(1, 1.0, 1.0).unwrap(), None);
    assert!(matches!(session.poll_rows(never, 0.0, 1.0), Err(SessionError::TooFew { .. })));
}

#[test]
fn snapshot_reads_back_unchanged() {
    let mut session = recorded();
    for compressed in [false, true] {
        let mut text = Vec::new();
        session.write_snapshot(&mut text, compressed).unwrap();
        let mut read = Session::from_recording(Recording::read(text.as_slice()).unwrap());
        assert_eq!(read.stats(), session.stats());
        assert_eq!(read.frame(Table::Process), session.frame(Table::Process));
        assert_eq!(read.server_info(), session.server_info());
        assert!(matches!(read.start(), Err(SessionError::Stopped)));
    }
}

#[test]
fn recording_without_an_allocation_gets_one() {
    let mut text = Vec::new();
    let mut session = recorded();
    session.write_snapshot(&mut text, false).unwrap();
    let mut recording = Recording::read(text.as_slice()).unwrap();
    let allocation =
        recording.head.server_info.as_mut().and_then(|info| info.insert("allocation".into(), Value::Null));
    assert!(allocation.is_some_and(|allocation| allocation.is_string()));
    let loaded = Session::from_recording(recording).server_info();
    assert_eq!(loaded, session.server_info());
}

#[test]
fn journal_is_in_the_folder_of_the_host() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = Session::new(plan()).with_rows_in(folder.path().to_owned());
    session.start().unwrap();
    assert_eq!(session.journal().unwrap().parent(), Some(folder.path()));
    assert!(session.take_notes().iter().all(|note| matches!(note, Note::Info(_))));
    drop(session);
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    let mut session = Session::new(plan()).with_rows_in(folder.path().join("missing"));
    session.start().unwrap();
    assert!(matches!(&session.take_notes()[..], [Note::Warning(text), ..] if text.contains("no tables")));
}

#[test]
fn statistics_stay_when_the_files_are_removed() {
    let mut session = recorded();
    let journal = session.journal().unwrap().to_owned();
    let rows = session.rows();
    assert!(journal.exists());
    session.remove_files();
    assert!(!journal.exists());
    assert_eq!((session.rows(), session.frame(Table::Process).unwrap().len()), (rows, 0));
    session.remove_files();
    let file = journal.with_extension("json.gz");
    assert!(matches!(session.dump(&file), Err(SessionError::Removed)) && !file.exists());
    assert!(matches!(session.recording(), Err(SessionError::Removed)));
}

#[test]
fn journal_of_another_process_reads_like_its_session() {
    let session = recorded();
    let start_time = session.start_time().unwrap();
    let child = Session::from_journal(session.plan(), session.journal().unwrap(), start_time);
    assert_eq!(child.frame(Table::System), session.frame(Table::System));
    assert_eq!(child.stats(), session.stats());
}

#[test]
fn table_that_is_off_has_no_columns() {
    let mut off = plan();
    off.config.track_system = false;
    // An hour, so that no grid point comes before the stop.
    off.config.interval = Interval::from_seconds(3600.0).unwrap();
    let mut session = Session::new(off);
    session.start().unwrap();
    session.stop();
    assert_eq!(session.frame(Table::System), None);
    let both = session.combined(&CombinedOptions::default()).unwrap();
    assert!(both.names().all(|name| !name.starts_with("system_")) && both.len() == 1);
}
