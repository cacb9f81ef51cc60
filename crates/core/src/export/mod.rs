//! A recording for other programs: csv, json, jsonl and parquet.
//!
//! In:  a [`Recording`].
//! Out: its combined table as CSV, as JSON lines or as Parquet; or all of it as JSON, which is the
//!      plain text of a snapshot and loads again.
//! Not here: the texts themselves (`csv`, `recording`), where they go (`output`).

#[cfg(feature = "parquet")]
mod parquet;

use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;

use thiserror::Error;

use crate::csv;
use crate::frame::{CombinedOptions, Frame, FrameError};
use crate::metric::{Metric, Row, Table};
use crate::recording::{Key, Recording, write_cells};

/// Text is handed on in pieces of about this size.
const CHUNK_BYTES: usize = 64 * 1024;

/// Why an export failed.
#[derive(Debug, Error)]
pub enum ExportError {
    /// A word that stands for no format.
    #[error("format `{name}` is not known")]
    UnknownFormat {
        /// As it was given.
        name: String,
    },
    /// An option of tables for a format that is none.
    #[error("format `json` is the recording as it is, and takes no options of a table")]
    NotATable,
    /// The table cannot be made.
    #[error("cannot make the table")]
    Table {
        /// Which column is in the way.
        #[from]
        source: FrameError,
    },
    /// This program was built without the format.
    #[error("this build cannot write parquet")]
    NotBuilt,
    /// The output cannot be written.
    #[error("cannot write the export")]
    Io {
        /// What the system said.
        #[from]
        source: io::Error,
    },
    /// The Parquet encoder failed.
    #[cfg(feature = "parquet")]
    #[error("cannot encode parquet")]
    Parquet {
        /// What the encoder said.
        #[from]
        source: ::parquet::errors::ParquetError,
    },
}

impl ExportError {
    /// What the reader can do about it, if anything.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::UnknownFormat { .. } => Some("formats are csv, json, jsonl and parquet"),
            Self::NotATable => Some("use csv, jsonl or parquet for a table"),
            Self::NotBuilt => Some("the `resource-tracker` command writes it"),
            _ => None,
        }
    }
}

/// What to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The combined table.
    Csv,
    /// The whole recording, as a snapshot in plain text.
    Json,
    /// The combined table, an object a line.
    Jsonl,
    /// The combined table.
    Parquet,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 4] = [Self::Csv, Self::Json, Self::Jsonl, Self::Parquet];
}

impl fmt::Display for Format {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Csv => "csv",
            Self::Json => "json",
            Self::Jsonl => "jsonl",
            Self::Parquet => "parquet",
        })
    }
}

impl FromStr for Format {
    type Err = ExportError;

    fn from_str(name: &str) -> Result<Self, ExportError> {
        let known = Self::ALL.into_iter().find(|format| format.to_string() == name);
        known.ok_or_else(|| ExportError::UnknownFormat { name: name.to_owned() })
    }
}

/// Writes a recording in a format.
///
/// # Errors
///
/// When the output cannot be written, or the options do not fit the recording or the format.
pub fn export(
    out: &mut (impl Write + Send),
    recording: &Recording,
    format: Format,
    options: &CombinedOptions,
) -> Result<(), ExportError> {
    if format == Format::Json {
        if *options != CombinedOptions::default() {
            return Err(ExportError::NotATable);
        }
        return Ok(recording.write(out)?);
    }
    let table = recording.combined(options)?;
    match format {
        Format::Csv => csv::write_frame(out, &table)?,
        Format::Json | Format::Jsonl => write_jsonl(out, &table)?,
        #[cfg(feature = "parquet")]
        Format::Parquet => parquet::write(out, &table)?,
        #[cfg(not(feature = "parquet"))]
        Format::Parquet => return Err(ExportError::NotBuilt),
    }
    Ok(())
}

/// Rows of one table as they come, an object a line.
pub struct JsonLines {
    keys: Vec<(Metric, Key)>,
}

impl JsonLines {
    /// For the rows of a table.
    #[must_use]
    pub fn new(table: Table) -> Self {
        let key = |metric: Metric| (metric, Key::new(metric.column(), metric.decimals() == 0));
        Self { keys: table.metrics().map(key).collect() }
    }

    /// Appends one row.
    pub fn write(&self, out: &mut Vec<u8>, row: &Row) {
        out.push(b'{');
        write_cells(out, self.keys.iter().map(|(metric, key)| (key, row.get(*metric))));
        out.extend_from_slice(b"}\n");
    }
}

fn write_jsonl(out: &mut impl Write, table: &Frame) -> io::Result<()> {
    let keys: Vec<Key> =
        table.columns().iter().map(|column| Key::new(column.name(), column.is_whole())).collect();
    let mut text = Vec::with_capacity(CHUNK_BYTES + 4096);
    for row in 0..table.len() {
        text.push(b'{');
        write_cells(&mut text, keys.iter().zip(table.columns().iter().map(|column| column.get(row))));
        text.extend_from_slice(b"}\n");
        if text.len() >= CHUNK_BYTES {
            out.write_all(&text)?;
            text.clear();
        }
    }
    out.write_all(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording() -> Recording {
        Recording::read(&include_bytes!("../../../../fixtures/original/snapshot.json")[..]).unwrap()
    }

    fn exported(format: Format, options: &CombinedOptions) -> Result<String, ExportError> {
        let mut out = Vec::new();
        export(&mut out, &recording(), format, options)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn csv_is_the_combined_table() {
        let text = exported(Format::Csv, &CombinedOptions::default()).unwrap();
        let frame = csv::read(text.as_bytes(), None, csv::LastRow::MustEnd).unwrap();
        assert_eq!(frame, recording().combined(&CombinedOptions::default()).unwrap());
        assert!(text.starts_with("\"timestamp\",\"system_processes\","));
    }

    #[test]
    fn json_lines_hold_a_row_each_and_missing_cells_are_null() {
        let options = CombinedOptions { bytes: true, human_names: true, ..CombinedOptions::default() };
        let text = exported(Format::Jsonl, &options).unwrap();
        let rows: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(rows.len(), 3);
        assert_eq!(rows[0]["Process memory usage"], serde_json::json!(563_273_u64 * 1024));
        assert_eq!(rows[2].as_object().unwrap().len(), 32);
    }

    #[test]
    fn json_is_the_recording_and_loads_again() {
        let text = exported(Format::Json, &CombinedOptions::default()).unwrap();
        assert_eq!(Recording::read(text.as_bytes()).unwrap(), recording());
        let options = CombinedOptions { bytes: true, ..CombinedOptions::default() };
        assert!(matches!(exported(Format::Json, &options), Err(ExportError::NotATable)));
    }

    #[test]
    fn formats_are_known_by_name() {
        for format in Format::ALL {
            assert_eq!(format.to_string().parse::<Format>().unwrap(), format);
        }
        assert_eq!("xlsx".parse::<Format>().unwrap_err().to_string(), "format `xlsx` is not known");
    }
}
