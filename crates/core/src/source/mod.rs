//! Interfaces of the host, behind one trait; the only file that asks which of them this host has.
//!
//! In:  a [`Root`] and the [`Backend`] that was chosen. Out: sources that fill a [`Snapshot`], each its own fields, and
//! the job as that backend follows it.

use std::sync::Arc;

use crate::config::Backend;
use crate::error::SourceError;
use crate::follow::{FollowedJob, Found, Started, Wanted};
use crate::root::Root;
use crate::snapshot::{Moment, Snapshot};

#[cfg_attr(not(target_os = "linux"), path = "../elsewhere/cgroup.rs")]
pub mod cgroup;
pub mod gpu;
mod partition;
#[cfg(target_os = "linux")]
pub mod procfs;
#[cfg(target_os = "linux")]
pub mod replay;
pub mod sysinfo;

pub use partition::is_partition;
#[cfg(target_os = "linux")]
pub use procfs::zfs_pools;
#[cfg(target_os = "linux")]
pub(crate) use procfs::{command_of, is_gone, pid_namespace, process_start};
#[cfg(not(target_os = "linux"))]
pub use sysinfo::zfs_pools;
#[cfg(not(target_os = "linux"))]
pub(crate) use sysinfo::{command_of, is_gone, pid_namespace, process_start};

/// One interface of the host: a kernel file, a cgroup, a GPU library, or a replay of them.
pub trait Source: Send {
    /// As logs, the report and `info` show it.
    fn name(&self) -> &'static str;
    /// Adds what it sees now. On error the snapshot keeps what other sources put there.
    ///
    /// # Errors
    /// Why it gave nothing; costs its own cells only.
    fn read(&mut self, root: &Root, snapshot: &mut Snapshot) -> Result<(), SourceError>;
}

/// What a machine gives, apart from the job: a fixed list of sources.
pub struct Machine {
    root: Arc<Root>,
    backend: Backend,
    /// Processes as `sysinfo` lists them; other backends leave it empty.
    table: sysinfo::Table,
    /// What finding the job's processes needs.
    listing: Vec<Box<dyn Source>>,
    sources: Vec<Box<dyn Source>>,
}

impl Machine {
    /// The sources of this host. With `system` off only what the job's table needs is read.
    #[must_use]
    pub fn detect(root: Arc<Root>, system: bool) -> Self {
        Self::of(root, Backend::BEST, system)
    }

    /// The same by a backend that somebody chose.
    #[must_use]
    pub fn of(root: Arc<Root>, backend: Backend, system: bool) -> Self {
        let table = sysinfo::Table::default();
        let (listing, sources) = match backend {
            #[cfg(target_os = "linux")]
            Backend::Procfs => procfs_sources(&root, system),
            _ => sysinfo::sources(&table, system),
        };
        Self { root, backend, table, listing, sources }
    }

    /// Begins to follow a job that runs already.
    ///
    /// # Errors
    /// Where it is not there, has ended, or cannot be read.
    pub fn follow(&self, wanted: Wanted<'_>, baseline: &Snapshot) -> Result<Found, SourceError> {
        self.root.check_processes()?;
        match self.backend {
            #[cfg(target_os = "linux")]
            Backend::Procfs => crate::job::follow(&self.root, wanted, baseline),
            _ => sysinfo::follow(&self.table, wanted, baseline),
        }
    }

    /// Begins to follow a job that we have just started.
    #[must_use]
    pub fn adopt(&self, started: Started<'_>) -> Box<dyn FollowedJob> {
        match self.backend {
            #[cfg(target_os = "linux")]
            Backend::Procfs => crate::job::adopt(&self.root, started),
            _ => sysinfo::adopt(&self.root, &self.table, started),
        }
    }

    /// Fills a snapshot of now.
    pub fn read(&mut self, at: Moment, snapshot: &mut Snapshot) {
        self.list_processes(at, snapshot);
        for source in &mut self.sources {
            read_one(source.as_mut(), &self.root, snapshot);
        }
    }

    /// Only what finding the job's processes needs.
    pub fn list_processes(&mut self, at: Moment, snapshot: &mut Snapshot) {
        snapshot.reset(at);
        for source in &mut self.listing {
            read_one(source.as_mut(), &self.root, snapshot);
        }
    }

    /// Names of all sources.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.listing.iter().chain(&self.sources).map(|source| source.name())
    }

    /// Where the files are.
    #[must_use]
    pub const fn root(&self) -> &Arc<Root> {
        &self.root
    }
}

/// What lists the processes, and what else is read.
type Sources = (Vec<Box<dyn Source>>, Vec<Box<dyn Source>>);

#[cfg(target_os = "linux")]
fn procfs_sources(root: &Root, system: bool) -> Sources {
    let listing: Vec<Box<dyn Source>> =
        vec![Box::new(procfs::CpuSource::default()), Box::new(procfs::ProcessesSource::default())];
    let mut sources: Vec<Box<dyn Source>> = Vec::new();
    if system {
        sources.push(Box::new(procfs::MemorySource::default()));
        sources.push(Box::new(procfs::DisksSource::default()));
        sources.push(Box::new(procfs::NetworkSource::default()));
        sources.push(Box::new(procfs::SpaceSource::default()));
        sources.push(Box::new(procfs::PressureSource::default()));
    }
    sources.push(Box::new(cgroup::OwnGroupSource::new(root)));
    (listing, sources)
}

fn read_one(source: &mut dyn Source, root: &Root, snapshot: &mut Snapshot) {
    if let Err(error) = source.read(root, snapshot) {
        snapshot.failures.push((source.name(), error));
    }
}
