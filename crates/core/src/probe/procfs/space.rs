//! Disk space: the local file systems of `/proc/self/mountinfo`, each counted once.
//!
//! A device that is mounted twice (bind mounts, btrfs subvolumes) counts once. An overlay on a counted device does not
//! count. The datasets of a ZFS pool share its free space: only their used space is added up. Network, FUSE and autofs
//! mounts are excluded because `statvfs` can hang there. The list of mounts is parsed only after a change: `poll`
//! reports a change of an open file; without an open file the text is compared with the last text.

use std::collections::BTreeMap;

use super::{KeptFile, Mount, parse_mountinfo, unparsed};
use crate::error::SourceError;
use crate::os::root::{Root, Space};
use crate::probe::Source;
use crate::probe::snapshot::{DiskSpace, Snapshot};

/// Types of file systems on local devices.
const ON_DEVICES: [&str; 18] = [
    "bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "hfsplus", "jfs", "msdos", "nilfs2",
    "ntfs", "ntfs3", "reiserfs", "ubifs", "ufs", "vfat", "xfs",
];
/// Types of pseudo file systems. The kernel itself answers `statvfs` on them; below any other type it may hang.
const ANSWERED_BY_KERNEL: [&str; 20] = [
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

#[derive(Debug, Default)]
pub struct SpaceSource {
    file: KeptFile,
    chosen: Option<Chosen>,
    /// The text of `mountinfo` that `chosen` was made from.
    text: Vec<u8>,
}

/// Mount points to call `statvfs` on.
#[derive(Debug, Default, PartialEq, Eq)]
struct Chosen {
    /// One mount point per file system.
    single: Vec<String>,
    /// Mount points of all datasets, by ZFS pool.
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
                let text = self.file.text(root, PATH)?;
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

/// The mounts on which `statvfs` cannot hang.
pub(super) fn safe_mounts(mounts: &[Mount]) -> impl Iterator<Item = &Mount> {
    // A later mount covers an earlier one at the same place.
    let may_hang = |at: usize, mount: &Mount| {
        mounts.iter().enumerate().any(|(other_at, other)| {
            let rest = mount.mount_point.strip_prefix(other.mount_point.as_str());
            let is_covered = |rest: &str| rest.starts_with('/') || (rest.is_empty() && other_at > at);
            !is_safe(&other.kind) && rest.is_some_and(is_covered)
        })
    };
    let is_own_safe = |mount: &Mount| is_safe(&mount.kind);
    let all = mounts.iter().enumerate();
    all.filter(move |(at, mount)| is_own_safe(mount) && !may_hang(*at, mount)).map(|(_, mount)| mount)
}

fn choose(root: &Root, mounts: &[Mount]) -> Chosen {
    let safe = || safe_mounts(mounts);
    let mut chosen = Chosen::default();
    let mut seen: Vec<&str> = Vec::new();
    let mut sizes: Vec<u64> = Vec::new();
    for mount in safe() {
        if mount.kind == "zfs" {
            let pool = mount.source.split('/').next().unwrap_or_default().to_owned();
            chosen.pools.entry(pool).or_default().push(mount.mount_point.clone());
        } else if ON_DEVICES.contains(&mount.kind.as_str()) {
            // Subvolumes of a btrfs file system have different device numbers and the same source.
            let same = |known: &&str| *known == mount.device || *known == mount.source;
            if seen.iter().any(same) {
                continue;
            }
            let Ok(space) = root.space(&mount.mount_point) else { continue };
            // The mount point may be a file, such as `/etc/hosts` in a container; `statvfs` works on files too.
            seen.extend([mount.device.as_str(), mount.source.as_str()]);
            sizes.push(space.total_bytes);
            chosen.single.push(mount.mount_point.clone());
        }
    }
    // An overlay reports the sizes of the file system of its upper layer, which may be counted already.
    for mount in safe().filter(|mount| mount.kind == "overlay") {
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

/// Whether `statvfs` on a file system of this type needs neither a network nor another process, so it cannot hang.
pub(crate) fn is_safe(kind: &str) -> bool {
    kind == "zfs" || ON_DEVICES.contains(&kind) || ANSWERED_BY_KERNEL.contains(&kind)
}

/// Space of all chosen file systems; `None` if `statvfs` failed on all of them, or if any has contradictory sizes.
fn sum(root: &Root, chosen: &Chosen) -> Option<DiskSpace> {
    let single = chosen.single.iter().filter_map(|mount_point| of_one(root, mount_point));
    let pools = chosen.pools.values().filter_map(|datasets| of_pool(root, datasets));
    let spaces: Option<Vec<_>> = single.chain(pools).collect();
    DiskSpace::total(spaces?.into_iter())
}

fn used_bytes(space: &Space) -> Option<u64> {
    space.total_bytes.checked_sub(space.unused_bytes)
}

/// Space of one file system; `None` if it was unmounted meanwhile, `Some(None)` if its sizes are contradictory.
#[expect(
    clippy::option_option,
    reason = "a sum skips an unmounted file system; contradictory sizes make the sum unknown"
)]
fn of_one(root: &Root, mount_point: &str) -> Option<Option<DiskSpace>> {
    let space = root.space(mount_point).ok()?;
    Some(used_bytes(&space).map(|used_bytes| DiskSpace {
        total_bytes: space.total_bytes,
        used_bytes,
        free_bytes: space.available_bytes,
    }))
}

#[expect(
    clippy::option_option,
    reason = "a sum skips an unmounted pool; contradictory sizes make the sum unknown"
)]
fn of_pool(root: &Root, datasets: &[String]) -> Option<Option<DiskSpace>> {
    let spaces: Vec<_> = datasets.iter().filter_map(|dataset| root.space(dataset).ok()).collect();
    let free_bytes = spaces.iter().map(|space| space.available_bytes).max()?;
    let used_bytes = spaces.iter().try_fold(0_u64, |sum, space| sum.checked_add(used_bytes(space)?));
    Some(used_bytes.and_then(|used_bytes| {
        Some(DiskSpace { total_bytes: used_bytes.checked_add(free_bytes)?, used_bytes, free_bytes })
    }))
}

