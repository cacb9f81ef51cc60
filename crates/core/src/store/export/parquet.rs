//! Writes a frame as a Parquet file.
//!
//! In:  a [`Frame`].
//! Out: one nullable column for each column of the frame: `INT64` for whole numbers, otherwise `DOUBLE`. Missing cells
//!      are null.
//!
//! Uses the column writers of the `parquet` crate directly, because its Arrow layer needs a dozen more crates.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, Repetition, Type as Physical};
use parquet::data_type::{DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use crate::store::decimal;
use crate::store::frame::{Column, Frame};

/// Rows per row group. Readers can skip groups that they do not need.
const GROUP_ROWS: usize = 128 * 1024;

/// Whether a column is written as `INT64`: it must be a column of whole numbers, and no cell may have a fraction.
fn is_integer(column: &Column) -> bool {
    column.is_whole() && column.present().all(decimal::is_whole)
}

fn schema(table: &Frame) -> Result<Type, ParquetError> {
    let fields: Result<Vec<_>, _> = table
        .columns()
        .iter()
        .map(|column| {
            let physical = if is_integer(column) { Physical::INT64 } else { Physical::DOUBLE };
            let field = Type::primitive_type_builder(column.name(), physical);
            field.with_repetition(Repetition::OPTIONAL).build().map(Arc::new)
        })
        .collect();
    Type::group_type_builder("resource_tracker").with_fields(fields?).build()
}

pub(super) fn write(out: &mut (impl Write + Send), table: &Frame) -> Result<(), ParquetError> {
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut file = SerializedFileWriter::new(out, Arc::new(schema(table)?), Arc::new(properties))?;
    let integers: Vec<bool> = table.columns().iter().map(is_integer).collect();
    for start in (0..table.len()).step_by(GROUP_ROWS) {
        let rows = table.slice(start..start + GROUP_ROWS);
        let mut group = file.next_row_group()?;
        for (column, integer) in rows.columns().iter().zip(&integers) {
            let Some(mut writer) = group.next_column()? else { break };
            let present: Vec<i16> = column.iter().map(|cell| i16::from(cell.is_some())).collect();
            if *integer {
                #[expect(clippy::cast_possible_truncation, reason = "checked to be whole and in range")]
                let cells: Vec<i64> = column.present().map(|cell| cell as i64).collect();
                writer.typed::<Int64Type>().write_batch(&cells, Some(&present), None)?;
            } else {
                let cells: Vec<f64> = column.present().collect();
                writer.typed::<DoubleType>().write_batch(&cells, Some(&present), None)?;
            }
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
            column("timestamp", vec![1.25, 2.5, 3.75], false),
            column("memory", vec![10.0, f64::NAN, 30.0], true),
            column("odd", vec![1.0, 2.5, f64::NAN], true),
        ])
        .unwrap();
        let mut bytes = Vec::new();
        write(&mut bytes, &table).unwrap();
        let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().collect::<Result<_, _>>().unwrap();
        let names: Vec<_> = rows[0].get_column_iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(
            (rows.len(), names),
            (3, vec!["timestamp".to_owned(), "memory".to_owned(), "odd".to_owned()])
        );
        assert_eq!((rows[2].get_double(0).ok(), rows[0].get_long(1).ok()), (Some(3.75), Some(10)));
        assert!(rows[1].get_long(1).is_err(), "a missing cell is null");
        assert_eq!(rows[1].get_double(2).ok(), Some(2.5));
    }

    #[test]
    fn long_table_is_written_in_groups() {
        let rows = GROUP_ROWS + 3;
        let table = Frame::from_columns(vec![column("x", vec![7.0; rows], true)]).unwrap();
        let mut bytes = Vec::new();
        write(&mut bytes, &table).unwrap();
        let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
        assert_eq!(reader.metadata().num_row_groups(), 2);
        assert_eq!(reader.metadata().file_metadata().num_rows(), i64::try_from(rows).unwrap());
    }

    #[test]
    fn table_without_rows_is_a_file_without_rows() {
        let mut bytes = Vec::new();
        write(&mut bytes, &Frame::for_table(crate::metric::Table::Process)).unwrap();
        let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
        assert_eq!(reader.metadata().file_metadata().num_rows(), 0);
        assert_eq!(reader.metadata().file_metadata().schema_descr().num_columns(), 12);
    }
}
