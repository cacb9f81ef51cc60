//! CSV: the rows that live trackers print, and tables in and out of files.
//!
//! In:  rows of the metric table or a [`Frame`]; the bytes of a file, ours or anyone's.
//! Out: header and text quoted, numbers bare, nothing for a missing cell, `\n` at line ends; a frame.
//! Not here: flushing and where the bytes go (`output`), which columns there are (`metric`), lines and quotes (`records`).
//!
//! A reader of our own, since it has to drop a row that was being written when its writer was killed
//! and to tell `1` from `1.0`, and since the rest is two pages.

mod records;

use std::io::{self, Write};

use thiserror::Error;

use crate::decimal;
use crate::frame::{Column, Frame, FrameError};
use crate::metric::{Metric, Row, Table};

use records::{Field, LineEnd, Records};

/// Text is handed on in pieces of about this size.
const CHUNK_BYTES: usize = 64 * 1024;

/// Appends the header line of a table.
pub fn write_header(out: &mut Vec<u8>, table: Table) {
    write_names(out, table.metrics().map(Metric::column));
}

/// Appends one row of a table. Allocates nothing once `out` has grown to a row's size.
pub fn write_row(out: &mut Vec<u8>, table: Table, row: &Row) {
    let cells = table.metrics().map(|metric| (row.get(metric), metric.decimals() == 0));
    write_cells(out, cells);
}

/// Columns of the combined table of these tables: `timestamp`, then each table's own behind its prefix.
fn combined_metrics(tables: &[Table]) -> impl Iterator<Item = Metric> {
    std::iter::once(Metric::Timestamp)
        .chain(tables.iter().flat_map(|table| table.metrics().filter(|metric| *metric != Metric::Timestamp)))
}

/// Appends the header line of the combined table of these tables.
pub fn write_combined_header(out: &mut Vec<u8>, tables: &[Table]) {
    let names: Vec<_> = combined_metrics(tables).map(Metric::combined_column).collect();
    write_names(out, names.iter().map(String::as_str));
}

/// Appends one row of the combined table of these tables.
pub fn write_combined_row(out: &mut Vec<u8>, tables: &[Table], row: &Row) {
    write_cells(out, combined_metrics(tables).map(|metric| (row.get(metric), metric.decimals() == 0)));
}

/// Writes a whole frame: header, then every row.
///
/// # Errors
///
/// Those of `out`.
pub fn write_frame(out: &mut impl Write, frame: &Frame) -> io::Result<()> {
    if frame.columns().is_empty() {
        return Ok(());
    }
    let mut text = Vec::with_capacity(CHUNK_BYTES + 4096);
    write_names(&mut text, frame.names());
    for row in 0..frame.len() {
        // A line without anything on it would not be read as a row.
        if frame.columns().len() == 1 && frame.columns()[0].get(row).is_none() {
            text.extend_from_slice(b"\"\"\n");
        } else {
            write_cells(&mut text, frame.columns().iter().map(|column| (column.get(row), column.is_whole())));
        }
        if text.len() >= CHUNK_BYTES {
            out.write_all(&text)?;
            text.clear();
        }
    }
    out.write_all(&text)
}

fn write_names<'a>(out: &mut Vec<u8>, names: impl Iterator<Item = &'a str>) {
    for (number, name) in names.enumerate() {
        if number > 0 {
            out.push(b',');
        }
        write_text(out, name);
    }
    out.push(b'\n');
}

/// Appends a quoted text cell, quotes in it doubled.
pub fn write_text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for byte in text.bytes() {
        if byte == b'"' {
            out.push(b'"');
        }
        out.push(byte);
    }
    out.push(b'"');
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

/// Why a CSV text is no table of numbers.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CsvError {
    /// A row has more or fewer cells than the header.
    #[error("line {line} has {found} cells where the header has {expected}")]
    Cells {
        /// Line of the file, the first being 1.
        line: usize,
        /// Cells there.
        found: usize,
        /// Cells of the header.
        expected: usize,
    },
    /// A cell holds something else than a number.
    #[error("line {line}: column `{column}` holds `{text}`, not a number")]
    NotANumber {
        /// Line of the file, the first being 1.
        line: usize,
        /// Name of the column.
        column: String,
        /// Start of what is there.
        text: String,
    },
    /// The header is not text.
    #[error("the header is not UTF-8 text")]
    Header,
    /// The header names a column twice.
    #[error("the header does not make a table")]
    Columns {
        /// Which column.
        source: FrameError,
    },
}

