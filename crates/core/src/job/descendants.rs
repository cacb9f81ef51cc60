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
        children(root, pid, 1, &mut scan.buffer)?;
        scan.descend();
        let mut pids: Vec<u32> = scan.found.iter().map(|(pid, _)| *pid).collect();
        pids.sort_unstable();
        Some(pids)
    };
    let first = scan_once()?;
    (scan_once()? == first).then_some(first)
}

/// The children of all threads of a process; `None` if the kernel has no lists of children, or if the process has ended.
pub(crate) fn children(root: &Root, pid: u32, threads: u64, buffer: &mut Vec<u8>) -> Option<Vec<u32>> {
    let tasks = match threads {
        0 | 1 => vec![pid],
        _ => root.names(&format!("/proc/{pid}/task")).iter().filter_map(|name| name.parse().ok()).collect(),
    };
    let mut found = None;
    for task in tasks {
        let Ok(text) = root.read(&format!("/proc/{pid}/task/{task}/children"), buffer) else { continue };
        let words = text.split(|byte| *byte == b' ');
        let pids = words.filter_map(|word| std::str::from_utf8(word).ok()?.parse::<u32>().ok());
        found.get_or_insert_with(Vec::new).extend(pids);
    }
    found
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
            let Some(children) = children(self.root, pid, stat.threads, &mut self.buffer) else {
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
