//! Why a run failed: the verdict and its evidence, for real endings.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use support::verdict::{check, last_verdict};
use support::{BIN, python, tracker};

/// Runs a shell line under the tracker in `folder`; returns the verdict.
fn why_of(home: &Path, folder: &Path, line: &str) -> String {
    let mut run = tracker(home);
    run.current_dir(folder).args(["run", "--offline", "-i", "0.1", "--", "sh", "-c", line]);
    let output = run.stderr(Stdio::null()).stdout(Stdio::null()).output().unwrap();
    assert!(!output.status.success(), "{line}");
    last_verdict(home)
}

#[test]
fn exit_codes_and_signals() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("plain.txt"), "text").unwrap();
    let mut text = String::new();
    for line in [
        "exit 1",
        "exit 2",
        "exit 3",
        "exit 125",
        "./plain.txt",
        "no-such-command",
        "kill -SEGV $$",
        "sh -c 'kill -SEGV $$'; exit $?",
        "kill -PIPE $$",
        "kill -KILL $$",
        "kill -ABRT $$",
        "kill -XCPU $$",
        "timeout 0.3 sleep 60",
        "timeout -s KILL 0.3 sleep 60",
    ] {
        let _ = writeln!(text, "$ {line}\n{}", why_of(home.path(), home.path(), line));
    }
    check("why_exit_codes_and_signals", text);
}

/// Waits until a file of the job exists.
fn wait_for(path: &Path) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !path.exists() {
        assert!(Instant::now() < deadline, "{} does not appear", path.display());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn signals_of_other_processes_name_their_sender_where_the_kernel_does() {
    let home = tempfile::tempdir().unwrap();
    let mut text = String::new();
    let ready = home.path().join("ready");
    let job = format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 60", ready.display());
    // To the job, and to the tracker, which forwards it.
    for (signal, to_tracker) in [("KILL", false), ("TERM", true)] {
        let mut child =
            tracker(home.path()).args(["run", "-q", "--offline", "--", "sh", "-c", &job]).spawn().unwrap();
        wait_for(&ready);
        let pid = fs::read_to_string(&ready).unwrap();
        fs::remove_file(&ready).unwrap();
        let pid = if to_tracker { child.id().to_string() } else { pid.trim().to_owned() };
        // The shell itself sends the signal, and stays until the tracker has read its name.
        let mut sender = Command::new("sh")
            .args(["-c", &format!("kill -{signal} {pid}; read x")])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        child.wait().unwrap();
        drop(sender.stdin.take());
        sender.wait().unwrap();
        let to = if to_tracker { "tracker" } else { "job" };
        let _ = writeln!(text, "$ kill -{signal} {to}\n{}", last_verdict(home.path()));
    }
    let words = ["0.5", BIN, "run", "-q", "--offline", "--", "sleep", "60"];
    let mut outer = Command::new("timeout");
    outer.args(words).env("HOME", home.path()).env("XDG_DATA_HOME", home.path().join("data"));
    assert_eq!(outer.status().unwrap().code(), Some(124));
    let _ = writeln!(text, "$ timeout 0.5 resource-tracker run -- sleep 60\n{}", last_verdict(home.path()));
    let now_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let mut ended = tracker(home.path());
    let ended = ended.env("SLURM_JOB_END_TIME", now_s.to_string()).args([
        "run",
        "-q",
        "--offline",
        "--",
        "sh",
        "-c",
        "kill -TERM $$",
    ]);
    assert!(!ended.status().unwrap().success());
    let late = last_verdict(home.path());
    let late =
        late.lines().filter(|line| !line.contains("SLURM_JOB_END_TIME")).collect::<Vec<_>>().join("\n");
    let _ = writeln!(text, "$ SLURM_JOB_END_TIME=now sh -c 'kill -TERM $$'\n{late}");
    check("why_signals", text);
}

/// Runs `job` in `folder`, in a mount namespace of its own where `small` is a tmpfs of 1 MiB and `inodes` has 4 inodes.
fn why_on_small_disks(home: &Path, folder: &str, job: &str) -> String {
    let line = format!(
        "mkdir -p small inodes && mount -t tmpfs -o size=1m tmpfs small \
         && mount -t tmpfs -o size=8m,nr_inodes=4 tmpfs inodes && cd {folder} || exit 99
         exec {BIN} run -q --offline -- sh -c \"$1\""
    );
    let mut namespace = Command::new("unshare");
    namespace.args(["--mount", "sh", "-c", &line, "sh", job]).current_dir(home).stderr(Stdio::null());
    namespace.env("HOME", home).env("XDG_DATA_HOME", home.join("data")).env("TMPDIR", home);
    assert_eq!(namespace.status().unwrap().code(), Some(1), "{job}");
    format!("$ cd {folder}; {job}\n{}\n", last_verdict(home)).replace(home.to_str().unwrap(), "HOME")
}

#[test]
fn full_disk() {
    let home = tempfile::tempdir().unwrap();
    let elsewhere = format!("head -c 4000000 /dev/zero > {}/small/file || exit 1", home.path().display());
    let text = [
        ("small", "head -c 4000000 /dev/zero > file || exit 1"),
        ("inodes", "touch 1 2 3 4 5 6 || exit 1"),
        (".", &elsewhere),
        (".", "cd small; head -c 4000000 /dev/zero > file || exit 1"),
        ("small", "exit 1"),
    ];
    let text = text.map(|(folder, job)| why_on_small_disks(home.path(), folder, job));
    check("why_full_disk", text.concat());
}

#[test]
fn too_many_open_files() {
    let home = tempfile::tempdir().unwrap();
    // Stays for some samples after the error, as a job does that cleans up.
    let script = "import time\nfiles = []\ntry:\n    while True: files.append(open('/dev/null'))\nexcept OSError:\n    for _ in range(100): time.sleep(0.02)\n    raise";
    fs::write(home.path().join("leak.py"), script).unwrap();
    let line = format!("ulimit -n 64; exec {} leak.py", python());
    check("why_too_many_files", why_of(home.path(), home.path(), &line));
}
