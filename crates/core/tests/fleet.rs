//! A dataset while many threads write to it and `compact` merges its files.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use resource_tracker::fleet::By;
use resource_tracker::fleet::columns::{VERSION, run_columns};
use resource_tracker::fleet::dataset::Dataset;
use resource_tracker::fleet::table::{Kind, Table};
use serde_json::json;

const WRITERS: u64 = 32;
const RUNS: u64 = 20;

fn put(dataset: &Dataset, id: &str) {
    let row = json!({"id": id, "stored_time": 1.0, "job": "train", "cpu_hours_used": 0.5});
    let row = Table::of_rows(run_columns(), &[row.as_object().unwrap().clone()]);
    let sample = json!({"run_id": id, "timestamp": 1.0});
    let columns = [("run_id", Kind::Text), ("timestamp", Kind::Time)];
    dataset.put(id, 0.0, &row, &Table::of_rows(columns, &[sample.as_object().unwrap().clone()])).unwrap();
}

fn recordings(dataset: &Dataset) -> u64 {
    dataset.summary(&By::Job, None).unwrap().first().map_or(0, |line| line.recordings)
}

/// The run of each sample.
fn sampled(dataset: &Dataset) -> Vec<String> {
    let columns = dataset.rows("samples", None, None).unwrap();
    let (_, runs) = columns.into_iter().find(|(name, _)| name == "run_id").unwrap();
    let mut runs: Vec<String> = runs.iter().map(|run| run.as_str().unwrap().to_owned()).collect();
    runs.sort_unstable();
    runs
}

#[test]
fn every_run_counts_once_while_others_write_and_compact() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = Dataset::open(folder.path().to_str().unwrap()).unwrap();
    let (stored, is_done) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (dataset, stored) = (&dataset, &stored);
                scope.spawn(move || {
                    for run in 0..RUNS {
                        put(dataset, &format!("{writer:02}-{run:02}"));
                        stored.fetch_add(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_done.load(Ordering::SeqCst) {
                    dataset.compact_after(Duration::ZERO).unwrap();
                }
            });
        }
        while writers.iter().any(|writer| !writer.is_finished()) {
            let before = stored.load(Ordering::SeqCst);
            let counted = recordings(&dataset);
            // A writer may have stored a run that it has not counted yet.
            let after = stored.load(Ordering::SeqCst) + WRITERS;
            assert!((before..=after).contains(&counted), "{counted} of {before} to {after}");
        }
        is_done.store(true, Ordering::SeqCst);
    });
    assert_eq!(recordings(&dataset), WRITERS * RUNS);
    dataset.compact_after(Duration::ZERO).unwrap();
    let lines = dataset.summary(&By::Job, None).unwrap();
    assert_eq!((lines[0].recordings, lines[0].cpu_hours_used), (WRITERS * RUNS, Some(0.5 * 640.0)));
    assert_eq!(sampled(&dataset).len(), 640);
}

#[test]
fn samples_of_a_run_in_two_files_are_merged_once() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = Dataset::open(folder.path().to_str().unwrap()).unwrap();
    put(&dataset, "0c");
    put(&dataset, "fd");
    dataset.compact_after(Duration::ZERO).unwrap();
    // Pushed again, as after an upload whose answer was lost.
    put(&dataset, "fd");
    assert_eq!(sampled(&dataset), ["0c", "fd"]);
    dataset.compact_after(Duration::ZERO).unwrap();
    assert_eq!(sampled(&dataset), ["0c", "fd"]);
}

#[test]
fn program_on_two_nodes_is_one_run_and_a_restart_is_another() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = Dataset::open(folder.path().to_str().unwrap()).unwrap();
    let store = |start: f64, rank: u64, node: &str, cpu_s: f64, is_failed: bool| {
        let row = json!({
            "id": format!("{start}-{rank}"), "stored_time": 1.0, "start_time": start, "job": "train", "node": node, "rank": rank,
            "ranks": 2, "distributed": "42.0", "cpu_seconds": cpu_s, "cpu_hours_used": 1.0, "is_failed": is_failed,
        });
        let row = Table::of_rows(run_columns(), &[row.as_object().unwrap().clone()]);
        dataset.put_run(&format!("{start}-{rank}"), start, &row).unwrap();
    };
    // Around midnight.
    store(86_399.0, 0, "a", 30.0, false);
    store(86_401.0, 1, "b", 10.0, true);
    let found = |by: &By| {
        let lines = dataset.summary(by, None).unwrap();
        let mut found: Vec<_> = lines
            .into_iter()
            .map(|line| (line.key.unwrap(), line.runs, line.recordings, line.failed, line.imbalance))
            .collect();
        found.sort_by(|one, other| one.0.cmp(&other.0));
        found
    };
    let key = |text: &str| text.to_owned();
    assert_eq!(found(&By::Job), [(key("train"), 1, 2, 1, Some(1.5))]);
    assert_eq!(found(&By::Day), [(key("1970-01-01"), 1, 2, 1, Some(1.5))]);
    assert_eq!(found(&By::Node), [(key("a"), 1, 1, 0, Some(1.5)), (key("b"), 1, 1, 1, Some(1.5))]);
    // The scheduler starts it again, with the same id.
    store(90_000.0, 0, "a", 10.0, false);
    store(90_000.0, 1, "b", 10.0, false);
    assert_eq!(found(&By::Job), [(key("train"), 2, 4, 1, Some(1.25))]);
    assert_eq!(found(&By::Node)[0], (key("a"), 2, 2, 0, Some(1.25)));
}

