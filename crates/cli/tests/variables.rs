//! Environment variables: empty, wrong and conflicting `RESOURCE_TRACKER_*`, and no `HOME`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;

use support::{open_folder, text, tracker};

/// Runs the command with variables; returns exit code and standard error.
fn ran(variables: &[(&str, &str)], arguments: &[&str]) -> (Option<i32>, String) {
    let home = open_folder();
    let mut command = tracker(home.path());
    command.current_dir(home.path()).args(arguments).envs(variables.iter().copied());
    let output = command.output().unwrap();
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stderr).replace(home.path().to_str().unwrap(), "HOME"),
    )
}

#[test]
fn empty_variables_count_as_unset() {
    let home = open_folder();
    let help = tracker(home.path()).args(["run", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let names: Vec<&str> = help
        .split(|letter: char| !letter.is_ascii_uppercase() && letter != '_')
        .filter(|word| word.starts_with("RESOURCE_TRACKER_"))
        .collect();
    assert!(names.len() > 10, "{names:?}");
    for name in &names {
        let (code, errors) = ran(&[(name, "")], &["run", "--", "true"]);
        assert!(
            code == Some(0) && !errors.contains("error") && !errors.contains("warning"),
            "{name}: {errors}"
        );
    }
    let all: Vec<(&str, &str)> = names.iter().map(|name| (*name, "")).collect();
    for arguments in
        [&["run", "--", "true"][..], &["process", "--samples", "1", "-i", "0.01"], &["config"], &["info"]]
    {
        let (code, errors) = ran(&all, arguments);
        assert_eq!((code, errors.contains("error")), (Some(0), false), "{arguments:?}: {errors}");
    }
}

#[test]
fn error_names_the_variable_and_no_option_that_was_not_typed() {
    let run = ["run", "--", "true"];
    for (name, value) in [
        ("RESOURCE_TRACKER_INTERVAL", "never"),
        ("RESOURCE_TRACKER_INTERVAL", "-1"),
        ("RESOURCE_TRACKER_HISTORY", "many"),
        ("RESOURCE_TRACKER_KEEP_RUNS", "-1"),
        ("RESOURCE_TRACKER_BACKEND", "magic"),
    ] {
        assert_eq!(ran(&[(name, value)], &["config"]), ran(&[(name, value)], &run));
        let (code, errors) = ran(&[(name, value)], &run);
        let first = errors.lines().next().unwrap_or_default();
        assert_eq!(code, Some(2), "{errors}");
        assert!(first.contains(name) && first.contains(value) && !first.contains(" '--"), "{errors}");
    }
    let (code, errors) =
        ran(&[("RESOURCE_TRACKER_INTERVAL", "1")], &["run", "--interval", "never", "--", "true"]);
    assert!(code == Some(2) && errors.contains("'--interval <SECONDS>'"), "{errors}");
    let both = [("RESOURCE_TRACKER_LIVE", "1"), ("RESOURCE_TRACKER_QUIET", "1")];
    let (code, errors) = ran(&both, &run);
    let names_both = both.iter().all(|(name, _)| errors.contains(name));
    assert!(
        code == Some(2) && names_both && !errors.contains("--live") && !errors.contains("--quiet"),
        "{errors}"
    );
}

#[test]
fn option_takes_precedence_over_a_conflicting_variable() {
    let (code, errors) = ran(&[("RESOURCE_TRACKER_QUIET", "1")], &["run", "--live", "--", "true"]);
    assert!(code == Some(0) && errors.contains("finished"), "{errors}");
    let (code, errors) = ran(&[("RESOURCE_TRACKER_LIVE", "1")], &["run", "-q", "--", "true"]);
    assert_eq!((code, errors.contains("finished")), (Some(0), false), "{errors}");
}

#[test]
fn missing_home_is_named() {
    let folder = open_folder();
    let without = |arguments: &[&str], home: Option<&str>| {
        let mut command = tracker(folder.path());
        command.env_remove("HOME").env_remove("XDG_DATA_HOME").current_dir(folder.path());
        command.envs(home.map(|home| ("HOME", home))).args(arguments);
        let output = command.output().unwrap();
        (output.status.code(), text(&output))
    };
    for home in [None, Some(""), Some("relative")] {
        for arguments in [&["list"][..], &["show", "last"], &["rm", "last"], &["report", "last"]] {
            let (code, shown) = without(arguments, home);
            assert!(code == Some(1) && shown.contains("`HOME` is not set"), "{arguments:?}: {shown}");
        }
        let (code, shown) = without(&["run", "--", "true"], home);
        assert!(
            code == Some(0) && shown.contains("cannot save the recording") && shown.contains("`HOME`"),
            "{shown}"
        );
        let (code, shown) = without(&["run", "-o", "a.json", "--", "true"], home);
        assert!(code == Some(0) && !shown.contains("HOME"), "{shown}");
        let (code, shown) = without(&["show", "a.json"], home);
        assert!(code == Some(0), "{shown}");
        fs::remove_file(folder.path().join("a.json")).unwrap();
    }
}
