//! Output files: what they replace, and attacks of other users in a shared folder.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::process::Output;

use support::{NOBODY, as_user, is_root, open_folder, run, runs, text, tracker};

const PRECIOUS: &str = "precious";
/// Another user than root and [`NOBODY`].
const ATTACKER: u32 = 65_533;

/// The commands that write a file, without the path, which is the last word.
const WRITERS: [&[&str]; 6] = [
    &["run", "--no-save", "--report"],
    &["run", "--no-save", "--csv"],
    &["run", "-o"],
    &["run", "--no-save", "--json"],
    &["report", "last", "--offline", "-o"],
    &["export", "last", "-o"],
];

fn write_to(home: &Path, user: u32, writer: &[&str], path: &Path, options: &[&str]) -> Output {
    let mut command = tracker(home);
    command.current_dir(home).args(writer).arg(path).args(options);
    if writer[0] == "run" {
        command.args(["--offline", "--", "touch", "started"]);
    }
    as_user(&mut command, user).output().unwrap()
}

fn assert_refused(output: &Output, writer: &[&str], home: &Path, attack: &str) {
    let expected = if writer[0] == "run" { 125 } else { 1 };
    assert_eq!(output.status.code(), Some(expected), "{attack}, {writer:?}: {}", text(output));
    assert!(text(output).contains("error: cannot write `"), "{attack}, {writer:?}: {}", text(output));
    assert!(!home.join("started").exists(), "{attack}, {writer:?}: the job ran");
}

/// A home with a run in its history, all owned by `user`.
fn home_of(user: u32) -> tempfile::TempDir {
    let home = open_folder();
    let mut command = tracker(home.path());
    command.args(["run", "-q", "--offline", "--", "true"]);
    assert!(as_user(&mut command, user).status().unwrap().success());
    home
}

#[test]
fn other_users_cannot_redirect_or_take_over_an_output() {
    assert!(is_root(), "only root can create files of other users");
    for user in [0, NOBODY] {
        let home = home_of(user);
        let shared = home.path().join("shared");
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
        let (victim, missing) = (home.path().join("victim"), home.path().join("missing"));
        fs::write(&victim, "").unwrap();
        chown(&victim, Some(user), None).unwrap();
        let out = shared.join("out");
        for writer in WRITERS {
            for options in [&[][..], &["--force"]] {
                let refused = |attack: &str| {
                    let output = write_to(home.path(), user, writer, &out, options);
                    assert_refused(&output, writer, home.path(), attack);
                    assert_eq!(fs::metadata(&victim).unwrap().len(), 0, "{attack}, {writer:?}");
                    assert!(!missing.exists(), "{attack}, {writer:?}");
                    let found = fs::symlink_metadata(&out).unwrap();
                    assert_eq!(found.uid(), ATTACKER, "{attack}, {writer:?}");
                    fs::remove_file(&out).unwrap();
                    assert_eq!(
                        fs::read_dir(&shared).unwrap().count(),
                        0,
                        "{attack}: a temporary file is left"
                    );
                };
                for (target, attack) in [(&victim, "link to a file"), (&missing, "link to a missing file")] {
                    symlink(target, &out).unwrap();
                    std::os::unix::fs::lchown(&out, Some(ATTACKER), None).unwrap();
                    refused(attack);
                }
                fs::write(&out, "").unwrap();
                fs::set_permissions(&out, fs::Permissions::from_mode(0o666)).unwrap();
                chown(&out, Some(ATTACKER), None).unwrap();
                refused("file of another user");
                rustix::fs::mknodat(rustix::fs::CWD, &out, rustix::fs::FileType::Fifo, 0o666.into(), 0)
                    .unwrap();
                fs::set_permissions(&out, fs::Permissions::from_mode(0o666)).unwrap();
                chown(&out, Some(ATTACKER), None).unwrap();
                refused("FIFO of another user");
            }
        }
    }
}

