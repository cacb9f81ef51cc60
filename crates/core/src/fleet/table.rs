//! A table of the dataset in memory, and its Parquet file.
//!
//! In:  rows as JSON objects, or a Parquet file. Out: columns of nullable cells, or a Parquet file (snappy).
//! Not here: which columns there are (`columns`), their types in a file (`form`), where files are (`store`).
//!
//! Columns are read by the schema of the file: columns of a later version are kept when files are merged, and missing columns
//! are null. [`Table::can_be_merged`] is false for a file with columns that a table cannot hold.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{ChunkReader, FileReader as _, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use serde_json::{Map, Value};

pub use super::form::Kind;
use super::form::{Form, field, form_of};

/// Rows in a row group.
const GROUP_ROWS: usize = 128 * 1024;
/// The version of the schema in the metadata of a file.
const VERSION_KEY: &str = "resource_tracker.schema_version";
/// A file that says to have more rows is damaged.
const MOST_ROWS: i64 = 100_000_000;

/// The cells of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Cells {
    Text(Vec<Option<ByteArray>>),
    Flag(Vec<Option<bool>>),
    Integer(Vec<Option<i64>>),
    Double(Vec<Option<f64>>),
    Time(Vec<Option<i64>>),
}

/// Runs the same expression for the cells of each kind.
macro_rules! each_kind {
    ($cells:expr, $found:ident => $result:expr) => {
        match $cells {
            Cells::Text($found) => $result,
            Cells::Flag($found) => $result,
            Cells::Integer($found) | Cells::Time($found) => $result,
            Cells::Double($found) => $result,
        }
    };
}

impl Cells {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Text => Self::Text(Vec::new()),
            Kind::Flag => Self::Flag(Vec::new()),
            Kind::Integer => Self::Integer(Vec::new()),
            Kind::Double => Self::Double(Vec::new()),
            Kind::Time => Self::Time(Vec::new()),
        }
    }

    pub fn texts(cells: &[&str]) -> Self {
        Self::Text(cells.iter().map(|cell| Some(ByteArray::from(*cell))).collect())
    }

    /// A column of numbers; times are in seconds.
    pub fn numbers(cells: &[Option<f64>], kind: Kind) -> Self {
        let mut column = Self::new(kind);
        for cell in cells {
            column.push(&cell.map_or(Value::Null, Value::from));
        }
        column
    }

    const fn kind(&self) -> Kind {
        match self {
            Self::Text(_) => Kind::Text,
            Self::Flag(_) => Kind::Flag,
            Self::Integer(_) => Kind::Integer,
            Self::Double(_) => Kind::Double,
            Self::Time(_) => Kind::Time,
        }
    }

    /// Makes the column this long with missing cells.
    fn pad(&mut self, len: usize) {
        each_kind!(self, cells => cells.resize_with(len, || None));
    }

    /// Adds a value; one of another type is missing.
    #[expect(clippy::cast_possible_truncation, reason = "rounded; a time beyond the range is its end")]
    fn push(&mut self, value: &Value) {
        match self {
            Self::Text(cells) => cells.push(match value {
                Value::Null => None,
                Value::String(text) => Some(ByteArray::from(text.as_str())),
                other => Some(ByteArray::from(other.to_string().as_str())),
            }),
            Self::Flag(cells) => cells.push(value.as_bool()),
            Self::Integer(cells) => {
                cells.push(value.as_i64().or_else(|| value.as_f64().map(|value| value.round() as i64)));
            }
            Self::Double(cells) => cells.push(value.as_f64().filter(|value| value.is_finite())),
            Self::Time(cells) => cells.push(value.as_f64().map(|seconds| (seconds * 1e6).round() as i64)),
        }
    }

    /// Adds the cells of another column; those of another kind are missing, except whole numbers among numbers.
    fn append(&mut self, other: Self, len: usize) {
        match (&mut *self, other) {
            (Self::Text(cells), Self::Text(other)) => cells.extend(other),
            (Self::Flag(cells), Self::Flag(other)) => cells.extend(other),
            (Self::Double(cells), Self::Double(other)) => cells.extend(other),
            (Self::Integer(cells), Self::Integer(other)) | (Self::Time(cells), Self::Time(other)) => {
                cells.extend(other);
            }
            #[expect(clippy::cast_precision_loss, reason = "counts below 2^53")]
            (Self::Double(cells), Self::Integer(other)) => {
                cells.extend(other.into_iter().map(|cell| cell.map(|cell| cell as f64)));
            }
            _ => self.pad(len),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "microseconds since 1970 are below 2^53")]
    fn into_values(self) -> Vec<Value> {
        let seconds = |cell: Option<i64>| Value::from(cell.map(|cell| cell as f64 / 1e6));
        let text = |cell: ByteArray| String::from_utf8_lossy(cell.data()).into_owned();
        match self {
            Self::Text(cells) => cells.into_iter().map(|cell| Value::from(cell.map(text))).collect(),
            Self::Flag(cells) => cells.into_iter().map(Value::from).collect(),
            Self::Integer(cells) => cells.into_iter().map(Value::from).collect(),
            Self::Double(cells) => cells.into_iter().map(Value::from).collect(),
            Self::Time(cells) => cells.into_iter().map(seconds).collect(),
        }
    }

    fn keep(&mut self, kept: &[bool]) {
        each_kind!(self, cells => {
            let mut kept = kept.iter();
            cells.retain(|_| kept.next().copied().unwrap_or(true));
        });
    }
}

