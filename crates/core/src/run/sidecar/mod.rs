//! A sampler in its own process (the sidecar). If the host process is killed, the sidecar saves the recording.
//!
//! In:  a [`Plan`](crate::run::plan::Plan) and the path of the command `resource-tracker`.
//! Out: [`Sidecar`], the host's handle; [`serve`] is the sidecar itself. The rows are in a journal that both can read.
//! Not here: the sampling (`tracker`), how a session uses a sidecar (`session`).
//!
//! Host and sidecar talk over one Unix socket pair, one line of JSON per message:
//!
//! ```text
//! host                                           sidecar
//! starts `resource-tracker sidecar JSON`    ──▶  forks; the first process exits and the host waits for it,
//!                                                so the sidecar's CPU time never enters the host's cutime
//! "go"                                      ──▶  reads the baseline
//!                                           ◀──  process id, start time, notes; or an error
//! "stop"                                    ──▶  makes the last row
//!                                           ◀──  final report
//! or "save", if it cannot read the journal  ──▶  makes the last row, saves the recording in the history
//!                                           ◀──  final report, with a note that says where the recording is
//! ```
//!
//! The sidecar also ends when the followed process or the host ends. If the host is alive, the sidecar sends the final
//! report unasked, and the report waits in the socket. Otherwise the sidecar saves the recording in the history.
//!
//! End of file on the socket does not show that the host is dead: `exec` and `os.closerange` close the socket of a
//! living host, and a forked child of a dead host keeps the socket open. The sidecar learns of the host's end from a
//! pidfd. A host that closed the socket can no longer stop its sidecar: `stop` adds a note, and the sidecar records
//! until the host ends and saves the recording in the history.
//!
//! On other systems than Linux there is no sidecar, and a session samples in a thread.

#[cfg(target_os = "linux")]
mod host;
#[cfg(not(target_os = "linux"))]
mod other;
#[cfg(target_os = "linux")]
mod protocol;
#[cfg(target_os = "linux")]
mod server;

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::job::programs::ProgramFigures;
use crate::metric::Row;
use crate::probe::gpu::GpuFigures;
use crate::sampler::phases::{PhaseFigures, PlacedMark};

#[cfg(target_os = "linux")]
pub use host::Sidecar;
#[cfg(not(target_os = "linux"))]
pub use other::{Sidecar, serve};
#[cfg(target_os = "linux")]
pub use server::serve;

/// Why a sidecar did not start.
#[derive(Debug, Error)]
pub enum SidecarError {
    #[error("a sampler in its own process needs Linux")]
    Unsupported,
    #[error("cannot start the sidecar `{program}`")]
    Start { program: PathBuf, source: io::Error },
    /// The process to follow does not exist.
    #[error("the sidecar did not start: {why}")]
    Refused { why: String },
    /// The machine lacks a resource, for instance disk space.
    #[error("the sidecar did not start: {why}")]
    Failed { why: String },
    #[error("cannot parse the sidecar's arguments")]
    Arguments(#[source] serde_json::Error),
}

impl SidecarError {
    /// Whether the machine is the cause, and not the request. The session then samples in a thread.
    pub fn is_shortage(&self) -> bool {
        match self {
            Self::Unsupported | Self::Start { .. } | Self::Failed { .. } => true,
            Self::Refused { .. } | Self::Arguments(_) => false,
        }
    }
}

/// What the sidecar sends to the host at the end, beside the rows in the journal.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FinalReport {
    pub notes: Vec<String>,
    pub gpus: Vec<GpuFigures>,
    pub programs: Vec<ProgramFigures>,
    pub phases: (Vec<PhaseFigures>, Vec<PlacedMark>),
    /// Rows that could not be written to the journal.
    #[serde(with = "rows_as_cells")]
    pub unwritten_rows: Vec<Row>,
}

/// A row in JSON: its cells, then the cells of each GPU.
mod rows_as_cells {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::metric::{GpuCells, Row};

    pub(super) fn serialize<S: Serializer>(rows: &[Row], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(rows.iter().map(|row| (row.cells(), &row.gpus)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Row>, D::Error> {
        let rows = Vec::<(Vec<Option<f64>>, Vec<GpuCells>)>::deserialize(deserializer)?;
        let row = |(cells, gpus): (Vec<Option<f64>>, Vec<GpuCells>)| {
            let mut cells = cells.into_iter();
            Row::of(|_| cells.next().flatten()).with_gpus(gpus)
        };
        Ok(rows.into_iter().map(row).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::{GpuCells, Metric};

    #[test]
    fn final_report_keeps_every_cell_of_unwritten_rows() {
        let mut row = Row::default().with_gpus(vec![GpuCells::default(), [Some(0.1); Metric::PER_GPU.len()]]);
        row.set(Metric::Timestamp, Some(1_794_781_097.148_223));
        let report = FinalReport {
            notes: vec!["a note".to_owned()],
            gpus: Vec::new(),
            programs: Vec::new(),
            phases: Default::default(),
            unwritten_rows: vec![row; 3],
        };
        let line = serde_json::to_string(&report).unwrap();
        assert!(!line.contains('\n'));
        let read: FinalReport = serde_json::from_str(&line).unwrap();
        assert_eq!((read.notes, read.unwritten_rows), (report.notes, report.unwritten_rows));
    }

    #[test]
    fn shortage_of_the_machine_differs_from_a_wrong_request() {
        let start = |kind: io::ErrorKind| SidecarError::Start { program: "it".into(), source: kind.into() };
        let why = || "no room".to_owned();
        assert!(start(io::ErrorKind::WouldBlock).is_shortage());
        assert!(start(io::ErrorKind::NotFound).is_shortage(), "the command is not installed");
        assert!(SidecarError::Failed { why: why() }.is_shortage());
        assert!(!SidecarError::Refused { why: why() }.is_shortage());
    }
}
