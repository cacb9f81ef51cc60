//! What the tests of the command share: running it, and the truth about a job from the kernel.
#![allow(dead_code, reason = "each test file uses its part")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

pub const BIN: &str = env!("CARGO_BIN_EXE_resource-tracker");
pub const NOBODY: u32 = 65_534;

/// The command, with nothing of the user's settings, and a data folder of its own.
pub fn tracker(home: &Path) -> Command {
    let mut command = Command::new(BIN);
    // What others left in the common temporary folder would be recovered into this history.
    command.env("HOME", home).env("XDG_DATA_HOME", home.join("data")).env("TMPDIR", home);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("RESOURCE_TRACKER_")) {
        command.env_remove(name);
    }
    command
}

/// Runs a job under it.
pub fn run(home: &Path, options: &[&str], command: &[&str]) -> Output {
    tracker(home).arg("run").args(options).arg("--").args(command).output().unwrap()
}

/// An interpreter that every user may run; a shim that starts it would be a part of the job.
pub fn python() -> String {
    fs::canonicalize("/usr/bin/python3").expect("Debian's python3").to_str().unwrap().to_owned()
}

/// A folder that a plain user can enter.
pub fn open_folder() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    folder
}

/// A program from its text. Another process writes it: a child that some other test starts at this moment would hold
/// our open file for a while, and the kernel runs nothing that somebody may still write to.
pub fn write_program(path: &Path, text: &str) {
    let mut writer =
        Command::new("install").args(["-m", "755", "/dev/stdin"]).arg(path).stdin(Stdio::piped()).spawn();
    let writer = writer.as_mut().unwrap();
    writer.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(writer.wait().unwrap().success(), "{}", path.display());
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A cpuacct group that a test makes and that holds the job alone: the kernel's own account of its CPU time.
pub struct Truth {
    folder: PathBuf,
}

impl Truth {
    /// A group that `user` may enter. Panics where the machine has no cpuacct hierarchy that we may write.
    pub fn new(user: u32) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = PathBuf::from(format!("/sys/fs/cgroup/cpuacct/truth-{}-{number}", std::process::id()));
        fs::create_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        std::os::unix::fs::chown(folder.join("cgroup.procs"), Some(user), None).unwrap();
        Self { folder }
    }

    /// A shell line that enters the group and becomes `command`.
    pub fn wrap(&self, command: &[&str]) -> Vec<String> {
        let line = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", self.folder.display());
        let mut words = vec!["sh".to_owned(), "-c".to_owned(), line, "sh".to_owned()];
        words.extend(command.iter().map(ToString::to_string));
        words
    }

    pub fn cpu_s(&self) -> f64 {
        let text = fs::read_to_string(self.folder.join("cpuacct.usage")).unwrap();
        text.trim().parse::<f64>().unwrap() / 1e9
    }
}

impl Drop for Truth {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Runs a command as another user where we are root; as a plain user it simply runs.
pub fn as_user(command: &mut Command, user: u32) -> &mut Command {
    if is_root() && user != 0 { command.uid(user).gid(user) } else { command }
}

/// The column of a CSV that we wrote, empty cells as `None`.
pub fn column(csv: &str, name: &str) -> Vec<Option<f64>> {
    let mut lines = csv.lines();
    let header: Vec<_> = lines.next().unwrap().split(',').map(|name| name.trim_matches('"')).collect();
    let at = header.iter().position(|column| *column == name).unwrap_or_else(|| panic!("no column {name}"));
    lines.map(|line| line.split(',').nth(at).unwrap().parse().ok()).collect()
}

pub fn sum(csv: &str, name: &str) -> f64 {
    column(csv, name).into_iter().flatten().sum()
}

pub fn text(output: &Output) -> String {
    format!(
        "{}\n-- stdout --\n{}\n-- stderr --\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
