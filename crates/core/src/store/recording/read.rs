//! Reads a recording, which is gzipped or plain JSON, into columns.
//!
//! In:  a stream.
//! Out: a [`Recording`] or an error.
//! Not here: the head (`head`), the rows of a table (`rows`), decompression (`window`).
//!
//! Most of a file is rows. They are parsed directly in the window (`rows`); `serde_json` parses all other values.
//!
//! Damaged and hostile files cannot exhaust memory: the window limits rows and white space, [`MAX_HEAD_BYTES`] limits
//! other values, and [`BASE_CELLS`] and the size of the file limit the tables.
//!
//! Parsing everything with `serde_json` (a `DeserializeSeed` for the tables) would be shorter. But it loads a one-day
//! recording in 0.50 s, and this module in 0.18 s. `serde_json` also rejects `NaN`, which Python writes for missing
//! cells, and does not limit the length of a string.

use std::io::BufRead;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::Recording;
use super::error::SnapshotError;
use super::head::{Head, Metadata, Run, VERSION};
use super::rows::{Broken, MAX_COLUMNS, Rows, shown};
use super::window::{WINDOW_BYTES, Window, is_blank};
use crate::metric::Table;
use crate::store::frame::Frame;
use crate::store::plausible;

/// Maximum total size of all values except the tables.
const MAX_HEAD_BYTES: usize = 8 * 1024 * 1024;

/// Number of cells that a file of any size may have: 256 MiB, or a week of all tables with one row per second.
const BASE_CELLS: u64 = 1 << 25;

/// Number of additional cells for each byte of the file. A recording of an idle job, which compresses best, has about
/// two cells per byte, because timestamps always differ. A decompression bomb has fifty.
const CELLS_PER_BYTE: u64 = 8;

/// Keys that every file must have.
const KEYS: [&str; 5] = ["metadata", "server_info", "cloud_info", "process_metrics", "system_metrics"];

pub(super) fn read(reader: impl BufRead) -> Result<Recording, SnapshotError> {
    Reader { window: Window::new(reader)?, head_bytes: 0, cells_before: 0 }.recording()
}

struct Reader<R> {
    window: Window<R>,
    head_bytes: usize,
    /// Number of cells in the tables before the current table.
    cells_before: u64,
}

/// The values of the file that were read so far.
#[derive(Default)]
struct Parts {
    keys: Vec<String>,
    metadata: Option<Metadata>,
    server_info: Option<Map<String, Value>>,
    cloud_info: Option<Map<String, Value>>,
    run: Option<Run>,
    process: Option<Frame>,
    system: Option<Frame>,
    extra: Option<Frame>,
    other: Map<String, Value>,
}

impl<R: BufRead> Reader<R> {
    fn recording(mut self) -> Result<Recording, SnapshotError> {
        if self.window.peek()?.is_none() {
            return Err(SnapshotError::Empty);
        }
        self.expect(b'{', "the `{` of a recording")?;
        let mut parts = Parts::default();
        if !self.accept(b'}')? {
            loop {
                let key = self.key()?;
                self.expect(b':', "`:` after a key")?;
                self.value_of(key, &mut parts)?;
                if self.accept(b'}')? {
                    break;
                }
                self.expect(b',', "`,` or `}` after a value")?;
            }
        }
        // Reading to the end of the stream verifies the gzip checksum.
        if self.window.peek()?.is_some() {
            return Err(self.syntax("nothing after the recording"));
        }
        parts.finish()
    }

    fn value_of(&mut self, key: String, parts: &mut Parts) -> Result<(), SnapshotError> {
        match key.as_str() {
            "metadata" => parts.metadata = Some(metadata(&self.raw_value("metadata")?)?),
            "server_info" => parts.server_info = self.checked("server_info")?,
            "cloud_info" => parts.cloud_info = self.checked("cloud_info")?,
            "run" => parts.run = self.checked("run")?,
            "process_metrics" => parts.process = Some(self.table(Table::Process)?),
            "system_metrics" => parts.system = Some(self.table(Table::System)?),
            "extra_metrics" => parts.extra = Some(self.table(Table::Extra)?),
            _ => {
                let value = self.checked(&key)?;
                parts.other.insert(key.clone(), value);
            }
        }
        parts.keys.push(key);
        Ok(())
    }

