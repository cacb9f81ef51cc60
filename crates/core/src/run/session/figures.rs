//! The figures of a session at any time: tables, statistics, recommendation, machine and cloud.
//!
//! In:  the rows so far. Out: frames, statistics and maps.
//! Not here: how the figures are computed (`store`, `analysis`, `probe::host`, `market::cloud`), the snapshot (`save`).

use std::path::Path;

use serde_json::{Map, Value};

use super::{Session, Source};
use crate::analysis::allocation::with_allocation;
use crate::analysis::recommend::{RecommendError, Resources, recommend_resources};
use crate::market::cloud::CloudInfo;
use crate::metric::{Row, Table};
use crate::os::root::Root;
use crate::probe::cgroup::{Limits, read_limits};
use crate::probe::host;
use crate::store::frame::{CombinedOptions, Frame, FrameError, combined};
use crate::store::journal::{End, Reader};
use crate::store::rows::Rows;
use crate::store::stats::{Stats, StatsError};
use crate::store::summary::{Scope, Summary};

/// The summary of a journal that another process writes.
#[derive(Debug)]
pub(super) struct JournalSummary {
    summary: Summary,
    /// Length of the part of the journal that is in the summary, in bytes.
    offset: u64,
}

impl JournalSummary {
    pub(super) fn new(scope: Scope) -> Self {
        Self { summary: Summary::new(scope), offset: 0 }
    }

    /// Adds the rows that were written to the journal since the last update.
    fn update(&mut self, journal: &Path) {
        let Ok(mut reader) = Reader::open(journal) else { return };
        if reader.skip_to(self.offset).is_ok() {
            while let Some(row) = reader.next_row() {
                self.summary.add(&row);
            }
            self.offset = reader.offset();
        }
    }
}

impl Session {
    /// Figures over all rows so far.
    pub fn summary(&self) -> Summary {
        match &self.source {
            Source::Thread { tracker, .. } => tracker.summary(),
            Source::Sidecar { sidecar, rows, summary } => {
                let mut journal = summary.borrow_mut();
                if let Some(rows) = rows {
                    journal.update(rows.path());
                }
                let mut summary = journal.summary.clone();
                sidecar.report.unwritten_rows.iter().for_each(|row| summary.add(row));
                summary
            }
            Source::Loaded { summary, .. } => (**summary).clone(),
            Source::NotStarted => Summary::new(self.scope()),
        }
    }

    pub(super) fn scope(&self) -> Scope {
        Scope {
            process: self.plan.config.track_processes,
            system: self.plan.config.track_system,
            start_time: self.start_time,
            interval_s: self.plan.config.interval.seconds(),
        }
    }

    /// Rows so far; 0 if both tables are off.
    pub fn rows(&self) -> u64 {
        let config = &self.plan.config;
        if config.track_processes || config.track_system { self.summary().rows() } else { 0 }
    }

    /// How CPU time is counted: `perf`, `cgroup` or `procfs`; `None` before the start.
    pub fn cpu_source(&self) -> Option<String> {
        match &self.source {
            Source::Thread { tracker, .. } => Some(tracker.cpu_source().to_owned()),
            Source::Sidecar { sidecar, .. } => Some(sidecar.cpu_source.clone()),
            Source::Loaded { recording, .. } => recording.head.run.as_ref()?.cpu_source.clone(),
            Source::NotStarted => None,
        }
    }

    /// One table with all its rows so far; `None` for a table that is off.
    pub fn frame(&self, table: Table) -> Option<Frame> {
        self.tables(&[table]).pop()?
    }

