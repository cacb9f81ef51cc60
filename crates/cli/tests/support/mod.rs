//! Shared by the tests of the command: how to run it, and how to read what it wrote.
#![expect(dead_code, reason = "each test binary uses a part of these functions")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

pub mod cgroup;
pub mod runs;
pub mod schema;
pub mod verdict;

use std::fs::{self, File};
use std::io::{BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

pub const BIN: &str = env!("CARGO_BIN_EXE_resource-tracker");
pub const NOBODY: u32 = 65_534;

/// The command, without the user's settings and with its own data folder.
pub fn tracker(home: &Path) -> Command {
    let mut command = Command::new(BIN);
    // Journals in the shared temporary folder would be recovered into this history.
    command.env("HOME", home).env("XDG_DATA_HOME", home.join("data")).env("TMPDIR", home);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("RESOURCE_TRACKER_")) {
        command.env_remove(name);
    }
    command
}

pub fn run(home: &Path, options: &[&str], command: &[&str]) -> Output {
    tracker(home).arg("run").args(options).arg("--").args(command).output().unwrap()
}

/// An interpreter that every user may run. A shim of pyenv or the like would add a process to the job.
pub fn python() -> String {
    fs::canonicalize("/usr/bin/python3").expect("Debian's python3").to_str().unwrap().to_owned()
}

/// A folder that an unprivileged user can enter.
pub fn open_folder() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    folder
}

/// Writes an executable file from another process. If this process wrote it, a child that another test forks at the
/// same time would inherit the open file, and the kernel does not execute a file open for writing (`ETXTBSY`).
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

/// Runs a command as another user if the test runs as root.
pub fn as_user(command: &mut Command, user: u32) -> &mut Command {
    if is_root() && user != 0 { command.uid(user).gid(user) } else { command }
}

/// A column of a CSV; an empty cell is `None`.
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

pub fn lines_of(child: &mut Child) -> BufReader<ChildStdout> {
    BufReader::new(child.stdout.take().unwrap())
}

pub fn next_line(lines: &mut impl std::io::BufRead) -> String {
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// A recording as JSON.
pub fn load(path: &Path) -> serde_json::Value {
    let mut json = String::new();
    flate2::read::GzDecoder::new(File::open(path).unwrap()).read_to_string(&mut json).unwrap();
    serde_json::from_str(&json).unwrap()
}
