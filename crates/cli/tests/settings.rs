//! Settings files: which of them are used. The exact output of `config` is tested in `output.rs`.

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use support::{NOBODY, as_user, open_folder, text, tracker};

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

#[test]
fn project_file_of_a_cloned_repository_harms_nothing() {
    for user in if support::is_root() { vec![0, NOBODY] } else { vec![rustix::process::getuid().as_raw()] } {
        let home = open_folder();
        let victim = home.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        let project = home.path().join("project");
        fs::create_dir(&project).unwrap();
        let path = victim.to_str().unwrap();
        let harm = format!(
            "csv = '{path}'\noutput = '{path}'\nreport = '{path}'\nkeep_runs = 0\noffline = false\njob = 'train'\n"
        );
        let file = project.join("resource-tracker.toml");
        fs::write(&file, harm).unwrap();
        if support::is_root() {
            for owned in [&victim, &project, &file] {
                std::os::unix::fs::chown(owned, Some(user), None).unwrap();
            }
        }
        let run = |options: &[&str]| {
            let mut command = tracker(home.path());
            command.current_dir(&project).arg("run").args(options).args(["--", "true"]);
            as_user(&mut command, user).output().unwrap()
        };
        assert!(run(&["--offline"]).status.success());
        let output = run(&["--offline"]);
        assert!(output.status.success(), "{}", text(&output));
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        for key in ["csv", "output", "report", "keep_runs", "offline"] {
            assert!(stderr.contains(&format!("warning: `{key}` in ")), "{key}: {stderr}");
        }
        let mut list = tracker(home.path());
        let listed = as_user(list.args(["list", "--json"]), user).output().unwrap();
        assert_eq!(
            String::from_utf8_lossy(&listed.stdout).matches("\"train\"").count(),
            2,
            "{}",
            text(&listed)
        );
        assert!(run(&["-q"]).stderr.is_empty());
    }
}
