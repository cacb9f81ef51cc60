//! Exports a recording as csv, json, jsonl or parquet.
//!
//! In:  a [`Recording`].
//! Out: the combined table as CSV, JSON lines or Parquet; or the whole recording as JSON, which can be loaded again.
//! Not here: the text formats (`csv`, `recording`), output files (`output`).

#[cfg(feature = "parquet")]
mod parquet;

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::str::FromStr;

use thiserror::Error;

use crate::metric::{Metric, Row, Table};
use crate::store::frame::{CombinedOptions, Frame, FrameError};
use crate::store::recording::{Key, Recording, write_cells};

/// The column with the phase of each row, if the job made marks.
const PHASE: &str = "phase";

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

    /// The format that the extension of a file name says.
    pub fn of_path(path: &Path) -> Result<Self, ExportError> {
        path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase().parse()
    }
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
    let phases = recording.phase_of_rows();
    let phases = phases.as_deref().map(|phases| (PHASE, phases));
    match format {
        Format::Csv => table.write_csv_with(out, phases)?,
        Format::Json | Format::Jsonl => write_jsonl(out, &table, phases)?,
        #[cfg(feature = "parquet")]
        Format::Parquet => parquet::write(out, &table, phases)?,
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

fn write_jsonl(out: &mut impl Write, table: &Frame, texts: Option<(&str, &[&str])>) -> io::Result<()> {
    let keys: Vec<Key> =
        table.columns().iter().map(|column| Key::new(column.name(), column.is_whole())).collect();
    let mut text = Vec::with_capacity(CHUNK_BYTES + 4096);
    for row in 0..table.len() {
        text.push(b'{');
        write_cells(&mut text, keys.iter().zip(table.columns().iter().map(|column| column.get(row))));
        if let Some((name, cell)) = texts.and_then(|(name, cells)| Some((name, cells.get(row)?))) {
            write!(text, ",{}:{}", serde_json::to_string(name)?, serde_json::to_string(cell)?)?;
        }
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
    use crate::store::stats::Spec;

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
    fn extra_table_is_exported_on_request_with_the_columns_of_each_gpu() {
        let text = r#"{"metadata": {"version": 1, "pid": 1, "children": true, "interval": 1.0, "method": null,
            "track_processes": true, "track_system": false, "discover_server": false, "discover_cloud": false,
            "start_time": 10.0, "stop_time": null, "duration": null}, "server_info": null, "cloud_info": null,
            "system_metrics": [],
            "process_metrics": [{"timestamp": 11.0, "cpu_usage": 1.0}, {"timestamp": 11.5, "cpu_usage": 4.0}],
            "extra_metrics": [{"timestamp": 11.0, "elapsed": 1.0, "swap": 8, "gpu0_vram": 1.5, "gpu1_vram": 2.0},
                              {"timestamp": 11.5, "elapsed": 0.5, "swap": null, "gpu0_vram": 3.0, "gpu1_vram": 2.0}]}"#;
        let recording = Recording::read(text.as_bytes()).unwrap();
        let columns = |options: &CombinedOptions| {
            let mut out = Vec::new();
            export(&mut out, &recording, Format::Csv, options).unwrap();
            String::from_utf8(out).unwrap().lines().next().unwrap().to_owned()
        };
        let mut options = CombinedOptions::default();
        assert_eq!(columns(&options), r#""timestamp","process_cpu_usage""#);
        options.extra = true;
        assert_eq!(
            columns(&options),
            r#""timestamp","process_cpu_usage","elapsed","swap","gpu0_vram","gpu1_vram""#
        );
        options.human_names = true;
        assert!(
            columns(&options).ends_with(r#""GPU 0 VRAM used","GPU 1 VRAM used""#),
            "{}",
            columns(&options)
        );
        let spec = |text: &str| {
            let (column, aggregate) = text.split_once(':').unwrap();
            Spec { column: column.to_owned(), aggregate: aggregate.parse().unwrap(), name: None, round: None }
        };
        let specs = ["process_cpu_usage:mean", "swap:max", "gpu0_vram:mean"].map(spec);
        let stats = recording.stats_of(&specs).unwrap();
        let found: Vec<_> = stats.iter().map(|(_, _, value)| value.unwrap()).collect();
        assert_eq!(found, [2.0, 8.0, 2.0]);
        assert_eq!(
            stats.get("process_cpu_usage", "mean"),
            recording.stats().unwrap().get("process_cpu_usage", "mean")
        );
        let only_process = Recording { extra: None, ..recording.clone() };
        assert_eq!(only_process.stats_of(&specs[..1]).unwrap().get("process_cpu_usage", "mean"), Some(2.0));
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
