//! What the tracker guarantees to the job: exit status, environment, outputs and history.
//! Signals are tested in `signals.rs`, streams in `streams.rs`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::collections::HashSet;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use support::cgroup::Group;
use support::{BIN, NOBODY, as_user, lines_of, load, next_line, open_folder, python, run, text, tracker};

#[test]
fn sysinfo_backend_follows_the_same_rules() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("run.json.gz");
    let busy = "import subprocess, sys, time
while time.process_time() < 0.4: pass
sys.exit(subprocess.run(['sh', '-c', 'echo out; exit 3']).returncode)";
    let output = run(
        home.path(),
        &["--backend", "sysinfo", "-o", file.to_str().unwrap(), "-i", "0.1"],
        &[&python(), "-c", busy],
    );
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(3), b"out\n".as_slice()));
    let recording = load(&file);
    assert_eq!(recording["metadata"]["resource_tracker"]["implementation"], "sysinfo");
    assert_eq!(recording["run"]["cpu_source"], "sysinfo");
    let rows = recording["process_metrics"].as_array().unwrap();
    let cpu_s: f64 =
        rows.iter().map(|row| row["utime"].as_f64().unwrap() + row["stime"].as_f64().unwrap()).sum();
    assert!(cpu_s > 0.05, "{cpu_s} s of CPU time in {} rows", rows.len());
    assert!(rows.iter().all(|row| row["memory"].as_f64().is_some_and(|kib| kib > 100.0)), "{rows:?}");
    let wrong = run(home.path(), &["--backend", "psutil"], &["true"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong).contains("backend `psutil` is not available on this system"), "{}", text(&wrong));
}

#[test]
fn exit_status_is_that_of_the_job() {
    let home = open_folder();
    let plain = home.path().join("plain");
    fs::write(&plain, "#!/bin/sh\n").unwrap();
    let code = |command: &[&str]| run(home.path(), &["-q", "--no-save"], command).status.code();
    assert_eq!(code(&["sh", "-c", "exit 7"]), Some(7));
    assert_eq!(code(&["true"]), Some(0));
    assert_eq!(code(&["no-such-command-anywhere"]), Some(127));
    assert_eq!(code(&[plain.to_str().unwrap()]), Some(126), "not executable");
    assert_eq!(code(&["/"]), Some(126), "a directory");
}

#[test]
fn job_inherits_signals_streams_and_environment_of_the_caller() {
    // Only the id of the run, which a tracker inside the job names as its parent, and the file for marks are added to the
    // environment.
    let home = open_folder();
    let print_state = "grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status; ls -l /proc/self/fd | awk '{print $9, $10, $11}' | grep -v '/proc/\\|pipe'; env | grep -v '^RESOURCE_TRACKER_[RM]'; pwd; ps -o pgid= -p $$";
    for setting in ["", "trap '' PIPE CHLD USR1;", "exec <&-;", "exec 0<&- 2>&-;"] {
        let shell = |wrapper: &str| {
            let script = format!("{setting} {wrapper} sh -c \"$1\"");
            let mut command = Command::new("setsid");
            command
                .args(["--wait", "sh", "-c", &script, "sh", print_state])
                .current_dir(home.path())
                .env("HOME", home.path());
            let output = command.output().unwrap();
            // The process group differs between runs.
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let (body, group) =
                text.trim_end().rsplit_once('\n').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
            (body, group.trim().is_empty())
        };
        let bare = shell("");
        assert!(bare.0.contains("SigIgn") && bare.0.contains("HOME="), "{}", bare.0);
        assert_eq!(shell(&format!("{BIN} run -q --no-save --")), bare, "{setting}");
    }
}

#[test]
fn job_is_in_the_trackers_process_group_and_survives_a_killed_tracker() {
    let home = open_folder();
    let mut child = tracker(home.path())
        .args([
            "run",
            "-q",
            "--no-save",
            "--",
            "sh",
            "-c",
            "echo $$ $(ps -o pgid= -p $$) $(ps -o pgid= -p $PPID); read line; echo alive",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = lines_of(&mut child);
    let line = next_line(&mut lines);
    let numbers: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(numbers[1], numbers[2], "{line}");
    child.kill().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    child.wait().unwrap();
    stdin.write_all(b"x\n").unwrap();
    assert_eq!(next_line(&mut lines), "alive");
}

#[test]
fn unwritable_named_output_is_an_error_before_the_job_starts() {
    let home = open_folder();
    let mark = home.path().join("started");
    for option in ["-o", "--csv"] {
        for path in ["/no/such/folder/out", "/proc/nothing", "/dev/full/x", home.path().to_str().unwrap()] {
            let output = run(home.path(), &[option, path], &["touch", mark.to_str().unwrap()]);
            let shown = text(&output);
            assert_eq!(output.status.code(), Some(125), "{option} {path}: {shown}");
            assert!(shown.contains("error: cannot write `") && shown.contains("hint: "), "{shown}");
            assert!(!mark.exists(), "{option} {path}");
        }
    }
    let output = run(home.path(), &["--csv", "/dev/full"], &["touch", mark.to_str().unwrap()]);
    assert!(output.status.code() == Some(125) && !mark.exists(), "{}", text(&output));
}

#[test]
fn unwritable_history_is_one_warning_and_the_job_runs() {
    let home = open_folder();
    let mut command = tracker(home.path());
    let output = command
        .env("XDG_DATA_HOME", "/proc/nothing")
        .args(["run", "--", "sh", "-c", "echo done; exit 3"])
        .output()
        .unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(3), &b"done\n"[..]));
    assert_eq!(String::from_utf8_lossy(&output.stderr).matches("warning").count(), 1, "{}", text(&output));
}