#[test]
fn file_of_the_user_is_replaced_only_with_force() {
    for user in if is_root() { vec![0, NOBODY] } else { vec![rustix::process::getuid().as_raw()] } {
        let home = home_of(user);
        let out = home.path().join("out");
        for writer in WRITERS {
            for content in
                [PRECIOUS, "timestamp,cpu_usage\n1,2\n", "{\"metadata\": {}}", "<!DOCTYPE html><title>x"]
            {
                fs::write(&out, content).unwrap();
                if is_root() {
                    chown(&out, Some(user), None).unwrap();
                }
                assert_refused(&write_to(home.path(), user, writer, &out, &[]), writer, home.path(), content);
                assert_eq!(fs::read_to_string(&out).unwrap(), content);
            }
            let output = write_to(home.path(), user, writer, &out, &["--force"]);
            assert!(output.status.success(), "{writer:?}: {}", text(&output));
            assert_ne!(fs::read_to_string(&out).ok().as_deref(), Some(PRECIOUS));
            let _ = fs::remove_file(home.path().join("started"));
            // A file that one writer has written is replaced by every writer, and so is an empty file.
            for next in WRITERS {
                let output = write_to(home.path(), user, next, &out, &[]);
                assert!(output.status.success(), "{writer:?}, then {next:?}: {}", text(&output));
                let again = write_to(home.path(), user, writer, &out, &[]);
                assert!(again.status.success(), "{next:?}, then {writer:?}: {}", text(&again));
            }
            let _ = fs::remove_file(home.path().join("started"));
            fs::write(&out, "").unwrap();
        }
    }
}

#[test]
fn all_export_formats_replace_each_other() {
    let home = home_of(rustix::process::getuid().as_raw());
    let out = home.path().join("out");
    for format in ["csv", "jsonl", "parquet", "json", "parquet", "csv", "json", "jsonl", "json"] {
        // A whole recording has no names of columns to choose.
        for names in if format == "json" { vec![&[][..]] } else { vec![&[][..], &["--human-names"]] } {
            let options = [&["--format", format], names].concat();
            let output = write_to(home.path(), 0, &["export", "last", "-o"], &out, &options);
            assert!(output.status.success(), "{format} {names:?}: {}", text(&output));
        }
    }
}

#[test]
fn link_is_followed_only_if_the_user_named_it() {
    let home = runs::home_with_runs();
    let target = home.path().join("target");
    let report = |arguments: &[&str]| {
        let mut command = tracker(home.path());
        command
            .current_dir(home.path())
            .args(["report", "last", "--offline"])
            .args(arguments)
            .output()
            .unwrap()
    };
    let link = home.path().join("train-report.html");
    for content in [None, Some(""), Some(PRECIOUS)] {
        let _ = fs::remove_file(&target);
        if let Some(content) = content {
            fs::write(&target, content).unwrap();
        }
        let _ = fs::remove_file(&link);
        symlink(&target, &link).unwrap();
        for options in [&[][..], &["--force"]] {
            let output = report(options);
            assert_eq!(output.status.code(), Some(1), "{}", text(&output));
            assert_eq!(fs::read_to_string(&target).ok().as_deref(), content, "{}", text(&output));
        }
    }
    fs::write(&target, "").unwrap();
    let output = report(&["-o", link.to_str().unwrap()]);
    assert!(output.status.success() && fs::metadata(&target).unwrap().len() > 1000, "{}", text(&output));
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
}

#[test]
fn file_that_the_job_creates_is_not_replaced() {
    let home = open_folder();
    let out = home.path().join("out");
    let output = run(
        home.path(),
        &["--offline", "-o", out.to_str().unwrap()],
        &["sh", "-c", "echo precious > \"$0\"", out.to_str().unwrap()],
    );
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(fs::read_to_string(&out).unwrap(), "precious\n");
    assert!(text(&output).contains("cannot write the recording: "), "{}", text(&output));
}

#[test]
fn temporary_file_of_a_killed_tracker_is_removed_by_the_next_run() {
    let home = open_folder();
    let out = home.path().join("out");
    let mut command = tracker(home.path());
    let mut child = command
        .args([
            "run",
            "-q",
            "--offline",
            "-o",
            out.to_str().unwrap(),
            "--",
            "sh",
            "-c",
            "echo started; read line",
        ])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(support::next_line(&mut support::lines_of(&mut child)), "started");
    let temporary = || {
        let names =
            fs::read_dir(home.path()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.contains(".tmp")).collect::<Vec<_>>()
    };
    let of_first = temporary();
    assert_eq!(of_first.len(), 1, "{of_first:?}");
    let second =
        |mark: &str| run(home.path(), &["-q", "--offline", "-o", out.to_str().unwrap()], &["true", mark]);
    assert!(second("beside").status.success());
    assert_eq!(temporary(), of_first, "the first tracker still runs");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(second("after").status.success());
    assert_eq!(temporary(), [""; 0]);
}
