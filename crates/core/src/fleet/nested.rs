//! Runs inside of tracked runs, which measured the same work again.
//!
//! In:  the runs of each day, in order of the days. Out: which of them count.
//! Not here: how a run knows the run around it (`store::recording::head`).

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};

use super::table::Table;

/// Hashes of the ids of the runs so far, which take less memory than the ids.
#[derive(Debug, Default)]
pub struct Seen {
    ids: HashSet<u64>,
    state: RandomState,
}

impl Seen {
    /// Whether each run of a day counts: it is selected, and no run so far is around it. A run starts before those inside of
    /// it, so it is in the same day or an earlier one.
    pub fn counted(&mut self, runs: &Table, is_selected: impl Fn(usize) -> bool) -> Vec<bool> {
        let hash = |id: &str| self.state.hash_one(id);
        let selected: Vec<bool> = (0..runs.len()).map(is_selected).collect();
        let ids = (0..runs.len()).filter(|row| selected[*row]).filter_map(|row| runs.text("id", row));
        self.ids.extend(ids.map(hash));
        let is_inside = |row| runs.text("parent", row).is_some_and(|parent| self.ids.contains(&hash(parent)));
        selected.into_iter().enumerate().map(|(row, selected)| selected && !is_inside(row)).collect()
    }
}
