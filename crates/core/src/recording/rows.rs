//! The rows of one table, from JSON text into columns.
//!
//! In:  text that starts with a row, which is a flat object of numbers.
//! Out: the table as a [`Frame`].
//! Not here: where the text comes from and how much of it there may be (`read`, `window`).
//!
//! The rows of a table all look alike: the same keys in the same order. So a key is compared to the
//! one that stood there in the row before, its number put into that column; only a key that is not
//! where it was is looked up.

use super::window::is_blank;
use crate::decimal;
use crate::frame::{Column, Frame};
use crate::metric::{MOST_GPUS, Metric, Table};

/// Most columns of a table.
pub(super) const MAX_COLUMNS: usize = 512;

const _: () = assert!(
    Metric::ONCE.len() + MOST_GPUS * Metric::PER_GPU.len() <= MAX_COLUMNS,
    "what we write we must be able to read"
);

/// The rows of one table while they come in.
pub(super) struct Rows {
    pub(super) table: Table,
    columns: Vec<Named>,
    /// The cells of the row being read, by column; NaN where it has none.
    cells: Vec<f64>,
    /// Rows that are complete.
    pub(super) count: usize,
    /// What the file is allowed by now.
    pub(super) max_cells: u64,
}

struct Named {
    name: String,
    key: Vec<u8>,
    cells: Vec<f64>,
}

/// Why a row could not be read.
pub(super) enum Broken {
    /// The text ends before the row does.
    Short,
    /// Not what a row has at this place.
    Shape { expected: &'static str, found: String },
    /// A cell that is no number.
    Cell { column: usize, found: String },
    /// One column too many.
    Columns,
    /// More cells than the file may have.
    Unfolds,
}

impl Rows {
    pub(super) fn new(table: Table) -> Self {
        Self { table, columns: Vec::new(), cells: Vec::new(), count: 0, max_cells: 0 }
    }

    /// Reads the flat object that `text` starts with into `cells`; the bytes it took.
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

    /// The column whose name stands at `at`, most often the one after the last, and where its value
    /// starts.
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

    /// The column of that name, new if need be. Its key is the text it had last: name, quotes, colon.
    fn look_up(&mut self, name: String, key: &[u8]) -> Result<usize, Broken> {
        if let Some(known) = self.columns.iter().position(|column| column.name == name) {
            self.columns[known].key = key.to_vec();
            return Ok(known);
        }
        if self.columns.len() == MAX_COLUMNS {
            return Err(Broken::Columns);
        }
        // A column that comes late has a cell in every row before it too.
        if (self.columns.len() as u64 + 1) * (self.count as u64 + 1) > self.max_cells {
            return Err(Broken::Unfolds);
        }
        self.columns.push(Named { name, key: key.to_vec(), cells: vec![f64::NAN; self.count] });
        self.cells.push(f64::NAN);
        Ok(self.columns.len() - 1)
    }

    /// Puts the row read last below the others.
    pub(super) fn commit(&mut self) {
        for (column, cell) in self.columns.iter_mut().zip(&self.cells) {
            column.cells.push(*cell);
        }
        self.count += 1;
    }

    /// Cells so far; a row without any counts as one.
    pub(super) fn cells(&self) -> u64 {
        self.columns.len().max(1) as u64 * self.count as u64
    }

    /// Name of a column by its number.
    pub(super) fn name(&self, column: usize) -> &str {
        self.columns.get(column).map_or("", |column| column.name.as_str())
    }

    /// The table with all its rows.
    pub(super) fn finish(self) -> Frame {
        let table = self.table;
        let columns = self
            .columns
            .into_iter()
            .map(|Named { name, cells, .. }| Column::new(name, cells).of_table(table));
        // Names are looked up before they are added and every column gets every row: nothing to refuse.
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

/// The string at `at`, escapes resolved, and where it ends.
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

/// Where a cell that is no number ends, if it is one that says so: `null`, the empty text that the
/// original makes of a missing cell, or what Python's JSON makes of one that pandas has seen.
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
    // Such as `-` or `1.`, of which the rest may be to come.
    if rest.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')) {
        return Err(Broken::Short);
    }
    Err(Broken::Shape { expected: "a number", found: shown(rest) })
}

/// What stands there, for a message: a word or a few characters, printable.
pub(super) fn shown(text: &[u8]) -> String {
    let word = text.iter().take(24).take_while(|byte| !matches!(byte, b',' | b'}' | b']' | b'\n'));
    let word: Vec<u8> = word.copied().collect();
    let word = if word.is_empty() { text.get(..1).unwrap_or_default() } else { &word };
    match std::str::from_utf8(word) {
        Ok(word) if !word.chars().any(char::is_control) => format!("`{}`", word.trim_end()),
        _ => format!("byte 0x{:02x}", word.first().copied().unwrap_or_default()),
    }
}