#[test]
fn newest_row_of_a_run_counts_and_days_before_since_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = Dataset::open(folder.path().to_str().unwrap()).unwrap();
    let store = |id: &str, start: f64, stored: f64, hours: f64| {
        let row = json!({"id": id, "stored_time": stored, "start_time": start, "job": "train", "cpu_hours_used": hours});
        let row = Table::of_rows(run_columns(), &[row.as_object().unwrap().clone()]);
        dataset.put_run(id, start, &row).unwrap();
    };
    let day_s = 86_400.0;
    store("a", 0.0, 1.0, 1.0);
    store("b", 0.0, 1.0, 1.0);
    dataset.compact_after(Duration::ZERO).unwrap();
    store("a", 0.0, 2.0, 5.0);
    store("c", 2.0 * day_s, 1.0, 7.0);
    let hours =
        |since| dataset.summary(&By::Job, since).unwrap().first().and_then(|line| line.cpu_hours_used);
    assert_eq!(hours(None), Some(13.0));
    // A row without an id is no run.
    dataset.put_run("none", 0.0, &Table::of_rows(run_columns(), &[serde_json::Map::new()])).unwrap();
    assert_eq!(dataset.rows("runs", None, None).unwrap()[0].1.len(), 3);
    fs::write(folder.path().join("runs/date=1970-01-01/damaged.parquet"), "PAR1").unwrap();
    assert_eq!((hours(Some(1.5 * day_s)), dataset.take_warning()), (Some(7.0), None));
}

#[test]
fn file_that_cannot_be_read_is_left_out_with_a_warning_and_stays() {
    let (folder, copied) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let open = |folder: &tempfile::TempDir| Dataset::open(folder.path().to_str().unwrap()).unwrap();
    let (dataset, copy) = (open(&folder), open(&copied));
    put(&dataset, "0c");
    put(&dataset, "fd");
    let day = folder.path().join("runs/date=1970-01-01");
    let damaged = ["a", "b", "c", "d"].map(|name| day.join(format!("{name}.parquet")));
    for file in &damaged {
        fs::write(file, "PAR1").unwrap();
    }
    let warned = || dataset.take_warning().unwrap_or_default();
    assert_eq!(recordings(&dataset), 2);
    let warning = warned();
    assert!(warning.starts_with("4 files of the store `") && warning.contains("a.parquet"), "{warning}");
    assert!(
        warning.contains("c.parquet, …: cannot read `runs/") && !warning.contains("d.parquet"),
        "{warning}"
    );
    assert_eq!(warned(), "", "a warning is given once");
    assert_eq!((sampled(&dataset).len(), warned().is_empty()), (2, false));
    assert!(dataset.report(None).unwrap().contains("Warning: <bdi>4 files"));
    dataset.pull(&copy, None).unwrap();
    assert_eq!(recordings(&copy), 2);
    warned();
    let done = dataset.compact_after(Duration::ZERO).unwrap();
    assert_eq!((done.merged_files, done.written_files), (4, 2), "runs and samples");
    assert!(warned().starts_with("4 files"));
    assert!(damaged.iter().all(|file| file.exists()));
    assert_eq!(dataset.compact_after(Duration::ZERO).unwrap().written_files, 0, "nothing to merge");
    assert_eq!((recordings(&dataset), sampled(&dataset).len()), (2, 2));
    dataset.pull(&copy, None).unwrap();
    assert_eq!(recordings(&copy), 2);
    // The store itself cannot be listed.
    fs::remove_dir_all(folder.path().join("runs")).unwrap();
    fs::write(folder.path().join("runs"), "").unwrap();
    dataset.summary(&By::Job, None).unwrap_err();
}

