//! Writes rows and tables as CSV, and reads CSV tables.
//!
//! In:  rows of the metric table or a [`Frame`]; the bytes of any CSV file.
//! Out: columns; or CSV text, in which header and text cells are quoted, numbers are not, missing cells are empty, and
//!      lines end with `\n`.
//! Not here: flushing and files (`output`), the list of columns (`metric`), lines and quotes (`records`).

mod records;

use std::io::{self, Write};
use std::iter;

use thiserror::Error;

use crate::metric::{Metric, Row, Table};
use crate::store::decimal;
use crate::store::frame::{Column, Frame, FrameError};
use crate::store::plausible::{self, Implausible};

use records::{Field, LineEnd, Records};

const CHUNK_BYTES: usize = 64 * 1024;

/// Appends the header line of a table.
pub fn write_header(out: &mut Vec<u8>, table: Table) {
    write_names(out, table.metrics().map(Metric::column));
}

/// Appends one row of a table. Allocates no memory if `out` has enough capacity.
pub fn write_row(out: &mut Vec<u8>, table: Table, row: &Row) {
    write_metrics(out, table.metrics(), row);
}

/// Metrics of the combined table: the timestamp, then the other metrics of each table.
fn combined_metrics(tables: &[Table]) -> impl Iterator<Item = Metric> {
    let metrics = tables.iter().flat_map(|table| table.metrics());
    iter::once(Metric::Timestamp).chain(metrics.filter(|metric| *metric != Metric::Timestamp))
}

/// Appends the header line of the combined table.
pub fn write_combined_header(out: &mut Vec<u8>, tables: &[Table]) {
    write_names(out, combined_metrics(tables).map(Metric::combined_column));
}

/// Appends one row of the combined table.
pub fn write_combined_row(out: &mut Vec<u8>, tables: &[Table], row: &Row) {
    write_metrics(out, combined_metrics(tables), row);
}

impl Frame {
    /// Writes the header and all rows.
    pub fn write_csv(&self, out: &mut impl Write) -> io::Result<()> {
        self.write_csv_with(out, None)
    }

    /// [`Self::write_csv`] with a last column of text.
    pub(crate) fn write_csv_with(
        &self,
        out: &mut impl Write,
        texts: Option<(&str, &[&str])>,
    ) -> io::Result<()> {
        if self.columns().is_empty() {
            return Ok(());
        }
        let mut text = Vec::with_capacity(CHUNK_BYTES + 4096);
        write_names(&mut text, self.names().chain(texts.map(|(name, _)| name)));
        for row in 0..self.len() {
            // Readers skip empty lines, so the missing cell of a single column is written as `""`.
            if self.columns().len() == 1 && self.columns()[0].get(row).is_none() {
                text.extend_from_slice(b"\"\"\n");
            } else {
                write_cells(
                    &mut text,
                    self.columns().iter().map(|column| (column.get(row), column.is_whole())),
                );
            }
            if let Some(cell) = texts.and_then(|(_, cells)| cells.get(row)) {
                text.pop();
                text.push(b',');
                write_names(&mut text, std::iter::once(cell));
            }
            if text.len() >= CHUNK_BYTES {
                out.write_all(&text)?;
                text.clear();
            }
        }
        out.write_all(&text)
    }
}

fn write_names(out: &mut Vec<u8>, names: impl Iterator<Item = impl AsRef<str>>) {
    for (number, name) in names.enumerate() {
        if number > 0 {
            out.push(b',');
        }
        out.push(b'"');
        out.extend_from_slice(name.as_ref().replace('"', "\"\"").as_bytes());
        out.push(b'"');
    }
    out.push(b'\n');
}

fn write_metrics(out: &mut Vec<u8>, metrics: impl Iterator<Item = Metric>, row: &Row) {
    write_cells(out, metrics.map(|metric| (row.get(metric), metric.decimals() == 0)));
}

fn write_cells(out: &mut Vec<u8>, cells: impl Iterator<Item = (Option<f64>, bool)>) {
    for (number, (cell, whole)) in cells.enumerate() {
        if number > 0 {
            out.push(b',');
        }
        if let Some(value) = cell.filter(|value| value.is_finite()) {
            decimal::write(out, value, whole);
        }
    }
    out.push(b'\n');
}

/// Why a CSV text is not a table. Line numbers start at 1.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum CsvError {
    #[error("line {line} has {found} cells, the header has {expected}")]
    Cells { line: usize, found: usize, expected: usize },
    #[error("the header is not UTF-8 text; is this a compressed or binary file?")]
    Header,
    #[error("the header is not valid")]
    Columns { source: FrameError },
    #[error("line {line}: column {number}")]
    Range { line: usize, number: Implausible },
}

