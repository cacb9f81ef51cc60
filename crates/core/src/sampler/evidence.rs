//! Facts at the end of a run, from which a verdict is made: signals, limits, full file systems, the time limit.
//!
//! Not here: exit status and OOM kills, which are facts of every run (`store/recording/head`), the verdict (`analysis`).

use serde::{Deserialize, Serialize};

use crate::probe::evidence::{FullFileSystem, LimitReached};

/// Signals that are kept, the last ones.
const MOST_SIGNALS: usize = 8;

/// Facts at the end of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Evidence {
    /// Signals that the tracker received while the job ran, the last ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<SignalReceived>,
    /// Limits of which the job used at least 90 %.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limits_reached: Vec<LimitReached>,
    /// Only of a run that failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub full_file_systems: Vec<FullFileSystem>,
    /// When the scheduler's time limit ends, in Unix seconds (`SLURM_JOB_END_TIME`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_limit_at: Option<f64>,
}

/// A signal that the tracker received.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SignalReceived {
    pub signal: i32,
    /// Unix seconds.
    pub at: f64,
    /// Pid of the sender; `None` for the kernel, such as a key of the terminal. 0 if the sender is in another PID
    /// namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender_pid: Option<u32>,
    /// `None` if the sender had ended before its name was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<String>,
}

impl Evidence {
    pub fn add_signal(&mut self, received: SignalReceived) {
        if self.signals.len() == MOST_SIGNALS {
            self.signals.remove(0);
        }
        self.signals.push(received);
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
