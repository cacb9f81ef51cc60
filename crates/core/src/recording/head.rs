//! What a recording says about itself: metadata, server, cloud, and the run.
//!
//! In:  JSON objects of a snapshot, ours or the original package's.
//! Out: [`Head`]. Keys that this version does not know survive being read and written.
//! Not here: the rows (`read`, `write`), how server and cloud are found (`host`, `cloud`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::source::gpu::GpuFigures;

/// Processes that were killed for memory while a job ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OomKills {
    /// How many.
    pub processes: u64,
    /// All of them in the job's own group; else somewhere on the machine, most likely the job that ended so.
    pub certain: bool,
}

/// The version of the snapshot schema that is read and written here.
pub const VERSION: u64 = 1;

/// The signal that nobody can refuse.
const SIGKILL: i32 = 9;

/// Everything of a recording but its rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// How and when the recording was made.
    pub metadata: Metadata,
    /// The machine, as `get_server_info` describes it; `None` when it was not looked at.
    pub server_info: Option<Map<String, Value>>,
    /// The cloud, as `get_cloud_info` describes it; `None` when it was not looked at.
    pub cloud_info: Option<Map<String, Value>>,
    /// The job; `None` in files of the original package, which does not know it.
    pub run: Option<Run>,
    /// Top-level keys of a later version.
    pub other: Map<String, Value>,
}

/// Key `metadata`, the schema's own names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "the flags of the schema")]
pub struct Metadata {
    /// Of the schema, always [`VERSION`].
    pub version: u64,
    /// The program that recorded.
    #[serde(default)]
    pub resource_tracker: Software,
    /// The tracked process.
    pub pid: u32,
    /// Its descendants were tracked too.
    pub children: bool,
    /// Nominal length of a row in seconds.
    pub interval: f64,
    /// How the sampler ran; `None` is a thread.
    pub method: Option<String>,
    /// The tracker started by itself.
    #[serde(default)]
    pub autostart: bool,
    /// The process table is on.
    pub track_processes: bool,
    /// The system table is on.
    pub track_system: bool,
    /// The machine was looked at.
    pub discover_server: bool,
    /// The cloud was looked for.
    pub discover_cloud: bool,
    /// Moment of the baseline, Unix seconds.
    pub start_time: Option<f64>,
    /// Moment of the stop, or of the snapshot while running.
    pub stop_time: Option<f64>,
    /// `stop_time` − `start_time`.
    pub duration: Option<f64>,
    /// Keys of a later version.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Metadata {
    /// Sets the end, and the duration with it.
    pub fn set_stop_time(&mut self, stop_time: f64) {
        self.stop_time = Some(stop_time);
        self.duration = self.start_time.map(|start_time| stop_time - start_time);
    }
}

/// Key `metadata.resource_tracker`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Software {
    /// Of the program.
    pub version: String,
    /// What it read the machine with: `procfs` or `sysinfo` here, `psutil` in the original.
    pub implementation: String,
    /// Keys of a later version.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// Key `run`: what the schema of the original has no place for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    /// Id in the history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Name of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The command and its arguments. Never the environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// Name of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// What the user noted about the run.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// How it ended, or that it has not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// Exit code of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// What the kernel killed for memory while it ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_kills: Option<OomKills>,
    /// Where its CPU time was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_source: Option<String>,
    /// Share of its CPU time that was seen, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coverage: Option<f64>,
    /// What the reader of the figures should know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What each GPU did, where there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuFigures>,
    /// Keys of a later version.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Run {
    /// Whether it ended as what the kernel kills for memory does, and the kernel says that it did.
    #[must_use]
    pub fn was_killed_for_memory(&self) -> bool {
        let by_kill = self.signal == Some(SIGKILL) || self.exit_code == Some(128 + SIGKILL);
        self.oom_kills.is_some() && (by_kill || self.status == Some(Status::Ended))
    }
}

/// How a run stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Status {
    /// Not ended yet.
    Running,
    /// Ended with exit code 0.
    Finished,
    /// Ended with another exit code.
    Failed,
    /// Ended by a signal.
    Killed,
    /// Ended while we followed it, and nobody told us how.
    Ended,
    /// We stopped looking before it ended.
    Detached,
    /// The tracker died, and the recording was made of what it left.
    TrackerDied,
    /// A word of a later version.
    Other(String),
}

impl Status {
    /// The word in files.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Killed => "killed",
            Self::Ended => "ended",
            Self::Detached => "detached",
            Self::TrackerDied => "tracker_died",
            Self::Other(word) => word,
        }
    }
}

impl From<String> for Status {
    fn from(word: String) -> Self {
        let known = [
            Self::Running,
            Self::Finished,
            Self::Failed,
            Self::Killed,
            Self::Ended,
            Self::Detached,
            Self::TrackerDied,
        ];
        known.into_iter().find(|status| status.as_str() == word).unwrap_or(Self::Other(word))
    }
}

impl From<Status> for String {
    fn from(status: Status) -> Self {
        status.as_str().to_owned()
    }
}
