//! Pids of processes that have started since the last sample.
//!
//! In:  the last pid in `/proc/loadavg`, the list of processes. Out: pids that may belong to new processes.
//! Not here: which of them are members of the job (`tree`).
//!
//! The kernel gives out pids in ascending order, and starts again from the lowest after `pid_max`. So the pids between two
//! values of the last pid are those of new processes and threads. A job thus never pays for the other processes of its
//! machine, whose number may be large. Where the last pid is unknown (0 on gVisor), all processes are listed.

use crate::error::SourceError;
use crate::os::root::Root;
use crate::probe::procfs::{KeptFile, parse_last_pid};

const LOADAVG: &str = "/proc/loadavg";

/// Above this number, listing all processes is cheaper than looking up each pid.
const LOOKUPS_MAX: u32 = 1024;
/// The kernel's smallest default of `pid_max`.
const PID_MAX: u32 = 32_768;

/// Finds the pids of new processes at each sample.
#[derive(Debug)]
pub struct NewPids {
    /// `None` if the file has the last pid of another PID namespace.
    loadavg: Option<KeptFile>,
    pid_max: u32,
    /// The last pid two samples ago, and at the last sample. A pid is looked up at two samples: at the first, the kernel
    /// may have reserved it, but not started its process. `None` lists all processes.
    from: Option<u32>,
    last: Option<u32>,
    /// The answer to the next call.
    prepared: Option<Vec<u32>>,
}

impl NewPids {
    /// Pids that were given out after `pid`; of all processes if `pid` is `None`.
    pub fn since(root: &Root, pid: Option<u32>) -> Self {
        let pid_max = root.text("/proc/sys/kernel/pid_max").and_then(|text| text.parse().ok());
        Self {
            loadavg: root.is_genuine(LOADAVG).then(KeptFile::default),
            pid_max: pid_max.unwrap_or(PID_MAX),
            from: pid,
            last: pid,
            prepared: None,
        }
    }

    /// Answers the next call with these pids.
    pub fn prepare(&mut self, pids: Vec<u32>) {
        self.prepared = Some(pids);
    }

    /// Lists all processes at the next call.
    pub const fn forget(&mut self) {
        self.from = None;
    }

    /// Pids of new processes and threads, and of processes that have ended already.
    pub fn find(&mut self, root: &Root, buffer: &mut Vec<u8>) -> Result<Vec<u32>, SourceError> {
        let text = self.loadavg.as_mut().and_then(|file| file.text(root, LOADAVG).ok());
        let now = text.and_then(|text| parse_last_pid(text).ok()).filter(|pid| *pid > 0);
        let from = std::mem::replace(&mut self.from, std::mem::replace(&mut self.last, now));
        if let Some(pids) = self.prepared.take() {
            self.from = now;
            return Ok(pids);
        }
        let range = from.zip(now).map(|(from, now)| PidRange { from, until: now, pid_max: self.pid_max });
        match range {
            Some(range) if range.len() <= LOOKUPS_MAX => Ok(range.pids().collect()),
            _ => {
                let mut pids = Vec::new();
                root.pids(&mut pids, buffer)?;
                pids.retain(|pid| range.is_none_or(|range| range.contains(*pid)));
                Ok(pids)
            }
        }
    }
}

/// Pids after `from`, up to and including `until`.
#[derive(Clone, Copy, Debug)]
struct PidRange {
    from: u32,
    until: u32,
    pid_max: u32,
}

impl PidRange {
    /// How many pids after `from` this one was given out.
    fn distance(self, pid: u32) -> u32 {
        match pid.checked_sub(self.from) {
            Some(distance) => distance,
            None => self.pid_max.saturating_sub(self.from).saturating_add(pid),
        }
    }

    fn len(self) -> u32 {
        self.distance(self.until)
    }

    fn contains(self, pid: u32) -> bool {
        (1..=self.len()).contains(&self.distance(pid))
    }

    fn pids(self) -> impl Iterator<Item = u32> {
        (1..=self.len()).map(move |step| {
            let pid = self.from + step;
            if pid < self.pid_max.max(self.from) { pid } else { pid - self.pid_max }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn range_continues_at_the_lowest_pid_after_the_highest() {
        let range = PidRange { from: 98, until: 2, pid_max: 100 };
        assert_eq!(range.pids().collect::<Vec<_>>(), [99, 0, 1, 2]);
        assert!(range.contains(99) && range.contains(2) && !range.contains(3) && !range.contains(98));
        let range = PidRange { from: 7, until: 9, pid_max: 100 };
        assert_eq!(range.pids().collect::<Vec<_>>(), [8, 9]);
        assert!(range.contains(9) && !range.contains(7) && !range.contains(10));
        assert_eq!(PidRange { from: 7, until: 7, pid_max: 100 }.len(), 0);
    }

    #[test]
    fn each_pid_is_looked_up_twice_and_all_are_listed_where_the_last_pid_is_unknown() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("proc")).unwrap();
        for pid in [1, 50, 61] {
            fs::create_dir(folder.path().join(format!("proc/{pid}"))).unwrap();
        }
        let root = Root::recorded(folder.path()).unwrap();
        let set = |last: u32| {
            fs::write(folder.path().join("proc/loadavg"), format!("0.1 0.1 0.1 1/3 {last}\n")).unwrap();
        };
        let mut buffer = Vec::new();
        let mut pids = NewPids::since(&root, Some(50));
        set(52);
        assert_eq!(pids.find(&root, &mut buffer).unwrap(), [51, 52]);
        set(53);
        assert_eq!(pids.find(&root, &mut buffer).unwrap(), [51, 52, 53]);
        assert_eq!(pids.find(&root, &mut buffer).unwrap(), [53]);
        assert_eq!(pids.find(&root, &mut buffer).unwrap(), [0_u32; 0]);
        set(53 + LOOKUPS_MAX + 1);
        assert_eq!(pids.find(&root, &mut buffer).unwrap(), [61], "listed, and only the new ones");
        set(0);
        assert_eq!(pids.find(&root, &mut buffer).unwrap(), [1, 50, 61]);
        pids.prepare(vec![50]);
        assert_eq!(pids.find(&root, &mut buffer).unwrap(), [50]);
        set(70);
        pids.forget();
        assert_eq!(pids.find(&root, &mut buffer).unwrap(), [1, 50, 61]);
    }
}