impl CsvError {
    /// What the reader can do about it, if anything.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Header => Some("is this a gzipped or binary file?"),
            Self::Cells { .. } | Self::NotANumber { .. } | Self::Columns { .. } => None,
        }
    }
}

/// What a last line without a line end means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastRow {
    /// It was being written when the writer died, and its last number may lack digits: dropped.
    /// The rule for files of a tracker, which end every row.
    MustEnd,
    /// Kept when it has all its cells, since many programs write no last line end; else dropped.
    MayLackLineEnd,
}

/// Reads a table. Columns that `table` knows become its metrics; the others keep their names.
///
/// # Errors
///
/// When a line has the wrong number of cells, or a cell no number. A half-written last line is no
/// error.
pub fn read(text: &[u8], table: Option<Table>, last_row: LastRow) -> Result<Frame, CsvError> {
    let columns = read_columns(text, last_row, |column, line, field| column.push(line, &field.text))?;
    let columns = columns.into_iter().map(|column| column.finish(table)).collect();
    Frame::from_columns(columns).map_err(|source| CsvError::Columns { source })
}

/// A column that may hold more than numbers.
#[derive(Clone, Debug)]
pub struct AnyColumn {
    /// Its name and its finite numbers; where something else stands, nothing.
    pub numbers: Column,
    /// What else stands in it, and in which row.
    pub others: Vec<(usize, Other)>,
}

/// A cell that no column of numbers holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Other {
    /// Text: what stood in quotes, whatever it looks like, and what is no number.
    Text(String),
    /// A number that is not finite.
    NotFinite(f64),
}

/// Reads a table of anything: in quotes is text, bare are numbers.
///
/// # Errors
///
/// When a line has the wrong number of cells. A half-written last line is no error.
pub fn read_any(text: &[u8], last_row: LastRow) -> Result<Vec<AnyColumn>, CsvError> {
    let mut columns = read_columns(text, last_row, |column, line, field| {
        column.push_any(line, field);
        Ok(())
    })?;
    // An only column has `""` for a missing cell, since an empty line is no row: beside numbers that is what it means.
    if let [column] = &mut columns[..]
        && column.cells.iter().any(|cell| !cell.is_nan())
    {
        column.others.retain(|(_, other)| *other != Other::Text(String::new()));
    }
    let finished = columns.into_iter().map(|mut column| {
        let others = std::mem::take(&mut column.others);
        AnyColumn { numbers: column.finish(None), others }
    });
    Ok(finished.collect())
}

fn read_columns(
    text: &[u8],
    last_row: LastRow,
    push: impl Fn(&mut ReadColumn, usize, &Field<'_>) -> Result<(), CsvError>,
) -> Result<Vec<ReadColumn>, CsvError> {
    let (names, mut rows) = TableRows::open(text, last_row)?;
    let mut columns: Vec<ReadColumn> = names.into_iter().map(ReadColumn::new).collect();
    let mut fields = Vec::new();
    while let Some(line) = rows.read(&mut fields)? {
        for (column, field) in columns.iter_mut().zip(&fields) {
            push(column, line, field)?;
        }
    }
    Ok(columns)
}

/// The rows of a text that has a header, whatever their cells hold.
#[derive(Debug)]
struct TableRows<'t> {
    records: Records<'t>,
    cells: usize,
    last_row: LastRow,
}

impl<'t> TableRows<'t> {
    /// The names in the header, none where there is no whole one, and the rows below it.
    fn open(text: &'t [u8], last_row: LastRow) -> Result<(Vec<String>, Self), CsvError> {
        let mut records = Records::new(text);
        let mut fields = Vec::new();
        match records.read(&mut fields) {
            None | Some(LineEnd::OpenQuote) => fields.clear(),
            Some(LineEnd::Input) if last_row == LastRow::MustEnd => fields.clear(),
            Some(LineEnd::Input | LineEnd::Newline) => {}
        }
        let names: Result<Vec<String>, _> =
            fields.drain(..).map(|field| String::from_utf8(field.text.into_owned())).collect();
        let names = names.map_err(|_| CsvError::Header)?;
        let columns = names.iter().map(|name| Column::new(name.clone(), Vec::new())).collect();
        Frame::from_columns(columns).map_err(|source| CsvError::Columns { source })?;
        Ok((names.clone(), Self { records, cells: names.len(), last_row }))
    }

