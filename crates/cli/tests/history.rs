//! Files of the history that are damaged, special or too many.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use support::{lines_of, next_line, open_folder, run, runs, text, tracker};

/// Runs a command that must not block.
fn shown(home: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "20", support::BIN]).args(arguments).current_dir(home);
    for (name, value) in tracker(home).get_envs() {
        if let Some(value) = value {
            command.env(name, value)
        } else {
            command.env_remove(name)
        };
    }
    command.output().unwrap()
}

fn make_fifo(path: &Path) {
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
}

#[test]
fn runs_that_cannot_be_read_are_named_and_can_be_removed() {
    let home = runs::home_with_runs();
    let history = home.path().join("data/resource-tracker");
    // Damaged, too long, without an entry, a journal that is not one, and a FIFO.
    fs::write(history.join("c1.run"), "{").unwrap();
    fs::write(history.join("c2.run"), vec![b' '; 2 << 20]).unwrap();
    fs::write(history.join("c3.json.gz"), "x").unwrap();
    fs::write(history.join("c4.journal"), "x").unwrap();
    make_fifo(&history.join("c5.run"));
    let list = shown(home.path(), &["list"]);
    let stderr = String::from_utf8_lossy(&list.stderr);
    assert!(list.status.success() && stderr.contains("cannot read 3 runs of the history: "), "{stderr}");
    for id in ["c1", "c2", "c5"] {
        assert!(stderr.contains(id), "{stderr}");
    }
    assert!(text(&shown(home.path(), &["rm", "c"])).contains("ambiguous id `c`: it matches 5 runs"));
    for name in ["c1", "c2.run", "c3.json.gz", "c4", "c5"] {
        if name == "c5" {
            let last = text(&shown(home.path(), &["list"]));
            assert!(last.contains("cannot read 1 run of the history: c5"), "{last}");
        }
        let output = shown(home.path(), &["rm", name]);
        let id = name.split('.').next().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("removed {id}\n"), "{}", text(&output));
    }
    assert!(text(&shown(home.path(), &["rm", "c1"])).contains("no run named `c1`"));
    assert!(text(&shown(home.path(), &["rm", "../resource-tracker/a10000000001"])).contains("no run named"));
    assert_eq!(fs::read_dir(&history).unwrap().count(), 2 * runs::RUNS.len(), "the other runs stay");
}

