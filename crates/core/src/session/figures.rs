//! What a session tells at any time: tables, statistics, advice, the machine and its cloud.
//!
//! In:  the rows so far. Out: frames, figures and maps, as of now.
//! Not here: how they are computed (`frame`, `stats`, `recommend`, `host`, `cloud`), the whole of them (`save`).

use serde_json::{Map, Value};

use super::{Life, Session};
use crate::allocation::with_allocation;
use crate::cloud;
use crate::frame::{CombinedOptions, Frame, FrameError, combined};
use crate::host;
use crate::metric::Table;
use crate::recommend::{RecommendError, Resources, recommend_resources};
use crate::root::Root;
use crate::stats::{Stats, StatsError};

impl Session {
    /// One table with all its rows so far; `None` for one that is off.
    #[must_use]
    pub fn frame(&self, table: Table) -> Option<Frame> {
        self.tables(&[table]).pop()?
    }

    fn tables(&self, wanted: &[Table]) -> Vec<Option<Frame>> {
        if let Life::Loaded { recording, .. } = &self.life {
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

    /// Both tables side by side; no columns before there is a row.
    ///
    /// # Errors
    /// Those of [`combined`].
    pub fn combined(&self, options: &CombinedOptions) -> Result<Frame, FrameError> {
        let mut tables = self.tables(&[Table::Process, Table::System]);
        let (system, process) = (tables.pop().flatten(), tables.pop().flatten());
        let both = combined(process.as_ref(), system.as_ref(), options)?;
        Ok(if both.is_empty() { Frame::default() } else { both })
    }

    /// The default statistics.
    ///
    /// # Errors
    /// [`StatsError::NoMetrics`] before the first row.
    pub fn stats(&self) -> Result<Stats, StatsError> {
        self.summary().stats()
    }

    /// What the job needs, by this run and the ones before it.
    ///
    /// # Errors
    /// Those of [`recommend_resources`].
    pub fn recommend(&self, history: &[Stats]) -> Result<Resources, RecommendError> {
        recommend_resources(&self.stats()?, history)
    }

    pub(super) fn look_at_server(&mut self, look: fn(&Root, &str) -> host::Host) {
        if self.server.is_none() && self.plan.discover_server && !matches!(self.life, Life::Loaded { .. }) {
            self.server = Root::host_as_guest().ok().map(|root| look(&root, "self").server_info());
        }
    }

    /// The machine, and whether it seems to be ours alone; `None` where it is not to be looked at.
    #[must_use]
    pub fn server_info(&mut self) -> Option<Map<String, Value>> {
        if matches!(self.life, Life::New) {
            return None;
        }
        self.look_at_server(host::look);
        let info = self.server.clone()?;
        // The original leaves the guess out unless it is `shared`.
        let is_guessed = info.get("allocation").is_some_and(|guess| !guess.is_null());
        Some(if is_guessed { info } else { with_allocation(info, &self.summary()) })
    }

    /// The cloud; `None` where it is not to be looked for, or not found out yet.
    #[must_use]
    pub fn cloud_info(&mut self) -> Option<Map<String, Value>> {
        let is_live = matches!(self.life, Life::Thread { .. } | Life::Companion { .. });
        if self.cloud.is_none() && self.plan.discover_cloud && is_live {
            self.cloud = cloud::known_info(false);
        }
        self.cloud.clone()
    }
}
