//! Writes a recording as JSON, in constant memory.
//!
//! In:  a [`Head`], and either the rows of a journal (one pass for each table) or the frames of a recording.
//! Out: JSON text. Compressed with [`gzip`] it is a recording file.
//! Not here: creating and renaming the file (`output`, `history`).

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;

use super::head::Head;
use crate::metric::{Metric, Row, Table};
use crate::store::decimal;
use crate::store::frame::Frame;

const CHUNK_BYTES: usize = 64 * 1024;

/// A function that passes every row of a recording to its argument and stops at the first error. It is called once for
/// each table.
pub type Replay<'a> = dyn FnMut(&mut dyn FnMut(&Row) -> io::Result<()>) -> io::Result<()> + 'a;

/// Returns an encoder that writes gzip data to `out`. Call its `finish` at the end, which returns write errors.
///
/// The compression level is 2, so that the end of a job does not take long. Time and size for a day of rows
/// (`benches/recording.rs`): 0.57 s and 26 MB at level 1, 0.62 s and 18 MB at level 2, 1.58 s and 15 MB at level 6.
pub fn gzip<W: Write>(out: W) -> GzEncoder<W> {
    GzEncoder::new(out, Compression::new(2))
}

/// Writes a recording with the rows of `replay`. Tables that are not recorded are written as empty lists.
pub fn write_snapshot(out: &mut impl Write, head: &Head, replay: &mut Replay<'_>) -> io::Result<()> {
    let mut text = Text::new(out);
    text.head(head)?;
    // The number of GPUs is counted while the first tables are written. The extra table, written last, needs it.
    let mut gpus = 0;
    for table in Table::ALL {
        let on = match table {
            Table::Process => head.metadata.track_processes,
            Table::System => head.metadata.track_system,
            Table::Every | Table::Extra | Table::Gpu => true,
        };
        text.open_table(table)?;
        if on {
            let metrics: Vec<Metric> = table.metrics().collect();
            let mut keys: Vec<Key> =
                metrics.iter().map(|metric| Key::new(metric.column(), metric.decimals() == 0)).collect();
            if table == Table::Extra {
                keys.extend((0..gpus).flat_map(Key::of_gpu));
            }
            replay(&mut |row| {
                gpus = gpus.max(row.gpus.len());
                let once = metrics.iter().map(|metric| row.get(*metric));
                // A row may have fewer GPUs than a later row: missing cells follow. Only the extra table has GPUs.
                let each = row.gpus.iter().flatten().copied().chain(std::iter::repeat(None));
                text.row(keys.iter().zip(once.chain(each)))
            })?;
        }
        text.close_table()?;
    }
    text.finish()
}

/// Writes a recording from tables in memory. A table that is not recorded is `None`.
pub(super) fn write_frames(
    out: &mut impl Write,
    head: &Head,
    tables: [(Table, Option<&Frame>); 3],
) -> io::Result<()> {
    let mut text = Text::new(out);
    text.head(head)?;
    for (table, frame) in tables {
        // Files of the original package have no extra table.
        if frame.is_none() && table == Table::Extra {
            continue;
        }
        text.open_table(table)?;
        if let Some(frame) = frame {
            let keys: Vec<Key> =
                frame.columns().iter().map(|column| Key::new(column.name(), column.is_whole())).collect();
            for row in 0..frame.len() {
                text.row(keys.iter().zip(frame.columns().iter().map(|column| column.get(row))))?;
            }
        }
        text.close_table()?;
    }
    text.finish()
}

/// A column name as JSON text: with quotes, and a colon after it.
pub(crate) struct Key {
    text: Vec<u8>,
    whole: bool,
}

impl Key {
    pub(crate) fn new(name: &str, whole: bool) -> Self {
        let mut text = serde_json::Value::from(name).to_string().into_bytes();
        text.push(b':');
        Self { text, whole }
    }

    /// Keys of the columns of one GPU in the extra table.
    fn of_gpu(gpu: usize) -> impl Iterator<Item = Self> {
        Metric::PER_GPU
            .iter()
            .map(move |metric| Self::new(&metric.column_of_gpu(gpu), metric.decimals() == 0))
    }
}

/// Appends the cells of a row, without braces. Missing cells are `null`.
pub(crate) fn write_cells<'k>(buffer: &mut Vec<u8>, cells: impl Iterator<Item = (&'k Key, Option<f64>)>) {
    for (number, (key, cell)) in cells.enumerate() {
        if number > 0 {
            buffer.push(b',');
        }
        buffer.extend_from_slice(&key.text);
        match cell.filter(|value| value.is_finite()) {
            Some(value) => decimal::write(buffer, value, key.whole),
            None => buffer.extend_from_slice(b"null"),
        }
    }
}

/// Buffered JSON output.
struct Text<'a, W> {
    out: &'a mut W,
    buffer: Vec<u8>,
    rows_in_table: u64,
}

impl<'a, W: Write> Text<'a, W> {
    fn new(out: &'a mut W) -> Self {
        Self { out, buffer: Vec::with_capacity(CHUNK_BYTES + 4096), rows_in_table: 0 }
    }

    fn head(&mut self, head: &Head) -> io::Result<()> {
        self.buffer.extend_from_slice(b"{\"metadata\":");
        self.value(&head.metadata)?;
        self.key("server_info");
        self.value(&head.server_info)?;
        self.key("cloud_info");
        self.value(&head.cloud_info)?;
        if let Some(run) = &head.run {
            self.key("run");
            self.value(run)?;
        }
        for (key, value) in &head.other {
            self.key(key);
            self.value(value)?;
        }
        Ok(())
    }

    fn key(&mut self, key: &str) {
        self.buffer.extend_from_slice(b",\n");
        self.buffer.extend_from_slice(&Key::new(key, false).text);
    }

    fn value(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.buffer, value).map_err(io::Error::from)
    }

    fn open_table(&mut self, table: Table) -> io::Result<()> {
        self.key(table.key());
        self.buffer.push(b'[');
        self.rows_in_table = 0;
        self.flush_if(CHUNK_BYTES)
    }

    fn row<'k>(&mut self, cells: impl Iterator<Item = (&'k Key, Option<f64>)>) -> io::Result<()> {
        self.buffer.extend_from_slice(if self.rows_in_table == 0 { &b"\n{"[..] } else { b",\n{" });
        self.rows_in_table += 1;
        write_cells(&mut self.buffer, cells);
        self.buffer.push(b'}');
        self.flush_if(CHUNK_BYTES)
    }

    fn close_table(&mut self) -> io::Result<()> {
        self.buffer.push(b']');
        self.flush_if(CHUNK_BYTES)
    }

    fn finish(mut self) -> io::Result<()> {
        self.buffer.extend_from_slice(b"}\n");
        self.flush_if(0)
    }

    /// Writes the buffer out if it has at least this many bytes.
    fn flush_if(&mut self, at_least: usize) -> io::Result<()> {
        if self.buffer.len() >= at_least {
            self.out.write_all(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }
}
