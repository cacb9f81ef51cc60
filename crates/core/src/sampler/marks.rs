//! Marks: the moments at which a job says that a new phase begins.
//!
//! In:  names from the job. Out: [`Mark`]s, each with the time at which it was made.
//! Not here: what a phase used (`phases`).
//!
//! A job that another process tracks appends its marks to a file, one line with time and name for each, in one write. The
//! job never waits, and threads, forked children and containers that see the file can all mark. The sampler reads what was
//! added. A line that is not a mark is skipped.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use crate::os::{self, FileWatch, Moment};

/// The environment variable with the path of the marks of the run.
pub const MARKS_VARIABLE: &str = "RESOURCE_TRACKER_MARKS";

/// The phase before the first mark.
pub const START: &str = "start";

/// Longest name of a phase, in characters.
const MOST_CHARS: usize = 60;
/// A longer line is not a mark.
const MOST_LINE_BYTES: usize = 20 + 1 + 4 * MOST_CHARS;
/// No mark is added to a larger file.
const MOST_FILE_BYTES: u64 = 64 << 20;
/// Read at once.
const CHUNK_BYTES: u64 = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// By the monotonic clock.
    pub at_ns: u64,
    pub name: String,
}

impl Mark {
    /// A mark at this moment.
    pub fn now(name: &str) -> Self {
        Self { at_ns: Moment::now().monotonic_ns, name: phase_name(name) }
    }

    fn parse(line: &[u8]) -> Option<Self> {
        let line = std::str::from_utf8(line).ok().filter(|line| line.len() <= MOST_LINE_BYTES)?;
        let (at_ns, name) = line.split_once(' ')?;
        Some(Self { at_ns: at_ns.parse().ok()?, name: phase_name(name) })
    }

    /// Adds the mark to a file. `creates` makes the file if it does not exist.
    pub fn append(&self, path: &Path, creates: bool) -> io::Result<()> {
        let mut file = os::open_regular_to_append(path, creates)?;
        if file.metadata()?.len() > MOST_FILE_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        os::without_size_signal(|| file.write_all(format!("{} {}\n", self.at_ns, self.name).as_bytes()))
    }
}

/// A name without control characters and of limited length; [`START`] if nothing is left.
fn phase_name(name: &str) -> String {
    let printable = |character: char| if character.is_control() { '?' } else { character };
    let name: String = name.trim().chars().take(MOST_CHARS).map(printable).collect();
    if name.is_empty() { START.to_owned() } else { name }
}

/// Adds a mark to the run that this process is part of. Has no effect outside of a run.
pub fn mark_run(name: &str) {
    if let Some(path) = std::env::var_os(MARKS_VARIABLE).filter(|path| !path.is_empty()) {
        // A mark must not disturb the job: the run may have ended, or may belong to another user.
        let _ = Mark::now(name).append(Path::new(&path), false);
    }
}

/// The file for the marks of a run, beside its journal.
pub fn marks_beside(journal: &Path) -> PathBuf {
    journal.with_extension("marks")
}

/// Creates the file for the marks of a run, for its owner only. It begins with the start of the recording, for recovery.
pub fn create_marks(path: &Path, started: Moment) -> io::Result<()> {
    os::for_owner(OpenOptions::new().create_new(true).append(true)).open(path)?;
    Mark { at_ns: started.monotonic_ns, name: START.to_owned() }.append(path, false)
}

/// Reads a file that others add marks to.
#[derive(Debug)]
pub struct MarksReader {
    path: PathBuf,
    /// Bytes that were read.
    read_bytes: u64,
    /// `None` in in-process mode, which keeps no descriptor open, and on systems without inotify: the file is read at each
    /// sample.
    pub watch: Option<FileWatch>,
}

impl MarksReader {
    pub fn new(path: PathBuf, keeps_descriptors: bool) -> Self {
        let watch = keeps_descriptors.then(|| FileWatch::open(&path)).flatten();
        Self { path, read_bytes: 0, watch }
    }

    /// The marks that were added since the last call, at most 1 MiB of them. Incomplete lines stay for the next call.
    pub fn read(&mut self) -> Vec<Mark> {
        let is_larger = fs::symlink_metadata(&self.path).is_ok_and(|found| found.len() > self.read_bytes);
        if is_larger { self.read_added().unwrap_or_default() } else { Vec::new() }
    }

    fn read_added(&mut self) -> io::Result<Vec<Mark>> {
        let mut file = os::open_regular(&self.path)?;
        file.seek(SeekFrom::Start(self.read_bytes))?;
        let mut added = Vec::new();
        file.take(CHUNK_BYTES).read_to_end(&mut added)?;
        let mut marks = Vec::new();
        for line in added.split_inclusive(|byte| *byte == b'\n') {
            let Some(line) = line.strip_suffix(b"\n") else {
                // A whole line comes in one write, so what is longer than a mark is no mark.
                if line.len() > MOST_LINE_BYTES {
                    self.read_bytes += line.len() as u64;
                }
                break;
            };
            self.read_bytes += line.len() as u64 + 1;
            marks.extend(Mark::parse(line));
        }
        Ok(marks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_once_and_hostile_lines_are_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let path = marks_beside(&folder.path().join("run.journal"));
        let mut reader = MarksReader::new(path.clone(), true);
        assert_eq!(reader.read(), [], "no file");
        let mark = Mark::now(" tr\nain\u{1b}[2J ");
        mark.append(&path, true).unwrap();
        assert_eq!(mark.name, "tr?ain?[2J");
        assert_eq!(reader.read(), [mark]);
        assert_eq!(reader.read(), []);
        let long = "x".repeat(1000);
        let lines = format!("soon a\n-1 b\n\n7\n{long}\n8 {long}\n9 \n10 c\n11 incom");
        OpenOptions::new().append(true).open(&path).unwrap().write_all(lines.as_bytes()).unwrap();
        let named = |at_ns, name: &str| Mark { at_ns, name: name.to_owned() };
        assert_eq!(reader.read(), [named(9, START), named(10, "c")]);
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"plete\n").unwrap();
        assert_eq!(reader.read(), [named(11, "incomplete")]);
        fs::remove_file(&path).unwrap();
        assert!(Mark::now("late").append(&path, false).is_err(), "the run has ended");
        assert_eq!(Mark::now(&"é".repeat(500)).name.chars().count(), MOST_CHARS);
    }

    #[cfg(unix)]
    #[test]
    fn mark_for_a_pipe_does_not_wait_for_a_reader() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert!(Mark::now("a").append(&pipe, false).is_err());
    }
}