/// A column that can hold text as well as numbers.
#[derive(Clone, Debug)]
pub struct AnyColumn {
    /// Name of the column and its finite numbers. All other cells are missing cells here.
    pub numbers: Column,
    /// Row and content of cells that are not finite numbers.
    pub others: Vec<(usize, Other)>,
}

/// A cell that is not a finite number.
#[derive(Clone, Debug, PartialEq)]
pub enum Other {
    /// A quoted cell, even if it contains only digits; or a cell without quotes that is not a number.
    Text(String),
    /// NaN or infinity, in the spelling of Python or of its `json` module.
    NotFinite(f64),
}

impl AnyColumn {
    /// Reads all columns of a CSV table. Quoted cells are text, cells without quotes are numbers.
    ///
    /// A last line without a line end is a row if it has all its cells, because many programs omit the last line end.
    /// Otherwise its writer was interrupted, and the line is ignored.
    pub fn read_csv(text: &[u8]) -> Result<Vec<Self>, CsvError> {
        let mut records = Records::new(text);
        let mut fields = Vec::new();
        let mut columns = match records.read(&mut fields) {
            Some(LineEnd::Newline | LineEnd::Input) => header(&fields)?,
            None | Some(LineEnd::OpenQuote) => return Ok(Vec::new()),
        };
        while let Some(end) = records.read(&mut fields) {
            let (found, expected) = (fields.len(), columns.len());
            match end {
                LineEnd::OpenQuote => break,
                LineEnd::Input if found != expected => break,
                LineEnd::Newline if found != expected => {
                    return Err(CsvError::Cells { line: records.line(), found, expected });
                }
                LineEnd::Input | LineEnd::Newline => {}
            }
            for (column, field) in columns.iter_mut().zip(&fields) {
                let number = column.push(field);
                if let Some((value, metric)) = number.zip(column.metric) {
                    plausible::cell(&column.name, value, &metric.unit().range())
                        .map_err(|number| CsvError::Range { line: records.line(), number })?;
                }
            }
        }
        // In a table with one column, `""` is a missing cell (see `write_csv`) if any cell is a number.
        if let [column] = &mut columns[..]
            && column.cells.iter().any(|cell| !cell.is_nan())
        {
            column.others.retain(|(_, other)| *other != Other::Text(String::new()));
        }
        Ok(columns.into_iter().map(ReadColumn::finish).collect())
    }
}

