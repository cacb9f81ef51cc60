//! The total size of a job's inputs: `--input` and `RESOURCE_TRACKER_INPUT`.
//!
//! In:  paths of files and folders. Out: their size in bytes, measured by a thread while the job runs, and warnings.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use crate::os::without_signals;

/// The end of a job waits at most this long for the size of its inputs.
const PATIENCE: Duration = Duration::from_secs(1);

/// A measurement in progress.
#[derive(Debug)]
pub struct Inputs(Receiver<(Option<u64>, Vec<String>)>);

impl Inputs {
    /// Starts to measure; `None` if no input is named or no thread can start.
    pub fn measure(named: &[PathBuf]) -> Option<Self> {
        let named = Some(named.to_vec()).filter(|paths| !paths.is_empty())?;
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new().name("inputs".to_owned()).stack_size(128 << 10);
        // Sending fails only if the end of the job did not wait for the size.
        let measure = move || drop(sender.send(total(&listed(&named))));
        without_signals(|| thread.spawn(measure)).ok()?;
        Some(Self(receiver))
    }

    /// The total size, measured at once; `None` if no input is named. An unknown size is an error.
    pub fn total_bytes(named: &[PathBuf]) -> io::Result<Option<f64>> {
        #[expect(clippy::cast_precision_loss, reason = "sizes of inputs need no more than 53 bits")]
        match total(&listed(named)) {
            _ if named.is_empty() => Ok(None),
            (Some(bytes), _) => Ok(Some(bytes as f64)),
            (None, warnings) => Err(io::Error::other(warnings.join("; "))),
        }
    }

    /// The total size, `None` if a part of it is unknown; and warnings.
    pub fn finish(self) -> (Option<u64>, Vec<String>) {
        self.0.recv_timeout(PATIENCE).unwrap_or_else(|why| {
            let why = match why {
                RecvTimeoutError::Timeout => "the inputs have too many files",
                RecvTimeoutError::Disconnected => "the measurement failed",
            };
            (None, vec![format!("the size of the inputs is unknown: {why}")])
        })
    }
}

/// A variable names several paths as `PATH` does. A path may contain the separator too, so an existing path is not split.
fn listed(named: &[PathBuf]) -> Vec<PathBuf> {
    let split = |path: &PathBuf| -> Vec<PathBuf> {
        if path.exists() { vec![path.clone()] } else { std::env::split_paths(path).collect() }
    };
    named.iter().flat_map(split).filter(|path| !path.as_os_str().is_empty()).collect()
}

fn total(paths: &[PathBuf]) -> (Option<u64>, Vec<String>) {
    let (mut bytes, mut warnings) = (Some(0_u64), Vec::new());
    for path in paths {
        let size = size_of(path).map_err(|error| {
            warnings.push(format!("the size of the input `{}` is unknown: {error}", path.display()));
        });
        bytes = bytes.zip(size.ok()).and_then(|(sum, size)| sum.checked_add(size));
    }
    (bytes, warnings)
}

/// Size of a file, or of all files in a folder. Links in a folder are not followed, so that no file counts twice.
fn size_of(path: &Path) -> io::Result<u64> {
    let about = fs::metadata(path)?;
    if !about.is_dir() {
        return Ok(about.len());
    }
    let (mut bytes, mut folders) = (0, vec![path.to_owned()]);
    while let Some(folder) = folders.pop() {
        for file in fs::read_dir(folder)? {
            let file = file?;
            let about = file.metadata()?;
            if about.is_dir() {
                folders.push(file.path());
            } else if about.is_file() {
                bytes += about.len();
            }
        }
    }
    Ok(bytes)
}
