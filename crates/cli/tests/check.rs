//! `check`: budgets of a run, for CI. Output byte for byte, and the exit status.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::path::Path;

use support::runs::{RUNS, Run, home_with_runs, save};
use support::tracker;

/// Exit status and both streams.
fn checked(home: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = tracker(home).current_dir(home).arg("check").args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// Compares results with a snapshot, which `INSTA_UPDATE=always` rewrites.
fn snapshot(name: &str, results: &[(i32, String, String)]) {
    let text: Vec<_> = results.iter().map(|(code, out, err)| format!("{out}{err}[exit {code}]\n")).collect();
    insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!(name, text.join("\n"));
    });
}

#[test]
fn broken_budget_is_named_and_ends_with_status_1() {
    let home = home_with_runs();
    let budgets =
        ["--max", "memory=256MiB", "--max", "duration=10min", "--max", "cpu=2", "--max", "cost=0.01"];
    let with = |run: &str| checked(home.path(), &[&[run][..], &budgets].concat());
    snapshot("check_budgets", &[with("a1"), with("b1")]);
}

#[test]
fn newest_run_of_a_job_is_checked_against_the_others() {
    let home = home_with_runs();
    let against = checked(home.path(), &["b1", "--against", "train", "--tolerance", "10%"]);
    snapshot("check_against", &[against]);
    let (status, ..) = checked(home.path(), &["b1", "--against", "train", "--tolerance", "200"]);
    assert_eq!(status, 0);
    let (status, stdout, _) = checked(home.path(), &["a1", "--against", "a2", "--tolerance", "10%"]);
    assert_eq!((status, stdout.contains("train a20000 + 10 %")), (0, true), "{stdout}");
}

#[test]
fn run_without_a_figure_does_not_keep_its_budget() {
    let home = home_with_runs();
    let recording = support::runs::recording("train", &RUNS[0]).to_string();
    fs::write(home.path().join("elsewhere.json"), recording.replace("m5.xlarge", "no-such-machine")).unwrap();
    let (status, stdout, _) = checked(home.path(), &["elsewhere.json", "--max", "cost=1"]);
    assert_eq!((status, stdout.contains("cost is unknown")), (1, true), "{stdout}");
}

#[test]
fn run_that_did_not_reach_its_end_has_a_warning() {
    let home = tempfile::tempdir().unwrap();
    tracker(home.path())
        .args(["run", "-q", "--offline", "--job", "fails", "--", "sh", "-c", "exit 3"])
        .output()
        .unwrap();
    let (status, _, stderr) = checked(home.path(), &["fails", "--max", "duration=1h"]);
    assert_eq!(status, 0);
    assert!(stderr.contains("warning: the run failed: a complete run may need more"), "{stderr}");
}

#[test]
fn results_for_github_junit_and_json_name_the_broken_budgets() {
    let home = home_with_runs();
    save(home.path(), "50%,<a>: \"b\"&\u{1b}", &[Run { id: "f10000000001", ..RUNS[4] }]);
    let common = ["f1", "--max", "memory=1MiB", "--max", "duration=1h"];
    let with = |more: &[&str]| checked(home.path(), &[&common, more].concat());
    let github = with(&["--github", "--junit", "check.xml"]);
    let junit = fs::read_to_string(home.path().join("check.xml")).unwrap();
    snapshot("check_ci", &[github, (1, junit, String::new())]);
    assert_eq!(with(&["--junit", "check.xml"]).0, 1, "the file of an earlier check is replaced");
    fs::write(home.path().join("mine.xml"), "<mine/>").unwrap();
    let (status, _, stderr) = with(&["--junit", "mine.xml"]);
    assert!(status == 1 && stderr.contains("--force"), "{stderr}");
    let (status, stdout, _) = with(&["--json"]);
    let json: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((status, &json["schema_version"], &json["is_passed"]), (1, &2.into(), &false.into()));
    assert_eq!(json["checks"][0]["figure"], "memory_peak_bytes");
    assert_eq!(
        (json["checks"][0]["limit"].as_f64(), &json["checks"][0]["is_kept"]),
        (Some(1_048_576.0), &false.into())
    );
    assert_eq!(
        (json["checks"][1]["value"].as_f64(), &json["checks"][1]["is_kept"]),
        (Some(4.0), &true.into())
    );
}

#[test]
fn wrong_use_is_explained() {
    let home = home_with_runs();
    for (arguments, code, message) in [
        (&["a1"][..], 2, "required"),
        (&["a1", "--max", "memory"], 2, "expected NAME=LIMIT, for example memory=4GiB"),
        (&["a1", "--max", "memory=4"], 2, "`4` is not a size with a unit"),
        (&["a1", "--max", "speed=4"], 2, "unknown budget `speed`"),
        (&["a1", "--max", "memory=4GiB", "--tolerance", "5%"], 2, "--against"),
        (&["a1", "--against", "train", "--tolerance", "x%"], 2, "must be a number from 0 to 1000"),
        (&["a1", "--against", "nobody"], 1, "no run named `nobody`"),
        (&["nobody", "--max", "memory=4GiB"], 1, "no run named `nobody`"),
    ] {
        let (status, stdout, stderr) = checked(home.path(), arguments);
        assert!(status == code && stderr.contains(message), "{arguments:?}: {status} {stdout}{stderr}");
    }
}