/// A table of the dataset.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    columns: Vec<(String, Cells)>,
    len: usize,
    /// Of the file, if it says so.
    version: Option<u32>,
    /// Whether the file has columns that are not in the table as they are in the file.
    has_more: bool,
}

impl Table {
    /// A row for each object; keys that are no columns are left out.
    pub fn of_rows<'c>(
        columns: impl IntoIterator<Item = (&'c str, Kind)>,
        rows: &[Map<String, Value>],
    ) -> Self {
        let column = |(name, kind): (&str, Kind)| {
            let mut cells = Cells::new(kind);
            for row in rows {
                cells.push(row.get(name).unwrap_or(&Value::Null));
            }
            (name.to_owned(), cells)
        };
        Self { columns: columns.into_iter().map(column).collect(), len: rows.len(), ..Self::default() }
    }

    pub const fn len(&self) -> usize {
        self.len
    }

    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether a file of this version, with the rows of the table, has all that the file of the table has.
    pub fn can_be_merged(&self, version: u32) -> bool {
        !self.has_more && self.version.is_none_or(|of_file| of_file <= version)
    }

    pub fn column(&self, name: &str) -> Option<&Cells> {
        self.columns.iter().find(|(found, _)| found == name).map(|(_, cells)| cells)
    }

    /// Adds a column, whose cells must be as many as the table has rows.
    pub fn add_column(&mut self, name: &str, mut cells: Cells) {
        cells.pad(self.len);
        self.columns.push((name.to_owned(), cells));
    }

    /// The text in a cell; `None` if it is missing or no text.
    pub fn text(&self, name: &str, row: usize) -> Option<&str> {
        match self.column(name)? {
            Cells::Text(cells) => std::str::from_utf8(cells.get(row)?.as_ref()?.data()).ok(),
            _ => None,
        }
    }

    /// The number in a cell: seconds of a time.
    #[expect(clippy::cast_precision_loss, reason = "counts below 2^53")]
    pub fn number(&self, name: &str, row: usize) -> Option<f64> {
        match self.column(name)? {
            Cells::Double(cells) => *cells.get(row)?,
            Cells::Integer(cells) => cells.get(row)?.map(|cell| cell as f64),
            Cells::Time(cells) => cells.get(row)?.map(|cell| cell as f64 / 1e6),
            Cells::Text(_) | Cells::Flag(_) => None,
        }
    }

    pub fn flag(&self, name: &str, row: usize) -> Option<bool> {
        match self.column(name)? {
            Cells::Flag(cells) => *cells.get(row)?,
            _ => None,
        }
    }

    /// The cells of each column as JSON values; times are in seconds.
    pub fn into_values(self) -> Vec<(String, Vec<Value>)> {
        self.columns.into_iter().map(|(name, cells)| (name, cells.into_values())).collect()
    }

    /// Adds the rows of another table.
    pub fn append(&mut self, other: Self) {
        let len = self.len + other.len;
        let mut others: BTreeMap<String, Cells> = other.columns.into_iter().collect();
        for (name, cells) in &mut self.columns {
            match others.remove(name) {
                Some(found) => cells.append(found, len),
                None => cells.pad(len),
            }
        }
        for (name, found) in others {
            let mut cells = Cells::new(found.kind());
            cells.pad(self.len);
            cells.append(found, len);
            self.columns.push((name, cells));
        }
        self.len = len;
    }

