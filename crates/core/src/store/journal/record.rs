//! Format of a journal: the first line, which is JSON, and binary records.
//!
//! In:  rows, or the bytes of a record. Out: records appended to a buffer; rows.
//! Not here: files (`journal`, `reader`).

use std::iter;

use serde::{Deserialize, Serialize};

use crate::metric::{GpuCells, MOST_GPUS, Metric, Row, Table};

pub(super) const VERSION: u32 = 1;

const _: () = assert!(Metric::ONCE.len() <= 64, "the bitmap of a record has 64 bits");

/// The first line of a journal.
#[derive(Deserialize, Serialize)]
pub(super) struct Head {
    pub resource_tracker_journal: u32,
    pub columns: Vec<String>,
    #[serde(default)]
    pub gpu_columns: Vec<String>,
    /// Whether the writer has the lock of the file as long as it uses the file.
    #[serde(default)]
    pub is_locked: bool,
    pub recording: serde_json::Value,
}

impl Head {
    pub fn new(recording: serde_json::Value, is_locked: bool) -> Self {
        let names = |metrics: &[Metric]| metrics.iter().copied().map(column_name).collect();
        Self {
            resource_tracker_journal: VERSION,
            columns: names(Metric::ONCE),
            gpu_columns: names(Metric::PER_GPU),
            is_locked,
            recording,
        }
    }
}

pub(super) fn column_name(metric: Metric) -> String {
    match metric.table() {
        Table::Every => metric.column().to_owned(),
        table => format!("{}.{}", table.key(), metric.column()),
    }
}

/// The metric of each bit in a bitmap; `None` for a column that this version does not have.
#[derive(Debug)]
pub(super) struct Columns {
    once: Vec<Option<Metric>>,
    per_gpu: Vec<Option<Metric>>,
}

impl Columns {
    /// Finds the metrics by column name, so that journals of other versions can be read. `None` if the journal has more
    /// columns than a bitmap has bits.
    pub fn of(head: &Head) -> Option<Self> {
        let find = |names: &[String], metrics: &[Metric]| {
            let known = |name: &String| metrics.iter().copied().find(|metric| column_name(*metric) == *name);
            names.iter().map(known).collect()
        };
        (head.columns.len().max(head.gpu_columns.len()) <= 64).then(|| Self {
            once: find(&head.columns, Metric::ONCE),
            per_gpu: find(&head.gpu_columns, Metric::PER_GPU),
        })
    }

    pub fn of_this_version() -> Self {
        let known = |metrics: &[Metric]| metrics.iter().copied().map(Some).collect();
        Self { once: known(Metric::ONCE), per_gpu: known(Metric::PER_GPU) }
    }

    /// Decodes a record into a row; `None` if the record is damaged.
    pub fn decode(&self, record: &[u8]) -> Option<Row> {
        let mut row = Row::default();
        let mut rest = take_block(blocks(record)?, &self.once, |metric, value| row.set(metric, Some(value)))?;
        while !rest.is_empty() {
            if row.gpus.len() == MOST_GPUS {
                return None;
            }
            let mut cells = GpuCells::default();
            rest = take_block(rest, &self.per_gpu, |metric, value| {
                if let Some(cell) = metric.place_of_gpu().and_then(|place| cells.get_mut(place)) {
                    *cell = Some(value);
                }
            })?;
            row.gpus.push(cells);
        }
        Some(row)
    }
}

pub(super) fn encode(row: &Row, records: &mut Vec<u8>) {
    encode_blocks(iter::once(row.cells()).chain(row.gpus.iter().map(GpuCells::as_slice)), records);
}

/// The end record, which follows the last row.
pub(super) fn encode_end() -> Vec<u8> {
    let mut record = Vec::new();
    encode_blocks(iter::empty(), &mut record);
    record
}

fn encode_blocks<'a>(blocks: impl Iterator<Item = &'a [Option<f64>]>, records: &mut Vec<u8>) {
    let start = records.len();
    records.extend_from_slice(&[0; 2]);
    for cells in blocks {
        let present = cells.iter().enumerate().filter(|(_, cell)| cell.is_some());
        let bitmap = present.fold(0_u64, |bitmap, (bit, _)| bitmap | 1 << bit);
        records.extend_from_slice(&bitmap.to_le_bytes());
        for value in cells.iter().flatten() {
            records.extend_from_slice(&value.to_le_bytes());
        }
    }
    let (_, record) = records.split_at_mut(start);
    let length = u16::try_from(record.len() - 2).unwrap_or(u16::MAX);
    record[..2].copy_from_slice(&length.to_le_bytes());
    let checksum = crc32fast::hash(record);
    records.extend_from_slice(&checksum.to_le_bytes());
}

/// Size of a record in bytes, including its length field and checksum.
pub(super) fn record_bytes(length: [u8; 2]) -> usize {
    2 + usize::from(u16::from_le_bytes(length)) + 4
}

/// The blocks of a record, without its length field and checksum; `None` if the checksum is wrong.
pub(super) fn blocks(record: &[u8]) -> Option<&[u8]> {
    let (content, checksum) = record.split_last_chunk::<4>()?;
    (crc32fast::hash(content) == u32::from_le_bytes(*checksum)).then(|| content.get(2..))?
}

/// Reads one block and returns the bytes after this block.
fn take_block<'a>(
    bytes: &'a [u8],
    columns: &[Option<Metric>],
    mut set: impl FnMut(Metric, f64),
) -> Option<&'a [u8]> {
    let (bitmap, mut values) = bytes.split_first_chunk::<8>()?;
    let bitmap = u64::from_le_bytes(*bitmap);
    for bit in (0..64).filter(|bit| bitmap & (1 << bit) != 0) {
        let (value, rest) = values.split_first_chunk::<8>()?;
        values = rest;
        if let Some(metric) = columns.get(bit).copied().flatten() {
            set(metric, f64::from_le_bytes(*value));
        }
    }
    Some(values)
}
