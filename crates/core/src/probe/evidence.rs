//! Limits and file systems that a failed job may have run into, as a recording stores them.
//!
//! Not here: how they are read (`procfs/full`, `cgroup/pids`, `job/limit_watch`).

use serde::{Deserialize, Serialize};

/// A limit of which the job used at least 90 %.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitReached {
    /// `open_files` or `processes`.
    pub limit: String,
    pub used: u64,
    pub maximum: u64,
    /// The program whose process came nearest to the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// How often the kernel refused a new process; `None` where the kernel does not count this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<u64>,
}

impl LimitReached {
    pub const OPEN_FILES: &str = "open_files";
    pub const PROCESSES: &str = "processes";

    /// `None` below 90 % of the limit.
    pub fn new(limit: &str, used: u64, maximum: u64) -> Option<Self> {
        let is_near = maximum > 0 && u128::from(used) * 10 >= u128::from(maximum) * 9;
        is_near.then(|| Self { limit: limit.to_owned(), used, maximum, ..Self::default() })
    }

    /// Whether this is a larger share of its limit than `other` is of its own.
    pub fn is_above(&self, other: &Self) -> bool {
        u128::from(self.used) * u128::from(other.maximum) > u128::from(other.used) * u128::from(self.maximum)
    }
}

/// A file system without space at the end of a failed run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FullFileSystem {
    pub mount_point: String,
    /// Free bytes for the user of the tracker.
    pub free_bytes: u64,
    /// Whether it has no inode left for another file.
    #[serde(default)]
    pub no_inodes: bool,
    /// What the job has there: `working directory`, `temporary files` or `command line`; `None` if nothing is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
}
