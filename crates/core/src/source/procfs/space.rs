//! Disk space: the real file systems of `/proc/self/mountinfo`, each once.
//!
//! A device that is mounted twice (bind mounts, btrfs subvolumes) counts once, as does an overlay on it.
//! The datasets of a ZFS pool share the pool's space: what they use adds up, what is free does not.
//! Network, FUSE and autofs mounts are never asked: a `statvfs` there can hang for ever. The list is made
//! anew only when the mounts have changed: where the kernel cannot tell us, their text does.

use std::collections::BTreeMap;

use super::{KeptFile, Mount, parse_mountinfo, unparsed};
use crate::error::SourceError;
use crate::root::{Root, Shape, Space};
use crate::snapshot::{DiskSpace, Snapshot};
use crate::source::Source;

/// File systems that keep files on devices of this machine.
const ON_DEVICES: [&str; 18] = [
    "bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "hfsplus", "jfs", "msdos", "nilfs2",
    "ntfs", "ntfs3", "reiserfs", "ubifs", "ufs", "vfat", "xfs",
];
/// Pseudo file systems below which a path walk asks nobody; all else that is not on devices may hang.
const HARMLESS: [&str; 20] = [
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "erofs",
    "hugetlbfs",
    "iso9660",
    "mqueue",
    "overlay",
    "proc",
    "pstore",
    "ramfs",
    "securityfs",
    "squashfs",
    "sysfs",
    "tmpfs",
];

/// `mountinfo` and `statvfs`.
#[derive(Debug, Default)]
pub struct SpaceSource {
    file: KeptFile,
    chosen: Option<Chosen>,
    /// What the choice was made of, where it is read at each tick.
    text: Vec<u8>,
}

/// Mount points to ask at each tick.
#[derive(Debug, Default, PartialEq, Eq)]
struct Chosen {
    /// One a file system.
    single: Vec<String>,
    /// All datasets of each pool.
    pools: BTreeMap<String, Vec<String>>,
}

impl Source for SpaceSource {
    fn name(&self) -> &'static str {
        "disk space"
    }

    fn read(&mut self, root: &Root, snapshot: &mut Snapshot) -> Result<(), SourceError> {
        const PATH: &str = "/proc/self/mountinfo";
        let changed = root.has_changed(self.file.open(root, PATH)?);
        let chosen = match self.chosen.take() {
            Some(chosen) if !changed => chosen,
            known => {
                let text = self.file.text(root, PATH, Shape::LongRecords)?;
                match known {
                    Some(chosen) if self.text == text => chosen,
                    _ => {
                        self.text.clear();
                        self.text.extend_from_slice(text);
                        let mounts: Vec<_> =
                            parse_mountinfo(text).collect::<Result<_, _>>().map_err(unparsed(PATH))?;
                        choose(root, &mounts)
                    }
                }
            }
        };
        snapshot.space = sum(root, self.chosen.insert(chosen));
        Ok(())
    }
}

fn choose(root: &Root, mounts: &[Mount]) -> Chosen {
    let is_below_a_hanging_one = |mount: &Mount| {
        mounts.iter().any(|other| {
            !is_safe(&other.kind)
                && mount
                    .mount_point
                    .strip_prefix(other.mount_point.as_str())
                    .is_some_and(|rest| rest.starts_with('/'))
        })
    };
    let mut chosen = Chosen::default();
    let mut seen: Vec<&str> = Vec::new();
    let mut sizes: Vec<u64> = Vec::new();
    for mount in mounts.iter().filter(|mount| !is_below_a_hanging_one(mount)) {
        if mount.kind == "zfs" {
            let pool = mount.source.split('/').next().unwrap_or_default().to_owned();
            chosen.pools.entry(pool).or_default().push(mount.mount_point.clone());
        } else if ON_DEVICES.contains(&mount.kind.as_str()) {
            // btrfs gives each subvolume a device number of its own, but they name the same source.
            let same = |known: &&str| *known == mount.device || *known == mount.source;
            if seen.iter().any(same) {
                continue;
            }
            let Ok(space) = root.space(&mount.mount_point) else { continue };
            // A file bound over a file (`/etc/hosts` in a container) is as good a place to ask as any.
            seen.extend([mount.device.as_str(), mount.source.as_str()]);
            sizes.push(space.total_bytes);
            chosen.single.push(mount.mount_point.clone());
        }
    }
    // An overlay answers with the sizes of the file system that holds its upper layer: known already, or not.
    for mount in mounts.iter().filter(|mount| mount.kind == "overlay" && !is_below_a_hanging_one(mount)) {
        if let Ok(space) = root.space(&mount.mount_point)
            && space.total_bytes > 0
            && !sizes.contains(&space.total_bytes)
        {
            sizes.push(space.total_bytes);
            chosen.single.push(mount.mount_point.clone());
        }
    }
    for datasets in chosen.pools.values_mut() {
        datasets.sort();
        datasets.dedup();
    }
    chosen
}

