//! Where `run` saves a run: in the history, in the file of `-o`, and as JSON in the file of `--json`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use support::{BIN, load, open_folder, run, text, tracker};

fn listed(home: &Path) -> Vec<Value> {
    let output = tracker(home).args(["list", "--json"]).output().unwrap();
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    list["runs"].as_array().unwrap().clone()
}

#[test]
fn named_file_is_written_beside_the_history() {
    let home = open_folder();
    let file = home.path().join("run.json.gz");
    let name = file.to_str().unwrap();
    let output = run(home.path(), &["-o", name, "--job", "both"], &["true"]);
    assert!(text(&output).contains(&format!("recording  {name}")), "{}", text(&output));
    let runs = listed(home.path());
    assert_eq!((runs.len(), &runs[0]["job"]), (1, &"both".into()));
    assert_eq!(load(&file)["run"]["id"], runs[0]["id"]);
    run(home.path(), &["-o", name, "--no-save", "--job", "file"], &["true"]);
    assert_eq!((listed(home.path()), &load(&file)["run"]["job"]), (runs, &"file".into()));
    let left = fs::read_dir(home.path().join("data/resource-tracker")).unwrap().count();
    assert_eq!(left, 2, "the recording and its entry, no journal");
}

#[test]
fn history_that_cannot_be_written_is_a_warning_and_the_file_has_the_run() {
    let home = open_folder();
    fs::write(home.path().join("data"), "in the way").unwrap();
    let file = home.path().join("run.json.gz");
    let output = run(home.path(), &["-o", file.to_str().unwrap()], &["sh", "-c", "exit 3"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output).contains("warning: cannot write the recording"), "{}", text(&output));
    assert_eq!(load(&file)["run"]["exit_code"], 3);
}

#[test]
fn run_is_written_as_json_to_a_file_or_descriptor_and_not_to_the_streams_of_the_job() {
    let home = open_folder();
    let file = home.path().join("run.json");
    for job in ["first", "second"] {
        let options = ["-q", "--json", file.to_str().unwrap(), "--job", job];
        let output = run(home.path(), &options, &["sh", "-c", "echo out; echo err >&2; exit 3"]);
        assert_eq!(output.status.code(), Some(3));
        assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
        let run: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        assert_eq!((&run["job"], &run["exit_code"]), (&job.into(), &3.into()));
    }
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec 3>fd.json; \"$0\" run --no-save --json /dev/fd/3 -- true", BIN]);
    let output = shell.current_dir(home.path()).env("HOME", home.path()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert!(
        !text(&output).contains("schema_version") && text(&output).contains("finished"),
        "{}",
        text(&output)
    );
    let run: Value = serde_json::from_slice(&fs::read(home.path().join("fd.json")).unwrap()).unwrap();
    assert_eq!(run["status"], "finished");
}

#[test]
fn json_file_that_cannot_be_written_is_an_error_before_the_job_starts() {
    let home = open_folder();
    let started = home.path().join("started");
    for path in ["/no/such/folder/run.json", "/", "/dev/fd/77"] {
        let output = run(home.path(), &["--json", path], &["touch", started.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(125), "{path}: {}", text(&output));
        assert!(!started.exists());
    }
    assert_eq!(listed(home.path()).len(), 0);
}
