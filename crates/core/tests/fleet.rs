//! A dataset while many threads write to it and `compact` merges its files.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use resource_tracker::fleet::By;
use resource_tracker::fleet::columns::run_columns;
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
                    dataset.compact().unwrap();
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
    dataset.compact().unwrap();
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
    dataset.compact().unwrap();
    // Pushed again, as after an upload whose answer was lost.
    put(&dataset, "fd");
    assert_eq!(sampled(&dataset), ["0c", "fd"]);
    dataset.compact().unwrap();
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
    dataset.compact().unwrap();
    store("a", 0.0, 2.0, 5.0);
    store("c", 2.0 * day_s, 1.0, 7.0);
    let hours =
        |since| dataset.summary(&By::Job, since).unwrap().first().and_then(|line| line.cpu_hours_used);
    assert_eq!(hours(None), Some(13.0));
    std::fs::write(folder.path().join("runs/date=1970-01-01/damaged.parquet"), "PAR1").unwrap();
    assert_eq!(hours(Some(1.5 * day_s)), Some(7.0));
    let error = dataset.summary(&By::Job, None).unwrap_err();
    assert!(error.to_string().contains("damaged.parquet") && error.hint().is_some());
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
