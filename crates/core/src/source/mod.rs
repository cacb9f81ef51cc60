//! Interfaces of the host, behind one trait; the only file that asks which of them this host has.
//!
//! In:  a [`Root`]. Out: sources that fill a [`Snapshot`], each its own fields.

use std::sync::Arc;

use crate::error::SourceError;
use crate::root::Root;
use crate::snapshot::{Moment, Snapshot};

pub mod cgroup;
pub mod gpu;
pub mod procfs;
pub mod replay;

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
    /// What finding the job's processes needs.
    listing: [Box<dyn Source>; 2],
    sources: Vec<Box<dyn Source>>,
}

impl Machine {
    /// The sources of this host. With `system` off only what the job's table needs is read.
    #[must_use]
    pub fn detect(root: Arc<Root>, system: bool) -> Self {
        let listing: [Box<dyn Source>; 2] =
            [Box::new(procfs::CpuSource::default()), Box::new(procfs::ProcessesSource::default())];
        let mut sources: Vec<Box<dyn Source>> = Vec::new();
        if system {
            sources.push(Box::new(procfs::MemorySource::default()));
            sources.push(Box::new(procfs::DisksSource::default()));
            sources.push(Box::new(procfs::NetworkSource::default()));
            sources.push(Box::new(procfs::SpaceSource::default()));
            sources.push(Box::new(procfs::PressureSource::default()));
        }
        sources.push(Box::new(cgroup::OwnGroupSource::new(&root)));
        Self { root, listing, sources }
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

fn read_one(source: &mut dyn Source, root: &Root, snapshot: &mut Snapshot) {
    if let Err(error) = source.read(root, snapshot) {
        snapshot.failures.push((source.name(), error));
    }
}
