//! One look at a process tree or at the machine by this backend.

use super::{Table, disks, job};
use crate::error::SourceError;
use crate::follow::{FollowedJob as _, Sampler};
use crate::reading::{ProcessReading, SystemReading, seconds};
use crate::root::Root;
use crate::snapshot::{Moment, Snapshot};
use crate::source::gpu::{self, Question};

/// Looks at a process once. One that is not there reads as nothing at all.
///
/// # Errors
/// Where the processes cannot be listed.
pub fn process(root: &Root, pid: u32, with_children: bool) -> Result<ProcessReading, SourceError> {
    root.check_processes()?;
    let table = Table::default();
    table.list()?;
    let timestamp = Moment::now().wall_s();
    let mut job = job::Job::new(&table, pid, with_children);
    let reading = job.read(&Snapshot::default(), &[], Sampler::Outside)?;
    let times = job.times();
    // Nobody is there to have read or written anything.
    let nothing = job.members().is_empty().then_some(0);
    let question = Question { members: job.members(), root_pid: Some(pid), since_ns: None };
    Ok(ProcessReading {
        timestamp,
        pid,
        children: reading.children,
        user_s: Some(seconds(times.user_ns)),
        system_s: Some(seconds(times.system_ns)),
        memory_kib: reading.memory_kib.or(Some(0)),
        read_bytes: reading.read_bytes.or(nothing),
        write_bytes: reading.write_bytes.or(nothing),
        gpu: gpu::look(root, &question).job(),
    })
}

/// Looks at the machine once.
#[must_use]
pub fn system(root: &Root) -> SystemReading {
    let (listing, others) = super::sources(&Table::default(), true);
    let mut snapshot = Snapshot::default();
    snapshot.reset(Moment::now());
    for mut source in listing.into_iter().chain(others) {
        // What a source does not give stays empty.
        let _ = source.read(root, &mut snapshot);
    }
    snapshot.gpu = gpu::look(root, &Question::default());
    SystemReading::new(snapshot, disks::file_systems(root).unwrap_or_default())
}
