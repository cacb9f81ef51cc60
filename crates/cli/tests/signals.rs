//! Signals and terminal keys of a job are the same as without the tracker.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};

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

    fn end(&mut self) -> Option<i32> {
        let status = self.child.wait().unwrap();
        let mut rest = Vec::new();
        let _ = self.master.read_to_end(&mut rest);
        self.seen.push_str(&String::from_utf8_lossy(&rest));
        status.code()
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
    assert_eq!(terminal.end(), Some(0));
    assert!(!terminal.seen.contains("SIGINT 2"), "{}", terminal.seen);
}

/// The child of the tracker; `setsid` has become the tracker by exec.
fn job_below(tracker: &Child) -> i32 {
    let pid = tracker.id();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn ctrl_c_gives_exit_status_130_and_a_recording() {
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
        assert_eq!(terminal.end(), Some(0));
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