    /// Removes the rows for which `kept` is false.
    pub fn keep(&mut self, kept: &[bool]) {
        self.columns.iter_mut().for_each(|(_, cells)| cells.keep(kept));
        self.len = kept.iter().filter(|kept| **kept).count();
    }

    /// Reads a Parquet file; `wanted` are the columns to read, or none for all.
    pub fn read(file: impl ChunkReader + 'static, wanted: &[&str]) -> Result<Self, ParquetError> {
        let reader = SerializedFileReader::new(file)?;
        let schema = reader.metadata().file_metadata().schema_descr_ptr();
        if reader.metadata().file_metadata().num_rows() > MOST_ROWS {
            return Err(ParquetError::General("too many rows".to_owned()));
        }
        let is_wanted = |name: &str| wanted.is_empty() || wanted.contains(&name);
        let of_file = reader.metadata().file_metadata().key_value_metadata();
        let version =
            of_file.and_then(|pairs| pairs.iter().find(|pair| pair.key == VERSION_KEY)?.value.as_ref());
        // A version that is no number is not known.
        let version = version.map(|text| text.parse().unwrap_or(u32::MAX));
        let mut table = Self { version, ..Self::default() };
        let mut read: Vec<(usize, Form)> = Vec::new();
        for (at, column) in schema.columns().iter().enumerate() {
            // Nested and repeated columns are not ours.
            let is_plain = column.max_rep_level() == 0 && column.path().parts().len() == 1;
            let form = form_of(column.self_type()).filter(|_| is_plain);
            table.has_more |= form.is_none_or(|form| !form.is_ours);
            if let Some(form) = form.filter(|_| is_wanted(column.name())) {
                table.columns.push((column.name().to_owned(), Cells::new(form.kind)));
                read.push((at, form));
            }
        }
        for group in 0..reader.num_row_groups() {
            let group = reader.get_row_group(group)?;
            let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
            for ((at, form), (_, cells)) in read.iter().zip(&mut table.columns) {
                read_cells(group.get_column_reader(*at)?, cells, rows)?;
                if let Cells::Time(times) = cells {
                    form.convert(times.iter_mut().skip(table.len));
                }
                cells.pad(table.len + rows);
            }
            table.len += rows;
        }
        Ok(table)
    }

    /// Writes a Parquet file with this text as its schema version.
    pub fn write(&self, out: &mut (impl Write + Send), version: u32) -> Result<(), ParquetError> {
        let version = KeyValue::new(VERSION_KEY.to_owned(), version.to_string());
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_max_row_group_row_count(Some(GROUP_ROWS))
            .set_key_value_metadata(Some(vec![version]))
            .build();
        let fields: Result<Vec<_>, _> =
            self.columns.iter().map(|(name, cells)| field(name, cells.kind()).map(Arc::new)).collect();
        let schema = Type::group_type_builder("resource_tracker").with_fields(fields?).build()?;
        let mut file = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))?;
        for start in (0..self.len).step_by(GROUP_ROWS) {
            let mut group = file.next_row_group()?;
            for (_, cells) in &self.columns {
                let Some(mut writer) = group.next_column()? else { break };
                write_cells(writer.untyped(), cells, start)?;
                writer.close()?;
            }
            group.close()?;
        }
        file.close()?;
        Ok(())
    }
}

fn read_cells(reader: ColumnReader, cells: &mut Cells, rows: usize) -> Result<(), ParquetError> {
    match (reader, cells) {
        (ColumnReader::ByteArrayColumnReader(reader), Cells::Text(cells)) => read_column(reader, cells, rows),
        (ColumnReader::BoolColumnReader(reader), Cells::Flag(cells)) => read_column(reader, cells, rows),
        (ColumnReader::Int64ColumnReader(reader), Cells::Integer(cells) | Cells::Time(cells)) => {
            read_column(reader, cells, rows)
        }
        (ColumnReader::DoubleColumnReader(reader), Cells::Double(cells)) => read_column(reader, cells, rows),
        _ => Ok(()),
    }
}

