//! Why a file is no recording.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// A recording could not be loaded; names the file, and its source says what is wrong.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The file itself cannot be had.
    #[error("cannot open `{path}`")]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file holds no recording, or a damaged one.
    #[error("cannot load `{path}`")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: SnapshotError,
    },
}

impl LoadError {
    /// What the reader can do about it, if anything.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Open { .. } => None,
            Self::Content { source, .. } => source.hint(),
        }
    }
}

/// What is wrong with the text of a snapshot.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// The system failed while reading.
    #[error("reading failed")]
    Io {
        /// What the system said.
        source: io::Error,
    },
    /// The gzip stream is damaged.
    #[error("the gzip data is damaged")]
    Gzip {
        /// What the decoder said.
        source: io::Error,
    },
    /// The text stops before the recording is complete.
    #[error("the file ends in the middle of the recording")]
    Truncated,
    /// Nothing at all.
    #[error("the file is empty")]
    Empty,
    /// Something else than JSON, or JSON of another shape.
    #[error("expected {expected} at byte {at}, found {found}")]
    Syntax {
        /// What a recording has there.
        expected: &'static str,
        /// What is there.
        found: String,
        /// Position in the decompressed text.
        at: u64,
    },
    /// A key that every recording has.
    #[error("key `{key}` is missing")]
    MissingKey {
        /// The key.
        key: &'static str,
    },
    /// A version of the schema that is not known here.
    #[error("version {version} of the recording format is not known, only version 1 is")]
    Version {
        /// As it stands in the file.
        version: String,
    },
    /// A key that holds something else than it should.
    #[error("key `{key}` does not hold what a recording has there")]
    Value {
        /// The key.
        key: String,
        /// What the parser said.
        source: serde_json::Error,
    },
    /// An interval that cannot be.
    #[error("key `metadata.interval` holds {interval}, not a length of time")]
    Interval {
        /// As it stands in the file.
        interval: f64,
    },
    /// A cell that is no number.
    #[error("row {row} of `{table}`: column `{column}` holds {found}, not a number")]
    Cell {
        /// Key of the table.
        table: &'static str,
        /// Row, the first being 1.
        row: usize,
        /// Column.
        column: String,
        /// What is there.
        found: String,
    },
    /// A row that is no flat object.
    #[error("row {row} of `{table}`: expected {expected}, found {found}")]
    Row {
        /// Key of the table.
        table: &'static str,
        /// Row, the first being 1.
        row: usize,
        /// What a row has there.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// A row that no table has.
    #[error("row {row} of `{table}` is longer than {limit} bytes")]
    LongRow {
        /// Key of the table.
        table: &'static str,
        /// Row, the first being 1.
        row: usize,
        /// The limit.
        limit: usize,
    },
    /// More columns than any table has.
    #[error("`{table}` has more than {limit} columns")]
    Columns {
        /// Key of the table.
        table: &'static str,
        /// The limit.
        limit: usize,
    },
    /// Nothing but white space for too long.
    #[error("nothing but white space up to byte {at}")]
    Blank {
        /// Position in the decompressed text.
        at: u64,
    },
    /// Too much text beside the tables.
    #[error("key `{key}` and those before it hold more than {limit} bytes")]
    LongHead {
        /// The key.
        key: String,
        /// The limit.
        limit: usize,
    },
    /// A small file that unfolds into a huge table.
    #[error("{file_bytes} bytes of the file unfold into more than {cells} cells, which no recording does")]
    Unfolds {
        /// Bytes of the file read so far.
        file_bytes: u64,
        /// Cells by then.
        cells: u64,
    },
}

impl SnapshotError {
    /// A decoder says by the kind of its error whether the stream is short or wrong.
    pub(super) fn from_io(source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::UnexpectedEof => Self::Truncated,
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => Self::Gzip { source },
            _ => Self::Io { source },
        }
    }

    /// What the reader can do about it, if anything.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Truncated | Self::Gzip { .. } => Some("was the file copied while it was being written?"),
            Self::Version { .. } => Some("a newer resource-tracker may read it"),
            Self::Syntax { .. } | Self::MissingKey { .. } | Self::Empty => {
                Some("a recording is made by `resource-tracker run -o FILE` or `dump`")
            }
            _ => None,
        }
    }
}
