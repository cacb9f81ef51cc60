//! Reads the state of the host. Each source reads one kernel interface into a [`Snapshot`].
//!
//! In:  a [`Root`] and a [`Backend`]. Out: [`MachineProbe`], the list of sources that this host has.
//! Not here: the processes of the job (`job`).

use std::sync::Arc;

use crate::config::Backend;
use crate::error::SourceError;
use crate::os::Moment;
use crate::os::root::Root;
use crate::probe::cgroup::{JobCgroups, Limits, OomCounts, read_limits};
use crate::probe::evidence::{FullFileSystem, LimitReached};
use crate::probe::snapshot::Snapshot;

pub mod cgroup;
pub mod evidence;
pub mod gpu;
pub mod host;
mod partition;
pub mod portable;
#[cfg(target_os = "linux")]
pub mod procfs;
pub mod snapshot;

pub use partition::is_partition;
#[cfg(not(target_os = "linux"))]
pub use portable::zfs_pools;
#[cfg(not(target_os = "linux"))]
pub(crate) use portable::{command_of, is_gone, pid_namespace, process_start};
#[cfg(target_os = "linux")]
pub use procfs::zfs_pools;
#[cfg(target_os = "linux")]
pub(crate) use procfs::{command_of, is_gone, pid_namespace, process_start};

/// Local file systems without free space, and what the job that ran `command` has there. Empty on other systems.
#[cfg(target_os = "linux")]
pub(crate) fn full_file_systems(command: &[String]) -> Vec<FullFileSystem> {
    let (Ok(root), Ok(working_directory)) = (Root::host(), std::env::current_dir()) else {
        return Vec::new();
    };
    let temporary = std::env::temp_dir();
    let places = procfs::Places { working_directory: &working_directory, temporary: &temporary, command };
    procfs::full_file_systems(&root, places)
}

#[cfg(not(target_os = "linux"))]
pub(crate) const fn full_file_systems(_command: &[String]) -> Vec<FullFileSystem> {
    Vec::new()
}

/// Reads one interface of the host, such as a kernel file or a cgroup.
pub trait Source: Send {
    /// Name of the source, as shown in notes and in the output of `info`.
    fn name(&self) -> &'static str;
    /// Fills the fields of the snapshot that belong to this source. An error does not change other fields.
    fn read(&mut self, root: &Root, snapshot: &mut Snapshot) -> Result<(), SourceError>;
}

/// The sources of one host.
pub struct MachineProbe {
    root: Arc<Root>,
    backend: Backend,
    /// The process list of `sysinfo`; empty for the procfs backend.
    table: portable::Table,
    sources: Sources,
    /// `None` for the portable backend.
    cgroups: Option<JobCgroups>,
}

/// The sources of one backend, in two groups.
pub(crate) struct Sources {
    /// Sources of the process list and the fork counter, from which the job's process tree is made.
    pub(crate) processes: Vec<Box<dyn Source>>,
    pub(crate) machine: Vec<Box<dyn Source>>,
}

impl MachineProbe {
    /// The sources of the best backend of this system. If `system` is false, only the sources that the job needs.
    pub fn detect(root: Arc<Root>, system: bool) -> Self {
        Self::of(root, Backend::BEST, system)
    }

    pub fn of(root: Arc<Root>, backend: Backend, system: bool) -> Self {
        let table = portable::Table::default();
        let sources = match backend {
            #[cfg(target_os = "linux")]
            Backend::Procfs => procfs_sources(system),
            _ => portable::sources(&table, system),
        };
        #[cfg(target_os = "linux")]
        let cgroups = (backend == Backend::Procfs).then(|| JobCgroups::new(&root));
        #[cfg(not(target_os = "linux"))]
        let cgroups = None;
        Self { root, backend, table, sources, cgroups }
    }

    /// Follows the job's root process, and these other members, into the cgroups that they have moved to.
    pub fn follow(&mut self, pid: u32, members: &[u32]) {
        if let Some(cgroups) = &mut self.cgroups {
            cgroups.follow(&self.root, pid);
            cgroups.follow_members(&self.root, members, pid);
        }
    }

    /// The limits of the job, whose root process is `pid`; those of the tracker without a job.
    pub fn limits(&self, pid: Option<u32>) -> Limits {
        let limits = self.cgroups.as_ref().map(|cgroups| cgroups.limits(&self.root, pid));
        limits.unwrap_or_else(|| read_limits(&self.root, "self"))
    }

    /// OOM kills in the job's cgroups and on the machine.
    pub fn oom_counts(&self) -> OomCounts {
        self.cgroups.as_ref().map(|cgroups| cgroups.oom_counts(&self.root)).unwrap_or_default()
    }

    /// The limit of processes of the job's cgroups, if the kernel refused a process.
    pub fn process_limit_reached(&self) -> Option<LimitReached> {
        self.cgroups.as_ref().and_then(|cgroups| cgroups.process_limit_reached(&self.root))
    }

    /// Reads all sources.
    pub fn read(&mut self, at: Moment, snapshot: &mut Snapshot) {
        self.list_processes(at, snapshot);
        for source in &mut self.sources.machine {
            read_one(source.as_mut(), &self.root, snapshot);
        }
        if let Some(cgroups) = &mut self.cgroups {
            cgroups.read(&self.root, snapshot);
        }
    }

    /// Reads only the process list and the fork counter.
    pub fn list_processes(&mut self, at: Moment, snapshot: &mut Snapshot) {
        *snapshot = Snapshot { at, ..Snapshot::default() };
        for source in &mut self.sources.processes {
            read_one(source.as_mut(), &self.root, snapshot);
        }
    }

    /// The names of all sources.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        let sources = self.sources.processes.iter().chain(&self.sources.machine);
        sources.map(|source| source.name()).chain(self.cgroups.as_ref().map(|_| "cgroup"))
    }

    pub(crate) const fn backend(&self) -> Backend {
        self.backend
    }

    pub(crate) const fn table(&self) -> &portable::Table {
        &self.table
    }

    pub const fn root(&self) -> &Arc<Root> {
        &self.root
    }
}

#[cfg(target_os = "linux")]
fn procfs_sources(system: bool) -> Sources {
    let mut machine: Vec<Box<dyn Source>> = Vec::new();
    if system {
        machine.push(Box::new(procfs::MemorySource::default()));
        machine.push(Box::new(procfs::DisksSource::default()));
        machine.push(Box::new(procfs::NetworkSource::default()));
        machine.push(Box::new(procfs::SpaceSource::default()));
        machine.push(Box::new(procfs::PressureSource::default()));
    }
    Sources {
        processes: vec![Box::new(procfs::CpuSource::default()), Box::new(procfs::ProcessesSource::default())],
        machine,
    }
}

fn read_one(source: &mut dyn Source, root: &Root, snapshot: &mut Snapshot) {
    if let Err(error) = source.read(root, snapshot) {
        snapshot.failures.push((source.name(), error));
    }
}