#[test]
fn files_of_writers_that_were_killed_long_ago_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = Dataset::open(folder.path().to_str().unwrap()).unwrap();
    put(&dataset, "0c");
    let day = folder.path().join("runs/date=1970-01-01");
    let (old, new) = (day.join(".store-0123456789abcdef.tmp"), day.join(".store-fedcba9876543210.tmp"));
    let two_days_ago = SystemTime::now() - Duration::from_hours(48);
    fs::write(&new, "").unwrap();
    fs::File::create(&old).unwrap().set_modified(two_days_ago).unwrap();
    dataset.compact_after(Duration::ZERO).unwrap();
    assert_eq!((old.exists(), new.exists()), (false, true));
}

#[test]
fn large_file_is_read_in_parts() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = Dataset::open(folder.path().to_str().unwrap()).unwrap();
    let mut random = 1_u64;
    let mut noise = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        format!("{random:016x}")
    };
    let command: String = (0..200_000).map(|_| noise()).collect();
    let row = json!({"id": "0c", "stored_time": 1.0, "job": "train", "command": command});
    let row = Table::of_rows(run_columns(), &[row.as_object().unwrap().clone()]);
    dataset.put_run("0c", 0.0, &row).unwrap();
    let file = folder.path().join("runs/date=1970-01-01/0c.parquet");
    let bytes = fs::metadata(&file).unwrap().len();
    assert!(bytes > 1 << 20, "{bytes} bytes");
    assert_eq!(dataset.summary(&By::Job, None).unwrap()[0].key.as_deref(), Some("train"));
    let commands = dataset.rows("runs", None, None).unwrap();
    assert_eq!(commands.iter().find(|(name, _)| name == "command").unwrap().1[0], command);
    fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(bytes - 1).unwrap();
    assert_eq!(recordings(&dataset), 0);
    assert!(dataset.take_warning().is_some_and(|warning| warning.contains("0c.parquet")));
}

#[test]
fn file_of_a_later_version_is_not_merged() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = Dataset::open(folder.path().to_str().unwrap()).unwrap();
    for id in ["a", "b"] {
        put(&dataset, id);
    }
    let later = folder.path().join("runs/date=1970-01-01/c.parquet");
    let row = json!({"id": "c", "stored_time": 1.0, "job": "train", "cpu_hours_used": 0.5});
    let table = Table::of_rows(run_columns(), &[row.as_object().unwrap().clone()]);
    table.write(&mut std::fs::File::create(&later).unwrap(), VERSION + 1).unwrap();
    let before = std::fs::read(&later).unwrap();
    let done = dataset.compact().unwrap();
    assert_eq!((done.merged_files, done.written_files), (4, 2), "runs and samples of two runs");
    assert_eq!((std::fs::read(&later).unwrap(), recordings(&dataset)), (before, 3));
    assert_eq!(dataset.compact().unwrap().written_files, 0, "what stays is not written again");
}

#[test]
fn run_inside_of_another_counts_if_the_other_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = Dataset::open(folder.path().to_str().unwrap()).unwrap();
    let day_s = 86_400.0;
    for (id, parent, start) in [
        ("a", None, 0.5),
        // On the same day, with a name before that of the run around it.
        ("0", Some("a"), 0.6),
        // On the next day, and inside of a run that does not count itself.
        ("b", Some("a"), 1.5),
        ("c", Some("b"), 1.6),
        ("d", Some("without-store"), 1.6),
    ] {
        let row = json!({"id": id, "parent": parent, "stored_time": 1.0, "start_time": start * day_s, "job": "train", "cpu_hours_used": 1.0});
        let row = Table::of_rows(run_columns(), &[row.as_object().unwrap().clone()]);
        let sample = json!({"run_id": id, "timestamp": start * day_s});
        let sample = Table::of_rows(
            [("run_id", Kind::Text), ("timestamp", Kind::Time)],
            &[sample.as_object().unwrap().clone()],
        );
        dataset.put(id, start * day_s, &row, &sample).unwrap();
    }
    let line = dataset.summary(&By::Job, None).unwrap().remove(0);
    assert_eq!((line.runs, line.cpu_hours_used), (2, Some(2.0)));
    assert_eq!(sampled(&dataset), ["a", "d"]);
    // The run around `b` is not among those since then.
    assert_eq!(dataset.summary(&By::Job, Some(day_s)).unwrap()[0].runs, 2);
    let ids = dataset.rows("runs", Some(day_s), None).unwrap().remove(0).1;
    assert_eq!(ids, ["b", "d"]);
}
