//! GPU device files that the job's processes have open.
//!
//! In:  `/proc/[pid]/fd`. Out: descriptors of DRM devices, and the processes that use each NVIDIA device.
//!
//! The descriptors of a process are listed when the process is new, when their number changes, and every 3 seconds. The
//! size of `/proc/[pid]/fd` is the number of descriptors since Linux 6.2.

use std::collections::HashMap;

use crate::os::root::Root;

/// Maximum age of a list of descriptors: 3 s.
const MAX_AGE_NS: u64 = 3_000_000_000;

#[derive(Debug, Default)]
struct Files {
    listed_ns: u64,
    /// Number of descriptors; 0 on kernels that do not report it.
    descriptors: u64,
    drm: Vec<u32>,
    /// Minor numbers of the open device files `/dev/nvidia<minor>`.
    nvidia: Vec<u32>,
    /// Whether CUDA's memory device is open. CUDA programs open it, monitoring tools do not.
    has_uvm: bool,
}

impl Files {
    /// A descriptor may be closed and another one opened without a change of the number, so lists have a maximum age.
    fn is_current(&self, descriptors: u64, now_ns: u64) -> bool {
        descriptors > 0
            && self.descriptors == descriptors
            && now_ns.saturating_sub(self.listed_ns) < MAX_AGE_NS
    }
}

/// Open device files of the job.
#[derive(Debug, Default)]
pub(super) struct OpenFiles {
    processes: HashMap<u32, Files>,
    /// Descriptors of this process that NVML has opened.
    own: Vec<u32>,
}

impl OpenFiles {
    /// Lists the descriptors of the members, and forgets all other processes.
    pub(super) fn update(&mut self, root: &Root, members: &[u32], now_ns: u64) {
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

    /// Pid and descriptor of every open DRM device, by ascending pid.
    pub(super) fn drm(&self) -> Vec<(u32, u32)> {
        let mut all: Vec<(u32, u32)> =
            self.processes.iter().flat_map(|(pid, files)| files.drm.iter().map(|fd| (*pid, *fd))).collect();
        all.sort_unstable();
        all
    }

    /// Processes that have `/dev/nvidia<minor>` and CUDA's memory device open.
    pub(super) fn holders(&self, minor: u32) -> Vec<u32> {
        let holds = |files: &Files| files.has_uvm && files.nvidia.contains(&minor);
        let mut pids: Vec<u32> =
            self.processes.iter().filter(|(_, files)| holds(files)).map(|(pid, _)| *pid).collect();
        pids.sort_unstable();
        pids
    }

    /// Descriptors of this process that are NVIDIA device files.
    pub(super) fn own_nvidia_files(root: &Root) -> Vec<u32> {
        let is_nvidia = |fd: &u32| {
            target(root, std::process::id(), *fd).is_some_and(|path| path.starts_with("/dev/nvidia"))
        };
        descriptors(root, std::process::id()).into_iter().filter(is_nvidia).collect()
    }

    /// Ignores descriptors that are in `now` and not in `before`: NVML has opened them for the tracker.
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
    fn only_processes_with_the_cuda_device_hold_a_gpu() {
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
        files.update(&root, &[7, 8, 9], 1);
        assert_eq!((files.holders(1), files.holders(0)), (vec![7], vec![]));
        assert_eq!(files.drm(), [(9, 5)]);
        files.update(&root, &[8], 2);
        assert_eq!((files.holders(1), files.drm()), (vec![], vec![]));
    }

    #[test]
    fn list_is_reused_while_the_number_of_descriptors_stays() {
        let known = Files { listed_ns: 5, descriptors: 12, ..Files::default() };
        assert!(known.is_current(12, 6));
        assert!(!known.is_current(13, 6));
        assert!(!known.is_current(12, 5 + MAX_AGE_NS));
        assert!(!Files::default().is_current(0, 1), "a kernel without a count");
    }

    #[test]
    fn size_of_fd_folder_is_zero_or_the_number_of_descriptors() {
        let root = Root::host().unwrap();
        let path = format!("/proc/{}/fd", std::process::id());
        let files: Vec<_> = (0..50).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        let counted = root.size(&path).unwrap();
        assert!(counted == 0 || counted >= files.len() as u64, "{counted}");
    }
}
