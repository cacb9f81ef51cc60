//! Cgroups of the job: out-of-memory kills with their evidence, limits, throttled time and charged memory.
//!
//! The tests create real cgroups, which needs root.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::cgroup::{Group, Limit};
use support::verdict::{check, last_verdict};
use support::{load, python, text, tracker};

const LIMIT_BYTES: u64 = 150 << 20;

/// Allocates memory until the kernel kills it, at most 600 MB.
const GREEDY: &str = "import time\nblocks = []\nfor n in range(60):\n    blocks.append(b'x' * 10_000_000)\n    time.sleep(0.02)";

/// Allocates memory in this group until the kernel kills the process.
fn kill_a_process(group: &Group) {
    let line = format!("{} && exec \"$@\"", group.enter());
    let status = Command::new("sh").args(["-c", &line, "sh", &python(), "-c", GREEDY]).status().unwrap();
    assert_eq!(status.signal(), Some(9));
}

fn wait_for(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !is_true() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The last run of the history as JSON.
fn last_run(home: &Path) -> Value {
    let shown = tracker(home).args(["show", "last", "--json"]).output().unwrap();
    serde_json::from_slice(&shown.stdout).unwrap()
}

/// Starts a tracked shell that writes its pid to a file and waits; returns the tracker and the pid of the job.
fn start_waiting_job(home: &Path, enter: &str) -> (Child, String) {
    let ready = home.join("ready");
    let line =
        format!("{enter}; echo $$ > {0}.new; mv {0}.new {0}; while :; do sleep 0.1; done", ready.display());
    let child = tracker(home)
        .args(["run", "--offline", "-i", "0.1", "--", "sh", "-c", &line])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("the job does not start", || ready.exists());
    let pid = fs::read_to_string(&ready).unwrap().trim().to_owned();
    (child, pid)
}

#[test]
fn sigkill_during_an_oom_kill_in_another_cgroup_is_not_an_oom_kill() {
    let other = Group::with_memory(LIMIT_BYTES);
    let own = Group::with_memory(LIMIT_BYTES);
    // The job in the tracker's cgroup, and in a limited cgroup of its own.
    for enter in [":".to_owned(), own.enter()] {
        let home = tempfile::tempdir().unwrap();
        let (child, pid) = start_waiting_job(home.path(), &enter);
        kill_a_process(&other);
        assert!(Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.signal(), Some(9), "{}", text(&output));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.starts_with("resource-tracker: killed by signal 9 (SIGKILL) after "), "{stderr}");
        assert!(!stderr.contains("OOM"), "{stderr}");
        let shown = last_run(home.path());
        assert_eq!(shown["oom_kills"], Value::Null);
        assert_eq!(shown["advice"]["request"]["memory_bytes"], 128 << 20, "{shown}");
    }
}

#[test]
fn job_that_moves_itself_into_a_cgroup_has_the_limit_of_this_cgroup() {
    for in_child in [false, true] {
        let group = Group::with_memory(LIMIT_BYTES);
        let home = tempfile::tempdir().unwrap();
        let move_and_grow = format!("{} && sleep 0.5 && exec \"$@\"", group.enter());
        // In a subshell, `$$` would be the pid of the parent.
        let line = if in_child { "sh -c \"$line\" sh \"$@\"; exit $?" } else { move_and_grow.as_str() };
        let mut tracked = tracker(home.path());
        tracked.env("line", &move_and_grow).args(["run", "--offline", "-i", "0.1", "--"]);
        let output = tracked.args(["sh", "-c", line, "sh", &python(), "-c", GREEDY]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains("resource-tracker: killed (out of memory) after "), "{stderr}");
        // 1.2 × the limit of 150 MiB, rounded up.
        assert!(stderr.contains("of 150 MiB of memory: its real need is unknown"), "{stderr}");
        assert!(stderr.contains("next run   1 CPU, 256 MiB memory"), "{stderr}");
        check(if in_child { "why_oom_in_child" } else { "why_oom" }, last_verdict(home.path()));
        let shown = last_run(home.path());
        let kills = json!({ "processes": 1, "certain": true, "limit_bytes": LIMIT_BYTES });
        assert_eq!(shown["oom_kills"], kills, "in a child: {in_child}");
        if !in_child {
            #[expect(clippy::cast_precision_loss, reason = "a small number")]
            let limit = LIMIT_BYTES as f64;
            assert_eq!(shown["memory_limit_bytes"], limit, "{stderr}");
        }
    }
}

