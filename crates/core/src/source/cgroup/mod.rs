//! Control groups: which ones a process is in, what they charge, and one of the job's own.
//!
//! In:  `/proc/[pid]/cgroup` and `mountinfo`. Out: folders below `/sys/fs/cgroup` (or wherever they are
//! mounted), nearest first. Formats: `cgroups(7)`.

mod job_group;
mod limits;
mod oom;

pub use job_group::JobGroup;
pub(crate) use limits::count_cpus;
pub use limits::{Limits, read_limits};
pub use oom::{OomKills, OomWatch};

use crate::error::SourceError;
use crate::root::{Kept, Root, Shape};
use crate::snapshot::Snapshot;
use crate::source::Source;
use crate::source::procfs::{Mount, parse_mountinfo};

/// A group that a process is in, in one hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The unified hierarchy, or one of version 1.
    pub unified: bool,
    /// Controllers of a version 1 hierarchy; empty for the unified one.
    pub controllers: Vec<String>,
    /// Its folder.
    pub folder: String,
    /// The mount point that it lies below; the walk up ends there.
    pub top: String,
}

impl Group {
    /// Folders from this group up to the top of its hierarchy.
    pub fn upwards(&self) -> impl Iterator<Item = &str> {
        let mut next = Some(self.folder.as_str());
        std::iter::from_fn(move || {
            let folder = next?;
            let parent = folder.rsplit_once('/').map(|(parent, _)| parent);
            next = parent.filter(|parent| folder != self.top && parent.starts_with(self.top.as_str()));
            Some(folder)
        })
    }

    fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|name| name == controller)
    }
}

/// The lines of `/proc/[pid]/cgroup`: controllers (none for the unified hierarchy) and path.
#[must_use]
pub fn parse_cgroup(text: &str) -> Vec<(Vec<String>, String)> {
    let line = |line: &str| {
        let (_id, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let controllers = controllers.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        Some((controllers, path.to_owned()))
    };
    text.lines().filter_map(line).collect()
}

/// The groups that process `pid` (`self` for ours) is in and whose folders can be reached from here.
#[must_use]
pub fn groups_of(root: &Root, pid: &str) -> Vec<Group> {
    let mut buffer = Vec::new();
    let Some(memberships) = root.text(&format!("/proc/{pid}/cgroup")) else { return Vec::new() };
    let mounts: Vec<Mount> = match root.keep("/proc/self/mountinfo") {
        Ok(kept) => match root.reread(&kept, Shape::LongRecords, &mut buffer) {
            Ok(text) => parse_mountinfo(text).flatten().collect(),
            Err(_) => return Vec::new(),
        },
        Err(_) => return Vec::new(),
    };
    parse_cgroup(&memberships)
        .into_iter()
        .filter_map(|(controllers, path)| {
            let unified = controllers.is_empty();
            let is_home = |mount: &&Mount| {
                if unified {
                    return mount.kind == "cgroup2";
                }
                let options: Vec<_> = mount.options.split(',').collect();
                mount.kind == "cgroup" && controllers.iter().all(|name| options.contains(&name.as_str()))
            };
            // A container may see only its own part of the hierarchy: the path below the mounted folder counts.
            mounts.iter().filter(is_home).find_map(|mount| {
                let below = path.strip_prefix(mount.root.trim_end_matches('/'))?;
                let folder = format!("{}{}", mount.mount_point, below).trim_end_matches('/').to_owned();
                root.exists(&folder).then(|| Group {
                    unified,
                    controllers: controllers.clone(),
                    folder,
                    top: mount.mount_point.clone(),
                })
            })
        })
        .collect()
}

/// The number behind `key` in a file of `key value` lines, such as `cpu.stat`.
#[must_use]
pub fn parse_key(text: &[u8], key: &str) -> Option<u64> {
    text.split(|byte| *byte == b'\n').find_map(|line| {
        let value = line.strip_prefix(key.as_bytes())?.strip_prefix(b" ")?;
        std::str::from_utf8(value).ok()?.trim().parse().ok()
    })
}

/// The group we run in: what its limits held back, and the memory charged to it.
#[derive(Debug)]
pub struct OwnGroupSource {
    throttle: Option<(Kept, &'static str, u64)>,
    memory: Option<Kept>,
    buffer: Vec<u8>,
}

impl OwnGroupSource {
    /// Finds the files once: a process rarely changes its group.
    #[must_use]
    pub fn new(root: &Root) -> Self {
        let groups = groups_of(root, "self");
        let throttle = groups.iter().filter(|group| group.unified || group.has("cpu")).find_map(|group| {
            // The counter is kept by the group that has the limit, ours or one above.
            let limited =
                group.upwards().find(|folder| limits::cpu_limit(root, group.unified, folder).is_some())?;
            let kept = root.keep(&format!("{limited}/cpu.stat")).ok()?;
            Some(if group.unified { (kept, "throttled_usec", 1_000) } else { (kept, "throttled_time", 1) })
        });
        let memory = groups.iter().filter(|group| group.unified || group.has("memory")).find_map(|group| {
            let file = if group.unified { "memory.current" } else { "memory.usage_in_bytes" };
            root.keep(&format!("{}/{file}", group.folder)).ok()
        });
        Self { throttle, memory, buffer: Vec::new() }
    }
}

impl Source for OwnGroupSource {
    fn name(&self) -> &'static str {
        "cgroup"
    }

    fn read(&mut self, root: &Root, snapshot: &mut Snapshot) -> Result<(), SourceError> {
        if let Some((kept, key, ns)) = &self.throttle {
            let text = root.reread(kept, Shape::Whole, &mut self.buffer)?;
            snapshot.throttled_ns = parse_key(text, key).and_then(|time| time.checked_mul(*ns));
        }
        if let Some(kept) = &self.memory {
            let text = root.reread(kept, Shape::Whole, &mut self.buffer)?;
            snapshot.cgroup_memory_bytes =
                std::str::from_utf8(text).ok().and_then(|text| text.trim().parse().ok());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_understood() {
        let text = "4:memory:/docker/abc\n3:cpu,cpuacct:/\n1:name=systemd:/x\n0::/user.slice/a:b\ngarbage\n";
        let found = parse_cgroup(text);
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            found,
            [
                (names(&["memory"]), "/docker/abc".to_owned()),
                (names(&["cpu", "cpuacct"]), "/".to_owned()),
                (names(&["name=systemd"]), "/x".to_owned()),
                (vec![], "/user.slice/a:b".to_owned()),
            ]
        );
    }

    #[test]
    fn the_walk_up_ends_at_the_mount_point() {
        let group = Group {
            unified: true,
            controllers: vec![],
            folder: "/sys/fs/cgroup/a/b".to_owned(),
            top: "/sys/fs/cgroup".to_owned(),
        };
        assert_eq!(
            group.upwards().collect::<Vec<_>>(),
            ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup"]
        );
    }

    #[test]
    fn a_key_is_matched_whole() {
        assert_eq!(parse_key(b"nr_throttled 3\nthrottled_usec 42\n", "throttled_usec"), Some(42));
        assert_eq!(parse_key(b"nr_throttled 3\n", "nr_throttle"), None);
    }
}
