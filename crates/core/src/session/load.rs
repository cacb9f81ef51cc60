//! A session of rows that were made before: a recording that was read, or the journal of another process.
//!
//! In:  a [`Recording`], or a journal's path. Out: a [`Session`] that only tells.
//! Not here: how a recording is read (`recording`).

use std::path::Path;

use super::{Life, Plan, Session};
use crate::config::{Backend, Config, Interval};
use crate::journal::{End, Reader};
use crate::metric::Row;
use crate::record::{self, Rows};
use crate::recording::{Recording, Run};

impl Session {
    /// A recording that was made before.
    #[must_use]
    pub fn from_recording(recording: Recording) -> Self {
        let metadata = &recording.head.metadata;
        let interval = Interval::from_seconds(metadata.interval);
        let plan = Plan {
            config: Config {
                // Nobody records with it again; what it was is in the recording.
                interval: interval.unwrap_or(Interval::DEFAULT),
                children: metadata.children,
                track_processes: metadata.track_processes,
                track_system: metadata.track_system,
                // One that this system does not have was that of another.
                backend: Backend::from_name(&metadata.resource_tracker.implementation)
                    .unwrap_or(Backend::BEST),
                ..Config::default()
            },
            pid: metadata.pid,
            method: metadata.method.clone(),
            autostart: metadata.autostart,
            discover_server: metadata.discover_server,
            discover_cloud: metadata.discover_cloud,
            companion: None,
        };
        Self {
            start_time: metadata.start_time,
            stop_time: metadata.stop_time,
            server: recording.head.server_info.clone(),
            cloud: recording.head.cloud_info.clone(),
            life: Life::Loaded { summary: Box::new(recording.summary()), recording: Box::new(recording) },
            ..Self::new(plan)
        }
    }

    /// What a session of another process has recorded so far, for the copy that a fork made of it.
    #[must_use]
    pub fn from_journal(plan: &Plan, journal: &Path, start_time: f64) -> Self {
        let head = record::head(&plan.config, plan.pid, start_time, Run::default());
        let mut recording = Recording::new(head);
        // A file that is gone has no rows.
        Reader::open(journal).into_iter().flatten().for_each(|row| recording.push(&row));
        let session = Self::from_recording(recording);
        Self { plan: plan.clone(), ..session }
    }
}

impl Session {
    /// All rows so far that can be read; a file that is gone has none.
    pub(super) fn each_row(&self, mut take: impl FnMut(&Row)) {
        let Some((mut reader, end)) =
            self.kept_rows().and_then(|rows| Some((rows.reader().ok()?, self.end_of(rows))))
        else {
            return;
        };
        // One that cannot be read on gives no more.
        let _ = reader.replay(&end, &mut |row| {
            take(row);
            Ok(())
        });
    }

    /// Where the rows end, with those that a companion had no room for.
    pub(super) fn end_of(&self, rows: &Rows) -> End {
        let mut end = rows.end();
        if let Life::Companion { companion, .. } = &self.life {
            end.waiting.extend_from_slice(&companion.words.rest);
        }
        end
    }
}