    /// Reads the next row, which has as many cells as the header; its line, or `None` at the end, where a
    /// half-written row is left out.
    fn read(&mut self, fields: &mut Vec<Field<'t>>) -> Result<Option<usize>, CsvError> {
        let Some(end) = self.records.read(fields).filter(|_| self.cells > 0) else { return Ok(None) };
        let (line, found, expected) = (self.records.line(), fields.len(), self.cells);
        let half_written = match end {
            LineEnd::Newline => false,
            LineEnd::Input => self.last_row == LastRow::MustEnd || found != expected,
            LineEnd::OpenQuote => true,
        };
        if half_written {
            return Ok(None);
        }
        if found != expected {
            return Err(CsvError::Cells { line, found, expected });
        }
        Ok(Some(line))
    }
}

/// A column while its cells come in. Whether it holds whole numbers is seen from their text.
struct ReadColumn {
    name: String,
    cells: Vec<f64>,
    others: Vec<(usize, Other)>,
    has_integers: bool,
    has_whole_with_point: bool,
}

impl ReadColumn {
    fn new(name: String) -> Self {
        Self { name, cells: Vec::new(), others: Vec::new(), has_integers: false, has_whole_with_point: false }
    }

    fn push(&mut self, line: usize, text: &[u8]) -> Result<(), CsvError> {
        if text.trim_ascii().is_empty() {
            self.cells.push(f64::NAN);
            return Ok(());
        }
        let value = decimal::parse(text).ok_or_else(|| CsvError::NotANumber {
            line,
            column: self.name.clone(),
            text: String::from_utf8_lossy(text).chars().take(40).collect(),
        })?;
        let integer = text.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-');
        self.has_integers |= integer;
        self.has_whole_with_point |= !integer && decimal::is_whole(value);
        self.cells.push(value);
        Ok(())
    }

    fn push_any(&mut self, line: usize, field: &Field<'_>) {
        if !field.quoted && self.push(line, &field.text).is_ok() {
            return;
        }
        // As Python writes them, and its JSON.
        let other = match field.text.trim_ascii() {
            b"nan" | b"NaN" if !field.quoted => Other::NotFinite(f64::NAN),
            b"inf" | b"Infinity" if !field.quoted => Other::NotFinite(f64::INFINITY),
            b"-inf" | b"-Infinity" if !field.quoted => Other::NotFinite(f64::NEG_INFINITY),
            _ => Other::Text(String::from_utf8_lossy(&field.text).into_owned()),
        };
        self.others.push((self.cells.len(), other));
        self.cells.push(f64::NAN);
    }

