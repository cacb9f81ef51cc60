//! Traffic and space of disks.
//!
//! `sysinfo` lists mounts. A device with several mounts counts once, and space that several volumes share counts once.

use ::sysinfo::{Disk, DiskRefreshKind, Disks};

use super::{failed, platform};
use crate::error::SourceError;
use crate::os::root::Root;
use crate::probe::Source;
use crate::probe::snapshot::{Device, DiskSpace, Snapshot};

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
                disks.refresh_specifics(true, traffic_and_space());
                disks
            }
            none => none.insert(list()?),
        };
        let found = traffic(disks);
        if found.is_empty() {
            // `sysinfo` returns an empty list on failure.
            return Err(SourceError::Unsupported { path: "disks".into() });
        }
        snapshot.disks = Some(found);
        snapshot.space = DiskSpace::total(spaces(disks).map(|(_, space)| space));
        Ok(())
    }
}

fn traffic_and_space() -> DiskRefreshKind {
    DiskRefreshKind::nothing().with_io_usage().with_storage()
}

fn list() -> Result<Disks, SourceError> {
    Disks::new_with_refreshed_list_specifics(traffic_and_space()).map_err(|error| failed("disks", error))
}

/// Mount point and space of each local file system.
pub fn file_systems(root: &Root) -> Result<Vec<(String, DiskSpace)>, SourceError> {
    if let Some(spaces) = platform::file_systems_instead(root) {
        return spaces;
    }
    let disks = list()?;
    let found = spaces(&disks);
    Ok(found.map(|(disk, space)| (disk.mount_point().to_string_lossy().into_owned(), space)).collect())
}

/// ZFS pools are recognised on Linux only.
#[cfg(not(target_os = "linux"))]
pub const fn zfs_pools(_root: &Root) -> Result<Vec<(String, DiskSpace)>, SourceError> {
    Ok(Vec::new())
}

/// Keeps the first mount for each value of `key` (a device or a pool) and drops the others.
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
        // `df` counts reserved blocks as unused.
        let unused_bytes = platform::unused_bytes(disk).unwrap_or(free_bytes);
        let used_bytes = total_bytes.checked_sub(unused_bytes)?;
        Some((disk, DiskSpace { total_bytes, used_bytes, free_bytes }))
    })
}
