//! Advice from odd histories: sensible figures, and a sentence that says why.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod support;

use std::fs;

use serde_json::{Value, json};
use support::runs::{RUNS, recording};
use support::{open_folder, text, tracker};

const GB: f64 = 1e9;

/// An entry of the history with a peak and a size of the inputs in GB.
fn entry(number: u32, status: &str, peak: f64, input: Option<u64>) -> Value {
    json!({
        "id": format!("c{number:011}"), "job": "odd", "status": status, "start_time": 1e6 * f64::from(number),
        "duration_s": 3600.0,
        "sizing": { "peak_memory_bytes": peak * GB, "input_bytes": input.map(|gb| gb * 1_000_000_000) },
    })
}

/// The advice after a finished run with a peak of 0.2 GB and these earlier runs of its job.
fn advice(entries: &[Value]) -> Value {
    let home = open_folder();
    let folder = home.path().join("data/resource-tracker");
    fs::create_dir_all(&folder).unwrap();
    for (number, entry) in entries.iter().enumerate() {
        let id = entry["id"].as_str().map_or_else(|| format!("d{number:011}"), ToOwned::to_owned);
        fs::write(folder.join(format!("{id}.run")), entry.to_string()).unwrap();
    }
    let file = home.path().join("run.json");
    fs::write(&file, recording("odd", &RUNS[0]).to_string()).unwrap();
    let shown = tracker(home.path()).args(["recommend", "--offline", "--json"]).arg(&file).output().unwrap();
    assert!(shown.status.success(), "{}", text(&shown));
    serde_json::from_slice(&shown.stdout).unwrap()
}

fn messages(advice: &Value) -> Vec<&str> {
    advice["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|warning| warning["message"].as_str().unwrap())
        .collect()
}

#[test]
fn history_without_usable_runs_counts_as_empty() {
    let alone = advice(&[]);
    assert_eq!(alone["memory"]["why"], "1.2 × the peak of 197 MiB, rounded up");
    let unusable = [
        json!({"id": "c00000000001", "job": "odd", "status": "finished", "start_time": 1.0, "duration_s": 1.0}),
        json!({"id": "c00000000002", "job": "odd", "status": "finished", "start_time": 2.0, "sizing": "version 9"}),
        json!({"id": "c00000000003", "job": "odd", "sizing": {"peak_memory_bytes": "much"}}),
        json!({"id": 7}),
        json!([1, 2]),
        json!({"id": "c00000000004", "job": "odd", "start_time": 3.0, "status": "finished", "sizing": {"peak_memory_bytes": 0}}),
    ];
    assert_eq!(advice(&unusable)["memory"], alone["memory"]);
}

#[test]
fn runs_of_an_earlier_version_count_by_their_statistics() {
    let of_stats = |number: u32| {
        json!({
            "id": format!("c{number:011}"), "job": "odd", "status": "finished", "start_time": number, "duration_s": 9.0,
            "stats": {"process_memory": {"max": 4_000_000.0}, "process_cpu_usage": {"mean": 1.0}},
        })
    };
    let advice = advice(&[of_stats(1), of_stats(2)]);
    assert_eq!(advice["request"]["memory_bytes"], 5_u64 << 30, "{advice}");
}

#[test]
fn failed_runs_do_not_size_but_their_higher_peak_is_a_warning() {
    let failed: Vec<Value> = (1..=8).map(|number| entry(number, "failed", 40.0, None)).collect();
    let advice = advice(&failed);
    assert_eq!(
        (&advice["memory"]["runs"], &advice["request"]["memory_bytes"]),
        (&json!(1), &json!(256 << 20))
    );
    let expected = "a run that failed had a peak of 37.3 GiB, which is more than this request";
    assert!(messages(&advice).contains(&expected), "{advice}");
}

#[test]
fn inputs_that_contradict_the_peaks_give_no_line() {
    // Memory falls with the input, or one size of input has many peaks.
    let falling: Vec<Value> = (1..=8)
        .map(|number| entry(number, "finished", 9.0 - f64::from(number), Some(u64::from(number))))
        .collect();
    let same: Vec<Value> =
        (1..=8).map(|number| entry(number, "finished", f64::from(number), Some(5))).collect();
    for entries in [falling, same] {
        let advice = advice(&entries);
        assert_ne!(advice["memory"]["rule"], "input_line", "{advice}");
        let request = advice["request"]["memory_bytes"].as_f64().unwrap();
        assert!((8.0 * GB..=1.2 * 8.0 * GB + 1.1e9).contains(&request), "{advice}");
    }
}

#[test]
fn memory_that_grows_with_the_input_is_requested_for_the_next_input() {
    let entries: Vec<Value> = (1..=12)
        .map(|number| entry(number, "finished", 1.0 + 1.5 * f64::from(number), Some(u64::from(number))))
        .collect();
    let advice = advice(&entries);
    assert_eq!(advice["memory"]["rule"], "input_line", "{advice}");
    let why = advice["memory"]["why"].as_str().unwrap();
    assert!(why.starts_with("at 11.2 GiB of input request "), "{why}");
}

#[test]
fn next_input_that_does_not_exist_is_an_error() {
    let home = support::runs::home_with_runs();
    let shown =
        tracker(home.path()).args(["recommend", "last", "--input", "/no/such/file"]).output().unwrap();
    assert_eq!(shown.status.code(), Some(1));
    assert!(text(&shown).contains("the size of the input `/no/such/file` is unknown"), "{}", text(&shown));
}
