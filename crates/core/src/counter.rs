//! Counters that see all of a job's CPU time, whoever its processes are and however they end.
//!
//! First the kernel's inherited task-clock counter, then a cgroup of the job's own; where neither can be had
//! there is none, and what `/proc` attributes to the processes that we saw is all that is known.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

use crate::config::CpuSource;
use crate::root::{Access, Root};
use crate::source::cgroup::JobGroup;
use crate::sys::{Follow, TaskClock};
use crate::tree::Member;

/// A counter over a whole tree of processes.
#[derive(Debug)]
pub enum TreeCounter {
    /// Inherited task-clock counters, one a thread that was there when we came.
    Inherited(Vec<TaskClock>),
    /// The same for some of the threads only: a lower bound.
    InPart(Vec<TaskClock>),
    /// The job's own cgroup.
    Group(JobGroup),
}

/// Descriptors that we may spend on threads that run already.
const MOST_THREADS: usize = 200;

/// The same inside of somebody else's process, where sixteen in all are ours, however many trackers there are.
const MOST_THREADS_AS_GUEST: usize = 12;

/// A process, and its threads that sample and are nobody's job.
static SAMPLERS: Mutex<(u32, Vec<u32>)> = Mutex::new((0, Vec::new()));

/// Works on the threads of this process that sample. A fork leaves its child without them, and maybe with a lock that
/// nobody holds: then nothing is done.
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

/// A thread that samples, as long as this is kept.
#[derive(Debug)]
pub struct OwnThread(u32);

impl OwnThread {
    /// The calling thread.
    #[must_use]
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
    /// For a job that the calling thread will start. The notes say why a better source was not to be had.
    #[must_use]
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

    /// For processes that run already: follows each of their threads but those that sample, and all they start from
    /// now on. Where there are more than may be, it follows those: the first of each process, which starts most of what
    /// is started, and then others. What they show is a lower bound.
    ///
    /// # Errors
    /// In words, where one of them cannot be followed.
    pub fn for_running(root: &Root, members: &[Member], as_guest: bool) -> Result<Self, String> {
        let most = if as_guest {
            MOST_THREADS_AS_GUEST.saturating_sub(TaskClock::open_count())
        } else {
            MOST_THREADS
        };
        if most == 0 {
            return Err(
                "no inherited CPU counter: other trackers in this process have all we may open".to_owned()
            );
        }
        let samplers = with_samplers(|samplers| samplers.clone());
        let mut counters = Vec::new();
        let alive = || members.iter().filter(|member| !member.stat.is_zombie());
        let threads = alive().flat_map(|member| {
            let tasks = root.names(&format!("/proc/{}/task", member.pid));
            tasks.into_iter().filter_map(|name| name.parse().ok()).filter(move |tid| *tid != member.pid)
        });
        let first = alive().map(|member| member.pid);
        for tid in first.chain(threads).filter(|tid| !samplers.contains(tid)) {
            if counters.len() >= most {
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
            Err("no inherited CPU counter: no thread to follow".to_owned())
        } else {
            Ok(Self::Inherited(counters))
        }
    }

    /// Where the job writes `0` to be counted, for a counter that it must join.
    ///
    /// # Errors
    /// In words, where that cannot be opened.
    pub fn door(&self) -> Result<Option<OwnedFd>, String> {
        match self {
            Self::Inherited(_) | Self::InPart(_) => Ok(None),
            Self::Group(group) => group.door().map(Some),
        }
    }

    /// As the recording names it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Inherited(_) => "perf",
            Self::InPart(_) => "perf in part",
            Self::Group(_) => "cgroup",
        }
    }

    /// Whether it misses nobody.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        !matches!(self, Self::InPart(_))
    }

    /// Whether a reading is exact at any moment; a cgroup's is brought up to date at scheduler ticks.
    #[must_use]
    pub const fn is_continuous(&self) -> bool {
        matches!(self, Self::Inherited(_))
    }

    /// Whether it goes on while the hypervisor has given the job's CPU to another machine.
    #[must_use]
    pub const fn counts_stolen_time(&self) -> bool {
        matches!(self, Self::Inherited(_) | Self::InPart(_))
    }

    /// Bytes read and written so far, of which none of these knows.
    #[must_use]
    pub const fn storage_bytes(&self) -> Option<(u64, u64)> {
        None
    }

    /// All CPU time so far.
    #[must_use]
    pub fn read_ns(&self, root: &Root) -> Option<u64> {
        match self {
            Self::Inherited(counters) | Self::InPart(counters) => {
                counters.iter().try_fold(0_u64, |sum, counter| {
                    root.note(|| Access::Counter);
                    sum.checked_add(counter.read_ns()?)
                })
            }
            Self::Group(group) => group.cpu_ns(),
        }
    }
}
