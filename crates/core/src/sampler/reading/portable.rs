//! A single read with the portable backend.

use super::{ProcessReading, SystemReading, seconds};
use crate::error::SourceError;
use crate::job::portable::Job;
use crate::job::{SamplerPlace, TrackedJob as _};
use crate::os::Moment;
use crate::os::root::Root;
use crate::probe::gpu::{self, Question};
use crate::probe::portable::{self, Table};
use crate::probe::snapshot::Snapshot;

/// Reads a process, and its descendants too if `with_children`. A process that does not exist gives zeros.
pub fn process(root: &Root, pid: u32, with_children: bool) -> Result<ProcessReading, SourceError> {
    root.check_processes()?;
    let table = Table::default();
    table.refresh()?;
    let timestamp = Moment::now().wall_s();
    let mut job = Job::new(&table, pid, with_children);
    let usage = job.read(&Snapshot::default(), &[], SamplerPlace::OwnProcess)?;
    let times = job.times();
    let zero_if_ended = job.members().is_empty().then_some(0);
    let question = Question { members: job.members(), root_pid: Some(pid), since_ns: None };
    let gpus = gpu::read_now(root, &question);
    Ok(ProcessReading {
        timestamp,
        pid,
        children: usage.children,
        user_s: Some(seconds(times.user_ns)),
        system_s: Some(seconds(times.system_ns)),
        memory_kib: usage.memory_kib.or(Some(0)),
        read_bytes: usage.read_bytes.or(zero_if_ended),
        write_bytes: usage.write_bytes.or(zero_if_ended),
        gpu: gpus.job(),
        gpu_numbers: gpus.job_gpus(),
    })
}

pub fn system(root: &Root) -> SystemReading {
    let sources = portable::sources(&Table::default(), true);
    let spaces = portable::file_systems(root).unwrap_or_default();
    SystemReading::read(root, sources.processes.into_iter().chain(sources.machine), spaces)
}
