//! No text of a file, an argument, a variable or the history can change the terminal.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::process::Output;

use serde_json::Value;
use support::runs::{RUNS, recording, save};
use support::{open_folder, text, tracker};

/// ESC, CR, DEL, BEL, C1 (CSI, OSC), and directional and invisible characters.
const HOSTILE: &str =
    "x\u{1b}]0;title\u{7}\u{1b}[2J\r\u{7f}\u{9b}31m\u{9d}\u{202e}\u{2066}\u{200b}\u{2028}\u{feff}y";

/// Fails if a stream has a character that can change the terminal.
fn check(what: &str, output: &Output) {
    for stream in [&output.stdout, &output.stderr] {
        let stream = String::from_utf8_lossy(stream);
        let found = stream.chars().find(|letter| {
            (letter.is_control() && !matches!(letter, '\n' | '\t'))
                || matches!(letter, '\u{200b}' | '\u{202a}'..='\u{202e}' | '\u{2028}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
        });
        assert!(found.is_none(), "{what}: {found:?} in\n{stream:?}");
    }
}

fn hostile_home() -> tempfile::TempDir {
    let home = open_folder();
    save(home.path(), HOSTILE, &RUNS);
    let mut hostile = recording(HOSTILE, &RUNS[0]);
    hostile["run"]["notes"] = serde_json::json!([HOSTILE]);
    hostile["run"]["status"] = HOSTILE.into();
    hostile["run"]["cpu_source"] = HOSTILE.into();
    hostile["run"]["id"] = HOSTILE.into();
    hostile["cloud_info"]["instance_type"] = HOSTILE.into();
    fs::write(home.path().join(HOSTILE), hostile.to_string()).unwrap();
    hostile["process_metrics"][0][HOSTILE] = 1.into();
    fs::write(home.path().join("column.json"), hostile.to_string()).unwrap();
    fs::write(home.path().join("damaged.json"), format!("{{\"{HOSTILE}\": {HOSTILE}")).unwrap();
    fs::write(home.path().join("resource-tracker.toml"), "job = 'a'\n").unwrap();
    home
}

fn ran(home: &Path, arguments: &[&str]) -> Output {
    let mut command = tracker(home);
    command.env("RESOURCE_TRACKER_OFFLINE", "1").env("XDG_CACHE_HOME", home.join("cache"));
    command.current_dir(home).args(arguments).output().unwrap()
}

#[test]
fn every_command_prints_hostile_text_safely() {
    let home = hostile_home();
    let at = format!("./{HOSTILE}");
    let stat = format!("{HOSTILE}:mean");
    let output = format!("{HOSTILE}/x/y");
    let run = ["run", "--job", HOSTILE, "--tag", "a=b", "--", "sh", "-c", "true", HOSTILE];
    let lines: [&[&str]; 31] = [
        &["list"],
        &["list", "--json"],
        &["list", "--job", HOSTILE],
        &["show", "last"],
        &["show", &at],
        &["show", &at, "--json"],
        &["stats", &at],
        &["stats", &at, "--stat", &stat],
        &["stats", &at, "--stat", HOSTILE],
        &["recommend", &at],
        &["recommend", &at, "--json"],
        &["recommend", &at, "--for", "nextflow"],
        &["compare", &at, "last"],
        &["compare", &at, "last", "--json"],
        &["report", &at],
        &["report", &at, "--json", "-o", HOSTILE],
        &["report", &at, "-o", &output],
        &["export", "column.json"],
        &["show", "column.json"],
        &["show", "damaged.json"],
        &["show", HOSTILE],
        &["rm", HOSTILE, "nothing"],
        &[HOSTILE],
        &["run", HOSTILE],
        &["run", "--interval", HOSTILE, "--", "true"],
        &run,
        &["run", "-o", &output, "--", "true"],
        &["servers", "--cpu", "1", "--memory", "1", "--country", HOSTILE],
        &["man", HOSTILE],
        &["completions", HOSTILE],
        &["attach", HOSTILE],
    ];
    for arguments in lines {
        check(&format!("{arguments:?}"), &ran(home.path(), arguments));
    }
    let output = ran(home.path(), &["export", "column.json"]);
    assert!(text(&output).contains("expected a column's name of printable characters"), "{}", text(&output));
}

#[test]
fn variables_and_settings_are_printed_safely() {
    let home = hostile_home();
    for (name, value) in [
        ("RESOURCE_TRACKER_INTERVAL", HOSTILE),
        ("RESOURCE_TRACKER_OUTPUT", "/x/\u{1b}[2J/y"),
        ("RESOURCE_TRACKER_JOB", HOSTILE),
    ] {
        for arguments in [&["run", "--", "true"][..], &["config"], &["config", "--json"]] {
            let output = tracker(home.path())
                .env(name, value)
                .current_dir(home.path())
                .args(arguments)
                .output()
                .unwrap();
            check(name, &output);
        }
    }
    for settings in
        [format!("job = {HOSTILE}"), format!("'{HOSTILE}' = 1"), "interval = \"\\u001b[2J\"".to_owned()]
    {
        fs::write(home.path().join("resource-tracker.toml"), &settings).unwrap();
        let output = ran(home.path(), &["run", "--", "true"]);
        assert_eq!(output.status.code(), Some(2), "{settings:?}: {}", text(&output));
        check(&settings, &output);
    }
}

#[test]
fn json_keeps_unprintable_characters_as_escape_sequences() {
    let home = hostile_home();
    let output = ran(home.path(), &["list", "--json"]);
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(listed["runs"][0]["job"], HOSTILE);
}

#[test]
fn file_names_that_are_not_utf_8_are_accepted() {
    let home = open_folder();
    let name = OsString::from_vec(b"caf\xe9.json".to_vec());
    fs::write(home.path().join(&name), recording("job", &RUNS[0]).to_string()).unwrap();
    let with = |options: &[&str], names: usize| {
        let mut command = tracker(home.path());
        command.env("RESOURCE_TRACKER_OFFLINE", "1").current_dir(home.path()).args(options);
        let output = command.args(std::iter::repeat_n(&name, names)).output().unwrap();
        assert!(output.status.success(), "{options:?}: {}", text(&output));
        output.stdout
    };
    for command in ["show", "stats", "recommend", "export", "report"] {
        with(&[command], 1);
    }
    with(&["compare"], 2);
    let shown: Value = serde_json::from_slice(&with(&["show", "--json"], 1)).unwrap();
    assert_eq!(shown["recording"], "caf\u{fffd}.json");
    fs::write(home.path().join("a.json"), recording("job", &RUNS[0]).to_string()).unwrap();
    assert_eq!(with(&["report", "a.json", "-o"], 1), [name.as_bytes(), b"\n"].concat());
    with(&["report", "a.json", "--json", "-o"], 1);
    let run = tracker(home.path())
        .current_dir(home.path())
        .args(["run", "--json", "/dev/stderr", "--force", "-o"])
        .arg(&name)
        .arg("true")
        .output();
    let run = run.unwrap();
    assert!(run.status.success() && text(&run).contains("caf\u{fffd}.json"), "{}", text(&run));
}