#[test]
fn listed_runs_are_chosen_by_tag_status_and_start() {
    let home = runs::home_with_runs();
    let listed = |arguments: &[&str]| {
        let output = shown(home.path(), &[&["list", "--json"], arguments].concat());
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let ids =
            json["runs"].as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap()[..2].to_owned());
        ids.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(listed(&["--tag", "team=vision"]), "b2 b1 a4 a3 a2 a1");
    assert_eq!(listed(&["--tag", "team=vision", "--tag", "team=other"]), "");
    assert_eq!(listed(&["--tag", "team=vision", "--status", "killed"]), "b2");
    assert_eq!(
        listed(&["--status", "finished", "--since", "2011-03-13T07:06:40Z"]),
        "b1 a4",
        "1.3e9 is included"
    );
    assert_eq!(listed(&["--since", "1h"]), "");
    assert!(run(home.path(), &["--offline", "--tag", "new=yes"], &["true"]).status.success());
    assert_ne!(listed(&["--since", "1h", "--tag", "new=yes"]), "");
    assert_eq!(shown(home.path(), &["list", "--tag", "a=b"]).stdout, b"no matching runs\n");
    for wrong in [["--since", "yesterday"], ["--status", "good"], ["--tag", "team"]] {
        assert_eq!(shown(home.path(), &[&["list"][..], &wrong].concat()).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn show_bases_its_advice_on_as_many_runs_as_asked() {
    let home = runs::home_with_runs();
    let runs = |history: &str| {
        let output = shown(home.path(), &["show", "b1", "--json", "--history", history]);
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        json["advice"]["runs"].as_u64()
    };
    assert_eq!(["0", "2", "100"].map(runs), [Some(1), Some(3), Some(5)]);
}

#[test]
fn name_of_a_run_wins_over_a_file_of_the_same_name() {
    let home = runs::home_with_runs();
    let other = runs::recording("other", &runs::Run { id: "f10000000009", ..runs::RUNS[0] }).to_string();
    for name in ["train", "last", "a20000000002", "a1", "plain"] {
        fs::write(home.path().join(name), &other).unwrap();
    }
    let id = |name: &str| {
        let output = shown(home.path(), &["show", name, "--json"]);
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        json["id"].as_str().unwrap().to_owned()
    };
    assert_eq!(["train", "last", "a20000000002"].map(id), ["b20000000006", "b20000000006", "a20000000002"]);
    let file = "f10000000009";
    assert_eq!(["./train", "./last", "./a20000000002", "plain"].map(id), [file; 4]);
    assert_eq!(id("a1"), file, "a file is preferred to the first characters of an id");
    let compared = text(&shown(home.path(), &["compare", "train", "./train"]));
    assert!(compared.contains("train (5 runs)  other f10000"), "{compared}");
}

#[test]
fn special_files_in_the_history_block_no_command() {
    let home = runs::home_with_runs();
    let history = home.path().join("data/resource-tracker");
    for name in ["f1.run", "f2.journal", "f3.json.gz", ".f4-0.tmp", "b20000000006.journal"] {
        make_fifo(&history.join(name));
    }
    fs::remove_file(history.join("b20000000006.json.gz")).unwrap();
    make_fifo(&history.join("b20000000006.json.gz"));
    assert_eq!(shown(home.path(), &["show", "last"]).status.code(), Some(1));
    for command in [
        &["list"][..],
        &["show", "b1"],
        &["recommend", "b1", "--offline"],
        &["compare", "a1", "a2"],
        &["run", "--offline", "-j", "train", "--keep-runs", "1", "--", "true"],
        &["rm", "f1", "f2", "f3", "b2"],
    ] {
        let output = shown(home.path(), command);
        assert!(output.status.success(), "{command:?}: {}", text(&output));
    }
}

#[test]
fn term_and_int_end_a_tracker_whose_output_blocks_after_the_job_has_ended() {
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        let home = open_folder();
        let fifo = home.path().join("fifo");
        make_fifo(&fifo);
        // Fills the pipe, which nobody reads: the next write blocks.
        let mut full = File::options().read(true).write(true).open(&fifo).unwrap();
        let size = rustix::pipe::fcntl_setpipe_size(&full, 4096).unwrap();
        full.write_all(&vec![0; size]).unwrap();
        let mut child = tracker(home.path())
            .args(["run", "-q", "--offline", "-o", fifo.to_str().unwrap(), "--", "echo", "done"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = lines_of(&mut child);
        assert_eq!((next_line(&mut lines), child.try_wait().unwrap()), ("done".to_owned(), None));
        let children = format!("/proc/{0}/task/{0}/children", child.id());
        while !fs::read_to_string(&children).unwrap().is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        // A signal that arrives before the end of the job is noticed goes to the job.
        let sent = Instant::now();
        while child.try_wait().unwrap().is_none() && sent.elapsed() < Duration::from_secs(5) {
            rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).unwrap();
            std::thread::sleep(Duration::from_millis(50));
        }
        let has_ended = child.try_wait().unwrap().is_some();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(has_ended, "{signal:?}");
    }
}

#[test]
fn removal_of_old_runs_is_reported_once() {
    let home = runs::home_with_runs();
    let with = |keep: &str| {
        let output = run(home.path(), &["--offline", "--keep-runs", keep], &["true"]);
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let removed = "from the history, which keeps the newest";
    assert!(!with("7").contains(removed), "nothing was removed");
    let shown = with("3");
    assert_eq!(shown.matches(removed).count(), 1, "{shown}");
    assert!(
        shown.contains("removed 5 old runs from the history, which keeps the newest 3 (--keep-runs)"),
        "{shown}"
    );
    assert!(!with("4").contains(removed));
}
