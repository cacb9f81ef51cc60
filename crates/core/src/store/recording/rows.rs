//! Parses the rows of one table from JSON into columns.
//!
//! In:  text that starts with a row: a flat object of numbers.
//! Out: the table as a [`Frame`].
//! Not here: the stream and its limits (`read`, `window`).
//!
//! All rows of a table usually have the same keys in the same order. Each key is therefore compared with the key at the
//! same position of the previous row, and looked up only if it differs.

use std::ops::RangeInclusive;

use super::window::is_blank;
use crate::human;
use crate::metric::{MOST_GPUS, Metric, Table};
use crate::store::decimal;
use crate::store::frame::{Column, Frame};
use crate::store::plausible::{self, Implausible};

pub(super) const MAX_COLUMNS: usize = 512;

const _: () = assert!(
    Metric::ONCE.len() + MOST_GPUS * Metric::PER_GPU.len() <= MAX_COLUMNS,
    "a recording with all GPUs can be read again"
);

/// A table of which a part has been read.
pub(super) struct Rows {
    pub(super) table: Table,
    columns: Vec<Named>,
    /// Cells of the current row, by column. Missing cells are NaN.
    cells: Vec<f64>,
    /// Number of complete rows.
    pub(super) count: usize,
    /// Maximum number of cells, given the number of file bytes read so far.
    pub(super) max_cells: u64,
}

struct Named {
    name: String,
    key: Vec<u8>,
    range: RangeInclusive<f64>,
    cells: Vec<f64>,
}

pub(super) enum Broken {
    /// The text ends before the row ends.
    Short,
    Shape {
        expected: &'static str,
        found: String,
    },
    /// A cell that is not a number.
    Cell {
        column: usize,
        found: String,
    },
    Range(Implausible),
    TooManyColumns,
    TooManyCells,
}

impl Rows {
    pub(super) fn new(table: Table) -> Self {
        Self { table, columns: Vec::new(), cells: Vec::new(), count: 0, max_cells: 0 }
    }

    /// Parses the row at the start of `text` into `cells` and returns its length.
    pub(super) fn read(&mut self, text: &[u8]) -> Result<usize, Broken> {
        self.cells.fill(f64::NAN);
        let mut at = token(text, 0, b'{', "the `{` of a row")?;
        at = skip_blank(text, at);
        if text.get(at) == Some(&b'}') {
            return Ok(at + 1);
        }
        let mut expected_column = 0;
        loop {
            let (column, start) = self.column(text, at, expected_column)?;
            at = match decimal::parse_prefix(&text[start..]) {
                Some((value, used)) => {
                    let Named { name, range, .. } = &self.columns[column];
                    plausible::cell(name, value, range).map_err(Broken::Range)?;
                    self.cells[column] = value;
                    start + used
                }
                None => missing(text, start).map_err(|broken| match broken {
                    Broken::Shape { found, .. } => Broken::Cell { column, found },
                    other => other,
                })?,
            };
            at = skip_blank(text, at);
            match text.get(at) {
                Some(b',') => at = skip_blank(text, at + 1),
                Some(b'}') => return Ok(at + 1),
                Some(_) => {
                    return Err(Broken::Shape {
                        expected: "`,` or `}` after a cell",
                        found: shown(&text[at..]),
                    });
                }
                None => return Err(Broken::Short),
            }
            expected_column = column + 1;
        }
    }

    /// The column of the key at `at`, and the position of its value.
    #[inline]
    fn column(&mut self, text: &[u8], at: usize, expected: usize) -> Result<(usize, usize), Broken> {
        if let Some(column) = self.columns.get(expected)
            && text.get(at..).is_some_and(|rest| rest.starts_with(&column.key))
        {
            return Ok((expected, skip_blank(text, at + column.key.len())));
        }
        let (name, end) = string(text, at, "a column's name in quotes")?;
        let start = token(text, end, b':', "`:` after a column's name")?;
        Ok((self.look_up(name, &text[at..start])?, skip_blank(text, start)))
    }