    /// Parses a value and checks its numbers.
    fn checked<T: DeserializeOwned>(&mut self, key: &str) -> Result<T, SnapshotError> {
        let value: Value = self.parsed(key)?;
        plausible::check(key, &value).map_err(|number| SnapshotError::Key { number })?;
        T::deserialize(value).map_err(|source| SnapshotError::Value { key: key.to_owned(), source })
    }

    fn parsed<T: DeserializeOwned>(&mut self, key: &str) -> Result<T, SnapshotError> {
        let text = self.raw_value(key)?;
        serde_json::from_slice(&text).map_err(|source| SnapshotError::Value { key: key.to_owned(), source })
    }

    /// Skips white space, and consumes the next byte if it is `byte`.
    fn accept(&mut self, byte: u8) -> Result<bool, SnapshotError> {
        let found = self.window.peek()? == Some(byte);
        self.window.advance(usize::from(found));
        Ok(found)
    }

    fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), SnapshotError> {
        if self.accept(byte)? { Ok(()) } else { Err(self.syntax(expected)) }
    }

    fn syntax(&self, expected: &'static str) -> SnapshotError {
        match self.window.rest() {
            [] => SnapshotError::Truncated,
            rest => SnapshotError::Syntax { expected, found: shown(rest), at: self.window.position() },
        }
    }

    fn key(&mut self) -> Result<String, SnapshotError> {
        if self.window.peek()? != Some(b'"') {
            return Err(self.syntax("a key in quotes"));
        }
        self.parsed("key")
    }

    /// Reads the text of the next value, up to its closing bracket or quote.
    fn raw_value(&mut self, key: &str) -> Result<Vec<u8>, SnapshotError> {
        self.window.peek()?;
        let mut text = Vec::new();
        let mut scanner = Scanner::default();
        loop {
            let rest = self.window.rest();
            let end = rest.iter().position(|byte| scanner.ends_before(*byte));
            let used = end.unwrap_or(rest.len());
            text.extend_from_slice(&self.window.rest()[..used]);
            self.window.advance(used);
            self.head_bytes += used;
            if self.head_bytes > MAX_HEAD_BYTES {
                return Err(SnapshotError::LongHead { key: key.to_owned(), limit: MAX_HEAD_BYTES });
            }
            if end.is_some() {
                return Ok(text);
            }
            if !self.window.refill()? {
                return Err(SnapshotError::Truncated);
            }
        }
    }

    fn table(&mut self, table: Table) -> Result<Frame, SnapshotError> {
        self.expect(b'[', "`[` before the rows of a table")?;
        let mut rows = Rows::new(table);
        if self.accept(b']')? {
            return Ok(Frame::for_table(table));
        }
        loop {
            self.row(&mut rows)?;
            if self.accept(b']')? {
                self.cells_before += rows.cells();
                return Ok(rows.finish());
            }
            self.expect(b',', "`,` or `]` after a row")?;
        }
    }

    /// Reads one row. A row may continue after the end of the window: then the window is refilled and the row is parsed
    /// again.
    fn row(&mut self, rows: &mut Rows) -> Result<(), SnapshotError> {
        self.window.peek()?;
        let allowed = BASE_CELLS.saturating_add(self.window.file_bytes().saturating_mul(CELLS_PER_BYTE));
        rows.max_cells = allowed.saturating_sub(self.cells_before);
        let used = match rows.read(self.window.rest()) {
            Ok(used) => used,
            Err(_) if self.window.refill()? => match rows.read(self.window.rest()) {
                Ok(used) => used,
                Err(Broken::Short) if self.window.rest().len() == WINDOW_BYTES => {
                    let (table, row) = (rows.table.key(), rows.count + 1);
                    return Err(SnapshotError::LongRow { table, row, limit: WINDOW_BYTES });
                }
                Err(broken) => return Err(self.error(rows, broken)),
            },
            Err(broken) => return Err(self.error(rows, broken)),
        };
        self.window.advance(used);
        rows.commit();
        if rows.cells() > rows.max_cells { Err(self.error(rows, Broken::TooManyCells)) } else { Ok(()) }
    }

    fn error(&self, rows: &Rows, broken: Broken) -> SnapshotError {
        let (table, row) = (rows.table.key(), rows.count + 1);
        match broken {
            Broken::Short => SnapshotError::Truncated,
            Broken::Shape { expected, found } => SnapshotError::Row { table, row, expected, found },
            Broken::Cell { column, found } => {
                let column = rows.name(column).to_owned();
                SnapshotError::Cell { table, row, column, found }
            }
            Broken::Range(number) => SnapshotError::Range { table, row, number },
            Broken::TooManyColumns => SnapshotError::Columns { table, limit: MAX_COLUMNS },
            Broken::TooManyCells => {
                let cells = self.cells_before + rows.max_cells;
                SnapshotError::TooManyCells { file_bytes: self.window.file_bytes(), cells }
            }
        }
    }
}

