//! Recognises files that this package has written: recordings, CSV and JSON lines, Parquet files, reports, runs as JSON and
//! results for CI, metrics for Prometheus.
//!
//! In:  a path. Out: whether the file may be replaced without a question. Only the first bytes are read.

use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};
use std::path::Path;

use memchr::memmem::find;

use crate::os;

/// How much of a file is read.
const MAX_READ_BYTES: u64 = 8 << 10;

/// Whether a file is empty or an output of this package. False if it cannot be read.
pub fn is_own_output(path: &Path) -> bool {
    os::open_regular(path).and_then(|file| is_own(&file)).unwrap_or(false)
}

fn is_own(file: &File) -> io::Result<bool> {
    let start = start_of(file)?;
    if start.starts_with(b"PAR1") {
        return is_own_parquet(file);
    }
    if !start.starts_with(&[0x1f, 0x8b]) {
        return Ok(start.is_empty() || is_own_text(&start));
    }
    Ok(is_own_text(&start_of(flate2::read::MultiGzDecoder::new(&start[..]))?))
}

/// The first bytes. A compressed file that is cut off gives what was decompressed.
fn start_of(source: impl Read) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    match source.take(MAX_READ_BYTES).read_to_end(&mut start) {
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
        _ => Ok(start),
    }
}

fn is_own_text(start: &[u8]) -> bool {
    let contains = |text: &str| find(start, text.as_bytes()).is_some();
    let starts_with = |text: &str| start.starts_with(text.as_bytes());
    let is_recording = starts_with("{") && contains("\"metadata\"") && contains("\"resource_tracker\"");
    let is_table = ["\"timestamp\",", "\"Timestamp\",", "{\"timestamp\":", "{\"Timestamp\":"]
        .into_iter()
        .any(starts_with)
        && (contains("cpu_usage\"") || contains("CPU usage\""));
    let is_report =
        starts_with("<!DOCTYPE html>") && contains("<meta name=\"generator\" content=\"resource-tracker\">");
    let is_junit = starts_with("<?xml") && contains("<testsuite name=\"resource-tracker\"");
    let is_run =
        starts_with("{\n  \"schema_version\": ") && contains("\n  \"id\": ") && contains("\n  \"job\": ");
    let is_metrics = starts_with("# Metrics of resource-tracker\n");
    is_recording || is_table || is_report || is_junit || is_run || is_metrics
}

/// The file's metadata is at its end, before its length and the magic number. It starts with the name of the schema.
fn is_own_parquet(mut file: &File) -> io::Result<bool> {
    let mut length = [0; 4];
    file.seek(SeekFrom::End(-8))?;
    file.read_exact(&mut length)?;
    file.seek(SeekFrom::End(-8 - i64::from(u32::from_le_bytes(length))))?;
    Ok(find(&start_of(file)?, b"resource_tracker").is_some())
}