fn read_column<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    cells: &mut Vec<Option<T::T>>,
    rows: usize,
) -> Result<(), ParquetError> {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    let (read, present, _) = reader.read_records(rows, Some(&mut levels), None, &mut values)?;
    // A required column has no levels.
    if levels.is_empty() && present == read {
        cells.extend(values.into_iter().map(Some));
        return Ok(());
    }
    let mut values = values.into_iter();
    cells.extend(levels.iter().map(|level| if *level == 0 { None } else { values.next() }));
    Ok(())
}

fn write_cells(writer: &mut ColumnWriter<'_>, cells: &Cells, start: usize) -> Result<(), ParquetError> {
    /// The values that are present, and a level for each cell.
    fn present<T: Clone>(cells: &[Option<T>], start: usize) -> (Vec<T>, Vec<i16>) {
        let cells = cells.iter().skip(start).take(GROUP_ROWS);
        let levels = cells.clone().map(|cell| i16::from(cell.is_some())).collect();
        (cells.flatten().cloned().collect(), levels)
    }
    match (writer, cells) {
        (ColumnWriter::ByteArrayColumnWriter(writer), Cells::Text(cells)) => {
            let (values, levels) = present(cells, start);
            writer.write_batch(&values, Some(&levels), None)?;
        }
        (ColumnWriter::BoolColumnWriter(writer), Cells::Flag(cells)) => {
            let (values, levels) = present(cells, start);
            writer.write_batch(&values, Some(&levels), None)?;
        }
        (ColumnWriter::Int64ColumnWriter(writer), Cells::Integer(cells) | Cells::Time(cells)) => {
            let (values, levels) = present(cells, start);
            writer.write_batch(&values, Some(&levels), None)?;
        }
        (ColumnWriter::DoubleColumnWriter(writer), Cells::Double(cells)) => {
            let (values, levels) = present(cells, start);
            writer.write_batch(&values, Some(&levels), None)?;
        }
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::json;

    use super::*;

    const COLUMNS: [(&str, Kind); 5] = [
        ("id", Kind::Text),
        ("ended", Kind::Flag),
        ("ranks", Kind::Integer),
        ("seconds", Kind::Double),
        ("start", Kind::Time),
    ];

    fn row(value: &Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    fn written(table: &Table) -> Bytes {
        let mut bytes = Vec::new();
        table.write(&mut bytes, 1).unwrap();
        bytes.into()
    }

    #[test]
    fn table_is_read_as_it_was_written() {
        let rows = [
            row(&json!({"id": "a", "ended": true, "ranks": 4, "seconds": 1.5, "start": 1.25, "unknown": 7})),
            row(&json!({"id": "b"})),
        ];
        let table = Table::of_rows(COLUMNS, &rows);
        let read = Table::read(written(&table), &[]).unwrap();
        assert_eq!((&read.columns, read.len, read.can_be_merged(1)), (&table.columns, table.len, true));
        assert!(!read.can_be_merged(0), "a file of a later version");
        assert_eq!(
            (read.text("id", 1), read.number("start", 0), read.flag("ended", 1)),
            (Some("b"), Some(1.25), None)
        );
        let part = Table::read(written(&table), &["seconds"]).unwrap();
        assert_eq!((part.len(), part.number("seconds", 0), part.text("id", 0)), (2, Some(1.5), None));
    }

    #[test]
    fn tables_with_other_columns_are_merged() {
        let old = Table::of_rows(COLUMNS, &[row(&json!({"id": "a", "ranks": 4}))]);
        let new = [("id", Kind::Text), ("added", Kind::Text), ("ranks", Kind::Double)];
        let mut both = old;
        both.append(Table::of_rows(new, &[row(&json!({"id": "b", "added": "x", "ranks": 0.5}))]));
        assert_eq!((both.len(), both.text("added", 0), both.text("added", 1)), (2, None, Some("x")));
        assert_eq!(both.number("ranks", 1), None, "a number that does not fit the column is missing");
        both.keep(&[false, true]);
        assert_eq!((both.len(), both.text("id", 0)), (1, Some("b")));
    }

    #[test]
    fn damaged_file_is_an_error() {
        let bytes = written(&Table::of_rows(COLUMNS, &[row(&json!({"id": "a"}))]));
        for end in [0, 3, 8, bytes.len() / 2, bytes.len() - 1] {
            assert!(Table::read(bytes.slice(..end), &[]).is_err(), "{end} bytes");
        }
    }
}
