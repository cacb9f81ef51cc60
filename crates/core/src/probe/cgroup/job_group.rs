//! A cgroup that is created for the job and counts its CPU time, for hosts that refuse the inherited perf counter.
//!
//! The cgroup is a child of the tracker's group. It is created only where it has no effect on the job: in a version 1
//! `cpuacct` hierarchy without the controllers `cpu` and `memory`, or in a delegated version 2 group. The tracker
//! removes the cgroup at the end of the job. If the tracker is killed, the next tracker removes it.

use std::fs::{self, File, OpenOptions};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use super::groups::{Group, groups_of, parse_key};
use crate::os::root::Root;

const PREFIX: &str = "resource-tracker-";

#[derive(Debug)]
pub struct JobGroup {
    folder: PathBuf,
    unified: bool,
    usage: File,
}

impl JobGroup {
    /// Creates the cgroup. The error is the reason why this host does not allow it.
    pub fn create(root: &Root) -> Result<Self, String> {
        if root.is_recorded() {
            return Err("a recorded host has no live cgroups".to_owned());
        }
        let groups = groups_of(root, "self");
        let parent = groups
            .iter()
            .find(|group| has_no_side_effects(group))
            .ok_or("no cgroup hierarchy that counts CPU time without other effects")?;
        remove_leftovers(root, Path::new(&parent.folder));
        let own = std::process::id();
        let folder = Path::new(&parent.folder).join(format!("{PREFIX}{own}"));
        fs::create_dir(&folder).map_err(|error| format!("cannot create `{}`: {error}", folder.display()))?;
        let file = folder.join(if parent.unified { "cpu.stat" } else { "cpuacct.usage" });
        match File::open(&file) {
            Ok(usage) => Ok(Self { folder, unified: parent.unified, usage }),
            Err(error) => {
                let _ = fs::remove_dir(&folder);
                Err(format!("cannot read `{}`: {error}", file.display()))
            }
        }
    }

    /// A descriptor of `cgroup.procs`: a process that writes `0` to it joins the group.
    pub fn cgroup_procs(&self) -> Result<OwnedFd, String> {
        let path = self.folder.join("cgroup.procs");
        let file = OpenOptions::new().write(true).open(&path);
        file.map(OwnedFd::from).map_err(|error| format!("cannot write `{}`: {error}", path.display()))
    }

    /// CPU time of all processes that were ever in the group.
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
        // Removing the group fails if a process of the job still runs in it. The next tracker then tries again.
        let _ = fs::remove_dir(&self.folder);
    }
}

fn has_no_side_effects(group: &Group) -> bool {
    let only_counts = group.has("cpuacct") && !group.has("cpu") && !group.has("memory");
    only_counts || (group.unified && is_delegated(Path::new(&group.folder)))
}

/// Whether the tracker may create child groups in a version 2 group: the user owns the group, or systemd marked it as
/// delegated.
fn is_delegated(folder: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let user = rustix::process::geteuid().as_raw();
    let is_owner =
        user != 0 && fs::metadata(folder.join("cgroup.procs")).is_ok_and(|file| file.uid() == user);
    let is_set = |name: &str| {
        let mut value = [0_u8; 1];
        rustix::fs::getxattr(folder, name, &mut value).is_ok_and(|length| length == 1 && value == *b"1")
    };
    is_owner || is_set("user.delegate") || is_set("trusted.delegate")
}

fn remove_leftovers(root: &Root, parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok()) else {
            continue;
        };
        // The name of a group ends with the pid of its tracker. The group of a running tracker is in use. A group with
        // the pid of this process is from an earlier tracker with the same pid, which is common in containers.
        if pid == std::process::id() || !root.exists(&format!("/proc/{pid}")) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}
