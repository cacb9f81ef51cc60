//! CPU time counters over the whole process tree, which also count processes that no parent reaps.
//!
//! The first choice is the perf event task-clock with `inherit`. The second choice is a cgroup for the job. If neither
//! works, the ledger (`job/ledger`) is the only source of CPU time.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

use crate::config::CpuSource;
use crate::job::tree::Member;
use crate::os::root::Root;
use crate::os::{Follow, TaskClock};
use crate::probe::cgroup::JobGroup;

#[derive(Debug)]
pub enum TreeCounter {
    /// Inherited task-clock counters: one for a launched job, one per thread for a running job.
    Inherited(Vec<TaskClock>),
    /// Counters of only some threads: their sum is a lower bound.
    InPart(Vec<TaskClock>),
    Group(JobGroup),
}

/// Largest number of perf descriptors for a running job.
const MAX_THREADS: usize = 200;

/// Largest number of perf descriptors of all trackers in a host process together. With the files that are open for a
/// moment they stay below 16 descriptors.
const MAX_THREADS_IN_PROCESS: usize = 12;

/// The pid of this process and the ids of its sampling threads, which are not part of any job.
static SAMPLERS: Mutex<(u32, Vec<u32>)> = Mutex::new((0, Vec::new()));

/// Calls `work` with the list of sampling threads of this process; it is empty in a forked child. If the mutex was
/// locked at the fork, no thread of the child will unlock it: after 100 ms, the default is returned without a call.
fn with_samplers<T: Default>(work: impl FnOnce(&mut Vec<u32>) -> T) -> T {
    for _ in 0..100 {
        let mut samplers = match SAMPLERS.try_lock() {
            Ok(samplers) => samplers,
            Err(TryLockError::Poisoned(samplers)) => samplers.into_inner(),
            Err(TryLockError::WouldBlock) => {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
        };
        let own = std::process::id();
        if samplers.0 != own {
            *samplers = (own, Vec::new());
        }
        return work(&mut samplers.1);
    }
    T::default()
}

/// Registers the calling thread as a sampling thread, until this value is dropped.
#[derive(Debug)]
pub struct OwnThread(u32);

impl OwnThread {
    pub fn enter() -> Self {
        let tid = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        with_samplers(|samplers| samplers.push(tid));
        Self(tid)
    }
}

impl Drop for OwnThread {
    fn drop(&mut self) {
        with_samplers(|samplers| samplers.retain(|tid| *tid != self.0));
    }
}

impl TreeCounter {
    /// A counter for a job that the calling thread will start. The notes say why a better source is not available.
    pub fn for_future_child(root: &Root, allowed: CpuSource) -> (Option<Self>, Vec<String>) {
        let mut notes = Vec::new();
        if allowed == CpuSource::Best {
            match TaskClock::open(Follow::FutureChildren) {
                Ok(counter) => return (Some(Self::Inherited(vec![counter])), notes),
                Err(error) => notes.push(format!("no inherited CPU counter: {error}")),
            }
        }
        if allowed != CpuSource::Procfs {
            match JobGroup::create(root) {
                Ok(group) => return (Some(Self::Group(group)), notes),
                Err(why) => notes.push(format!("no cgroup for the job: {why}")),
            }
        }
        (None, notes)
    }

    /// A counter for running processes: it counts each of their threads except sampling threads, and all threads and
    /// processes that these threads start from now on. If there are more threads than allowed descriptors, the sum is a
    /// lower bound. Main threads then come first, since they start most children.
    pub fn for_running(root: &Root, members: &[Member], in_process: bool) -> Result<Self, String> {
        let limit = if in_process {
            MAX_THREADS_IN_PROCESS.saturating_sub(TaskClock::open_count())
        } else {
            MAX_THREADS
        };
        if limit == 0 {
            return Err("no inherited CPU counter: other trackers in this process use all perf descriptors \
                        that the tracker may open"
                .to_owned());
        }
        let samplers = with_samplers(|samplers| samplers.clone());
        let mut counters = Vec::new();
        let alive = || members.iter().filter(|member| !member.stat.is_zombie());
        let threads = alive().flat_map(|member| {
            let tasks = root.names(&format!("/proc/{}/task", member.pid));
            tasks.into_iter().filter_map(|name| name.parse().ok()).filter(move |tid| *tid != member.pid)
        });
        let main_threads = alive().map(|member| member.pid);
        for tid in main_threads.chain(threads).filter(|tid| !samplers.contains(tid)) {
            if counters.len() >= limit {
                return Ok(Self::InPart(counters));
            }
            match TaskClock::open(Follow::Thread(tid)) {
                Ok(counter) => counters.push(counter),
                // The thread has ended since it was listed.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                Err(error) => return Err(format!("no inherited CPU counter: {error}")),
            }
        }
        if counters.is_empty() {
            Err("no inherited CPU counter: no thread to count".to_owned())
        } else {
            Ok(Self::Inherited(counters))
        }
    }

    /// A descriptor to which the job writes `0` to join the cgroup; `None` for counters that need no joining.
    pub fn cgroup_procs(&self) -> Result<Option<OwnedFd>, String> {
        match self {
            Self::Inherited(_) | Self::InPart(_) => Ok(None),
            Self::Group(group) => group.cgroup_procs().map(Some),
        }
    }

    /// The name of the CPU source in recordings.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Inherited(_) => "perf",
            Self::InPart(_) => "perf in part",
            Self::Group(_) => "cgroup",
        }
    }

    /// Whether the counter includes all processes of the tree.
    pub const fn is_complete(&self) -> bool {
        !matches!(self, Self::InPart(_))
    }

    /// Whether the counter is exact at any moment. The kernel updates the counter of a cgroup only at scheduler ticks.
    pub const fn is_continuous(&self) -> bool {
        matches!(self, Self::Inherited(_))
    }

    /// Whether the counter includes steal time.
    pub const fn counts_steal(&self) -> bool {
        matches!(self, Self::Inherited(_) | Self::InPart(_))
    }

    /// Bytes read and written so far; `None` on Linux, since only job objects of Windows count them.
    pub const fn storage_bytes(&self) -> Option<(u64, u64)> {
        match self {
            Self::Inherited(_) | Self::InPart(_) | Self::Group(_) => None,
        }
    }

    pub fn read_ns(&self) -> Option<u64> {
        match self {
            Self::Inherited(counters) | Self::InPart(counters) => {
                counters.iter().try_fold(0_u64, |sum, counter| sum.checked_add(counter.read_ns()?))
            }
            Self::Group(group) => group.cpu_ns(),
        }
    }
}