#[test]
fn full_disk_is_one_warning_and_the_job_runs() {
    let home = open_folder();
    let small = home.path().join("small");
    fs::create_dir(&small).unwrap();
    rustix::mount::mount("none", &small, "tmpfs", rustix::mount::MountFlags::empty(), Some(c"size=64k"))
        .unwrap();
    // The job waits until the rows have filled the disk, and then for rows that do not fit.
    let until_full = "while [ $(stat -f -c %a \"$1\") -gt 0 ]; do sleep 0.05; done; sleep 1";
    let mut command = tracker(home.path());
    let output = command
        .env("XDG_DATA_HOME", &small)
        .args(["run", "-i", "0.001", "--", "sh", "-c", until_full, "sh"])
        .arg(&small)
        .output()
        .unwrap();
    rustix::mount::unmount(&small, rustix::mount::UnmountFlags::DETACH).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert_eq!(stderr.matches("No space left on device").count(), 1, "{stderr}");
}

#[test]
fn attach_to_a_missing_process_is_an_error_and_to_a_short_one_a_recording() {
    let home = open_folder();
    let attach = |pid: &str, user: u32| {
        let mut command = tracker(home.path());
        as_user(command.args(["attach", "--no-save", pid]), user).current_dir("/").output().unwrap()
    };
    let missing = attach("2147483647", 0);
    assert_eq!(missing.status.code(), Some(1), "{}", text(&missing));
    assert!(text(&missing).contains("error: cannot follow process 2147483647"), "{}", text(&missing));
    assert_eq!(attach("0", 0).status.code(), Some(2));

    let mut zombie = Command::new("true").spawn().unwrap();
    let stat = format!("/proc/{}/stat", zombie.id());
    while !fs::read_to_string(&stat).unwrap().contains(") Z ") {
        std::thread::yield_now();
    }
    let output = attach(&zombie.id().to_string(), 0);
    zombie.wait().unwrap();
    assert!(output.status.code() == Some(1) && text(&output).contains("has ended"), "{}", text(&output));

    let output = attach_for_rows(home.path(), 1, 0);
    assert!(output.status.success() && text(&output).contains("process ended after"), "{}", text(&output));

    let output = attach_for_rows(home.path(), 30, NOBODY);
    assert!(!text(&output).contains("panicked") && output.status.success(), "{}", text(&output));
    assert!(
        text(&output).contains("warning: storage bytes are incomplete: no permission"),
        "{}",
        text(&output)
    );
}

/// Attaches as `user` to a process that ends after `count` rows of 0.1 s.
fn attach_for_rows(home: &Path, count: u32, user: u32) -> std::process::Output {
    let rows = home.join(format!("rows-{user}"));
    let wait = "until [ -e \"$1\" ] && [ $(wc -l < \"$1\") -gt $2 ]; do sleep 0.02; done";
    let mut process =
        Command::new("sh").args(["-c", wait, "sh"]).arg(&rows).arg(count.to_string()).spawn().unwrap();
    let pid = process.id().to_string();
    // Reaps the process as soon as it ends, so that no zombie stays.
    let reaper = std::thread::spawn(move || process.wait());
    let mut command = tracker(home);
    command.args(["attach", "--no-save", "-i", "0.1", "--csv"]).arg(&rows).arg(pid).current_dir("/");
    let output = as_user(&mut command, user).output().unwrap();
    // If attaching failed, the process still waits for rows: write enough of them to end it.
    fs::write(&rows, "\n".repeat(100)).unwrap();
    reaper.join().unwrap().unwrap();
    output
}

