//! Recovery of recordings: trackers, recoveries and final writes that are killed at any moment, containers, users who share
//! a history.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use support::{BIN, NOBODY, as_user, is_root, lines_of, next_line, open_folder, text, tracker};

/// Number of trackers to kill.
const KILLS: &str = "TEST_KILLS";

fn history(home: &Path) -> PathBuf {
    home.join("data/resource-tracker")
}

/// Files of the history with this suffix.
fn files(home: &Path, suffix: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(history(home)).into_iter().flatten().map(|file| file.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.to_str().unwrap().ends_with(suffix)).collect();
    files.sort();
    files
}

fn listed(home: &Path, user: u32) -> serde_json::Value {
    let mut command = tracker(home);
    let output = as_user(command.args(["list", "--json"]), user).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["runs"].clone()
}

/// Moments between 0 and `most` microseconds, the same in every run of the test.
struct Moments(u64);

impl Moments {
    fn wait(&mut self, most_us: u64) {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_micros((self.0 >> 33) % most_us));
    }
}

/// Kills a tracker while its job runs, or at a moment around the end of the job; returns the rows of its CSV.
fn kill_a_tracker(home: &Path, number: u64, moments: &mut Moments) -> usize {
    let csv = home.join(format!("{number}.csv"));
    let is_at_the_end = number % 3 == 1;
    let job = if is_at_the_end { "echo $$; sleep 0.1; echo end" } else { "echo $$; exec sleep 60" };
    let mut child = tracker(home)
        .args(["run", "-q", "--offline", "-i", "0.001", "-j", &format!("job-{number}"), "--csv"])
        .arg(&csv)
        .args(["--", "sh", "-c", job])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = lines_of(&mut child);
    if is_at_the_end {
        while !["end", ""].contains(&next_line(&mut lines).as_str()) {}
        moments.wait(40_000);
    } else {
        moments.wait(200_000);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    if !is_at_the_end && let Ok(pid) = next_line(&mut lines).parse::<i32>() {
        let job = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(job, rustix::process::Signal::KILL).unwrap();
    }
    // A line without its end is not a row.
    fs::read_to_string(&csv).unwrap_or_default().matches('\n').count().saturating_sub(1)
}

fn start_list(home: &Path) -> Child {
    tracker(home).arg("list").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn killed_trackers_and_recoveries_lose_one_row_at_most_and_overwrite_nothing() {
    let kills: u64 = std::env::var(KILLS).map_or(20, |kills| kills.parse().unwrap());
    let (home, mut moments) = (open_folder(), Moments(kills));
    let home = home.path();
    // Content of each recording when it was first seen.
    let mut recordings: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::new();
    let mut see_recordings = || {
        for path in files(home, ".json.gz") {
            let bytes = fs::read(&path).unwrap();
            let seen = recordings.entry(path.clone()).or_insert_with(|| bytes.clone());
            assert!(*seen == bytes, "{} was overwritten", path.display());
        }
        recordings.len()
    };
    let (mut died, mut saved, mut nothing, mut lost, mut in_final_write, mut in_recovery) =
        (0, 0, 0, 0, 0, 0);
    for number in 0..kills {
        let rows = kill_a_tracker(home, number, &mut moments);
        in_final_write += usize::from(!files(home, ".tmp").is_empty());
        see_recordings();
        if number % 3 == 2 {
            let mut list = start_list(home);
            moments.wait(15_000);
            list.kill().unwrap();
            in_recovery += usize::from(!list.wait().unwrap().success());
            see_recordings();
        }
        for mut list in [start_list(home), start_list(home)] {
            assert!(list.wait().unwrap().success());
        }
        let count = see_recordings();
        let runs = listed(home, 0);
        assert_eq!(runs.as_array().unwrap().len(), count, "every recording has an entry");
        for leftover in [files(home, ".tmp"), files(home, ".journal")].concat() {
            // A tracker that is killed at its start leaves an empty journal, which is removed after a day.
            let is_empty_journal =
                leftover.extension().unwrap() == "journal" && leftover.metadata().unwrap().len() == 0;
            assert!(is_empty_journal, "left: {}", leftover.display());
        }
        let job = format!("job-{number}");
        let Some(run) = runs.as_array().unwrap().iter().find(|run| run["job"] == *job) else {
            assert!(rows <= 1, "{job}: {rows} rows in the CSV and no recording");
            nothing += 1;
            continue;
        };
        let recording =
            support::load(&history(home).join(format!("{}.json.gz", run["id"].as_str().unwrap())));
        let kept = recording["process_metrics"].as_array().unwrap().len();
        assert!(kept + 1 >= rows, "{job}: {kept} of {rows} rows");
        lost += rows.saturating_sub(kept);
        if run["status"] == "tracker_died" { died += 1 } else { saved += 1 }
    }
    let _ = writeln!(
        std::io::stdout(),
        "{kills} trackers killed: {died} recovered, {saved} saved before, {nothing} before the first row; {lost} rows \
         lost; {in_final_write} kills in the final write, {in_recovery} recoveries killed"
    );
    assert!(died > 0, "no tracker was killed before its job ended");
}

#[test]
fn tracker_that_is_suspended_in_another_container_keeps_its_journal() {
    let home = open_folder();
    let home = home.path();
    let start = || {
        let mut command = Command::new("unshare");
        command.args([
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            BIN,
            "run",
            "-q",
            "--offline",
            "-i",
            "0.05",
        ]);
        let mut child = command
            .args(["--", "sh", "-c", "echo started; read line"])
            .env("HOME", home)
            .env("XDG_DATA_HOME", home.join("data"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        assert_eq!(next_line(&mut lines_of(&mut child)), "started");
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
        let pid = rustix::process::Pid::from_raw(children.trim().parse().unwrap()).unwrap();
        (child, pid)
    };
    let send = |pid, signal| rustix::process::kill_process(pid, signal).unwrap();
    let (mut child, pid) = start();
    send(pid, rustix::process::Signal::STOP);
    let journal = files(home, ".journal").pop().unwrap();
    let aged = Command::new("touch").args(["-d", "3 hours ago"]).arg(&journal).status().unwrap();
    assert!(aged.success());
    assert_eq!(listed(home, 0), serde_json::json!([]));
    assert!(journal.exists());
    let output = tracker(home).arg("rm").arg(journal.file_stem().unwrap()).output().unwrap();
    assert!(text(&output).contains("is still being recorded") && journal.exists(), "{}", text(&output));
    send(pid, rustix::process::Signal::CONT);
    child.stdin.take().unwrap().write_all(b"x\n").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(listed(home, 0)[0]["status"], "finished");

    let (mut child, pid) = start();
    send(pid, rustix::process::Signal::KILL);
    child.wait().unwrap();
    assert_eq!(
        listed(home, 0)[0]["status"],
        "tracker_died",
        "the end of a tracker in a container is certain"
    );
    assert_eq!(files(home, ".journal"), [""; 0].map(PathBuf::from));
}

#[test]
fn users_who_share_a_history_recover_only_their_own_runs() {
    assert!(is_root(), "two users are needed");
    let home = open_folder();
    let home = home.path();
    fs::create_dir_all(history(home)).unwrap();
    fs::set_permissions(history(home), fs::Permissions::from_mode(0o777)).unwrap();
    let kill_tracker_of = |user: u32| {
        let mut command = tracker(home);
        command.args(["run", "-q", "--offline", "-i", "0.01", "--", "sh", "-c", "echo started; read line"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = as_user(&mut command, user).spawn().unwrap();
        assert_eq!(next_line(&mut lines_of(&mut child)), "started");
        child.kill().unwrap();
        child.wait().unwrap();
    };
    for (user, other) in [(NOBODY, 0), (0, NOBODY)] {
        kill_tracker_of(user);
        let journal = files(home, ".journal").pop().unwrap();
        let count = files(home, ".run").len();
        listed(home, other);
        assert!(
            journal.exists() && files(home, ".run").len() == count,
            "user {other} recovered a run of {user}"
        );
        listed(home, user);
        assert!(!journal.exists());
        let recording = journal.with_extension("json.gz");
        assert_eq!(fs::metadata(recording).unwrap().uid(), user);
    }
}

#[test]
fn journal_in_a_fallback_folder_is_recovered_only_by_the_user_and_home_that_recorded_it() {
    assert!(is_root(), "two users are needed");
    for user in [0, NOBODY] {
        let (home, other) = (open_folder(), open_folder());
        // The history cannot be written, and `TMPDIR` does not exist: the journal goes to `/tmp`.
        fs::write(home.path().join("data"), "").unwrap();
        let mut command = tracker(home.path());
        command
            .args(["run", "-q", "--offline", "-j", "lost", "-i", "0.01", "-o", "out"])
            .current_dir(home.path())
            .env("TMPDIR", home.path().join("missing"))
            .args(["--", "sh", "-c", "echo started; read line"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = as_user(&mut command, user).spawn().unwrap();
        assert_eq!(next_line(&mut lines_of(&mut child)), "started");
        child.kill().unwrap();
        child.wait().unwrap();
        fs::remove_file(home.path().join("data")).unwrap();
        for other_user in [0, NOBODY] {
            assert_eq!(
                listed(other.path(), other_user),
                serde_json::json!([]),
                "the history of another home"
            );
        }
        if user != 0 {
            assert_eq!(listed(home.path(), 0), serde_json::json!([]), "root with the home of the user");
            let _ = fs::remove_dir_all(home.path().join("data"));
        }
        assert_eq!(listed(home.path(), user)[0]["job"], "lost");
        let files = [files(home.path(), ".run"), files(home.path(), ".json.gz")].concat();
        let owners: Vec<u32> = files.iter().map(|file| fs::metadata(file).unwrap().uid()).collect();
        assert_eq!(owners, [user; 2]);
    }
}

#[test]
fn run_whose_recording_could_not_be_written_is_not_shown_as_killed() {
    assert!(is_root(), "only root can mount a small disk");
    let home = open_folder();
    let small = home.path().join("data");
    fs::create_dir(&small).unwrap();
    let size = Some(c"size=64k");
    rustix::mount::mount("none", &small, "tmpfs", rustix::mount::MountFlags::empty(), size).unwrap();
    let until_full = "while [ $(stat -f -c %a \"$1\") -gt 0 ]; do sleep 0.05; done; sleep 0.2; exit 3";
    let mut command = tracker(home.path());
    command.args(["run", "-q", "--offline", "-i", "0.001", "--", "sh", "-c", until_full, "sh"]);
    let status = command.arg(&small).status().unwrap();
    assert_eq!(status.code(), Some(3));
    rustix::mount::mount_remount(&small, rustix::mount::MountFlags::empty(), c"size=4m").unwrap();
    let output = tracker(home.path()).args(["show", "last"]).output().unwrap();
    let runs = listed(home.path(), 0);
    rustix::mount::unmount(&small, rustix::mount::UnmountFlags::DETACH).unwrap();
    let shown = text(&output);
    assert_eq!((&runs[0]["status"], &runs[0]["exit_code"]), (&"failed".into(), &3.into()), "{runs}");
    assert!(shown.contains("the recording could not be written when the run ended"), "{shown}");
    assert!(!shown.contains("tracker died"), "{shown}");
}