    fn finish(self, table: Option<Table>) -> Column {
        let whole = self.has_integers && !self.has_whole_with_point;
        let column = Column::new(self.name, self.cells);
        let column = match table {
            Some(table) => column.of_table(table),
            None => column,
        };
        // What the file shows goes before what the table says: `0` in a float column of the original.
        if self.has_integers || self.has_whole_with_point { column.with_whole(whole) } else { column }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(frame: &Frame) -> String {
        let mut out = Vec::new();
        write_frame(&mut out, frame).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn cells(frame: &Frame, column: &str) -> Vec<Option<f64>> {
        frame.column(column).unwrap().iter().collect()
    }

    #[test]
    fn header_is_quoted_numbers_are_bare_and_missing_cells_are_empty() {
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
    fn a_row_being_written_when_its_writer_died_is_dropped() {
        let whole = b"\"a\",\"b\"\n1,20\n3,40\n";
        let rows = |text: &[u8], last| read(text, None, last).unwrap().len();
        for cut in 0..=whole.len() {
            let complete = whole[..cut].split(|byte| *byte == b'\n').count().saturating_sub(2);
            assert_eq!(rows(&whole[..cut], LastRow::MustEnd), complete, "cut at {cut}");
        }
        assert_eq!(rows(b"a,b\n1,2\n3,4", LastRow::MayLackLineEnd), 2);
        assert_eq!(rows(b"a,b\n1,2\n3", LastRow::MayLackLineEnd), 1);
        assert_eq!(rows(b"a,b\n1,2\n3,\"4", LastRow::MayLackLineEnd), 1);
    }

    #[test]
    fn quotes_line_ends_blank_lines_and_a_byte_order_mark_change_nothing() {
        let plain = read(b"a,b\n1,\n2,4\n", None, LastRow::MustEnd).unwrap();
        for text in
            ["\"a\",\"b\"\r\n1,\r\n2,4\r\n", "\u{feff}a,b\n\n1,\"\"\n\n2,\"4\"\n\n", "a,b\n 1 , \n2,4.0\n"]
        {
            assert_eq!(read(text.as_bytes(), None, LastRow::MustEnd).unwrap(), plain, "{text}");
        }
        assert_eq!(cells(&plain, "b"), [None, Some(4.0)]);
    }

    #[test]
    fn rows_of_the_original_package_are_read_with_its_integers_in_float_columns() {
        let text = include_bytes!("../../../fixtures/original/system.csv");
        let frame = read(text, Some(Table::System), LastRow::MustEnd).unwrap();
        assert_eq!((frame.len(), frame.columns().len()), (3, 21));
        assert_eq!(frame.metric(Metric::Timestamp).unwrap().get(0), Some(1_741_785_685.676_298_1));
        assert_eq!(cells(&frame, "utime"), [Some(40.0), Some(23.0), Some(38.0)]);
        assert_eq!(cells(&frame, "gpu_vram"), [Some(1034.0), Some(1033.0), Some(1029.0)]);
        assert_eq!(written(&frame).as_bytes(), text);
    }

    #[test]
    fn damage_is_named_with_its_line() {
        let error = |text: &[u8]| read(text, None, LastRow::MustEnd).unwrap_err().to_string();
        assert_eq!(error(b"a,b\n1,2\n3\n4,5\n"), "line 3 has 1 cells where the header has 2");
        assert_eq!(error(b"a,b\n\n\"\n1x\",2\n"), "line 3: column `a` holds `\n1x`, not a number");
        assert_eq!(error(b"a,b\n1,inf\n"), "line 2: column `b` holds `inf`, not a number");
        assert_eq!(error(b"\xff\xfe\n1\n"), "the header is not UTF-8 text");
        assert_eq!(error(b"a,a\n1,2\n"), "the header does not make a table");
    }

    #[test]
    fn what_stands_in_quotes_is_text_column_by_column() {
        let text = "id,n,x,mixed\n\"001\",1,NaN,\n\"\",,2, 7 \n\"nan\",3,-Infinity,\"x\"\n";
        let [id, n, x, mixed] = &read_any(text.as_bytes(), LastRow::MustEnd).unwrap()[..] else { panic!() };
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
    fn in_an_only_column_two_quotes_are_a_missing_number_or_empty_text() {
        let others = |text: &[u8]| read_any(text, LastRow::MustEnd).unwrap()[0].others.len();
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
        /// What we wrote is read back as the same table, and written again byte for byte.
        #[test]
        fn csv_to_frame_to_csv_is_the_same_bytes(frame in any_frame()) {
            let text = written(&frame);
            let again = read(text.as_bytes(), None, LastRow::MustEnd).unwrap();
            prop_assert_eq!(&again, &frame);
            prop_assert_eq!(written(&again), text);
        }

        #[test]
        fn arbitrary_bytes_never_panic(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&text, Some(Table::System), LastRow::MayLackLineEnd);
            let _ = read_any(&text, LastRow::MayLackLineEnd);
        }

        /// A few bytes changed in a real file give a table or a named error.
        #[test]
        fn mutated_files_never_panic(changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..6), cut in any::<usize>()) {
            let mut text = include_bytes!("../../../fixtures/original/system.csv").to_vec();
            for (at, byte) in changes {
                let at = at % text.len();
                text[at] = byte;
            }
            text.truncate(cut % (text.len() + 1));
            if let Ok(frame) = read(&text, Some(Table::System), LastRow::MustEnd) {
                prop_assert!(frame.len() <= 30);
            }
        }
    }
}
