//! Behaviour of each command. The exact output is tested in `output.rs`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};

use support::{open_folder, text, tracker};

/// Runs the command without the user's settings and without a network; returns exit code, output and errors.
fn shown(home: &Path, arguments: &[&str]) -> String {
    let mut command = tracker(home);
    command.env("RESOURCE_TRACKER_OFFLINE", "1").env("XDG_CACHE_HOME", home.join("cache")).args(arguments);
    let output = command.output().unwrap();
    let part = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    format!(
        "exit: {:?}\n-- stdout --\n{}\n-- stderr --\n{}",
        output.status.code(),
        part(&output.stdout),
        part(&output.stderr)
    )
}

#[test]
fn invalid_interval_is_a_usage_error() {
    let home = open_folder();
    for wrong in ["-1", "nan", "inf", "0.0001", "86401", "x", ""] {
        let shown = shown(home.path(), &["run", "-i", wrong, "--", "true"]);
        assert!(shown.starts_with("exit: Some(2)") && shown.contains("error: "), "{wrong}: {shown}");
    }
}

#[test]
fn missing_command_and_unknown_option_are_usage_errors() {
    let home = open_folder();
    for wrong in [
        &["run"][..],
        &["run", "--"],
        &["run", "--no-such-option", "--", "true"],
        &["attach"],
        &["attach", "x"],
        &["nothing"],
        &[],
    ] {
        let shown = shown(home.path(), wrong);
        assert!(shown.starts_with("exit: Some(2)"), "{wrong:?}: {shown}");
    }
}

#[test]
fn invalid_server_requirements_are_usage_errors() {
    let home = open_folder();
    for wrong in [
        &["--cpu", "-1", "--memory", "1"][..],
        &["--cpu", "nan", "--memory", "1"],
        &["--cpu", "1", "--memory", "1", "--vendor-id", "nobody"],
        &["--cpu", "1", "--memory", "1", "--region", ""],
        &["--cpu", "1", "--memory", "1", "--max-price", "nan"],
        &["--cpu", "x", "--memory", "1"],
        &["--memory", "1"],
    ] {
        let shown = shown(home.path(), &[&["servers"], wrong].concat());
        assert!(shown.starts_with("exit: Some(2)") && shown.contains("error: "), "{wrong:?}: {shown}");
    }
}

#[test]
fn info_shows_the_machine_and_its_data_sources() {
    let home = open_folder();
    let output = tracker(home.path()).args(["info", "--offline", "--json"]).output().unwrap();
    let info: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(info["server_info"]["os"], "linux");
    assert_eq!(info["cloud_info"]["vendor"], "unknown");
    assert!(info["sources"].as_array().unwrap().len() >= 8, "{info}");
    let cpus = std::thread::available_parallelism().unwrap().get();
    assert!(info["server_info"]["vcpus"].as_u64().unwrap() >= cpus as u64);
    let human = shown(home.path(), &["info"]);
    assert!(human.contains("CPU time                 counted by "), "{human}");
}

#[test]
fn run_can_be_exported_in_every_format() {
    let home = open_folder();
    let done = tracker(home.path())
        .args(["run", "-q", "-j", "train", "--tag", "a=b", "--", "sleep", "0.1"])
        .status()
        .unwrap();
    assert!(done.success());
    let export = |name: &str, format: &str| {
        tracker(home.path()).args(["export", name, "--format", format]).output().unwrap().stdout
    };
    let csv = String::from_utf8(export("last", "csv")).unwrap();
    assert!(csv.starts_with("\"timestamp\",\"system_processes\",") && csv.lines().count() == 2, "{csv}");
    let json: serde_json::Value = serde_json::from_slice(&export("train", "json")).unwrap();
    assert_eq!(
        (&json["metadata"]["version"], &json["run"]["job"], &json["run"]["tags"]["a"]),
        (&1.into(), &"train".into(), &"b".into())
    );
    let line: serde_json::Value = serde_json::from_slice(&export("train", "jsonl")).unwrap();
    assert_eq!(line["process_pid"], json["metadata"]["pid"]);
    let parquet = export("train", "parquet");
    assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"));
    let human = tracker(home.path()).args(["export", "last", "--bytes", "--human-names"]).output().unwrap();
    assert!(String::from_utf8_lossy(&human.stdout).contains("\"System CPU usage\""), "{}", text(&human));
}

