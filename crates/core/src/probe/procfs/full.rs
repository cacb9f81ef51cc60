//! File systems without free space, read at the end of a failed run.
//!
//! In:  `/proc/self/mountinfo` and `statvfs` of local file systems. Out: [`FullFileSystem`]s.
//! Not here: the space of the machine at each row (`space`).

use std::path::Path;

use super::space::safe_mounts;
use super::{Mount, parse_mountinfo};
use crate::os::root::Root;
use crate::probe::evidence::FullFileSystem;

/// With less free space than this, a write is about to fail.
const FULL_BYTES: u64 = 1 << 20;

/// Folders that the job writes to.
#[derive(Clone, Copy, Debug)]
pub struct Places<'p> {
    pub working_directory: &'p Path,
    pub temporary: &'p Path,
    pub command: &'p [String],
}

/// The full file systems of this host, each once.
pub fn full_file_systems(root: &Root, places: Places<'_>) -> Vec<FullFileSystem> {
    let mut buffer = Vec::new();
    let Ok(text) = root.read("/proc/self/mountinfo", &mut buffer) else { return Vec::new() };
    let mounts: Vec<Mount> = parse_mountinfo(text).flatten().collect();
    let mut seen: Vec<&str> = Vec::new();
    let mut full = Vec::new();
    for mount in safe_mounts(&mounts) {
        let is_read_only = mount.options.split(',').any(|option| option == "ro");
        if is_read_only || seen.contains(&mount.device.as_str()) {
            continue;
        }
        seen.push(&mount.device);
        let Some(free) = root.free_space(&mount.mount_point) else { continue };
        // A file system of less than 20 MiB may have little free space by design.
        let no_space = free.bytes < FULL_BYTES && free.bytes.saturating_mul(20) < free.total_bytes;
        let no_inodes = free.inodes == Some(0);
        if no_space || no_inodes {
            full.push(FullFileSystem {
                role: role(&mounts, mount, places).map(str::to_owned),
                mount_point: mount.mount_point.clone(),
                free_bytes: free.bytes,
                no_inodes,
            });
        }
    }
    full
}

fn role(mounts: &[Mount], full: &Mount, places: Places<'_>) -> Option<&'static str> {
    let is_on = |path: &Path| {
        let above = mounts.iter().filter(|mount| path.starts_with(&mount.mount_point));
        // The last of several mounts at one place covers the others.
        above.max_by_key(|mount| mount.mount_point.len()).is_some_and(|mount| mount.device == full.device)
    };
    let is_named = |word: &String| full.mount_point != "/" && word.contains(&full.mount_point);
    if is_on(places.working_directory) {
        Some("working directory")
    } else if is_on(places.temporary) {
        Some("temporary files")
    } else {
        places.command.iter().any(is_named).then_some("command line")
    }
}
