//! The descendants of a process, from the kernel's lists of children (`/proc/[pid]/task/[tid]/children`).

use crate::error::SourceError;
use crate::os::root::Root;
use crate::probe::procfs::{PidStat, read_stat};

/// A process and all its descendants, in ascending order of pid; `None` if the kernel has no lists of children, or if
/// two scans differ: the children of a process that ends during a scan may be missed.
pub(crate) fn descendants(root: &Root, pid: u32) -> Option<Vec<u32>> {
    let scan_once = || {
        let mut scan = Scan { root, buffer: Vec::new(), found: Vec::new() };
        let stat = scan.stat(pid).ok()?;
        scan.found.push((pid, stat));
        scan.children(pid, pid)?;
        scan.descend();
        let mut pids: Vec<u32> = scan.found.iter().map(|(pid, _)| *pid).collect();
        pids.sort_unstable();
        Some(pids)
    };
    let first = scan_once()?;
    (scan_once()? == first).then_some(first)
}

pub(crate) struct Scan<'r> {
    pub(crate) root: &'r Root,
    pub(crate) buffer: Vec<u8>,
    pub(crate) found: Vec<(u32, PidStat)>,
}

impl Scan<'_> {
    pub(crate) fn stat(&mut self, pid: u32) -> Result<PidStat, SourceError> {
        read_stat(self.root, pid, &mut self.buffer)
    }

    /// Adds all descendants of the processes found so far.
    pub(crate) fn descend(&mut self) {
        let mut at = 0;
        while let Some((pid, stat)) = self.found.get(at).copied() {
            at += 1;
            let threads = match stat.threads {
                0 | 1 => vec![pid],
                _ => numbers(self.root, &format!("/proc/{pid}/task")),
            };
            for thread in threads {
                let Some(children) = self.children(pid, thread) else {
                    if at == 1 {
                        return self.descend_by_parents();
                    }
                    continue;
                };
                for child in children {
                    if let Ok(stat) = self.stat(child)
                        && self.found.iter().all(|(known, _)| *known != child)
                    {
                        self.found.push((child, stat));
                    }
                }
            }
        }
    }

    /// The children of a thread; `None` if the kernel has no lists of children, or if the thread has ended.
    fn children(&mut self, pid: u32, thread: u32) -> Option<Vec<u32>> {
        let path = format!("/proc/{pid}/task/{thread}/children");
        let text = self.root.read(&path, &mut self.buffer).ok()?;
        let words = text.split(|byte| *byte == b' ');
        Some(words.filter_map(|word| std::str::from_utf8(word).ok()?.parse().ok()).collect())
    }

    /// Like `descend`, but reads the parent of every process of the machine instead of the lists of children.
    pub(crate) fn descend_by_parents(&mut self) {
        let mut pids = Vec::new();
        if self.root.pids(&mut pids, &mut Vec::new()).is_err() {
            return;
        }
        let mut others: Vec<(u32, PidStat)> =
            pids.into_iter().filter_map(|pid| Some((pid, self.stat(pid).ok()?))).collect();
        let mut at = 0;
        while let Some((parent, _)) = self.found.get(at).copied() {
            at += 1;
            let (children, rest) = others.into_iter().partition(|(_, stat)| stat.ppid == parent);
            others = rest;
            self.found.extend::<Vec<_>>(children);
        }
    }
}

fn numbers(root: &Root, folder: &str) -> Vec<u32> {
    root.names(folder).iter().filter_map(|name| name.parse().ok()).collect()
}
