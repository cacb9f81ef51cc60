//! Exports a recording as csv, json, jsonl or parquet.
//!
//! In:  a [`Recording`].
//! Out: the combined table as CSV, JSON lines or Parquet; or the whole recording as JSON, which can be loaded again.
//! Not here: the text formats (`csv`, `recording`), output files (`output`).

#[cfg(feature = "parquet")]
mod parquet;

use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;

use thiserror::Error;

use crate::metric::{Metric, Row, Table};
use crate::store::frame::{CombinedOptions, Frame, FrameError};
use crate::store::recording::{Key, Recording, write_cells};

const CHUNK_BYTES: usize = 64 * 1024;

/// Why a recording cannot be exported.
#[derive(Debug, Error)]
pub enum ExportError {
    #[error("unknown format `{name}`")]
    UnknownFormat { name: String },
    #[error("format `json` contains the whole recording and has no table options")]
    NotATable,
    #[error("cannot combine the tables")]
    Table {
        #[from]
        source: FrameError,
    },
    #[error("this build does not support parquet")]
    NotBuilt,
    #[error("cannot write the export")]
    Io {
        #[from]
        source: io::Error,
    },
    #[cfg(feature = "parquet")]
    #[error("cannot encode parquet")]
    Parquet {
        #[from]
        source: ::parquet::errors::ParquetError,
    },
}

impl ExportError {
    /// What the user can do about the error.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::UnknownFormat { .. } => Some("use csv, json, jsonl or parquet"),
            Self::NotATable => Some("use csv, jsonl or parquet for a table"),
            Self::NotBuilt => Some("use the `resource-tracker` command"),
            _ => None,
        }
    }
}

/// File format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Csv,
    /// The whole recording as plain JSON. All other formats contain only the combined table.
    Json,
    /// The combined table, one JSON object per row and line.
    Jsonl,
    Parquet,
}

impl Format {
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

/// Writes a recording in another file format.
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
        Format::Csv => table.write_csv(out)?,
        Format::Json | Format::Jsonl => write_jsonl(out, &table)?,
        #[cfg(feature = "parquet")]
        Format::Parquet => parquet::write(out, &table)?,
        #[cfg(not(feature = "parquet"))]
        Format::Parquet => return Err(ExportError::NotBuilt),
    }
    Ok(())
}

/// Writes the rows of one table as JSON lines.
pub struct JsonLines {
    keys: Vec<(Metric, Key)>,
}

impl JsonLines {
    pub fn new(table: Table) -> Self {
        let key = |metric: Metric| (metric, Key::new(metric.column(), metric.decimals() == 0));
        Self { keys: table.metrics().map(key).collect() }
    }

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
    use crate::store::csv::AnyColumn;

    fn recording() -> Recording {
        Recording::read(&include_bytes!("../../../../../fixtures/original/snapshot.json")[..]).unwrap()
    }

    fn exported(format: Format, options: &CombinedOptions) -> Result<String, ExportError> {
        let mut out = Vec::new();
        export(&mut out, &recording(), format, options)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn csv_is_the_combined_table() {
        let text = exported(Format::Csv, &CombinedOptions::default()).unwrap();
        let columns = AnyColumn::read_csv(text.as_bytes()).unwrap().into_iter().map(|column| column.numbers);
        let frame = Frame::from_columns(columns.collect()).unwrap();
        assert_eq!(frame, recording().combined(&CombinedOptions::default()).unwrap());
        assert!(text.starts_with("\"timestamp\",\"system_processes\","));
    }

    #[test]
    fn json_lines_have_one_row_per_line() {
        let options = CombinedOptions { bytes: true, human_names: true, ..CombinedOptions::default() };
        let text = exported(Format::Jsonl, &options).unwrap();
        let rows: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(rows.len(), 3);
        assert_eq!(rows[0]["Process memory usage"], serde_json::json!(563_273_u64 * 1024));
        assert_eq!(rows[2].as_object().unwrap().len(), 32);
    }

    #[test]
    fn json_is_the_whole_recording_and_loads_again() {
        let text = exported(Format::Json, &CombinedOptions::default()).unwrap();
        assert_eq!(Recording::read(text.as_bytes()).unwrap(), recording());
        let options = CombinedOptions { bytes: true, ..CombinedOptions::default() };
        assert!(matches!(exported(Format::Json, &options), Err(ExportError::NotATable)));
    }

    #[test]
    fn formats_are_parsed_by_name() {
        for format in Format::ALL {
            assert_eq!(format.to_string().parse::<Format>().unwrap(), format);
        }
        assert_eq!("xlsx".parse::<Format>().unwrap_err().to_string(), "unknown format `xlsx`");
    }
}
