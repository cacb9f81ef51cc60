//! Settings files: which of them are used. The exact output of `config` is tested in `output.rs`.

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use support::{open_folder, text, tracker};

#[test]
fn project_file_applies_below_it_in_the_same_repository_and_only_to_its_owner() {
    let home = open_folder();
    let below = home.path().join("project/a/b");
    fs::create_dir_all(&below).unwrap();
    let file = home.path().join("project/resource-tracker.toml");
    fs::write(&file, "interval = 9\n").unwrap();
    let interval = |folder: &Path| {
        let output = tracker(home.path()).current_dir(folder).args(["config", "--json"]).output().unwrap();
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        json["settings"][0]["value"].as_str().unwrap().to_owned()
    };
    assert_eq!(interval(&home.path().join("project")), "9");
    assert_eq!(interval(&below), "1", "outside a repository only the current directory is searched");
    fs::create_dir(home.path().join("project/.git")).unwrap();
    assert_eq!(interval(&below), "9");
    if support::is_root() {
        std::os::unix::fs::chown(&file, Some(support::NOBODY), None).unwrap();
        assert_eq!(interval(&below), "1", "a file of another user");
    }
}

#[test]
fn unreachable_settings_are_ignored_and_a_fifo_is_an_error() {
    let home = open_folder();
    let output =
        tracker(Path::new("/dev/null")).args(["run", "-q", "--no-save", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(
        Command::new("mkfifo").arg(home.path().join("resource-tracker.toml")).status().unwrap().success()
    );
    let output =
        tracker(home.path()).current_dir(home.path()).args(["run", "-q", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
}