#[test]
fn stream_ends_after_the_requested_samples_or_a_closed_pipe() {
    let home = open_folder();
    for command in ["system", "process"] {
        let output = tracker(home.path()).args([command, "-i", "0.05", "--samples", "3"]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 4, "{}", text(&output));
    }
    let mut child =
        tracker(home.path()).args(["system", "-i", "0.02"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut some = [0; 400];
    child.stdout.take().unwrap().read_exact(&mut some).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn recording_of_a_killed_tracker_is_recovered() {
    let home = open_folder();
    // The job watches the CSV to know that rows were written.
    let csv = home.path().join("rows.csv");
    let job = "until [ $(wc -l < \"$1\") -gt 8 ]; do sleep 0.02; done; echo x; exec sleep 60";
    let mut child = tracker(home.path())
        .args(["run", "-q", "-j", "killed", "-i", "0.05", "--csv"])
        .arg(&csv)
        .args(["--", "sh", "-c", job, "sh"])
        .arg(&csv)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0; 2]).unwrap();
    let job = fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    Command::new("kill").arg(job.trim()).status().unwrap();
    let listed = shown(home.path(), &["list", "--json"]);
    assert!(listed.contains("\"status\": \"tracker_died\""), "{listed}");
    let output = tracker(home.path()).args(["export", "killed", "--format", "json"]).output().unwrap();
    let recording: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = recording["process_metrics"].as_array().unwrap().len();
    let written = fs::read_to_string(&csv).unwrap().lines().count() - 1;
    // The tracker may have been killed between writing a row to the journal and writing it to the CSV.
    assert!(written >= 8 && rows.abs_diff(written) <= 1, "{rows} rows, {written} rows in the CSV");
    assert_eq!(recording["metadata"]["pid"].to_string(), job.trim());
    let files: Vec<_> = fs::read_dir(home.path().join("data/resource-tracker"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(files.len(), 2, "the journal was removed: {files:?}");
}

#[test]
fn all_commands_show_the_same_duration_after_a_step_of_the_wall_clock() {
    let home = support::runs::home_with_runs();
    let file =
        home.path().join("data/resource-tracker").join(format!("{}.json.gz", support::runs::RUNS[0].id));
    let mut recording: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let seconds = recording["metadata"]["duration"].as_f64().unwrap();
    assert!(seconds >= 2.0, "{seconds}");
    // From the second row on, the clock is 3600 s ahead.
    for table in ["process_metrics", "system_metrics", "extra_metrics"] {
        for row in recording[table].as_array_mut().unwrap().iter_mut().skip(1) {
            row["timestamp"] = (row["timestamp"].as_f64().unwrap() + 3600.0).into();
        }
    }
    let stepped = home.path().join("stepped.json");
    fs::write(&stepped, recording.to_string()).unwrap();
    let stepped = stepped.to_str().unwrap();
    let json = |arguments: &[&str]| {
        let output = tracker(home.path()).args(arguments).args([stepped, "--json"]).output().unwrap();
        serde_json::from_slice::<serde_json::Value>(&output.stdout)
            .unwrap_or_else(|_| panic!("{}", text(&output)))
    };
    assert_eq!(json(&["show"])["wall_seconds"], seconds);
    let stats = json(&["stats"]);
    assert_eq!(stats["stats"]["timestamp"]["duration"], seconds, "{stats}");
    let report = shown(home.path(), &["report", stepped, "-o", "-"]);
    assert!(report.contains(&format!("after {seconds} s<")), "no duration in the report");
    assert!(!report.contains("1 h"), "the step is part of a duration");
}
