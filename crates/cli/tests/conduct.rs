//! Rules of conduct towards the job: its exit status, signals, terminal and environment are as without us.
//! What passes through its streams: `streams.rs`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs::{self, File};
use std::io::{BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process};
use support::{BIN, NOBODY, as_user, open_folder, python, run, text, tracker};

fn kill(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn lines_of(child: &mut Child) -> BufReader<ChildStdout> {
    BufReader::new(child.stdout.take().unwrap())
}

fn next_line(lines: &mut impl std::io::BufRead) -> String {
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// A snapshot file as JSON.
fn load(path: &Path) -> serde_json::Value {
    let mut json = String::new();
    flate2::read::GzDecoder::new(File::open(path).unwrap()).read_to_string(&mut json).unwrap();
    serde_json::from_str(&json).unwrap()
}

/// Says `ready`, then each signal that it gets with its count; ends with SIGUSR2.
const COUNTER: &str = "
import os, signal, sys
counts = {}
def say(text):
    os.write(1, (text + '\\n').encode())  # not print: a signal may come in the middle of one
def count(number, _frame):
    counts[number] = counts.get(number, 0) + 1
    say(f'{signal.Signals(number).name} {counts[number]}')
    if number == signal.SIGUSR2:
        sys.exit(0)
for name in ['TERM', 'INT', 'HUP', 'USR1', 'USR2']:
    signal.signal(getattr(signal, 'SIG' + name), count)
say('ready')
while True:
    signal.pause()
";

#[test]
fn the_portable_backend_runs_a_job_by_the_same_rules() {
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
    assert!(text(&wrong).contains("there is no backend `psutil` here"), "{}", text(&wrong));
}

#[test]
fn the_exit_status_is_the_jobs() {
    let home = open_folder();
    let plain = home.path().join("plain");
    fs::write(&plain, "#!/bin/sh\n").unwrap();
    let code = |command: &[&str]| run(home.path(), &["-q", "--no-save"], command).status.code();
    assert_eq!(code(&["sh", "-c", "exit 7"]), Some(7));
    assert_eq!(code(&["true"]), Some(0));
    assert_eq!(code(&["sh", "-c", "kill -TERM $$"]), Some(128 + 15));
    assert_eq!(code(&["sh", "-c", "kill -SEGV $$"]), Some(128 + 11));
    assert_eq!(code(&["no-such-command-anywhere"]), Some(127));
    assert_eq!(code(&[plain.to_str().unwrap()]), Some(126), "not executable");
    assert_eq!(code(&["/"]), Some(126), "a folder");
}

#[test]
fn signals_that_are_sent_to_us_reach_the_job_once_each() {
    let home = open_folder();
    let mut child = tracker(home.path())
        .args(["run", "-q", "--no-save", "--", &python(), "-c", COUNTER])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = lines_of(&mut child);
    assert_eq!(next_line(&mut lines), "ready");
    for (signal, name) in [
        (Signal::TERM, "SIGTERM"),
        (Signal::INT, "SIGINT"),
        (Signal::HUP, "SIGHUP"),
        (Signal::USR1, "SIGUSR1"),
    ] {
        kill(&child, signal);
        assert_eq!(next_line(&mut lines), format!("{name} 1"));
    }
    kill(&child, Signal::USR2);
    // Anything that had come twice would stand before this line.
    assert_eq!(next_line(&mut lines), "SIGUSR2 1");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// A pseudo-terminal with the command's session on it.
struct Terminal {
    master: File,
    child: Child,
    seen: String,
}

impl Terminal {
    fn start(home: &Path, command: &[&str]) -> Self {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let master: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave = || File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let mut session = Command::new("setsid");
        session
            .args(["--ctty", "--wait"])
            .args(command)
            .env("HOME", home)
            .env("XDG_DATA_HOME", home.join("data"));
        let child = session.stdin(slave()).stdout(slave()).stderr(slave()).spawn().unwrap();
        Self { master: File::from(master), child, seen: String::new() }
    }

    /// Reads until `wanted` has come; what stood before it is kept in `seen`.
    fn wait_for(&mut self, wanted: &str) {
        let mut bytes = [0; 4096];
        while !self.seen.contains(wanted) {
            // A terminal whose other side is closed answers with an error.
            let Ok(length @ 1..) = self.master.read(&mut bytes) else {
                panic!("no {wanted:?} in {:?}", self.seen)
            };
            self.seen.push_str(&String::from_utf8_lossy(&bytes[..length]));
        }
    }

    fn type_in(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    fn end(&mut self) -> Option<i32> {
        let status = self.child.wait().unwrap();
        let mut rest = Vec::new();
        let _ = self.master.read_to_end(&mut rest);
        self.seen.push_str(&String::from_utf8_lossy(&rest));
        status.code()
    }
}

#[test]
fn one_key_on_the_terminal_is_one_signal() {
    let home = open_folder();
    let mut terminal =
        Terminal::start(home.path(), &[BIN, "run", "-q", "--no-save", "--", &python(), "-c", COUNTER]);
    terminal.wait_for("ready");
    terminal.type_in("\x03");
    terminal.wait_for("SIGINT 1");
    kill_process(Pid::from_raw(job_below(&terminal.child)).unwrap(), Signal::USR2).unwrap();
    assert_eq!(terminal.end(), Some(0));
    assert!(!terminal.seen.contains("SIGINT 2"), "{}", terminal.seen);
}

/// The job: the child of the tracker, which `setsid` has become.
fn job_below(tracker: &Child) -> i32 {
    let pid = tracker.id();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn an_interrupt_from_the_terminal_gives_130_and_a_recording() {
    let home = open_folder();
    let file = home.path().join("run.json.gz");
    let options = ["-i", "60", "-o", file.to_str().unwrap()];
    let words = [&[BIN, "run"], &options[..], &["--", "sh", "-c", "echo ready; exec sleep 60"]].concat();
    let mut terminal = Terminal::start(home.path(), &words);
    terminal.wait_for("ready");
    terminal.type_in("\x03");
    assert_eq!(terminal.end(), Some(130), "{}", terminal.seen);
    let recording = load(&file);
    assert_eq!((&recording["run"]["signal"], &recording["run"]["status"]), (&2.into(), &"killed".into()));
    assert_eq!(recording["process_metrics"].as_array().unwrap().len(), 1);
}

#[test]
fn a_job_that_reads_from_and_writes_to_a_terminal_works_as_without_us() {
    let home = open_folder();
    let job = "import sys
for step in range(3): print(f'\\r{step} of 3', end='', flush=True)
print('', sys.stdin.isatty(), sys.stdout.isatty(), sys.stderr.isatty())
print('hello', input('name? '))";
    let mut screens = Vec::new();
    for wrapper in [&[][..], &[BIN, "run", "-q", "--no-save", "--"]] {
        let mut terminal = Terminal::start(home.path(), &[wrapper, &[&python(), "-c", job]].concat());
        terminal.wait_for("name? ");
        terminal.type_in("me\n");
        terminal.wait_for("hello me");
        assert_eq!(terminal.end(), Some(0));
        screens.push(terminal.seen);
    }
    assert_eq!(screens[0], screens[1]);
    assert!(screens[0].contains("2 of 3 True True True"), "{}", screens[0]);
}

#[test]
fn what_was_ignored_stays_ignored_for_us_and_for_the_job() {
    let home = open_folder();
    let mut child = Command::new("nohup")
        .args([BIN, "run", "-q", "--no-save", "--", "sh", "-c", "echo ready; read line; echo still here"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .env("HOME", home.path())
        .spawn()
        .unwrap();
    let mut lines = lines_of(&mut child);
    assert_eq!(next_line(&mut lines), "ready");
    kill(&child, Signal::HUP);
    child.stdin.take().unwrap().write_all(b"go on\n").unwrap();
    assert_eq!(next_line(&mut lines), "still here");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn the_job_starts_with_the_signals_streams_and_environment_that_we_were_given() {
    let home = open_folder();
    let look = "grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status; ls -l /proc/self/fd | awk '{print $9, $10, $11}' | grep -v '/proc/\\|pipe'; env; pwd; ps -o pgid= -p $$";
    for setting in ["", "trap '' PIPE CHLD USR1;", "exec <&-;", "exec 0<&- 2>&-;"] {
        let shell = |wrapper: &str| {
            let script = format!("{setting} {wrapper} sh -c \"$1\"");
            let mut command = Command::new("setsid");
            command
                .args(["--wait", "sh", "-c", &script, "sh", look])
                .current_dir(home.path())
                .env("HOME", home.path());
            let output = command.output().unwrap();
            // The shells' own process group differs from one run to the next.
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
fn the_job_is_in_our_process_group_and_lives_on_when_we_are_killed() {
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
fn a_named_output_that_cannot_be_written_is_refused_before_the_job_starts() {
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
fn a_history_that_cannot_be_written_is_one_warning_and_the_job_runs() {
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
fn a_disk_that_fills_up_is_one_warning_and_the_job_runs() {
    let home = open_folder();
    let small = home.path().join("small");
    fs::create_dir(&small).unwrap();
    rustix::mount::mount("none", &small, "tmpfs", rustix::mount::MountFlags::empty(), Some(c"size=64k"))
        .unwrap();
    // The rows fill it, however many of them the machine has time for; then come some for which there is no room.
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
fn attaching_to_what_cannot_be_followed_is_an_error_and_to_what_ends_at_once_a_short_recording() {
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
    assert!(output.status.success() && text(&output).contains("the process ended"), "{}", text(&output));

    let output = attach_for_rows(home.path(), 30, NOBODY);
    assert!(!text(&output).contains("panicked") && output.status.success(), "{}", text(&output));
    if support::is_root() {
        assert!(text(&output).contains("warning: storage bytes of some processes"), "{}", text(&output));
    }
}

/// Follows a process of ours, as some user; it ends when so many rows of a tenth of a second are written.
fn attach_for_rows(home: &Path, count: u32, user: u32) -> std::process::Output {
    let rows = home.join(format!("rows-{user}"));
    let wait = "until [ -e \"$1\" ] && [ $(wc -l < \"$1\") -gt $2 ]; do sleep 0.02; done";
    let mut followed =
        Command::new("sh").args(["-c", wait, "sh"]).arg(&rows).arg(count.to_string()).spawn().unwrap();
    let pid = followed.id().to_string();
    // Reaped as soon as it ends, so that no zombie stays.
    let reaper = std::thread::spawn(move || followed.wait());
    let mut command = tracker(home);
    command.args(["attach", "--no-save", "-i", "0.1", "--csv"]).arg(&rows).arg(pid).current_dir("/");
    let output = as_user(&mut command, user).output().unwrap();
    // One that was never followed waits in vain.
    fs::write(&rows, "\n".repeat(100)).unwrap();
    reaper.join().unwrap().unwrap();
    output
}

#[test]
fn processes_of_another_namespace_are_not_taken_for_ours() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("run.json.gz");
    // With numbers of its own, and the `/proc` of those who have others.
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
    assert!(text(&output).contains("processes: `/proc` is not of this PID namespace"), "{}", text(&output));
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
fn a_folder_of_history_is_for_its_owner_only() {
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
fn a_job_shorter_than_an_interval_has_one_row_wherever_the_grid_lies() {
    let home = open_folder();
    let csv = home.path().join("rows.csv");
    // Says whether a line of the grid of 5 s fell into it: into those that begin shortly before one.
    let job = "import time
began = time.time()
time.sleep(0.3 if began % 5 < 4 else 5.2 - began % 5)
print(time.time() // 5 - began // 5)";
    let (mut without, mut with) = (0, 0);
    while without < 3 || with < 2 {
        if with < 2 && without >= 3 {
            std::thread::sleep(until_shortly_before_a_line(5_000));
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

/// Half a second before the next line of the wall clock's grid.
fn until_shortly_before_a_line(grid_ms: u64) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let past_ms = u64::try_from(now % u128::from(grid_ms)).unwrap();
    Duration::from_millis((2 * grid_ms - 500 - past_ms) % grid_ms)
}

#[test]
fn no_cpu_figure_is_above_what_the_machine_has_even_at_a_millisecond() {
    let home = open_folder();
    let csv = home.path().join("rows.csv");
    // As long as it takes to write enough rows, on fast machines and on slow ones.
    let busy = "for i in 1 2 3; do (while :; do :; done) & done
until [ $(wc -l < \"$1\") -gt 200 ]; do sleep 0.02; done
kill $(jobs -p)";
    // Those of the machine: what this process may use of them is less in a container, and no bound for a millisecond.
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
fn a_job_that_is_killed_for_memory_is_said_to_be_with_what_to_ask_for() {
    if !support::is_root() {
        return;
    }
    let home = open_folder();
    let group = std::path::PathBuf::from(format!("/sys/fs/cgroup/memory/limited-{}", std::process::id()));
    fs::create_dir(&group).unwrap();
    fs::write(group.join("memory.limit_in_bytes"), "150000000").unwrap();
    let _ = fs::write(group.join("memory.memsw.limit_in_bytes"), "150000000");
    let greedy =
        "import time\nblocks = []\nwhile True:\n    blocks.append(b'x' * 10_000_000)\n    time.sleep(0.02)";
    let line = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", group.display());
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
    fs::remove_dir(&group).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(137), "{}", text(&output));
    assert!(stderr.starts_with("resource-tracker: killed for memory after "), "{stderr}");
    // What is below the limit of 143 MB is asked for twice over, in steps.
    assert!(
        stderr.contains("MB: try 512 MB, an estimate") && stderr.contains("next time  1 CPU, 512 MB memory"),
        "{stderr}"
    );
    let shown = tracker(home.path()).args(["show", "last", "--json"]).output().unwrap();
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown["oom_kills"], serde_json::json!({ "processes": 1, "certain": true }));
}
