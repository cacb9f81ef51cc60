//! The end of a journal in progress, shared by its writer and its readers in the same process.
//!
//! In:  records from the writer. Out: the length of the file, and the rows that are not in the file yet.

use std::iter;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::record::{Columns, record_bytes};
use crate::metric::Row;

#[derive(Clone, Debug, Default)]
pub struct Tail(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
pub(super) struct Inner {
    pub length: u64,
    /// Records that could not be written to the file yet.
    pub waiting: Vec<u8>,
}

/// The end of a journal at one moment.
#[derive(Debug, PartialEq)]
pub struct End {
    /// Length of the file up to this moment; `None` if another process writes the journal.
    pub length: Option<u64>,
    /// Rows that could not be written to the file yet.
    pub waiting: Vec<Row>,
}

impl Tail {
    pub(super) fn new(length: u64) -> Self {
        Self(Arc::new(Mutex::new(Inner { length, waiting: Vec::with_capacity(512) })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn end(&self) -> End {
        let inner = self.lock();
        let mut records = inner.waiting.as_slice();
        let columns = Columns::of_this_version();
        let rows = iter::from_fn(|| {
            let (record, rest) = records.split_at_checked(record_bytes(*records.first_chunk()?))?;
            records = rest;
            columns.decode(record)
        });
        End { length: (inner.length > 0).then_some(inner.length), waiting: rows.collect() }
    }
}
