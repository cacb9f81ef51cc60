//! Recorded ticks of a job, played again: the same stages, with a folder in place of a host.
//!
//! In:  a folder with a folder a tick, each with `time` (wall and monotonic ns) beside what `Root` reads.
//! Out: the rows that a tracker would have made. `fixtures/record.py` records such folders.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

use crate::config::Config;
use crate::diff::{self, Counter, Rates, Usage, Within};
use crate::error::SourceError;
use crate::job::{Job, Sampler};
use crate::metric::Row;
use crate::root::Root;
use crate::snapshot::{Moment, Snapshot};
use crate::source::Machine;
use crate::source::gpu::{self, GpuState};

/// Why a folder cannot be played.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// A folder cannot be listed.
    #[error("cannot list `{path}`")]
    List {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A tick has no usable `time`.
    #[error("`{path}` holds no two numbers of nanoseconds")]
    Time {
        /// Which file.
        path: PathBuf,
    },
    /// A tick cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// The rows of a recorded job; the first tick is the baseline.
///
/// # Errors
/// [`ReplayError`].
pub fn rows(folder: &Path, pid: u32, config: &Config) -> Result<Vec<Row>, ReplayError> {
    let list = |source| ReplayError::List { path: folder.to_owned(), source };
    let mut ticks: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(list)? {
        let path = entry.map_err(list)?.path();
        if path.is_dir() {
            ticks.push(path);
        }
    }
    ticks.sort();
    let mut job: Option<Job> = None;
    let mut before = Snapshot::default();
    let (mut process, mut system) = (Usage::default(), Usage::default());
    let mut rows = Vec::new();
    let mut gpus: Option<gpu::Reader> = None;
    let mut figures = gpu::Figures::default();
    for (number, tick) in ticks.iter().enumerate() {
        let root = Arc::new(Root::recorded(tick)?);
        let mut after = Snapshot::default();
        Machine::detect(Arc::clone(&root), config.track_system).read(time_of(tick)?, &mut after);
        let job = job.get_or_insert_with(|| Job::new(&root, pid, config, None, Vec::new(), None));
        job.read(&root, &after, &[], Sampler::Outside)?;
        if number == 0 {
            job.count_from_here(&root, None);
        }
        let reading = job.read(&root, &after, &[], Sampler::Outside)?;
        after.job = Some(reading);
        if number == 0 {
            gpus = gpu::Reader::open(&root, false);
        }
        if let Some(gpus) = &mut gpus {
            let members = job.members().iter().map(|member| member.pid).collect();
            let since_ns = Some(before.at.monotonic_ns);
            let question = gpu::Question { members, root_pid: Some(pid), since_ns };
            let reading = gpus.read(&root, &question, after.at);
            after.each_gpu = figures.add(&reading, 1.0);
            after.gpu = GpuState::Read(Arc::new(reading));
        }
        job.start_interval();
        let within = Within::at(after.at.monotonic_ns);
        let rates = Rates {
            process_cores: process.add(within, reading.cpu.spent_ns, Counter::Stepping),
            system_cores: after.cpu.and_then(|cpu| system.add(within, cpu.busy_ns(), Counter::Stepping)),
            ..Rates::default()
        };
        if number > 0 {
            rows.push(diff::row(&before, &after, rates));
        }
        before = after;
    }
    Ok(rows)
}

fn time_of(tick: &Path) -> Result<Moment, ReplayError> {
    let path = tick.join("time");
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let numbers: Option<Vec<u64>> = text.split_ascii_whitespace().map(|number| number.parse().ok()).collect();
    match numbers.as_deref() {
        Some([wall_ns, monotonic_ns]) => Ok(Moment { wall_ns: *wall_ns, monotonic_ns: *monotonic_ns }),
        _ => Err(ReplayError::Time { path }),
    }
}
