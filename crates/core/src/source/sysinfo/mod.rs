//! The portable backend: the same snapshot on every system, with `sysinfo` for what it has and a small file a system
//! for what it lacks (user and system time, PSS or USS, buffers and caches).
//!
//! In:  the system's own calls. Out: the sources of [`Source`](super::Source), and a [`FollowedJob`].
//! Not here: what Linux's own backend knows beyond this (`procfs`, `cgroup`, `counter`).
//!
//! Sees the processes that are there at a look. One that lives and dies between two of them is in the figures only
//! where its parent received its time, or where the system counts a whole job (job objects on Windows).

mod disks;
mod job;
mod machine;
mod reading;

#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod platform;
#[cfg(target_os = "macos")]
#[path = "macos.rs"]
mod platform;
#[cfg(windows)]
#[path = "windows.rs"]
mod platform;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System, UpdateKind};

use crate::error::SourceError;
use crate::follow::{FollowedJob, Found, Started, Wanted};
use crate::root::Root;
use crate::snapshot::Snapshot;

pub use disks::file_systems;
#[cfg(not(target_os = "linux"))]
pub use disks::zfs_pools;
pub use reading::{process, system};

use super::Sources;

/// What one process has spent so far, by the system's own account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Spent {
    /// Of its own.
    own: Times,
    /// Of children that it waited for, and of theirs, where the system hands that on.
    waited: Times,
    /// Faults that read from storage.
    major_faults: u64,
    /// Its storage bytes may be read.
    has_storage: bool,
}

/// CPU time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Times {
    user_ns: u64,
    system_ns: u64,
}

impl Times {
    const fn sum_ns(self) -> u64 {
        self.user_ns.saturating_add(self.system_ns)
    }
}

/// The processes of the machine, shared by whoever lists them and whoever follows a job.
#[derive(Clone, Debug, Default)]
pub struct Table(Arc<Mutex<Option<System>>>);

impl Table {
    fn lock(&self) -> MutexGuard<'_, Option<System>> {
        // What a panic leaves behind is listed anew at the next look.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `with` on the list as it was last made.
    fn with<T>(&self, with: impl FnOnce(&mut System) -> T) -> Result<T, SourceError> {
        let mut system = self.lock();
        let system = match &mut *system {
            Some(system) => system,
            none => none.insert(new_system()?),
        };
        Ok(with(system))
    }

    /// Lists the processes anew.
    fn list(&self) -> Result<(), SourceError> {
        self.with(|system| {
            system.refresh_processes_specifics(ProcessesToUpdate::All, true, listed());
        })
    }
}

/// Threads are not processes, and nothing but who there is, whose child, and since when.
fn listed() -> ProcessRefreshKind {
    ProcessRefreshKind::nothing().without_tasks()
}

fn new_system() -> Result<System, SourceError> {
    System::new().map_err(|error| failed("processes", error))
}

fn failed(what: &str, error: impl std::error::Error + Send + Sync + 'static) -> SourceError {
    SourceError::Io { path: what.into(), source: std::io::Error::other(error) }
}

/// What lists the processes, and what else is read.
pub(super) fn sources(table: &Table, with_system: bool) -> Sources {
    let mut others: Vec<Box<dyn super::Source>> = Vec::new();
    if with_system {
        others.push(Box::new(machine::MemorySource));
        others.push(Box::new(disks::DisksSource::default()));
        others.push(Box::new(machine::NetworkSource::default()));
    }
    (vec![Box::new(machine::CpuSource), Box::new(machine::ProcessesSource(table.clone()))], others)
}

/// Begins to follow a job that runs already.
///
/// # Errors
/// Where it is not there, has ended, or cannot be read.
pub(super) fn follow(table: &Table, wanted: Wanted<'_>, baseline: &Snapshot) -> Result<Found, SourceError> {
    let mut job = job::Job::new(table, wanted.pid, wanted.config.children);
    job.read(baseline, &[], wanted.sampler)?;
    if !job.is_root_still_alive() {
        return Err(gone(wanted.pid));
    }
    job.count_from_here();
    let reading = job.read(baseline, &[], wanted.sampler)?;
    Ok(Found { job: Box::new(job), reading, notes: Vec::new() })
}

/// Begins to follow a job that we have just started.
pub(super) fn adopt(root: &Arc<Root>, table: &Table, started: Started<'_>) -> Box<dyn FollowedJob> {
    let Started { pid, config, known, counter } = started;
    let counter = counter.map(|counter| (Arc::clone(root), counter));
    let reaper = job::Reaper { pid: std::process::id(), known };
    Box::new(job::Job::new(table, pid, config.children).started_by(reaper, counter))
}

fn gone(pid: u32) -> SourceError {
    SourceError::Gone { path: format!("process {pid}").into() }
}

/// When a process started, in seconds since 1970: with its pid, who it is. `None` where it is not there.
pub(crate) fn process_start(pid: u32) -> Option<u64> {
    one_process(pid, listed(), ::sysinfo::Process::start_time)
}

/// Whether that very process is surely there no more.
#[cfg_attr(target_os = "linux", expect(dead_code, reason = "Linux's own is used there"))]
pub(crate) fn is_gone(pid: u32, start: u64) -> bool {
    process_start(pid) != Some(start)
}

/// Containers with numbers of their own are Linux's.
#[cfg_attr(target_os = "linux", expect(dead_code, reason = "Linux's own is used there"))]
pub(crate) fn pid_namespace() -> Option<String> {
    None
}

/// The command line of a process, where it can be read.
#[cfg_attr(target_os = "linux", expect(dead_code, reason = "Linux's own is used there"))]
pub(crate) fn command_of(pid: u32) -> Option<Vec<String>> {
    let words = one_process(pid, listed().with_cmd(UpdateKind::Always), |process| {
        process.cmd().iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>()
    });
    words.filter(|words| !words.is_empty())
}

/// All memory of the machine.
#[cfg_attr(target_os = "linux", expect(dead_code, reason = "Linux's own is used there"))]
pub(crate) fn total_memory_kib() -> Option<u64> {
    let mut system = new_system().ok()?;
    system.refresh_memory();
    Some(system.total_memory() / 1024).filter(|kib| *kib > 0)
}

/// Who started a process.
#[cfg_attr(unix, expect(dead_code, reason = "these systems tell it of ourselves"))]
pub(crate) fn parent_of(pid: u32) -> Option<u32> {
    one_process(pid, listed(), |process| process.parent().map(Pid::as_u32)).flatten()
}

fn one_process<T>(
    pid: u32,
    what: ProcessRefreshKind,
    get: impl FnOnce(&::sysinfo::Process) -> T,
) -> Option<T> {
    let mut system = new_system().ok()?;
    let pid = Pid::from_u32(pid);
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), true, what);
    system.process(pid).map(get)
}