#[test]
fn processes_of_another_pid_namespace_do_not_count() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("run.json.gz");
    // A new PID namespace with the `/proc` of the outer one.
    let inside = |arguments: &[&str]| {
        let environment = tracker(home.path());
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--pid", "--fork", BIN]).args(arguments);
        for (name, value) in environment.get_envs() {
            if let Some(value) = value {
                command.env(name, value)
            } else {
                command.env_remove(name)
            };
        }
        command.output().unwrap()
    };
    let busy = "import time\nwhile time.process_time() < 0.3: pass";
    let output = inside(&["run", "-o", file.to_str().unwrap(), "--", &support::python(), "-c", busy]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(
        text(&output).contains("processes: `/proc` belongs to another PID namespace"),
        "{}",
        text(&output)
    );
    let recording = load(&file);
    let rows = recording["process_metrics"].as_array().unwrap();
    let cpu_s: f64 =
        rows.iter().filter_map(|row| Some(row["utime"].as_f64()? + row["stime"].as_f64()?)).sum();
    assert!(cpu_s >= 0.29, "{cpu_s} s of CPU time: {rows:?}");
    for name in ["memory", "children"] {
        assert!(rows.iter().all(|row| row[name].is_null()), "{name}: {rows:?}");
    }
    let output = inside(&["attach", "1"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("mount -t proc proc /proc"), "{}", text(&output));
}

#[test]
fn history_is_readable_only_by_its_owner() {
    let home = open_folder();
    assert!(run(home.path(), &["-q"], &["true"]).status.success());
    let folder = home.path().join("data/resource-tracker");
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 2, "recording and entry, no journal: {files:?}");
    for file in files {
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "{}", file.display());
    }
}

#[test]
fn job_shorter_than_an_interval_has_one_row_at_any_grid_position() {
    let home = open_folder();
    let csv = home.path().join("rows.csv");
    // Prints how many grid points of 5 s fell into the job. A job that starts in the last second before a grid point
    // waits for the grid point.
    let job = "import time
began = time.time()
time.sleep(0.3 if began % 5 < 4 else 5.2 - began % 5)
print(time.time() // 5 - began // 5)";
    let (mut without, mut with) = (0, 0);
    while without < 3 || with < 2 {
        if with < 2 && without >= 3 {
            std::thread::sleep(until_shortly_before_a_grid_point(5_000));
        }
        let options = ["-q", "--no-save", "-i", "5", "--csv", csv.to_str().unwrap()];
        let output = run(home.path(), &options, &[&python(), "-c", job]);
        let rows = fs::read_to_string(&csv).unwrap();
        assert_eq!(rows.lines().count(), 2, "{rows}");
        match output.stdout.as_slice() {
            b"0.0\n" => without += 1,
            b"1.0\n" => with += 1,
            _ => panic!("{}", text(&output)),
        }
    }
}

/// Time until half a second before the next grid point of the wall clock.
fn until_shortly_before_a_grid_point(grid_ms: u64) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let past_ms = u64::try_from(now % u128::from(grid_ms)).unwrap();
    Duration::from_millis((2 * grid_ms - 500 - past_ms) % grid_ms)
}

#[test]
fn cpu_usage_never_exceeds_the_cpus_of_the_machine_at_one_millisecond() {
    let home = open_folder();
    let csv = home.path().join("rows.csv");
    // Runs until 200 rows are written.
    let busy = "for i in 1 2 3; do (while :; do :; done) & done
until [ $(wc -l < \"$1\") -gt 200 ]; do sleep 0.02; done
kill $(jobs -p)";
    // Counts the CPUs of the machine, because the CPU quota of a container does not limit a single millisecond.
    let stat = fs::read_to_string("/proc/stat").unwrap();
    let cpus = stat.lines().filter(|line| line.starts_with("cpu")).count() - 1;
    for source in ["best", "procfs"] {
        let options =
            ["-q", "--no-save", "-i", "0.001", "--cpu-source", source, "--csv", csv.to_str().unwrap()];
        let output = run(home.path(), &options, &["bash", "-c", busy, "bash", csv.to_str().unwrap()]);
        assert!(output.status.success(), "{}", text(&output));
        let rows = fs::read_to_string(&csv).unwrap();
        for name in ["process_cpu_usage", "system_cpu_usage"] {
            let figures: Vec<f64> = support::column(&rows, name).into_iter().flatten().collect();
            let most = figures.iter().copied().fold(0.0, f64::max);
            assert!(figures.len() > 100, "{} figures of {name}", figures.len());
            #[expect(clippy::cast_precision_loss, reason = "few CPUs")]
            let bound = 1.1 * cpus as f64;
            assert!(most <= bound && most > 0.5, "{source} {name}: {most} of {cpus} CPUs");
        }
    }
}

#[test]
fn oom_kill_is_reported_with_a_memory_size_to_request() {
    let home = open_folder();
    let group = Group::with_memory(150_000_000);
    let greedy =
        "import time\nblocks = []\nwhile True:\n    blocks.append(b'x' * 10_000_000)\n    time.sleep(0.02)";
    let line = format!("{} && exec \"$@\"", group.enter());
    let mut command = tracker(home.path());
    let program = command.get_program().to_owned();
    command = {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &line, "sh"])
            .arg(program)
            .env("HOME", home.path())
            .env("XDG_DATA_HOME", home.path().join("data"));
        shell
    };
    let output =
        command.args(["run", "--offline", "-i", "0.1", "--", &python(), "-c", greedy]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(9), "{}", text(&output));
    assert!(stderr.starts_with("resource-tracker: killed (out of memory) after "), "{stderr}");
    // 1.2 × the limit of 143 MiB, rounded up.
    assert!(
        stderr.contains("of 143 MiB of memory: its real need is unknown, so the request is an estimate")
            && stderr.contains("next run   1 CPU, 256 MiB memory"),
        "{stderr}"
    );
    let shown = tracker(home.path()).args(["show", "last", "--json"]).output().unwrap();
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    // The limit is a whole number of pages.
    let limit_bytes = 150_000_000 / 4096 * 4096;
    let kills = serde_json::json!({ "processes": 1, "certain": true, "limit_bytes": limit_bytes });
    assert_eq!(shown["oom_kills"], kills);
}