/// Whether a file system of this kind answers by itself, without a network or another program.
pub(crate) fn is_safe(kind: &str) -> bool {
    kind == "zfs" || ON_DEVICES.contains(&kind) || HARMLESS.contains(&kind)
}

/// `None` where no file system answered, or one with nonsense.
fn sum(root: &Root, chosen: &Chosen) -> Option<DiskSpace> {
    let single = chosen.single.iter().filter_map(|mount_point| of_one(root, mount_point));
    let pools = chosen.pools.values().filter_map(|datasets| of_pool(root, datasets));
    let spaces: Option<Vec<_>> = single.chain(pools).collect();
    DiskSpace::total(spaces?.into_iter())
}

fn used_bytes(space: &Space) -> Option<u64> {
    space.total_bytes.checked_sub(space.unused_bytes)
}

/// `None` for one that was unmounted since the list was made: it is no longer disk space. `Some(None)` for sizes that
/// contradict each other.
#[expect(
    clippy::option_option,
    reason = "gone and nonsense differ: the first is left out, the second spoils a sum"
)]
fn of_one(root: &Root, mount_point: &str) -> Option<Option<DiskSpace>> {
    let space = root.space(mount_point).ok()?;
    Some(used_bytes(&space).map(|used_bytes| DiskSpace {
        total_bytes: space.total_bytes,
        used_bytes,
        free_bytes: space.available_bytes,
    }))
}

#[expect(clippy::option_option, reason = "as above")]
fn of_pool(root: &Root, datasets: &[String]) -> Option<Option<DiskSpace>> {
    let spaces: Vec<_> = datasets.iter().filter_map(|dataset| root.space(dataset).ok()).collect();
    let free_bytes = spaces.iter().map(|space| space.available_bytes).max()?;
    let used_bytes = spaces.iter().try_fold(0_u64, |sum, space| sum.checked_add(used_bytes(space)?));
    Some(used_bytes.and_then(|used_bytes| {
        Some(DiskSpace { total_bytes: used_bytes.checked_add(free_bytes)?, used_bytes, free_bytes })
    }))
}

/// The real file systems one by one: mount point (the pool's name for ZFS) and sizes.
///
/// # Errors
/// Where the mounts cannot be read.
pub fn file_systems(root: &Root) -> Result<Vec<(String, DiskSpace)>, SourceError> {
    const PATH: &str = "/proc/self/mountinfo";
    let mut file = KeptFile::default();
    let text = file.text(root, PATH, Shape::LongRecords)?;
    let mounts: Vec<_> = parse_mountinfo(text).collect::<Result<_, _>>().map_err(unparsed(PATH))?;
    let chosen = choose(root, &mounts);
    let single = chosen.single.iter().map(|at| (at.clone(), of_one(root, at).flatten()));
    let pools = chosen.pools.iter().map(|(pool, datasets)| (pool.clone(), of_pool(root, datasets).flatten()));
    Ok(single.chain(pools).filter_map(|(name, space)| Some((name, space?))).collect())
}

/// Free bytes and size of each ZFS pool, by its name.
///
/// # Errors
/// Where the mounts cannot be read.
pub fn zfs_pools(root: &Root) -> Result<Vec<(String, DiskSpace)>, SourceError> {
    Ok(file_systems(root)?.into_iter().filter(|(name, _)| !name.starts_with('/')).collect())
}
