//! The portable backend: the crate `sysinfo`, and one file per operating system for figures that `sysinfo` does not
//! provide (user and system time, PSS or USS, buffers and caches).
//!
//! In:  system calls. Out: sources that fill a snapshot, and per-process figures for `job/portable`.
//! Not here: figures that only Linux has (`procfs`, `cgroup`).
//!
//! A process that starts and ends between two samples is counted only if its parent's cutime includes it, or if the
//! system counts the whole job (job objects on Windows).

mod disks;
mod machine;

#[cfg(target_os = "linux")]
pub(crate) mod linux;
#[cfg(target_os = "macos")]
pub(crate) mod macos;
#[cfg(windows)]
pub(crate) mod windows;

#[cfg(target_os = "linux")]
pub(crate) use linux as platform;
#[cfg(target_os = "macos")]
pub(crate) use macos as platform;
#[cfg(windows)]
pub(crate) use windows as platform;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

use crate::error::SourceError;

pub use disks::file_systems;
#[cfg(not(target_os = "linux"))]
pub use disks::zfs_pools;

use super::Sources;

/// CPU time and page faults of one process so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    pub(crate) own: Times,
    /// Time of reaped children (cutime, cstime); 0 on systems that do not add it to the parent.
    pub(crate) reaped_children: Times,
    pub(crate) major_faults: u64,
    /// Whether the storage bytes of the process can be read.
    pub(crate) has_storage: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) user_ns: u64,
    pub(crate) system_ns: u64,
}

impl Times {
    pub(crate) const fn sum_ns(self) -> u64 {
        self.user_ns.saturating_add(self.system_ns)
    }
}

/// The process list, shared by the source that refreshes it and the job that reads it.
#[derive(Clone, Debug, Default)]
pub struct Table(Arc<Mutex<Option<System>>>);

impl Table {
    fn lock(&self) -> MutexGuard<'_, Option<System>> {
        // A panic of another thread may leave an incomplete list. The next sample refreshes it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `with` on the list of the last refresh.
    pub(crate) fn with<T>(&self, with: impl FnOnce(&mut System) -> T) -> Result<T, SourceError> {
        let mut system = self.lock();
        let system = match &mut *system {
            Some(system) => system,
            none => none.insert(new_system()?),
        };
        Ok(with(system))
    }

    pub(crate) fn refresh(&self) -> Result<(), SourceError> {
        self.with(|system| {
            system.refresh_processes_specifics(ProcessesToUpdate::All, true, identity_only());
        })
    }
}

/// Refreshes only pid, parent and start time of processes, and lists no threads.
pub(crate) fn identity_only() -> ProcessRefreshKind {
    ProcessRefreshKind::nothing().without_tasks()
}

pub(crate) fn new_system() -> Result<System, SourceError> {
    System::new().map_err(|error| failed("processes", error))
}

fn failed(what: &str, error: impl std::error::Error + Send + Sync + 'static) -> SourceError {
    SourceError::Io { path: what.into(), source: std::io::Error::other(error) }
}

pub(crate) fn sources(table: &Table, with_system: bool) -> Sources {
    let mut machine: Vec<Box<dyn super::Source>> = Vec::new();
    if with_system {
        machine.push(Box::new(machine::MemorySource));
        machine.push(Box::new(disks::DisksSource::default()));
        machine.push(Box::new(machine::NetworkSource::default()));
    }
    Sources {
        processes: vec![Box::new(machine::CpuSource), Box::new(machine::ProcessesSource(table.clone()))],
        machine,
    }
}

/// Start of a process in Unix seconds; `None` if the process does not exist. Pid and start together identify a process.
#[cfg(not(target_os = "linux"))]
pub(crate) fn process_start(pid: u32) -> Option<u64> {
    one_process(pid, identity_only(), ::sysinfo::Process::start_time)
}

/// Whether the process with this pid and start time has ended.
#[cfg(not(target_os = "linux"))]
pub(crate) fn is_gone(pid: u32, start: u64) -> bool {
    process_start(pid) != Some(start)
}

/// Always `None`: only Linux has PID namespaces.
#[cfg(not(target_os = "linux"))]
pub(crate) fn pid_namespace() -> Option<String> {
    None
}

/// The command line of a process; `None` if it cannot be read.
#[cfg(not(target_os = "linux"))]
pub(crate) fn command_of(pid: u32) -> Option<Vec<String>> {
    let words = one_process(pid, identity_only().with_cmd(::sysinfo::UpdateKind::Always), |process| {
        process.cmd().iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>()
    });
    words.filter(|words| !words.is_empty())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn total_memory_kib() -> Option<u64> {
    let mut system = new_system().ok()?;
    system.refresh_memory();
    Some(system.total_memory() / 1024).filter(|kib| *kib > 0)
}

pub(crate) fn one_process<T>(
    pid: u32,
    what: ProcessRefreshKind,
    get: impl FnOnce(&::sysinfo::Process) -> T,
) -> Option<T> {
    let mut system = new_system().ok()?;
    let pid = Pid::from_u32(pid);
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), true, what);
    system.process(pid).map(get)
}