/// Runs `tracker run -- sh -c 'echo done'` in a shell after `line`; returns what it printed.
fn run_after(line: &str, home: &Path) -> Output {
    let script = format!("{line}; exec {BIN} run --offline -- sh -c 'echo done'");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).env("HOME", home).env("XDG_DATA_HOME", home.join("data")).output().unwrap()
}

#[test]
fn limit_of_file_sizes_is_like_a_full_disk() {
    for blocks in [0, 1] {
        let home = open_folder();
        let output = run_after(&format!("ulimit -f {blocks}"), home.path());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        assert_eq!(output.stdout, b"done\n");
        assert!(String::from_utf8_lossy(&output.stderr).contains("File too large"), "{}", text(&output));
    }
}

#[test]
fn job_runs_with_any_limit_of_open_files() {
    for limit in (4..=28).chain([40, 64]) {
        let home = open_folder();
        let output = run_after(&format!("ulimit -n {limit}"), home.path());
        assert_eq!(output.status.code(), Some(0), "limit {limit}: {}", text(&output));
        assert_eq!(output.stdout, b"done\n", "limit {limit}: {}", text(&output));
    }
}

#[test]
fn job_runs_without_proc() {
    let home = open_folder();
    let script = format!("umount -l /proc; exec {BIN} run --offline -- sh -c 'echo done; exit 3'");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]).env("HOME", home.path());
    let output = command.output().unwrap();
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(3), &b"done\n"[..]), "{}", text(&output));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("warning: cpu: `/proc/stat` is not available on this host"), "{stderr}");
}

#[test]
fn idle_tree_is_not_read_again_at_every_row() {
    // A busy machine may start the 99 children late, which the best second does not show.
    let job = "i=1; while [ $i -lt 100 ]; do sleep 7 & i=$((i+1)); done; exec sleep 6";
    let home = tempfile::tempdir().unwrap();
    let trace = home.path().join("trace");
    let status = Command::new("strace")
        .args(["-f", "-ttt", "-e", "trace=openat", "-o", trace.to_str().unwrap(), BIN])
        .args(["run", "-q", "--no-save", "--offline", "-i", "0.2", "--", "sh", "-c", job])
        .env("HOME", home.path())
        .stderr(Stdio::null())
        .status()
        .expect("this test needs strace");
    assert!(status.success());
    let trace = fs::read_to_string(trace).unwrap();
    // Each line starts with the process that made the call, so the processes of the job are known. Those of other programs
    // may be read on a busy machine.
    let traced: HashSet<&str> = trace.lines().filter_map(|line| line.split(' ').next()).collect();
    let is_of_member = |line: &&str| {
        let path = line.split('"').nth(1).unwrap_or_default().trim_start_matches("/proc/");
        path.split_once('/')
            .is_some_and(|(pid, file)| traced.contains(pid) && ["cgroup", "io", "status"].contains(&file))
    };
    let time = |line: &str| line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap();
    let opened: Vec<f64> = trace.lines().filter(is_of_member).map(time).collect();
    let end = *opened.last().unwrap();
    let opened_per_row = |second: i32| {
        let before_end = f64::from(second)..f64::from(second + 1);
        let opened = opened.iter().filter(|at| before_end.contains(&(end - **at))).count();
        f64::from(u32::try_from(opened).unwrap()) / 5.0
    };
    let least = (1..5).map(opened_per_row).fold(f64::INFINITY, f64::min);
    assert!(least > 0.0 && least < 20.0, "{least} files of members opened in a row");
}
