//! Signals and terminal keys of a job are the same as without the tracker.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use support::{BIN, lines_of, load, next_line, open_folder, python, tracker};

fn kill(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Prints `ready`, then each signal with its count; ends at SIGUSR2.
const COUNTER: &str = "
import os, signal, sys
counts = {}
def say(text):
    os.write(1, (text + '\\n').encode())  # not print: a signal may interrupt it
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
fn signals_sent_to_the_tracker_reach_the_job_once() {
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
    // A signal that came twice would be printed before this line.
    assert_eq!(next_line(&mut lines), "SIGUSR2 1");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// A pseudo-terminal, and the command that is the leader of its session.
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

    /// Reads until `wanted` appears; collects everything in `seen`.
    fn wait_for(&mut self, wanted: &str) {
        let mut bytes = [0; 4096];
        while !self.seen.contains(wanted) {
            // Reading fails after the command has closed its side of the terminal.
            let Ok(length @ 1..) = self.master.read(&mut bytes) else {
                panic!("no {wanted:?} in {:?}", self.seen)
            };
            self.seen.push_str(&String::from_utf8_lossy(&bytes[..length]));
        }
    }

    fn type_in(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    fn end(&mut self) -> ExitStatus {
        let status = self.child.wait().unwrap();
        let mut rest = Vec::new();
        let _ = self.master.read_to_end(&mut rest);
        self.seen.push_str(&String::from_utf8_lossy(&rest));
        status
    }
}

#[test]
fn one_key_press_is_one_signal() {
    let home = open_folder();
    let mut terminal =
        Terminal::start(home.path(), &[BIN, "run", "-q", "--no-save", "--", &python(), "-c", COUNTER]);
    terminal.wait_for("ready");
    terminal.type_in("\x03");
    terminal.wait_for("SIGINT 1");
    kill_process(Pid::from_raw(job_below(&terminal.child)).unwrap(), Signal::USR2).unwrap();
    assert_eq!(terminal.end().code(), Some(0));
    assert!(!terminal.seen.contains("SIGINT 2"), "{}", terminal.seen);
}

/// The child of the tracker; `setsid` has become the tracker by exec.
fn job_below(tracker: &Child) -> i32 {
    let pid = tracker.id();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn ctrl_c_ends_job_and_tracker_by_the_same_signal_and_gives_a_recording() {
    let home = open_folder();
    let file = home.path().join("run.json.gz");
    let options = ["-i", "60", "-o", file.to_str().unwrap()];
    let words = [&[BIN, "run"], &options[..], &["--", "sh", "-c", "echo ready; exec sleep 60"]].concat();
    let mut terminal = Terminal::start(home.path(), &words);
    terminal.wait_for("ready");
    terminal.type_in("\x03");
    assert_eq!(terminal.end().signal(), Some(2), "{}", terminal.seen);
    let recording = load(&file);
    assert_eq!((&recording["run"]["signal"], &recording["run"]["status"]), (&2.into(), &"killed".into()));
    assert_eq!(recording["process_metrics"].as_array().unwrap().len(), 1);
}

#[test]
fn job_on_a_terminal_behaves_as_without_the_tracker() {
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
        assert_eq!(terminal.end().code(), Some(0));
        screens.push(terminal.seen);
    }
    assert_eq!(screens[0], screens[1]);
    assert!(screens[0].contains("2 of 3 True True True"), "{}", screens[0]);
}

#[test]
fn ignored_signals_stay_ignored_for_tracker_and_job() {
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

/// Receives every signal that can be caught, and prints its number and how often it came. Sends a signal to its process
/// group for every number that it reads.
const RECEIVER: &str = "
import os, signal, sys
counts = {}
def count(number, _frame):
    counts[number] = counts.get(number, 0) + 1
    os.write(1, f'{number} {counts[number]}\\n'.encode())
numbers = sorted(signal.valid_signals() - {9, 19, 32, 33})
for number in numbers:
    signal.signal(number, count)
os.write(1, b'ready\\n')
while True:
    try:
        line = sys.stdin.readline()
    except OSError:
        continue
    if not line:
        sys.exit(0)
    os.kill(0, int(line))
";

const STOPS: [i32; 3] = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// All standard signals that can be caught, and the first and last real-time signal that programs may use.
fn signals() -> impl Iterator<Item = i32> {
    (1..=31).filter(|signal| ![libc::SIGKILL, libc::SIGSTOP].contains(signal)).chain([34, 64])
}

fn start_receiver(home: &Path) -> Child {
    let mut command = tracker(home);
    command.args(["run", "-q", "--no-save", "--", &python(), "-c", RECEIVER]).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

fn send(pid: u32, signal: i32) {
    let sent = Command::new("kill").args([format!("-{signal}"), pid.to_string()]).status().unwrap();
    assert!(sent.success());
}

fn wait_until_stopped(pid: u32) {
    let is_stopped = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") T ");
    while !is_stopped() {
        std::thread::yield_now();
    }
}

#[test]
fn every_signal_to_the_tracker_reaches_the_job_once() {
    let home = open_folder();
    let mut child = start_receiver(home.path());
    let mut lines = lines_of(&mut child);
    assert_eq!(next_line(&mut lines), "ready");
    let mut continued = 0;
    for signal in signals().filter(|signal| *signal != libc::SIGCONT) {
        send(child.id(), signal);
        assert_eq!(next_line(&mut lines), format!("{signal} 1"));
        if STOPS.contains(&signal) {
            wait_until_stopped(child.id());
            send(child.id(), libc::SIGCONT);
            continued += 1;
            assert_eq!(next_line(&mut lines), format!("{} {continued}", libc::SIGCONT));
        }
    }
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(next_line(&mut lines), "", "a signal came twice");
}

#[test]
fn every_signal_of_the_job_to_its_group_reaches_it_once() {
    let home = open_folder();
    let mut child = start_receiver(home.path());
    let mut lines = lines_of(&mut child);
    assert_eq!(next_line(&mut lines), "ready");
    let mut stdin = child.stdin.take().unwrap();
    for signal in signals() {
        writeln!(stdin, "{signal}").unwrap();
        assert_eq!(next_line(&mut lines), format!("{signal} 1"));
        if STOPS.contains(&signal) {
            wait_until_stopped(child.id());
            // As a shell does after the stop of a whole group. It is not forwarded.
            send(child.id(), libc::SIGCONT);
        }
    }
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(next_line(&mut lines), "", "a signal came twice");
}

#[test]
fn job_that_a_signal_ends_ends_the_tracker_by_the_same_signal() {
    for signal in [libc::SIGTERM, libc::SIGKILL, libc::SIGSEGV, libc::SIGUSR1] {
        let home = open_folder();
        let script = format!("ulimit -c unlimited; kill -{signal} $$");
        let mut command = tracker(home.path());
        command.current_dir(home.path()).args(["run", "-q", "-o", "run.json.gz", "--", "sh", "-c", &script]);
        let status = command.status().unwrap();
        assert_eq!((status.signal(), status.core_dumped()), (Some(signal), false));
        assert_eq!(load(&home.path().join("run.json.gz"))["run"]["signal"], signal);
    }
}

#[test]
fn tracker_ends_at_once_on_request_after_the_end_of_the_job() {
    let home = open_folder();
    let pipe = home.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for signal in [libc::SIGTERM, libc::SIGINT] {
        // The report is larger than a pipe, and nothing reads it: the tracker waits for ever.
        let mut command = tracker(home.path());
        command.args(["run", "-q", "--no-save", "--report"]).arg(&pipe).args(["--", "true"]);
        let mut child = command.spawn().unwrap();
        while fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id()))
            .is_ok_and(|text| !text.is_empty())
        {
            std::thread::yield_now();
        }
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            send(child.id(), signal);
        };
        assert_eq!(status.signal(), Some(signal));
    }
}

#[test]
fn alarm_that_was_set_before_the_tracker_ends_the_job() {
    let home = open_folder();
    let script = format!(
        "import os, signal; signal.alarm(1); os.execv('{BIN}', ['{BIN}', 'run', '-q', '--no-save', '--', 'sleep', '60'])"
    );
    let mut command = Command::new(python());
    command.args(["-c", &script]).env("HOME", home.path());
    assert_eq!(command.status().unwrap().signal(), Some(libc::SIGALRM));
}
