//! The control groups of a process.
//!
//! In:  `/proc/[pid]/cgroup` and `mountinfo`. Out: one [`Group`] per hierarchy, with its folder in the mounted cgroup
//! file system. Formats: `cgroups(7)`.

use crate::os::root::Root;
use crate::probe::procfs::{Mount, parse_mountinfo};

/// The group of a process in one hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// True for a version 2 hierarchy, false for version 1.
    pub unified: bool,
    /// Controllers of a version 1 hierarchy; empty for version 2.
    pub controllers: Vec<String>,
    pub folder: String,
    /// The mount point of the hierarchy.
    pub top: String,
}

impl Group {
    /// Folders from this group up to the mount point.
    pub fn upwards(&self) -> impl Iterator<Item = &str> {
        let mut next = Some(self.folder.as_str());
        std::iter::from_fn(move || {
            let folder = next?;
            let parent = folder.rsplit_once('/').map(|(parent, _)| parent);
            next = parent.filter(|parent| folder != self.top && parent.starts_with(self.top.as_str()));
            Some(folder)
        })
    }

    pub(super) fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|name| name == controller)
    }

    /// Whether memory may be charged to this group.
    pub(super) fn counts_memory(&self) -> bool {
        self.unified || self.has("memory")
    }
}

/// Parses `/proc/[pid]/cgroup`. Returns the controllers (none for version 2) and the path of each line.
pub fn parse_cgroup(text: &str) -> Vec<(Vec<String>, String)> {
    let line = |line: &str| {
        let (_id, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let controllers = controllers.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        Some((controllers, path.to_owned()))
    };
    text.lines().filter_map(line).collect()
}

/// The groups of process `pid` (a number or `self`) whose folders are mounted here.
pub fn groups_of(root: &Root, pid: &str) -> Vec<Group> {
    root.text(&format!("/proc/{pid}/cgroup")).map_or_else(Vec::new, |text| groups_in(root, &text))
}

/// The groups in the text of `/proc/[pid]/cgroup` whose folders are mounted here.
pub(super) fn groups_in(root: &Root, memberships: &str) -> Vec<Group> {
    let mut buffer = Vec::new();
    let Ok(mountinfo) = root.read("/proc/self/mountinfo", &mut buffer) else { return Vec::new() };
    let mounts: Vec<Mount> = parse_mountinfo(mountinfo).flatten().collect();
    parse_cgroup(memberships)
        .into_iter()
        .filter_map(|(controllers, path)| {
            let unified = controllers.is_empty();
            let has_hierarchy = |mount: &&Mount| {
                if unified {
                    return mount.kind == "cgroup2";
                }
                let options: Vec<_> = mount.options.split(',').collect();
                mount.kind == "cgroup" && controllers.iter().all(|name| options.contains(&name.as_str()))
            };
            // In a container only a subtree of the hierarchy may be mounted. `mount.root` is the path of this subtree.
            mounts.iter().filter(has_hierarchy).find_map(|mount| {
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

/// The value of `key` in a file of `key value` lines, such as `cpu.stat`.
pub fn parse_key(text: &[u8], key: &str) -> Option<u64> {
    text.split(|byte| *byte == b'\n').find_map(|line| {
        let value = line.strip_prefix(key.as_bytes())?.strip_prefix(b" ")?;
        std::str::from_utf8(value).ok()?.trim().parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_cgroup_versions_are_parsed() {
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
    fn folders_end_at_the_mount_point() {
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
    fn only_a_whole_key_matches() {
        assert_eq!(parse_key(b"nr_throttled 3\nthrottled_usec 42\n", "throttled_usec"), Some(42));
        assert_eq!(parse_key(b"nr_throttled 3\n", "nr_throttle"), None);
    }
}
