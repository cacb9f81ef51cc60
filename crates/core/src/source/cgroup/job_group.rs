//! A cgroup of the job's own, to count its CPU time where the inherited counter is refused.
//!
//! Made only where it changes nothing for the job: as a child of the group that we are in, in a cpuacct
//! hierarchy that does not schedule (no `cpu` beside it), or in a unified group that was given to us.
//! Never with the memory controller. Removed at the end; what a killed tracker left is removed by the next.

use std::fs::{self, File, OpenOptions};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use super::{Group, groups_of, parse_key};
use crate::root::Root;

const PREFIX: &str = "resource-tracker-";

/// A group that holds the job and nobody else.
#[derive(Debug)]
pub struct JobGroup {
    folder: PathBuf,
    unified: bool,
    usage: File,
}

impl JobGroup {
    /// Makes one, or says why that cannot be done here.
    ///
    /// # Errors
    /// In words for the recording's notes.
    pub fn create(root: &Root) -> Result<Self, String> {
        if root.is_recorded() {
            return Err("a recorded tree has no live cgroups".to_owned());
        }
        let groups = groups_of(root, "self");
        let parent = groups
            .iter()
            .find(|group| is_free_of_side_effects(group))
            .ok_or("no cgroup hierarchy that only counts")?;
        remove_leftovers(root, Path::new(&parent.folder));
        let own = std::process::id();
        let folder = Path::new(&parent.folder).join(format!("{PREFIX}{own}"));
        fs::create_dir(&folder).map_err(|error| format!("cannot make `{}`: {error}", folder.display()))?;
        let file = folder.join(if parent.unified { "cpu.stat" } else { "cpuacct.usage" });
        match File::open(&file) {
            Ok(usage) => Ok(Self { folder, unified: parent.unified, usage }),
            Err(error) => {
                let _ = fs::remove_dir(&folder);
                Err(format!("cannot read `{}`: {error}", file.display()))
            }
        }
    }

    /// Where a process writes `0` to join.
    ///
    /// # Errors
    /// In words, where it may not be written.
    pub fn door(&self) -> Result<OwnedFd, String> {
        let path = self.folder.join("cgroup.procs");
        let door = OpenOptions::new().write(true).open(&path);
        door.map(OwnedFd::from).map_err(|error| format!("cannot write `{}`: {error}", path.display()))
    }

    /// CPU time of everything that was ever in the group.
    #[must_use]
    pub fn cpu_ns(&self) -> Option<u64> {
        use std::os::unix::fs::FileExt as _;
        let mut text = [0; 1024];
        let length = self.usage.read_at(&mut text, 0).ok()?;
        let text = text.get(..length)?;
        if self.unified {
            parse_key(text, "usage_usec")?.checked_mul(1_000)
        } else {
            std::str::from_utf8(text).ok()?.trim().parse().ok()
        }
    }
}

impl Drop for JobGroup {
    fn drop(&mut self) {
        // Fails while a process that outlived the job is inside; the next start tries again.
        let _ = fs::remove_dir(&self.folder);
    }
}

fn is_free_of_side_effects(group: &Group) -> bool {
    let only_counts = group.has("cpuacct") && !group.has("cpu") && !group.has("memory");
    only_counts || (group.unified && is_delegated(Path::new(&group.folder)))
}

/// A unified group that we may divide: it is ours by its owner, or whoever manages it has marked it so.
fn is_delegated(folder: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let own = rustix::process::geteuid().as_raw();
    let by_owner = own != 0 && fs::metadata(folder.join("cgroup.procs")).is_ok_and(|file| file.uid() == own);
    let mark = |name: &str| {
        let mut value = [0_u8; 1];
        rustix::fs::getxattr(folder, name, &mut value).is_ok_and(|length| length == 1 && value == *b"1")
    };
    by_owner || mark("user.delegate") || mark("trusted.delegate")
}

fn remove_leftovers(root: &Root, parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok()) else {
            continue;
        };
        // The group of a tracker that runs is in use; an empty one of a tracker that is gone is a leftover. One of our
        // own number, which containers give again and again, is of somebody before us.
        if pid == std::process::id() || !root.exists(&format!("/proc/{pid}")) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}