/// Attempts in the history, the newest first.
fn attempts(home: &Path) -> Vec<String> {
    let listed = tracker(home).args(["list", "--json"]).output().unwrap();
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let runs = listed["runs"].as_array().unwrap().iter();
    runs.map(|run| run["tags"]["attempt"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn command_is_run_again_after_an_oom_kill_at_a_limit_of_its_own() {
    let group = Group::with_memory(LIMIT_BYTES);
    // The job masks nothing, though the tracker has blocked signals at its first attempt.
    let line = format!(
        "grep -q '^SigBlk:\\s*0*$' /proc/self/status || exit 7; [ $RESOURCE_TRACKER_ATTEMPT -lt $ENOUGH ] || exit 5; \
         {}; sleep 0.5; exec \"$@\"",
        group.enter()
    );
    for (enough, code, expected) in [("3", Some(5), &["3", "2", "1"][..]), ("9", None, &["3", "2", "1"])] {
        let home = tempfile::tempdir().unwrap();
        let mut tracked = tracker(home.path());
        tracked.env("ENOUGH", enough).args(["run", "--retry-oom", "2", "--offline", "-i", "0.1", "--"]);
        let output = tracked.args(["sh", "-c", &line, "sh", &python(), "-c", GREEDY]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), code, "{stderr}");
        assert_eq!(output.status.signal(), code.is_none().then_some(9), "{stderr}");
        assert!(stderr.contains("out of memory: attempt 3 of at most 3 starts"), "{stderr}");
        assert_eq!(attempts(home.path()), expected, "{stderr}");
    }
}

#[test]
fn command_is_not_run_again_at_a_limit_of_the_tracker_itself() {
    let group = Group::with_memory(LIMIT_BYTES);
    let home = tempfile::tempdir().unwrap();
    let line = format!("{} && exec \"$@\"", group.enter());
    let tracked = tracker(home.path());
    let mut shell = Command::new("sh");
    shell.args(["-c", &line, "sh"]).arg(tracked.get_program());
    shell.env("HOME", home.path()).env("XDG_DATA_HOME", home.path().join("data"));
    shell.args(["run", "--retry-oom", "2", "--offline", "-i", "0.1", "--", &python(), "-c", GREEDY]);
    let output = shell.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(9), "{stderr}");
    assert!(stderr.contains("next: request 256 MiB of memory"), "{stderr}");
    assert!(stderr.contains("limit of the scheduler or container: the command is not run again"), "{stderr}");
    assert_eq!(attempts(home.path()), ["1"], "{stderr}");
}

#[test]
fn refused_processes_explain_a_failure() {
    let group = Group::new(&[Limit::Processes { count: 20 }]);
    let home = tempfile::tempdir().unwrap();
    let line = format!("{} && exec \"$@\"", group.enter());
    let mut shell = Command::new("sh");
    shell.args(["-c", &line, "sh"]).arg(tracker(home.path()).get_program());
    shell.env("HOME", home.path()).env("XDG_DATA_HOME", home.path().join("data"));
    // A background process that cannot be started ends the shell, and the others end by themselves.
    shell.args(["run", "-q", "--offline", "--", "sh", "-c", "for i in $(seq 30); do sleep 2 & done"]);
    let status = shell.stderr(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(2));
    check("why_too_many_processes", last_verdict(home.path()));
}

#[test]
fn attach_records_limits_throttled_time_and_memory_of_the_jobs_cgroups() {
    let group = Group::new(&[Limit::Memory { bytes: LIMIT_BYTES }, Limit::Cpu]);
    let home = tempfile::tempdir().unwrap();
    let line = format!("{}; exec \"$@\"", group.enter());
    let busy = "import time\nheld = bytearray(50_000_000)\nwhile True: pass";
    let mut job = Command::new("sh").args(["-c", &line, "sh", &python(), "-c", busy]).spawn().unwrap();
    wait_for("the job is not throttled", || !group.throttled().is_zero());
    let file = home.path().join("run.json.gz");
    let mut attach = tracker(home.path());
    attach.args([
        "attach",
        "--offline",
        "-q",
        "-i",
        "0.1",
        "-o",
        file.to_str().unwrap(),
        &job.id().to_string(),
    ]);
    let mut attached = attach.spawn().unwrap();
    let before = group.throttled();
    wait_for("the job is not throttled", || group.throttled() > before + Duration::from_secs(1));
    job.kill().unwrap();
    job.wait().unwrap();
    assert!(attached.wait().unwrap().success());
    let recording = load(&file);
    let info = &recording["server_info"];
    assert_eq!((&info["cpu_limit"], &info["memory_limit_mb"]), (&json!(0.2), &json!(150.0)), "{info}");
    let rows = recording["extra_metrics"].as_array().unwrap();
    let throttled_s: f64 = rows.iter().filter_map(|row| row["throttled"].as_f64()).sum();
    assert!(throttled_s > 0.5, "{throttled_s} s in {} rows", rows.len());
    let charged: Vec<f64> = rows.iter().filter_map(|row| row["cgroup_memory"].as_f64()).collect();
    assert!(charged.iter().any(|kib| (48_000.0..160_000.0).contains(kib)), "{charged:?}");
}

#[test]
fn large_files_in_tmpfs_are_a_finding() {
    let group = Group::with_memory(1 << 30);
    let home = tempfile::tempdir().unwrap();
    let file = format!("/dev/shm/tmpfs-test-{}", std::process::id());
    for (megabytes, is_found) in [(150, true), (1, false)] {
        let line = format!(
            "{}; sleep 0.5; head -c {megabytes}000000 /dev/zero > {file}; sleep 1; rm {file}",
            group.enter()
        );
        let mut tracked = tracker(home.path());
        let output =
            tracked.args(["run", "--offline", "-i", "0.1", "--", "sh", "-c", &line]).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stderr}");
        assert_eq!(stderr.contains("files in /dev/shm or another tmpfs used 14"), is_found, "{stderr}");
    }
}
