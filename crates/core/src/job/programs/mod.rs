//! What the programs of a job used: number of processes, CPU time, memory and storage bytes by program.
//!
//! Out: [`ProgramFigures`], stored under `run.programs` in a recording. Measured with procfs only (`follow`).

#[cfg(target_os = "linux")]
mod follow;
#[cfg(target_os = "linux")]
mod name;

#[cfg(target_os = "linux")]
pub use follow::{JobTotals, Programs, Storage};
#[cfg(target_os = "linux")]
pub(crate) use name::program_name;

use serde::{Deserialize, Serialize};

use crate::human::{self, Scale};

/// Names of the rows that are not programs.
pub const OTHER_PROGRAMS: &str = "other programs";
pub const NOT_SEEN: &str = "not seen individually";

/// Usage of one program in a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProgramFigures {
    /// Name of the executable, with the script of an interpreter.
    pub name: String,
    /// Number of processes that were seen; `None` in the row of what was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    pub cpu_seconds: f64,
    /// Highest memory (RSS) of a single process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_peak_kib: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_bytes: Option<u64>,
    /// Seconds from the start of the recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_seen: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<f64>,
}

impl ProgramFigures {
    /// Headings of [`cells`](Self::cells). Columns of numbers begin with `>`, as in the tables of the command.
    pub const COLUMNS: [&str; 9] =
        ["program", ">processes", ">CPU time", ">share", ">peak memory", ">read", ">written", ">from", ">to"];

    /// The row as text. `total_s` is the CPU time of all rows.
    #[expect(clippy::cast_precision_loss, reason = "amounts for people")]
    pub fn cells(&self, total_s: f64) -> [String; 9] {
        let bytes = |bytes: Option<f64>| bytes.map(|bytes| Scale::Bytes.show(bytes)).unwrap_or_default();
        let whole = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64);
        let moment = |seconds: Option<f64>| seconds.map(human::duration).unwrap_or_default();
        [
            self.name.clone(),
            self.processes.map(|number| number.to_string()).unwrap_or_default(),
            human::duration(self.cpu_seconds),
            if total_s > 0.0 { human::percent(self.cpu_seconds / total_s) } else { String::new() },
            bytes(whole(self.memory_peak_kib).map(|kib| kib * 1024.0)),
            bytes(whole(self.read_bytes)),
            bytes(whole(self.write_bytes)),
            moment(self.first_seen),
            moment(self.last_seen),
        ]
    }

    /// Adds another program to this row.
    pub(crate) fn merge(&mut self, other: &Self) {
        let sum = |a: Option<u64>, b: Option<u64>| a.zip(b).map(|(a, b)| a.saturating_add(b)).or(a).or(b);
        self.processes = sum(self.processes, other.processes);
        self.cpu_seconds += other.cpu_seconds;
        self.memory_peak_kib = self.memory_peak_kib.max(other.memory_peak_kib);
        self.read_bytes = sum(self.read_bytes, other.read_bytes);
        self.write_bytes = sum(self.write_bytes, other.write_bytes);
        self.first_seen = self.first_seen.into_iter().chain(other.first_seen).reduce(f64::min);
        self.last_seen = self.last_seen.into_iter().chain(other.last_seen).reduce(f64::max);
    }
}
