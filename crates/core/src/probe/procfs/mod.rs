//! Linux `/proc`: one pure parser per kernel file, and the sources that read these files through `Root`.

mod disks;
mod diskstats;
mod full;
mod loadavg;
mod machine;
mod meminfo;
mod mountinfo;
mod net_dev;
mod network;
mod pid_io;
mod pid_schedstat;
mod pid_smaps_rollup;
mod pid_stat;
mod pid_statm;
mod pid_status;
mod pressure;
pub mod process;
mod space;
mod stat;
mod text;

pub use disks::DisksSource;
pub use diskstats::{SECTOR_BYTES, parse_diskstats};
pub(crate) use full::{Places, full_file_systems};
pub use loadavg::parse_last_pid;
pub use machine::{CpuSource, MemorySource, PressureSource, ProcessesSource};
pub use meminfo::parse_meminfo;
pub use mountinfo::{Mount, parse_mountinfo};
pub use net_dev::parse_net_dev;
pub use network::NetworkSource;
pub(crate) use network::interfaces_that_count;
pub use pid_io::{PidIo, parse_pid_io};
pub use pid_schedstat::parse_schedstat;
pub use pid_smaps_rollup::{SmapsRollup, parse_smaps_rollup};
pub use pid_stat::{PidStat, parse_is_exiting, parse_pid_stat};
pub use pid_statm::parse_statm_anon_pages;
pub use pid_status::{PidStatus, parse_pid_status};
pub use pressure::parse_some_us;
pub(crate) use process::{
    borrows_memory, command_of, is_alive, is_gone, pid_namespace, process_start, read_io, read_smaps_rollup,
    read_stat, read_status,
};
pub(crate) use space::is_safe;
pub use space::{SpaceSource, file_systems, zfs_pools};
pub use stat::{parse_single_cpus, parse_stat};

use crate::error::{ParseError, SourceError};
use crate::os::root::{Kept, Root};

/// A kernel file that is opened at the first tick and read again at every tick, with its buffer.
#[derive(Debug, Default)]
pub struct KeptFile {
    kept: Option<Kept>,
    buffer: Vec<u8>,
}

impl KeptFile {
    pub fn text(&mut self, root: &Root, path: &str) -> Result<&[u8], SourceError> {
        let kept = open(&mut self.kept, root, path)?;
        let text = root.reread(kept, &mut self.buffer);
        if text.is_err() {
            // The descriptor may be invalid, so the next tick opens the file again.
            self.kept = None;
        }
        text
    }

    /// Opens the file without reading it.
    fn open(&mut self, root: &Root, path: &str) -> Result<&Kept, SourceError> {
        open(&mut self.kept, root, path)
    }
}

fn open<'k>(kept: &'k mut Option<Kept>, root: &Root, path: &str) -> Result<&'k Kept, SourceError> {
    let file = match kept.take() {
        Some(file) => file,
        None => root.keep(path)?,
    };
    Ok(kept.insert(file))
}

fn unparsed(path: &str) -> impl Fn(ParseError) -> SourceError {
    move |source| SourceError::Parse { path: path.into(), source }
}

/// Remembers which devices of a list count. The choice is made again only when the list changes.
#[derive(Debug, Default)]
struct Picks {
    names: Vec<Box<[u8]>>,
    counts: Vec<bool>,
}

impl Picks {
    fn of<'n>(
        &mut self,
        names: impl Iterator<Item = &'n [u8]> + Clone,
        choose: impl FnOnce(&[Box<[u8]>]) -> Vec<bool>,
    ) -> &[bool] {
        if !names.clone().eq(self.names.iter().map(AsRef::as_ref)) {
            self.names = names.map(Box::from).collect();
            self.counts = choose(&self.names);
        }
        &self.counts
    }
}
