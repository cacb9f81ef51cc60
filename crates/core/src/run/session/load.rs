//! Read-only sessions: of a recording in memory, or of the journal of another process.
//!
//! In:  a [`Recording`], or the path of a journal. Out: a [`Session`] that cannot be started.
//! Not here: how recordings and journals are read (`store`).

use std::path::Path;

use super::{Session, Source};
use crate::run::plan::Plan;
use crate::store::journal::Reader;
use crate::store::recording::{Recording, Run};

impl Session {
    pub fn from_recording(recording: Recording) -> Self {
        let Run { job, tags, .. } = recording.head.run.clone().unwrap_or_default();
        let plan = Plan { job, tags, ..Plan::of(&recording.head.metadata) };
        Self {
            start_time: recording.head.metadata.start_time,
            stop_time: recording.head.metadata.stop_time,
            server: recording.head.server_info.clone(),
            cloud: recording.head.cloud_info.clone(),
            source: Source::Loaded { summary: Box::new(recording.summary()), recording: Box::new(recording) },
            ..Self::new(plan)
        }
    }

    /// A session with the rows that the parent process has recorded so far, for a forked child.
    pub fn from_journal(plan: &Plan, journal: &Path, start_time: f64) -> Self {
        let mut recording = Recording::new(plan.head(start_time, Run::default()));
        // A journal that was removed has no rows.
        Reader::open(journal).into_iter().flatten().for_each(|row| recording.push(&row));
        Self { plan: plan.clone(), ..Self::from_recording(recording) }
    }
}
