//! Sends runs of the history to a store.
//!
//! In:  a run of the history. Out: its files in the dataset, and the address of the store in its entry.
//! Not here: the dataset (`fleet`).

use crate::analysis::recommend::AdviceOptions;
use crate::fleet::{Fleet, FleetError};
use crate::market::catalog::{Catalog, Settings};
use crate::report::Context;
use crate::store::history::{Entry, History};
use crate::store::recording::Status;

impl Fleet {
    /// Whether a run can be stored, and is not in this store yet.
    pub fn lacks(&self, entry: &Entry) -> bool {
        entry.status != Some(Status::Running) && !entry.stored.contains(&self.url())
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
        let mut entry = entry.clone();
        entry.stored.push(self.url());
        history.store_entry(&entry).map_err(|error| unreadable(Box::new(error)))
    }
}
