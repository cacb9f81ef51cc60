//! Sends runs of the history to a store.
//!
//! In:  a run of the history. Out: its files in the dataset, and the address of the store in its entry.
//! Not here: the dataset (`fleet`), when a session is stored (`session::store`).

use crate::analysis::recommend::AdviceOptions;
use crate::fleet::{Fleet, FleetError};
use crate::market::catalog::{Catalog, Settings};
use crate::report::Context;
use crate::store::history::{Entry, History};
use crate::store::recording::Status;

/// Stores a run of the history at an address.
pub(crate) fn push_to(url: &str, history: &History, entry: &Entry) -> Result<(), FleetError> {
    Fleet::open(url)?.push(history, entry, &AdviceOptions::default())
}

impl Fleet {
    /// The warning about a run that is in the history only.
    pub fn not_stored(url: &str, why: &str) -> String {
        format!("the run is not in the store `{url}` yet: {why}; `resource-tracker fleet push` stores it")
    }

    /// Whether a run can be stored, and is not in this store yet as far as the history knows.
    pub fn lacks(&self, entry: &Entry) -> bool {
        entry.status != Some(Status::Running) && !entry.stored.contains(&self.url())
    }

    /// Stores those of these runs that have ended, and returns their number. `before_each` gets the number of a run and of
    /// all. A run that cannot be read does not keep the others from the store: `skipped` gets the reason.
    pub fn push_all(
        &self,
        history: &History,
        entries: &[Entry],
        mut before_each: impl FnMut(usize, usize),
        mut skipped: impl FnMut(FleetError),
    ) -> Result<usize, FleetError> {
        let ended = |entry: &&Entry| entry.status != Some(Status::Running);
        let ended: Vec<&Entry> = entries.iter().filter(ended).collect();
        let mut stored = 0;
        for (number, entry) in ended.iter().enumerate() {
            before_each(number + 1, ended.len());
            match self.push(history, entry, &AdviceOptions::default()) {
                Ok(()) => stored += 1,
                Err(error) if error.is_of_run() => skipped(error),
                Err(error) => return Err(error),
            }
        }
        Ok(stored)
    }

    /// Stores a run of the history. The cost and the advice follow the built-in catalogue.
    pub fn push(&self, history: &History, entry: &Entry, options: &AdviceOptions) -> Result<(), FleetError> {
        let unreadable = |source: Box<dyn std::error::Error + Send + Sync>| FleetError::Run {
            id: entry.id.clone(),
            source,
        };
        let recording = history.load(&entry.id).map_err(|error| unreadable(Box::new(error)))?;
        let settings = Settings { cache_dir: None, ..Settings::offline() };
        let mut context = Context::of_run(&recording.head, recording.summary(), options);
        context.ask(&recording.head, &mut Catalog::new(settings));
        self.store_run(entry, &recording, &context)?;
        if entry.stored.contains(&self.url()) {
            return Ok(());
        }
        let mut entry = entry.clone();
        entry.stored.push(self.url());
        history.store_entry(&entry).map_err(|error| unreadable(Box::new(error)))
    }
}
