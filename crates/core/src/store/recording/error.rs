//! Errors when a recording is loaded.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::store::plausible::Implausible;

/// A recording could not be loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    #[error("cannot open `{path}`")]
    Open { path: PathBuf, source: io::Error },
    #[error("cannot load `{path}`")]
    Content { path: PathBuf, source: SnapshotError },
}

impl LoadError {
    /// What the user can do about the error.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Open { .. } => None,
            Self::Content { source, .. } => source.hint(),
        }
    }
}

/// The content of a recording is not valid. Row numbers start at 1; `at` is a byte position in the decompressed text.
#[derive(Debug, Error)]
pub enum SnapshotError {
    #[error("reading failed")]
    Io { source: io::Error },
    #[error("the gzip data is damaged")]
    Gzip { source: io::Error },
    #[error("the file ends in the middle of the recording")]
    Truncated,
    #[error("the file is empty")]
    Empty,
    #[error("expected {expected} at byte {at}, found {found}")]
    Syntax { expected: &'static str, found: String, at: u64 },
    #[error("key `{key}` is missing")]
    MissingKey { key: &'static str },
    #[error("unsupported format version {version}: only version 1 is supported")]
    Version { version: String },
    #[error("invalid value of key `{key}`")]
    Value { key: String, source: serde_json::Error },
    #[error("key {number}")]
    Key { number: Implausible },
    #[error("row {row} of `{table}`: column {number}")]
    Range { table: &'static str, row: usize, number: Implausible },
    #[error("row {row} of `{table}`: column `{column}` holds {found}, not a number")]
    Cell { table: &'static str, row: usize, column: String, found: String },
    #[error("row {row} of `{table}`: expected {expected}, found {found}")]
    Row { table: &'static str, row: usize, expected: &'static str, found: String },
    #[error("row {row} of `{table}` is longer than {limit} bytes")]
    LongRow { table: &'static str, row: usize, limit: usize },
    #[error("`{table}` has more than {limit} columns")]
    Columns { table: &'static str, limit: usize },
    #[error("too much white space before byte {at}")]
    Blank { at: u64 },
    #[error("key `{key}` and the keys before it have more than {limit} bytes")]
    LongHead { key: String, limit: usize },
    #[error(
        "the first {file_bytes} bytes of the file decompress to more than {cells} cells, too many for a recording"
    )]
    TooManyCells { file_bytes: u64, cells: u64 },
}

impl SnapshotError {
    /// Converts a read error. Its kind tells whether the stream is truncated, damaged or unreadable.
    pub(super) fn from_io(source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::UnexpectedEof => Self::Truncated,
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => Self::Gzip { source },
            _ => Self::Io { source },
        }
    }

    /// What the user can do about the error.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Truncated | Self::Gzip { .. } => Some("was the file copied while it was being written?"),
            Self::Version { .. } => Some("a newer version of resource-tracker may support it"),
            Self::Syntax { .. } | Self::MissingKey { .. } | Self::Empty => {
                Some("`resource-tracker run -o FILE` and `dump` write recordings")
            }
            _ => None,
        }
    }
}
