//! Writes a frame as a Parquet file.
//!
//! In:  a [`Frame`].
//! Out: one nullable column for each column of the frame: `TIMESTAMP` in microseconds and UTC for the time of a sample,
//!      `INT64` for whole numbers, otherwise `DOUBLE`. Missing cells are null. A column of
//!      text can follow.
//!
//! Uses the column writers of the `parquet` crate directly, because its Arrow layer needs a dozen more crates.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use crate::metric::Metric;
use crate::store::decimal;
use crate::store::frame::{Column, Frame};

/// Rows per row group. Readers can skip groups that they do not need.
const GROUP_ROWS: usize = 128 * 1024;

/// Type of a column in the file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Timestamp,
    Integer,
    Double,
}

impl Kind {
    /// A column of whole numbers is written as integers only if no cell has a fraction.
    fn of(column: &Column) -> Self {
        if [Metric::Timestamp.column(), Metric::Timestamp.human_name()].contains(&column.name()) {
            Self::Timestamp
        } else if column.is_whole() && column.present().all(decimal::is_whole) {
            Self::Integer
        } else {
            Self::Double
        }
    }
}

fn schema(table: &Frame, text: Option<&str>) -> Result<Type, ParquetError> {
    let text = text.map(|name| {
        let field = Type::primitive_type_builder(name, Physical::BYTE_ARRAY);
        let field = field.with_repetition(Repetition::REQUIRED);
        field.with_logical_type(Some(LogicalType::String)).build().map(Arc::new)
    });
    let fields: Result<Vec<_>, _> = table
        .columns()
        .iter()
        .map(|column| {
            let (physical, logical) = match Kind::of(column) {
                Kind::Timestamp => (Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::MICROS))),
                Kind::Integer => (Physical::INT64, None),
                Kind::Double => (Physical::DOUBLE, None),
            };
            let field = Type::primitive_type_builder(column.name(), physical).with_logical_type(logical);
            field.with_repetition(Repetition::OPTIONAL).build().map(Arc::new)
        })
        .chain(text)
        .collect();
    Type::group_type_builder("resource_tracker").with_fields(fields?).build()
}

pub(super) fn write(
    out: &mut (impl Write + Send),
    table: &Frame,
    texts: Option<(&str, &[&str])>,
) -> Result<(), ParquetError> {
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut file = SerializedFileWriter::new(
        out,
        Arc::new(schema(table, texts.map(|(name, _)| name))?),
        Arc::new(properties),
    )?;
    let kinds: Vec<Kind> = table.columns().iter().map(Kind::of).collect();
    for start in (0..table.len()).step_by(GROUP_ROWS) {
        let rows = table.slice(start..start + GROUP_ROWS);
        let mut group = file.next_row_group()?;
        for (column, kind) in rows.columns().iter().zip(&kinds) {
            let Some(mut writer) = group.next_column()? else { break };
            let present: Vec<i16> = column.iter().map(|cell| i16::from(cell.is_some())).collect();
            if *kind == Kind::Double {
                let cells: Vec<f64> = column.present().collect();
                writer.typed::<DoubleType>().write_batch(&cells, Some(&present), None)?;
            } else {
                let scale = if *kind == Kind::Timestamp { 1e6 } else { 1.0 };
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "rounded; a time beyond the range is its end"
                )]
                let cells: Vec<i64> = column.present().map(|cell| (cell * scale).round() as i64).collect();
                writer.typed::<Int64Type>().write_batch(&cells, Some(&present), None)?;
            }
            writer.close()?;
        }
        if let Some((_, cells)) = texts
            && let Some(mut writer) = group.next_column()?
        {
            let cells = cells.iter().skip(start).take(GROUP_ROWS);
            let cells: Vec<ByteArray> = cells.map(|cell| ByteArray::from(cell.as_bytes().to_vec())).collect();
            writer.typed::<ByteArrayType>().write_batch(&cells, None, None)?;
            writer.close()?;
        }
        group.close()?;
    }
    file.close()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use parquet::record::RowAccessor as _;

    fn column(name: &str, cells: Vec<f64>, whole: bool) -> Column {
        Column::new(name, cells).with_whole(whole)
    }

    #[test]
    fn columns_have_names_types_values_and_nulls() {
        let table = Frame::from_columns(vec![
            column("timestamp", vec![1_741_785_685.676, 2.5, f64::NAN], false),
            column("memory", vec![10.0, f64::NAN, 30.0], true),
            column("odd", vec![1.0, 2.5, f64::NAN], true),
        ])
        .unwrap();
        let mut bytes = Vec::new();
        write(&mut bytes, &table, None).unwrap();
        let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().collect::<Result<_, _>>().unwrap();
        let names: Vec<_> = rows[0].get_column_iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(
            (rows.len(), names),
            (3, vec!["timestamp".to_owned(), "memory".to_owned(), "odd".to_owned()])
        );
        assert_eq!(rows[0].get_timestamp_micros(0).ok(), Some(1_741_785_685_676_000));
        assert!(rows[2].get_timestamp_micros(0).is_err(), "a missing time is null");
        assert_eq!(rows[0].get_long(1).ok(), Some(10));
        assert!(rows[1].get_long(1).is_err(), "a missing cell is null");
        assert_eq!(rows[1].get_double(2).ok(), Some(2.5));
    }

    #[test]
    fn long_table_is_written_in_groups() {
        let rows = GROUP_ROWS + 3;
        let table = Frame::from_columns(vec![column("x", vec![7.0; rows], true)]).unwrap();
        let mut bytes = Vec::new();
        write(&mut bytes, &table, None).unwrap();
        let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
        assert_eq!(reader.metadata().num_row_groups(), 2);
        assert_eq!(reader.metadata().file_metadata().num_rows(), i64::try_from(rows).unwrap());
    }

    #[test]
    fn table_without_rows_is_a_file_without_rows() {
        let mut bytes = Vec::new();
        write(&mut bytes, &Frame::for_table(crate::metric::Table::Process), None).unwrap();
        let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
        assert_eq!(reader.metadata().file_metadata().num_rows(), 0);
        assert_eq!(reader.metadata().file_metadata().schema_descr().num_columns(), 12);
    }
}