    /// Finds or adds a column. `key` is the text of the key in this row, with its quotes and colon.
    fn look_up(&mut self, name: String, key: &[u8]) -> Result<usize, Broken> {
        if let Some(known) = self.columns.iter().position(|column| column.name == name) {
            self.columns[known].key = key.to_vec();
            return Ok(known);
        }
        // Columns are printed, for example by `export`.
        if name.chars().any(human::is_unprintable) {
            return Err(Broken::Shape {
                expected: "a column's name of printable characters",
                found: format!("`{}`", human::printable(&name.chars().take(24).collect::<String>())),
            });
        }
        if self.columns.len() == MAX_COLUMNS {
            return Err(Broken::TooManyColumns);
        }
        // A new column needs a missing cell in every earlier row, so it can add many cells at once.
        if (self.columns.len() as u64 + 1) * (self.count as u64 + 1) > self.max_cells {
            return Err(Broken::TooManyCells);
        }
        let range = plausible::range_of(self.table, &name);
        self.columns.push(Named { name, key: key.to_vec(), range, cells: vec![f64::NAN; self.count] });
        self.cells.push(f64::NAN);
        Ok(self.columns.len() - 1)
    }

    /// Appends the current row to the table.
    pub(super) fn commit(&mut self) {
        for (column, cell) in self.columns.iter_mut().zip(&self.cells) {
            column.cells.push(*cell);
        }
        self.count += 1;
    }

    /// Number of cells. A row without cells counts as one cell, so that empty rows are limited too.
    pub(super) fn cells(&self) -> u64 {
        self.columns.len().max(1) as u64 * self.count as u64
    }

    pub(super) fn name(&self, column: usize) -> &str {
        self.columns.get(column).map_or("", |column| column.name.as_str())
    }

    pub(super) fn finish(self) -> Frame {
        let table = self.table;
        let columns = self
            .columns
            .into_iter()
            .map(|Named { name, cells, .. }| Column::new(name, cells).of_table(table));
        // `from_columns` cannot fail: names are unique and all columns have the same length.
        let frame = Frame::from_columns(columns.collect());
        debug_assert!(frame.is_ok());
        frame.unwrap_or_default()
    }
}

fn skip_blank(text: &[u8], mut at: usize) -> usize {
    while text.get(at).is_some_and(|byte| is_blank(*byte)) {
        at += 1;
    }
    at
}

fn token(text: &[u8], at: usize, byte: u8, expected: &'static str) -> Result<usize, Broken> {
    let at = skip_blank(text, at);
    match text.get(at) {
        Some(found) if *found == byte => Ok(at + 1),
        Some(_) => Err(Broken::Shape { expected, found: shown(&text[at..]) }),
        None => Err(Broken::Short),
    }
}

/// The string that starts at `at`, and the position after it.
fn string(text: &[u8], at: usize, expected: &'static str) -> Result<(String, usize), Broken> {
    let open = token(text, at, b'"', expected)?;
    let mut escaped = false;
    let length = text[open..].iter().position(|byte| match byte {
        _ if escaped => {
            escaped = false;
            false
        }
        b'\\' => {
            escaped = true;
            false
        }
        byte => *byte == b'"',
    });
    let end = open + length.ok_or(Broken::Short)? + 1;
    let name = serde_json::from_slice(&text[open - 1..end]);
    name.map(|name| (name, end)).map_err(|_| Broken::Shape { expected, found: shown(&text[open - 1..]) })
}

/// Position after a missing cell: `null`, `""` (original package) or `NaN` (Python's `json`).
fn missing(text: &[u8], at: usize) -> Result<usize, Broken> {
    let rest = text.get(at..).unwrap_or_default();
    for word in [&b"null"[..], b"\"\"", b"NaN"] {
        if rest.starts_with(word) {
            return Ok(at + word.len());
        }
        if word.starts_with(rest) {
            return Err(Broken::Short);
        }
    }
    // The number may continue after the window, for example `-` or `1.`.
    if rest.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')) {
        return Err(Broken::Short);
    }
    Err(Broken::Shape { expected: "a number", found: shown(rest) })
}

/// The start of the text as printable characters, for an error message.
pub(super) fn shown(text: &[u8]) -> String {
    let word = text.iter().take(24).take_while(|byte| !matches!(byte, b',' | b'}' | b']' | b'\n'));
    let word: Vec<u8> = word.copied().collect();
    let word = if word.is_empty() { text.get(..1).unwrap_or_default() } else { &word };
    match std::str::from_utf8(word) {
        Ok(word) if !word.chars().any(human::is_unprintable) => format!("`{}`", word.trim_end()),
        _ => format!("byte 0x{:02x}", word.first().copied().unwrap_or_default()),
    }
}
