//! How near the processes of a job came to their limits of open files (`RLIMIT_NOFILE`) and of processes
//! (`RLIMIT_NPROC`).
//!
//! In:  the members that ran since the last sample. Out: [`LimitReached`] above 90 % of a limit.
//! Not here: the limit of a cgroup (`probe/cgroup/pids`).

use super::programs::program_name;
use super::tree::Member;
use crate::os::pid_path;
use crate::os::root::Root;
use crate::probe::evidence::LimitReached;

/// At most this many processes are read at a sample.
const MOST_MEMBERS: usize = 16;
/// Before Linux 6.2 the descriptors are counted one by one, of at most this many processes and at rows only.
const MOST_COUNTED: usize = 4;

#[derive(Debug, Default)]
pub struct LimitWatch {
    reached: Vec<LimitReached>,
}

impl LimitWatch {
    /// Reads the members that ran since the last sample.
    pub fn update(&mut self, root: &Root, members: &[Member], sample: u64, is_row: bool) {
        let mut counted = 0;
        let have_run = members.iter().filter(|member| member.read_at == sample && !member.stat.is_zombie());
        for member in have_run.take(MOST_MEMBERS) {
            let folder = pid_path(member.pid, "fd");
            let used = match root.size(folder.as_str()) {
                Some(0) if is_row && counted < MOST_COUNTED => {
                    counted += 1;
                    root.names(folder.as_str()).len() as u64
                }
                Some(used) => used,
                None => continue,
            };
            let limit = root.limits_of(member.pid).open_files;
            let near = limit.and_then(|limit| LimitReached::new(LimitReached::OPEN_FILES, used, limit));
            if let Some(near) = near.filter(|near| self.is_new(near)) {
                let mut buffer = Vec::new();
                let cmdline = root.read(pid_path(member.pid, "cmdline").as_str(), &mut buffer).ok();
                self.keep(LimitReached { program: cmdline.and_then(program_name), ..near });
            }
        }
        let Some(first) = members.first() else { return };
        // The limit counts all threads of the user; those of the job alone are a lower bound. It does not hold for root.
        if !rustix::process::geteuid().is_root() {
            let threads = members.iter().map(|member| member.stat.threads).sum();
            let limit = root.limits_of(first.pid).processes;
            let near = limit.and_then(|limit| LimitReached::new(LimitReached::PROCESSES, threads, limit));
            if let Some(near) = near.filter(|near| self.is_new(near)) {
                self.keep(near);
            }
        }
    }

    /// The limits that the job came near, each once.
    pub fn reached(&self) -> Vec<LimitReached> {
        self.reached.clone()
    }

    fn is_new(&self, near: &LimitReached) -> bool {
        self.reached.iter().filter(|known| known.limit == near.limit).all(|known| near.is_above(known))
    }

    fn keep(&mut self, near: LimitReached) {
        self.reached.retain(|known| known.limit != near.limit);
        self.reached.push(near);
    }
}
