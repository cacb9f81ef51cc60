//! Tests concurrent and killed writers of one history.
//!
//! The writer is a second process of this test program, which runs the ignored test `writer`. The writer stores runs
//! and prints the id of each stored run.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime};

use resource_tracker::metric::Row;
use resource_tracker::store::history::{Entry, History};
use resource_tracker::store::recording::{Head, Recording, gzip};

const DIRECTORY: &str = "TEST_HISTORY_DIRECTORY";
const RUNS: &str = "TEST_HISTORY_RUNS";
const STORED: &str = "stored ";

fn start_writer(directory: &Path, runs: u32) -> Child {
    let program = std::env::current_exe().expect("the path of this program");
    Command::new(program)
        .args(["--exact", "writer", "--ignored", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(RUNS, runs.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program starts again")
}

#[test]
#[ignore = "started by the other tests of this file"]
fn writer() {
    let history = History::at(std::env::var_os(DIRECTORY).expect("set by the test that starts this"));
    let runs: u32 = std::env::var(RUNS).expect("set by the test that starts this").parse().unwrap();
    let original = include_bytes!("../../../fixtures/original/snapshot.json");
    let head = Recording::read(&original[..]).unwrap().head;
    let mut recording = Recording::new(Head { run: None, ..head });
    for number in 0..50 {
        recording.push(&Row::of(|_| Some(f64::from(number))));
    }
    for _ in 0..runs {
        let entry = Entry::new(&History::new_id(), &recording.head, &recording.summary());
        history
            .store(&entry, |file| {
                let mut out = gzip(file);
                recording.write(&mut out)?;
                out.finish().map(drop)
            })
            .unwrap();
        // The line is written with one call, so that a killed writer prints no incomplete line.
        std::io::stdout().write_all(format!("{STORED}{}\n", entry.id).as_bytes()).unwrap();
        std::io::stdout().flush().unwrap();
    }
}

fn stored_ids(lines: impl Iterator<Item = std::io::Result<String>>) -> Vec<String> {
    // The test harness may print text before an id.
    lines.map_while(Result::ok).filter_map(|line| Some(line.split_once(STORED)?.1.to_owned())).collect()
}

/// Checks that every stored run is listed and loads. Returns all listed ids.
fn assert_complete(history: &History, stored: &[String]) -> HashSet<String> {
    let listing = history.list().expect("a history");
    assert_eq!(listing.damaged, [""; 0]);
    let listed: HashSet<String> = listing.entries.into_iter().map(|entry| entry.id).collect();
    let lost = stored.iter().filter(|id| !listed.contains(*id)).count();
    assert_eq!(lost, 0, "stored runs that are not listed");
    for id in &listed {
        assert_eq!(Recording::load(&history.recording_path(id)).expect("a complete recording").rows(), 50);
    }
    listed
}

#[test]
fn concurrent_writers_lose_no_run() {
    let directory = tempfile::tempdir().unwrap();
    let writers: Vec<Child> = (0..32).map(|_| start_writer(directory.path(), 10)).collect();
    let mut stored = Vec::new();
    for writer in writers {
        let output = writer.wait_with_output().unwrap();
        assert!(output.status.success());
        stored.extend(stored_ids(output.stdout.lines()));
    }
    assert_eq!(stored.len(), 320);
    assert_eq!(assert_complete(&History::at(directory.path()), &stored).len(), 320);
}

#[test]
fn killed_writer_loses_at_most_its_current_run() {
    let directory = tempfile::tempdir().unwrap();
    let history = History::at(directory.path());
    let (mut stored, mut random, mut cut_off) = (Vec::new(), 1_u64, 0);
    for _ in 0..200 {
        let mut writer = start_writer(directory.path(), u32::MAX);
        let mut lines = BufReader::new(writer.stdout.take().unwrap()).lines();
        // After its first run the writer is always busy with writing.
        let first = lines.by_ref().map_while(Result::ok).find(|line| line.contains(STORED)).unwrap();
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        thread::sleep(Duration::from_micros((random >> 33) % 8_000));
        writer.kill().unwrap();
        writer.wait().unwrap();
        stored.extend(stored_ids(std::iter::once(Ok(first)).chain(lines)));
    }
    let listed = assert_complete(&history, &stored);
    let unreported = listed.len() - stored.len();
    assert!(unreported <= 200, "a writer can store at most one run without reporting it: {unreported}");
    for name in std::fs::read_dir(directory.path()).unwrap() {
        cut_off += usize::from(name.unwrap().file_name().to_string_lossy().ends_with(".tmp"));
    }
    let _ = writeln!(
        std::io::stdout(),
        "200 writers killed: {} runs reported as stored, all listed; {unreported} stored but not reported; {cut_off} incomplete",
        stored.len()
    );
    assert!(cut_off > 20, "too few writers were killed while writing: {cut_off}");

    history.prune(usize::MAX, SystemTime::now() + Duration::from_hours(48)).unwrap();
    assert_eq!(assert_complete(&history, &stored), listed);
    assert_eq!(
        std::fs::read_dir(directory.path()).unwrap().count(),
        2 * listed.len(),
        "leftovers are removed"
    );
}