fn header(fields: &[Field<'_>]) -> Result<Vec<ReadColumn>, CsvError> {
    let names = fields.iter().map(|field| str::from_utf8(&field.text).map_err(|_| CsvError::Header));
    let names: Vec<&str> = names.collect::<Result<_, _>>()?;
    let empty = names.iter().map(|name| Column::new(*name, Vec::new())).collect();
    Frame::from_columns(empty).map_err(|source| CsvError::Columns { source })?;
    let metrics = metrics_of(&names);
    let column = |(at, name): (usize, &str)| ReadColumn {
        name: name.to_owned(),
        metric: metrics.get(at).copied(),
        ..ReadColumn::default()
    };
    Ok(names.into_iter().enumerate().map(column).collect())
}

/// The metrics of the columns if the file has exactly the columns of a table of a recording, or of the combined table.
/// Any other file may hold any numbers.
fn metrics_of(names: &[&str]) -> Vec<Metric> {
    let alone = Table::ALL
        .map(|table| table.metrics().map(|metric| (metric, metric.column().to_owned())).collect::<Vec<_>>());
    let tables: [&[Table]; 3] = [&[Table::System, Table::Process], &[Table::System], &[Table::Process]];
    let joined = tables
        .map(|tables| combined_metrics(tables).map(|metric| (metric, metric.combined_column())).collect());
    let mut known = alone.into_iter().chain(joined);
    let found = known.find(|known| known.iter().map(|(_, name)| name).eq(names));
    found.unwrap_or_default().into_iter().map(|(metric, _)| metric).collect()
}

/// A column of which a part has been read. It is a column of whole numbers if its cells have no decimal point.
#[derive(Default)]
struct ReadColumn {
    name: String,
    /// The metric of the column in a table of a recording.
    metric: Option<Metric>,
    cells: Vec<f64>,
    others: Vec<(usize, Other)>,
    has_integers: bool,
    has_whole_with_point: bool,
}

impl ReadColumn {
    /// Returns the number in the cell.
    fn push(&mut self, field: &Field<'_>) -> Option<f64> {
        let text = field.text.trim_ascii();
        let number = decimal::parse(text).filter(|_| !field.quoted);
        if let Some(value) = number {
            let integer = field.text.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-');
            self.has_integers |= integer;
            self.has_whole_with_point |= !integer && decimal::is_whole(value);
        } else if field.quoted || !text.is_empty() {
            let other = match text {
                b"nan" | b"NaN" if !field.quoted => Other::NotFinite(f64::NAN),
                b"inf" | b"Infinity" if !field.quoted => Other::NotFinite(f64::INFINITY),
                b"-inf" | b"-Infinity" if !field.quoted => Other::NotFinite(f64::NEG_INFINITY),
                _ => Other::Text(String::from_utf8_lossy(&field.text).into_owned()),
            };
            self.others.push((self.cells.len(), other));
        }
        self.cells.push(number.unwrap_or(f64::NAN));
        number
    }

    fn finish(self) -> AnyColumn {
        let whole = self.has_integers && !self.has_whole_with_point;
        AnyColumn { numbers: Column::new(self.name, self.cells).with_whole(whole), others: self.others }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(frame: &Frame) -> String {
        let mut out = Vec::new();
        frame.write_csv(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn read(text: &[u8]) -> Result<Frame, CsvError> {
        let columns = AnyColumn::read_csv(text)?;
        // The missing cell of a table with one column is written as `""`.
        let is_missing = |(_, other): &(usize, Other)| *other == Other::Text(String::new());
        assert!(columns.iter().all(|column| column.others.iter().all(is_missing)), "{columns:?}");
        Ok(Frame::from_columns(columns.into_iter().map(|column| column.numbers).collect()).unwrap())
    }

    fn cells(frame: &Frame, column: &str) -> Vec<Option<f64>> {
        frame.column(column).unwrap().iter().collect()
    }

    #[test]
    fn header_is_quoted_numbers_are_not_and_missing_cells_are_empty() {
        let mut row = Row::default();
        row.set(Metric::Timestamp, Some(1_741_785_685.676));
        row.set(Metric::Pid, Some(42.0));
        row.set(Metric::ProcessUtime, Some(1.0));
        row.set(Metric::ProcessMemory, Some(2048.0));
        let mut out = Vec::new();
        write_header(&mut out, Table::Process);
        write_row(&mut out, Table::Process, &row);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "\"timestamp\",\"pid\",\"children\",\"utime\",\"stime\",\"cpu_usage\",\"memory\",\"read_bytes\",\
             \"write_bytes\",\"gpu_usage\",\"gpu_vram\",\"gpu_utilized\"\n\
             1741785685.676,42,,1.0,,,2048,,,,,\n"
        );
    }

    #[test]
    fn half_written_last_row_is_ignored() {
        let whole = b"\"a\",\"b\"\n1,20\n3,40\n";
        let rows = |text: &[u8]| read(text).unwrap().len();
        for cut in 0..=whole.len() {
            let body = whole[..cut].split(|byte| *byte == b'\n').skip(1);
            let complete = body.filter(|line| line.contains(&b',')).count();
            assert_eq!(rows(&whole[..cut]), complete, "cut at {cut}");
        }
        assert_eq!(rows(b"a,b\n1,2\n3,4"), 2);
        assert_eq!(rows(b"a,b\n1,2\n3"), 1);
        assert_eq!(rows(b"a,b\n1,2\n3,\"4"), 1);
    }

    #[test]
    fn line_ends_blank_lines_and_a_byte_order_mark_do_not_change_the_table() {
        let plain = read(b"a,b\n1,\n2,4\n").unwrap();
        for text in ["\"a\",\"b\"\r\n1,\r\n2,4\r\n", "\u{feff}a,b\n\n1,\n\n2,4\n\n", "a,b\n 1 , \n2,4.0\n"] {
            assert_eq!(read(text.as_bytes()).unwrap(), plain, "{text}");
        }
        assert_eq!(cells(&plain, "b"), [None, Some(4.0)]);
    }

    #[test]
    fn integers_in_float_columns_of_the_original_package_are_written_again_as_integers() {
        let text = include_bytes!("../../../../../fixtures/original/system.csv");
        let frame = read(text).unwrap();
        assert_eq!((frame.len(), frame.columns().len()), (3, 21));
        assert_eq!(frame.column("timestamp").unwrap().get(0), Some(1_741_785_685.676_298_1));
        assert_eq!(cells(&frame, "utime"), [Some(40.0), Some(23.0), Some(38.0)]);
        assert_eq!(cells(&frame, "gpu_vram"), [Some(1034.0), Some(1033.0), Some(1029.0)]);
        assert_eq!(written(&frame).as_bytes(), text);
    }

    #[test]
    fn errors_name_the_line() {
        let error = |text: &[u8]| AnyColumn::read_csv(text).unwrap_err().to_string();
        assert_eq!(error(b"a,b\n1,2\n3\n4,5\n"), "line 3 has 1 cells, the header has 2");
        assert_eq!(error(b"a,b\n\n\"\n1\",2\n3\n4,5\n"), "line 5 has 1 cells, the header has 2");
        assert!(error(b"\xff\xfe\n1\n").starts_with("the header is not UTF-8 text"));
        assert_eq!(error(b"a,a\n1,2\n"), "the header is not valid");
        let table = |tables: &[Table], cell: &str| {
            let mut text = Vec::new();
            let columns = combined_metrics(tables).count();
            match tables {
                [table] => write_header(&mut text, *table),
                _ => write_combined_header(&mut text, tables),
            }
            text.extend_from_slice(format!("{}{cell}\n", "1,".repeat(columns - 1)).as_bytes());
            AnyColumn::read_csv(&text).map(drop).map_err(|error| error.to_string())
        };
        let process = [Table::Process];
        assert_eq!(
            table(&process, "1e308").unwrap_err(),
            "line 2: column `gpu_utilized` is 1e308, not a number from 0 to 1e15"
        );
        let both = [Table::System, Table::Process];
        assert!(table(&both, "-1").unwrap_err().contains("column `process_gpu_utilized` is -1, "));
        assert_eq!((table(&process, "1"), table(&both, "")), (Ok(()), Ok(())));
        // A table of another program may hold any number.
        assert!(AnyColumn::read_csv(b"timestamp,memory\n1e300,-1\n").is_ok());
    }

    #[test]
    fn quoted_cells_are_text_and_other_cells_are_numbers() {
        let text = "id,n,x,mixed\n\"001\",1,NaN,\n\"\",,2, 7 \n\"nan\",3,-Infinity,\"x\"\n";
        let [id, n, x, mixed] = &AnyColumn::read_csv(text.as_bytes()).unwrap()[..] else { panic!() };
        let text = |row, text: &str| (row, Other::Text(text.to_owned()));
        assert_eq!(id.others, [text(0, "001"), text(1, ""), text(2, "nan")]);
        assert_eq!(
            (n.numbers.iter().collect::<Vec<_>>(), n.others.len()),
            (vec![Some(1.0), None, Some(3.0)], 0)
        );
        assert!(n.numbers.is_whole(), "`1` is written as `1` again");
        assert!(matches!(x.others[..], [(0, Other::NotFinite(_)), (2, Other::NotFinite(f64::NEG_INFINITY))]));
        assert_eq!((mixed.numbers.get(1), &mixed.others), (Some(7.0), &vec![text(2, "x")]));
    }

    #[test]
    fn empty_quotes_in_a_single_column_are_a_missing_cell_unless_the_column_is_text() {
        let others = |text: &[u8]| AnyColumn::read_csv(text).unwrap()[0].others.len();
        assert_eq!(
            [others(b"a\n1\n\"\"\n"), others(b"a\n\"\"\n\"\"\n"), others(b"a\n1\n\"x\"\n")],
            [0, 2, 1]
        );
    }

    fn any_cell() -> impl Strategy<Value = f64> {
        prop_oneof![
            Just(f64::NAN),
            (-1_000_000_i32..1_000_000).prop_map(f64::from),
            (0_u32..1_000_000).prop_map(|value| f64::from(value) / 1e4),
            any::<f64>(),
        ]
    }

    prop_compose! {
        fn any_frame()(width in 1_usize..5, rows in 0_usize..8)(
            columns in proptest::collection::vec(
                ("[ -~äß\n]{0,8}", any::<bool>(), proptest::collection::vec(any_cell(), rows)), width)
        ) -> Frame {
            let columns = columns.into_iter().enumerate().map(|(number, (name, whole, cells))| {
                Column::new(format!("{number}{name}"), cells).with_whole(whole)
            });
            Frame::from_columns(columns.collect()).unwrap()
        }
    }

    proptest! {
        #[test]
        fn written_table_is_read_back_equal_and_written_again_byte_for_byte(frame in any_frame()) {
            let text = written(&frame);
            let again = read(text.as_bytes()).unwrap();
            prop_assert_eq!(&again, &frame);
            prop_assert_eq!(written(&again), text);
        }

        #[test]
        fn arbitrary_bytes_never_panic(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = AnyColumn::read_csv(&text);
        }

        #[test]
        fn mutated_files_never_panic(changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..6), cut in any::<usize>()) {
            let mut text = include_bytes!("../../../../../fixtures/original/system.csv").to_vec();
            for (at, byte) in changes {
                let at = at % text.len();
                text[at] = byte;
            }
            text.truncate(cut % (text.len() + 1));
            if let Ok(columns) = AnyColumn::read_csv(&text) {
                prop_assert!(columns.iter().all(|column| column.numbers.len() <= 30));
            }
        }
    }
}