/// Finds the end of a JSON value.
#[derive(Default)]
struct Scanner {
    state: State,
    depth: usize,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum State {
    #[default]
    Start,
    Bare,
    Text,
    Escape,
    Complete,
}

impl Scanner {
    /// Whether the value ends before this byte.
    fn ends_before(&mut self, byte: u8) -> bool {
        let separator = matches!(byte, b',' | b']' | b'}' | b':') || is_blank(byte);
        self.state = match (self.state, byte) {
            (State::Complete, _) => return true,
            (State::Bare, _) if self.depth == 0 && separator => return true,
            (State::Text, b'\\') => State::Escape,
            (State::Text, b'"') => self.closed(),
            (State::Text | State::Escape, _) | (_, b'"') => State::Text,
            (_, b'{' | b'[') => {
                self.depth += 1;
                State::Bare
            }
            (_, b'}' | b']') => {
                self.depth = self.depth.saturating_sub(1);
                self.closed()
            }
            (_, _) => State::Bare,
        };
        false
    }

    fn closed(&self) -> State {
        if self.depth == 0 { State::Complete } else { State::Bare }
    }
}

/// Parses `metadata`. The version is checked first, since other versions may have other keys.
fn metadata(text: &[u8]) -> Result<Metadata, SnapshotError> {
    let value_error = |source| SnapshotError::Value { key: "metadata".to_owned(), source };
    let object: Map<String, Value> = serde_json::from_slice(text).map_err(value_error)?;
    let version = object.get("version").ok_or(SnapshotError::MissingKey { key: "metadata.version" })?;
    if version.as_u64() != Some(VERSION) {
        return Err(SnapshotError::Version { version: version.to_string().chars().take(24).collect() });
    }
    let object = Value::Object(object);
    plausible::check("metadata", &object).map_err(|number| SnapshotError::Key { number })?;
    serde_json::from_value(object).map_err(value_error)
}

impl Parts {
    fn finish(self) -> Result<Recording, SnapshotError> {
        if let Some(key) = KEYS.into_iter().find(|key| !self.keys.iter().any(|present| present == key)) {
            return Err(SnapshotError::MissingKey { key });
        }
        let metadata = self.metadata.ok_or(SnapshotError::MissingKey { key: "metadata" })?;
        // In the file a table that is not recorded is an empty list.
        let process = self.process.filter(|frame| metadata.track_processes || !frame.is_empty());
        let system = self.system.filter(|frame| metadata.track_system || !frame.is_empty());
        let Self { server_info, cloud_info, run, other, .. } = self;
        let head = Head { metadata, server_info, cloud_info, run, other };
        Ok(Recording { head, process, system, extra: self.extra })
    }
}
