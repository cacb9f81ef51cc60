//! Traffic of whole disks, from `/proc/diskstats` and `/sys/block`.
//!
//! Partitions, dm, md and loop devices and volumes of ZFS are excluded, because the disk below them counts the same bytes.
//! RAM disks are excluded because they are not storage.

use super::{KeptFile, Picks, SECTOR_BYTES, parse_diskstats, unparsed};
use crate::error::SourceError;
use crate::os::root::Root;
use crate::probe::snapshot::{Device, Snapshot};
use crate::probe::{Source, is_partition};

#[derive(Debug, Default)]
pub struct DisksSource {
    file: KeptFile,
    picks: Picks,
}

impl Source for DisksSource {
    fn name(&self) -> &'static str {
        "disks"
    }

    fn read(&mut self, root: &Root, snapshot: &mut Snapshot) -> Result<(), SourceError> {
        const PATH: &str = "/proc/diskstats";
        let text = self.file.text(root, PATH)?;
        let disks: Vec<_> = parse_diskstats(text).collect::<Result<_, _>>().map_err(unparsed(PATH))?;
        let counts = self.picks.of(disks.iter().map(|disk| disk.name), |names| {
            names.iter().map(|name| is_whole_disk(root, &String::from_utf8_lossy(name))).collect()
        });
        let whole = disks.iter().zip(counts).filter(|(_, counts)| **counts).filter_map(|(disk, _)| {
            Some(Device {
                name: disk.name.into(),
                // A device is left out if its number of bytes overflows.
                inbound: disk.read_sectors.checked_mul(SECTOR_BYTES)?,
                outbound: disk.written_sectors.checked_mul(SECTOR_BYTES)?,
            })
        });
        snapshot.disks = Some(whole.collect());
        Ok(())
    }
}

fn is_whole_disk(root: &Root, name: &str) -> bool {
    if ["loop", "ram", "zram", "zd"].iter().any(|kind| is_numbered(name, kind)) {
        return false;
    }
    // sysfs writes `!` for the slash in a device name such as `cciss/c0d0`.
    let block = format!("/sys/block/{}", name.replace('/', "!"));
    if root.exists("/sys/block") {
        root.exists(&block) && root.names(&format!("{block}/slaves")).is_empty()
    } else {
        !is_numbered(name, "dm-") && !is_numbered(name, "md") && !is_partition(name)
    }
}

/// Whether a name consists of `kind` and a number, such as `loop7`.
fn is_numbered(name: &str, kind: &str) -> bool {
    name.strip_prefix(kind)
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn volume_of_zfs_is_no_disk() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("proc")).unwrap();
        for name in ["sda", "zd0", "zd16"] {
            fs::create_dir_all(folder.path().join("sys/block").join(name)).unwrap();
        }
        let root = Root::recorded(folder.path()).unwrap();
        let whole = ["sda", "zd0", "zd16", "sda1"].map(|name| is_whole_disk(&root, name));
        assert_eq!(whole, [true, false, false, false]);
    }
}
