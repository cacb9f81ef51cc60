//! Linux's `/proc`: a pure parser a kernel file, and the sources that read them through `Root`.

mod disks;
mod diskstats;
mod machine;
mod meminfo;
mod mountinfo;
mod net_dev;
mod network;
mod pid_io;
mod pid_stat;
mod pid_status;
mod pressure;
mod smaps_rollup;
mod space;
mod stat;
mod text;

pub use disks::DisksSource;
pub use diskstats::{SECTOR_BYTES, parse_diskstats};
pub use machine::{CpuSource, MemorySource, PressureSource, ProcessesSource};
pub use meminfo::{Meminfo, parse_meminfo};
pub use mountinfo::{Mount, parse_mountinfo};
pub use net_dev::parse_net_dev;
pub use network::NetworkSource;
pub(crate) use network::interfaces_that_count;
pub use pid_io::{PidIo, parse_pid_io};
pub use pid_stat::{PidStat, parse_pid_stat};
pub use pid_status::{PidStatus, parse_pid_status};
pub use pressure::parse_some_us;
pub use smaps_rollup::{AnonPages, SmapsRollup, parse_smaps_rollup};
pub(crate) use space::is_safe;
pub use space::{SpaceSource, file_systems, zfs_pools};
pub use stat::{Stat, parse_single_cpus, parse_stat};

use crate::error::{ParseError, SourceError};
use crate::root::{Kept, Root, Shape};
use crate::tree::pid_path;

/// A kernel file that is opened at the first tick and read anew at each, and its buffer.
#[derive(Debug, Default)]
struct KeptFile {
    kept: Option<Kept>,
    buffer: Vec<u8>,
}

impl KeptFile {
    fn text(&mut self, root: &Root, path: &str, shape: Shape) -> Result<&[u8], SourceError> {
        let kept = match self.kept.take() {
            Some(kept) => kept,
            None => root.keep(path)?,
        };
        let text = root.reread(self.kept.insert(kept), shape, &mut self.buffer);
        if text.is_err() {
            // Opened anew next time: the failure may lie in the descriptor.
            self.kept = None;
        }
        text
    }

    /// Opens `path` without reading it.
    fn open(&mut self, root: &Root, path: &str) -> Result<&Kept, SourceError> {
        let kept = match self.kept.take() {
            Some(kept) => kept,
            None => root.keep(path)?,
        };
        Ok(self.kept.insert(kept))
    }
}

/// In which processes have the numbers that we see; neither containers nor machines that share a folder share this.
///
/// The first namespace has one name on all machines, so the start of the kernel belongs to it.
pub(crate) fn pid_namespace() -> Option<String> {
    let root = Root::host_as_guest().ok()?;
    let link = root.link("/proc/self/ns/pid")?;
    let boot_id = root.text("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    Some(format!("{} {boot_id}", link.display()).trim_end().to_owned())
}

/// When a process started: with its pid, who it is. `None` where it is not there.
pub(crate) fn process_start(pid: u32) -> Option<u64> {
    Some(stat_of(&Root::host().ok()?, pid).ok()?.start_ticks)
}

/// Whether that very process is surely there no more. Its remains do nothing, and some containers never bury any; where
/// its first thread alone has ended, another may still write.
pub(crate) fn is_gone(pid: u32, start_ticks: u64) -> bool {
    let Ok(root) = Root::host_as_guest() else { return false };
    match stat_of(&root, pid) {
        Ok(stat) => stat.start_ticks != start_ticks || (stat.is_zombie() && stat.threads <= 1),
        Err(error) => matches!(error, SourceError::Gone { .. } | SourceError::Unsupported { .. }),
    }
}

/// Whether that very process is there, and not only its remains that nobody has waited for; any of that number where
/// its start is not known.
pub(crate) fn is_alive(root: &Root, pid: u32, start_ticks: Option<u64>) -> bool {
    match stat_of(root, pid) {
        Ok(stat) => !stat.is_zombie() && start_ticks.is_none_or(|start| start == stat.start_ticks),
        // We cannot read now, for want of descriptors or memory: that says nothing about the process.
        Err(error) => matches!(error, SourceError::Io { .. }),
    }
}

fn stat_of(root: &Root, pid: u32) -> Result<PidStat, SourceError> {
    let path = pid_path(pid, "stat");
    let mut buffer = Vec::new();
    let text = root.read(path.as_str(), &mut buffer)?;
    parse_pid_stat(text).map_err(unparsed(path.as_str()))
}

/// The command line of a process, where it can be read.
pub(crate) fn command_of(pid: u32) -> Option<Vec<String>> {
    let mut buffer = Vec::new();
    let root = Root::host().ok()?;
    let text = root.read(pid_path(pid, "cmdline").as_str(), &mut buffer).ok()?;
    let words = text.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
    let words: Vec<_> = words.collect();
    words.split_last().map(|(_, words)| words.to_vec()).filter(|words| !words.is_empty())
}

fn unparsed(path: &str) -> impl Fn(ParseError) -> SourceError {
    move |source| SourceError::Parse { path: path.into(), source }
}

/// Which names of a list count: asked once for a list, remembered until the list changes.
#[derive(Debug, Default)]
struct Picks {
    names: Vec<Box<[u8]>>,
    counts: Vec<bool>,
}

impl Picks {
    /// Whether each of `names` counts; `choose` is asked only for a list that was not there the last time.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remains_that_nobody_waited_for_are_gone() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "read x"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let (pid, root) = (child.id(), Root::host_as_guest().unwrap());
        let start = process_start(pid).unwrap();
        assert!(!is_gone(pid, start) && is_gone(pid, start + 1));
        drop(child.stdin.take());
        while !stat_of(&root, pid).unwrap().is_zombie() {
            std::thread::yield_now();
        }
        assert!(is_gone(pid, start));
        child.wait().unwrap();
    }
}
