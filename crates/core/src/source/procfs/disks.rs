//! Traffic of whole disks: `/proc/diskstats`, with `/sys/block` to tell disks from what is made of them.
//!
//! A partition is a part of its disk, and a dm, md or loop device passes on to the disks below it what it
//! is given: counting either beside the disk counts the same bytes twice. RAM disks are no storage.

use super::{KeptFile, Picks, SECTOR_BYTES, parse_diskstats, unparsed};
use crate::error::SourceError;
use crate::root::{Root, Shape};
use crate::snapshot::{Device, Snapshot};
use crate::source::{Source, is_partition};

/// `/proc/diskstats`.
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
        let text = self.file.text(root, PATH, Shape::Records)?;
        let disks: Vec<_> = parse_diskstats(text).collect::<Result<_, _>>().map_err(unparsed(PATH))?;
        let counts = self.picks.of(disks.iter().map(|disk| disk.name), |names| {
            names.iter().map(|name| is_whole_disk(root, &String::from_utf8_lossy(name))).collect()
        });
        let whole = disks.iter().zip(counts).filter(|(_, counts)| **counts).filter_map(|(disk, _)| {
            Some(Device {
                name: disk.name.into(),
                // More than fits is no count of bytes.
                inbound: disk.read_sectors.checked_mul(SECTOR_BYTES)?,
                outbound: disk.written_sectors.checked_mul(SECTOR_BYTES)?,
            })
        });
        snapshot.disks = Some(whole.collect());
        Ok(())
    }
}

fn is_whole_disk(root: &Root, name: &str) -> bool {
    let in_memory_or_on_a_file = ["loop", "ram", "zram"].iter().any(|kind| numbered(name, kind));
    if in_memory_or_on_a_file {
        return false;
    }
    // In sysfs a slash in a device name (cciss/c0d0) is written as an exclamation mark.
    let block = format!("/sys/block/{}", name.replace('/', "!"));
    if root.exists("/sys/block") {
        root.exists(&block) && root.names(&format!("{block}/slaves")).is_empty()
    } else {
        !numbered(name, "dm-") && !numbered(name, "md") && !is_partition(name)
    }
}

/// `loop7` is a numbered `loop`.
fn numbered(name: &str, kind: &str) -> bool {
    name.strip_prefix(kind)
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}
