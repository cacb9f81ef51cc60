//! Disks: what was read and written since they were there, and the space on them.
//!
//! `sysinfo` goes by mounts: a device that is mounted twice has its bytes and its space once here, and so have the
//! volumes that share one pool of space.

use ::sysinfo::{Disk, DiskRefreshKind, Disks};

use super::{failed, platform};
use crate::error::SourceError;
use crate::root::Root;
use crate::snapshot::{Device, DiskSpace, Snapshot};
use crate::source::Source;

/// Traffic and space of all disks.
#[derive(Debug, Default)]
pub struct DisksSource(Option<Disks>);

impl Source for DisksSource {
    fn name(&self) -> &'static str {
        "disks"
    }

    fn read(&mut self, root: &Root, snapshot: &mut Snapshot) -> Result<(), SourceError> {
        if let Some(read) = platform::read_disks_instead(root, snapshot) {
            return read;
        }
        let disks = match &mut self.0 {
            Some(disks) => {
                disks.refresh_specifics(true, wanted());
                disks
            }
            none => none.insert(list()?),
        };
        let found = traffic(disks);
        if found.is_empty() {
            // A list that could not be made, not a machine without a disk.
            return Err(SourceError::Unsupported { path: "disks".into() });
        }
        snapshot.disks = Some(found);
        snapshot.space = DiskSpace::total(spaces(disks).map(|(_, space)| space));
        Ok(())
    }
}

fn wanted() -> DiskRefreshKind {
    DiskRefreshKind::nothing().with_io_usage().with_storage()
}

fn list() -> Result<Disks, SourceError> {
    Disks::new_with_refreshed_list_specifics(wanted()).map_err(|error| failed("disks", error))
}

/// The real file systems one by one: mount point and sizes.
///
/// # Errors
/// Where the disks cannot be listed.
pub fn file_systems(root: &Root) -> Result<Vec<(String, DiskSpace)>, SourceError> {
    if let Some(spaces) = platform::file_systems_instead(root) {
        return spaces;
    }
    let disks = list()?;
    let found = spaces(&disks);
    Ok(found.map(|(disk, space)| (disk.mount_point().to_string_lossy().into_owned(), space)).collect())
}

/// Pools of ZFS, which are told from other file systems on Linux alone.
///
/// # Errors
/// None here.
#[cfg(not(target_os = "linux"))]
pub const fn zfs_pools(_root: &Root) -> Result<Vec<(String, DiskSpace)>, SourceError> {
    Ok(Vec::new())
}

/// Once a device, in the order of the mounts.
fn once_each(disks: &[Disk], key: impl Fn(&Disk) -> String) -> impl Iterator<Item = (String, &Disk)> {
    let mut seen: Vec<String> = Vec::new();
    disks.iter().filter(|disk| platform::is_real(disk)).filter_map(move |disk| {
        let key = key(disk);
        (!seen.contains(&key)).then(|| {
            seen.push(key.clone());
            (key, disk)
        })
    })
}

fn traffic(disks: &[Disk]) -> Vec<Device> {
    let devices = once_each(disks, platform::device_of);
    devices
        .map(|(_, disk)| {
            let usage = disk.usage();
            Device {
                name: platform::name_of(disk).into_bytes().into(),
                inbound: usage.total_read_bytes,
                outbound: usage.total_written_bytes,
            }
        })
        .collect()
}

fn spaces(disks: &[Disk]) -> impl Iterator<Item = (&Disk, DiskSpace)> {
    once_each(disks, platform::pool_of).filter_map(|(_, disk)| {
        let (total_bytes, free_bytes) = (disk.total_space(), disk.available_space());
        // Blocks that are kept for the system's own are free, as `df` counts.
        let unused_bytes = platform::unused_bytes(disk).unwrap_or(free_bytes);
        let used_bytes = total_bytes.checked_sub(unused_bytes)?;
        Some((disk, DiskSpace { total_bytes, used_bytes, free_bytes }))
    })
}