/// Name and space of each local file system. The name is the mount point, or the name of a ZFS pool.
pub fn file_systems(root: &Root) -> Result<Vec<(String, DiskSpace)>, SourceError> {
    const PATH: &str = "/proc/self/mountinfo";
    let mut buffer = Vec::new();
    let text = root.read(PATH, &mut buffer)?;
    let mounts: Vec<_> = parse_mountinfo(text).collect::<Result<_, _>>().map_err(unparsed(PATH))?;
    let chosen = choose(root, &mounts);
    let single = chosen.single.iter().map(|at| (at.clone(), of_one(root, at).flatten()));
    let pools = chosen.pools.iter().map(|(pool, datasets)| (pool.clone(), of_pool(root, datasets).flatten()));
    Ok(single.chain(pools).filter_map(|(name, space)| Some((name, space?))).collect())
}

/// Name and space of each ZFS pool.
pub fn zfs_pools(root: &Root) -> Result<Vec<(String, DiskSpace)>, SourceError> {
    Ok(file_systems(root)?.into_iter().filter(|(name, _)| !name.starts_with('/')).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn network_mount_over_a_local_one_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("proc")).unwrap();
        fs::write(folder.path().join("statvfs"), "/ 4096 100 50 50\n/data 4096 900 9 9\n/srv 4096 80 8 8\n")
            .unwrap();
        let root = Root::recorded(folder.path()).unwrap();
        let mounts: Vec<Mount> = parse_mountinfo(
            b"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 8:2 / /data rw - ext4 /dev/sdb1 rw\n\
              3 1 0:50 / /data rw - nfs4 server:/data rw\n4 1 0:51 / /srv rw - fuse.sshfs host: rw\n\
              5 1 8:3 / /srv rw - xfs /dev/sdc1 rw\n",
        )
        .collect::<Result<_, _>>()
        .unwrap();
        assert_eq!(choose(&root, &mounts).single, ["/", "/srv"]);
    }
}
