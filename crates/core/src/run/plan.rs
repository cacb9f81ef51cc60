//! What a session records.

use std::path::PathBuf;

use crate::config::{Backend, Config, Interval};
use crate::store::recording::{Head, Metadata, Run};

/// What a session records, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    pub config: Config,
    /// The process to follow.
    pub pid: u32,
    /// The sampling method that the user chose, such as `spawn`; only stored in the recording. `sidecar` decides.
    pub method: Option<String>,
    /// Whether the recording starts when the front's tracker object is created.
    pub autostart: bool,
    /// Whether the recording describes the machine.
    pub discover_server: bool,
    /// Whether the recording describes the cloud.
    pub discover_cloud: bool,
    /// Path of the command `resource-tracker`, which samples as a sidecar; `None` samples in a thread.
    pub sidecar: Option<PathBuf>,
}

impl Plan {
    /// Follows process `pid` from a thread of this process, without a description of the machine or the cloud.
    pub const fn new(config: Config, pid: u32) -> Self {
        Self {
            config,
            pid,
            method: None,
            autostart: false,
            discover_server: false,
            discover_cloud: false,
            sidecar: None,
        }
    }

    /// The plan that a recording was made with.
    pub(crate) fn of(metadata: &Metadata) -> Self {
        let backend = Backend::from_name(&metadata.resource_tracker.implementation);
        Self {
            config: Config {
                // A recording of the original package may have an interval that this package does not allow. A
                // recording of another system may have a backend that this system lacks.
                interval: Interval::from_seconds(metadata.interval).unwrap_or(Interval::DEFAULT),
                backend: backend.unwrap_or(Backend::BEST),
                children: metadata.children,
                track_processes: metadata.track_processes,
                track_system: metadata.track_system,
                ..Config::default()
            },
            pid: metadata.pid,
            method: metadata.method.clone(),
            autostart: metadata.autostart,
            discover_server: metadata.discover_server,
            discover_cloud: metadata.discover_cloud,
            sidecar: None,
        }
    }

    /// The head of a recording that is made with this plan; `start_time` is in Unix seconds.
    pub(crate) fn head(&self, start_time: f64, run: Run) -> Head {
        let mut head = Head::new(&self.config, self.pid, start_time, run);
        head.metadata.method.clone_from(&self.method);
        head.metadata.autostart = self.autostart;
        head.metadata.discover_server = self.discover_server;
        head.metadata.discover_cloud = self.discover_cloud;
        head
    }
}
