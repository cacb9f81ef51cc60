//! Device files of GPUs that the job's processes have open.
//!
//! In:  `/proc/[pid]/fd`. Out: descriptors of DRM devices, and who holds which NVIDIA device.
//!
//! A process's descriptors are listed when it is new, when their number changes (Linux 6.2 and later tell it as the
//! folder's size), and every few seconds in any case; in between only what was found is looked at.

use std::collections::HashMap;

use crate::root::Root;

/// A list of descriptors is believed for so long.
const LIST_AGAIN_NS: u64 = 3_000_000_000;

/// What one process has open.
#[derive(Debug, Default)]
struct Files {
    listed_ns: u64,
    /// Descriptors as the kernel counted them; 0 where it does not.
    descriptors: u64,
    drm: Vec<u32>,
    /// Minor numbers of `/dev/nvidia<minor>`.
    nvidia: Vec<u32>,
    /// CUDA's own device: whoever only asks the driver has it not.
    has_uvm: bool,
}

impl Files {
    /// A kernel that does not count descriptors is asked every time; one that does may have closed one and opened
    /// another since.
    fn is_current(&self, descriptors: u64, now_ns: u64) -> bool {
        descriptors > 0
            && self.descriptors == descriptors
            && now_ns.saturating_sub(self.listed_ns) < LIST_AGAIN_NS
    }
}

/// Open device files of the job, remembered from look to look.
#[derive(Debug, Default)]
pub(super) struct OpenFiles {
    processes: HashMap<u32, Files>,
    /// Descriptors of this process that NVML opened.
    own: Vec<u32>,
}

impl OpenFiles {
    /// Looks at these processes, and forgets all others.
    pub(super) fn look(&mut self, root: &Root, members: &[u32], now_ns: u64) {
        self.processes.retain(|pid, _| members.binary_search(pid).is_ok());
        for pid in members.iter().copied() {
            let descriptors = root.size(&format!("/proc/{pid}/fd")).unwrap_or(0);
            if self.processes.get(&pid).is_some_and(|known| known.is_current(descriptors, now_ns)) {
                continue;
            }
            let ignored = if pid == std::process::id() { self.own.as_slice() } else { &[] };
            let files = list(root, pid, ignored);
            self.processes.insert(pid, Files { listed_ns: now_ns, descriptors, ..files });
        }
    }

    /// Descriptors of DRM devices, by process in ascending order.
    pub(super) fn drm(&self) -> Vec<(u32, u32)> {
        let mut all: Vec<(u32, u32)> =
            self.processes.iter().flat_map(|(pid, files)| files.drm.iter().map(|fd| (*pid, *fd))).collect();
        all.sort_unstable();
        all
    }

    /// Processes that use `/dev/nvidia<minor>` for more than asking.
    pub(super) fn holders(&self, minor: u32) -> Vec<u32> {
        let holds = |files: &Files| files.has_uvm && files.nvidia.contains(&minor);
        let mut pids: Vec<u32> =
            self.processes.iter().filter(|(_, files)| holds(files)).map(|(pid, _)| *pid).collect();
        pids.sort_unstable();
        pids
    }

    /// Descriptors of this very process that lead to NVIDIA devices.
    pub(super) fn own_nvidia_files(root: &Root) -> Vec<u32> {
        let is_nvidia = |fd: &u32| {
            target(root, std::process::id(), *fd).is_some_and(|path| path.starts_with("/dev/nvidia"))
        };
        descriptors(root, std::process::id()).into_iter().filter(is_nvidia).collect()
    }

    /// What was opened since `before` is ours and not the job's.
    pub(super) fn ignore_own(&mut self, now: Vec<u32>, before: &[u32]) {
        self.own = now.into_iter().filter(|fd| !before.contains(fd)).collect();
    }
}

fn descriptors(root: &Root, pid: u32) -> Vec<u32> {
    root.names(&format!("/proc/{pid}/fd")).iter().filter_map(|name| name.parse().ok()).collect()
}

fn target(root: &Root, pid: u32, fd: u32) -> Option<String> {
    Some(root.link(&format!("/proc/{pid}/fd/{fd}"))?.to_str()?.to_owned())
}

fn list(root: &Root, pid: u32, ignored: &[u32]) -> Files {
    let mut files = Files::default();
    for fd in descriptors(root, pid).into_iter().filter(|fd| !ignored.contains(fd)) {
        let Some(path) = target(root, pid, fd) else { continue };
        if path.starts_with("/dev/dri/") {
            files.drm.push(fd);
        } else if path.starts_with("/dev/nvidia-uvm") {
            files.has_uvm = true;
        } else if let Some(minor) = path.strip_prefix("/dev/nvidia").and_then(|rest| rest.parse().ok()) {
            files.nvidia.push(minor);
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn host(links: &[(u32, u32, &str)]) -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        for (pid, fd, target) in links {
            let fds = folder.path().join(format!("proc/{pid}/fd"));
            std::fs::create_dir_all(&fds).unwrap();
            symlink(target, fds.join(fd.to_string())).unwrap();
        }
        let root = Root::recorded(folder.path()).unwrap();
        (folder, root)
    }

    #[test]
    fn device_files_are_told_apart_and_only_cuda_holds_a_gpu() {
        let (_folder, root) = host(&[
            (7, 0, "/dev/null"),
            (7, 3, "/dev/nvidia1"),
            (7, 4, "/dev/nvidia-uvm"),
            (8, 3, "/dev/nvidia1"),
            (8, 4, "/dev/nvidiactl"),
            (9, 5, "/dev/dri/renderD128"),
            (9, 6, "socket:[123]"),
        ]);
        let mut files = OpenFiles::default();
        files.look(&root, &[7, 8, 9], 1);
        assert_eq!((files.holders(1), files.holders(0)), (vec![7], vec![]));
        assert_eq!(files.drm(), [(9, 5)]);
        files.look(&root, &[8], 2);
        assert_eq!((files.holders(1), files.drm()), (vec![], vec![]));
    }

    #[test]
    fn a_list_is_kept_while_the_number_of_descriptors_stays_and_not_for_ever() {
        let known = Files { listed_ns: 5, descriptors: 12, ..Files::default() };
        assert!(known.is_current(12, 6));
        assert!(!known.is_current(13, 6));
        assert!(!known.is_current(12, 5 + LIST_AGAIN_NS));
        assert!(!Files::default().is_current(0, 1), "a kernel that does not count");
    }

    #[test]
    fn this_kernel_says_how_many_descriptors_a_process_has_or_nothing() {
        let root = Root::host().unwrap();
        let path = format!("/proc/{}/fd", std::process::id());
        let files: Vec<_> = (0..50).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        let counted = root.size(&path).unwrap();
        assert!(counted == 0 || counted >= files.len() as u64, "{counted}");
    }
}