    fn tables(&self, wanted: &[Table]) -> Vec<Option<Frame>> {
        if let Source::Loaded { recording, .. } = &self.source {
            return wanted
                .iter()
                .map(|table| match table {
                    Table::Process => recording.process.clone(),
                    Table::System => recording.system.clone(),
                    Table::Every | Table::Extra | Table::Gpu => recording.extra.clone(),
                })
                .collect();
        }
        let config = &self.plan.config;
        let is_on = |table: &Table| match table {
            Table::Process => config.track_processes,
            Table::System => config.track_system,
            Table::Every | Table::Extra | Table::Gpu => true,
        };
        let mut frames: Vec<Option<Frame>> =
            wanted.iter().map(|table| is_on(table).then(|| Frame::for_table(*table))).collect();
        self.each_row(|row| frames.iter_mut().flatten().for_each(|frame| frame.push(row)));
        frames
    }

    /// Calls `take` with every row of the journal; a journal that was removed has none.
    pub(super) fn each_row(&self, mut take: impl FnMut(&Row)) {
        let Some(rows) = self.journal_rows() else { return };
        let Ok(mut reader) = rows.reader() else { return };
        // A damaged journal has no rows after the damage.
        let _ = reader.replay(&self.end_of(rows), &mut |row| {
            take(row);
            Ok(())
        });
    }

    /// The end of the journal, and the rows that a sidecar could not write to it.
    pub(super) fn end_of(&self, rows: &Rows) -> End {
        let mut end = rows.end();
        if let Source::Sidecar { sidecar, .. } = &self.source {
            end.waiting.extend_from_slice(&sidecar.report.unwritten_rows);
        }
        end
    }

    /// Both tables side by side; no columns before the first row.
    pub fn combined(&self, options: &CombinedOptions) -> Result<Frame, FrameError> {
        let wanted = [Table::Process, Table::System, Table::Extra];
        let mut tables = self.tables(&wanted[..if options.extra { 3 } else { 2 }]);
        let extra = if options.extra { tables.pop().flatten() } else { None };
        let (system, process) = (tables.pop().flatten(), tables.pop().flatten());
        let mut both = combined(process.as_ref(), system.as_ref(), options)?;
        if let Some(extra) = extra {
            both.append(Table::Extra, &extra, options)?;
        }
        Ok(if both.is_empty() { Frame::default() } else { both })
    }

    /// The default statistics.
    pub fn stats(&self) -> Result<Stats, StatsError> {
        self.summary().stats()
    }

    /// The resources that the job needs, estimated from this run and the earlier runs in `history`.
    pub fn recommend(&self, history: &[Stats]) -> Result<Resources, RecommendError> {
        recommend_resources(&self.stats()?, history)
    }

    pub(super) fn read_server(&mut self, read: fn(&Root, Limits) -> host::Host) {
        if self.server.is_none() && self.plan.discover_server && !matches!(self.source, Source::Loaded { .. })
        {
            let Ok(root) = Root::host_in_process() else { return };
            let limits = match &self.source {
                Source::Thread { tracker, .. } => tracker.limits(),
                _ if root.exists(&format!("/proc/{}", self.plan.pid)) => {
                    read_limits(&root, &self.plan.pid.to_string())
                }
                _ => read_limits(&root, "self"),
            };
            self.server = Some(read(&root, limits).server_info());
        }
    }

    /// The machine, and whether the job seems to be alone on it; `None` before the start or without `discover_server`.
    pub fn server_info(&mut self) -> Option<Map<String, Value>> {
        if matches!(self.source, Source::NotStarted) {
            return None;
        }
        self.read_server(host::read_with);
        let info = self.server.clone()?;
        // The original package writes `allocation` only if it is `shared`.
        let has_allocation = info.get("allocation").is_some_and(|allocation| !allocation.is_null());
        Some(if has_allocation { info } else { with_allocation(info, &self.summary()) })
    }

    /// The cloud of this machine; `None` if `discover_cloud` is off, or before the cloud is known.
    pub fn cloud_info(&mut self) -> Option<Map<String, Value>> {
        let has_started = matches!(self.source, Source::Thread { .. } | Source::Sidecar { .. });
        if self.cloud.is_none() && self.plan.discover_cloud && has_started {
            self.cloud = CloudInfo::discovered(false);
        }
        self.cloud.clone()
    }
}
