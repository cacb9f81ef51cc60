//! Counters that see all of a job's CPU time, whoever its processes are and however they end.
//!
//! First the kernel's inherited task-clock counter, then a cgroup of the job's own; where neither can be had
//! there is none, and what `/proc` attributes to the processes that we saw is all that is known.

use std::os::fd::OwnedFd;

use crate::config::CpuSource;
use crate::root::{Access, Root};
use crate::snapshot::MachineCpu;
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
pub const MOST_THREADS: usize = 200;

/// The same inside of somebody else's process, where sixteen in all are ours.
pub const MOST_THREADS_AS_GUEST: usize = 12;

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

    /// For processes that run already: follows each of their threads but `except`, and all they start from now on.
    /// Where there are more than `most`, it follows those: the first of each process, which starts most of what is
    /// started, and then others. What they show is a lower bound.
    ///
    /// # Errors
    /// In words, where one of them cannot be followed.
    pub fn for_running(
        root: &Root,
        members: &[Member],
        except: Option<u32>,
        most: usize,
    ) -> Result<Self, String> {
        let mut counters = Vec::new();
        let alive = || members.iter().filter(|member| !member.stat.is_zombie());
        let threads = alive().flat_map(|member| {
            let tasks = root.names(&format!("/proc/{}/task", member.pid));
            tasks.into_iter().filter_map(|name| name.parse().ok()).filter(move |tid| *tid != member.pid)
        });
        let first = alive().map(|member| member.pid);
        for tid in first.chain(threads).filter(|tid| Some(*tid) != except) {
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

/// What the hypervisor took from the machine while a counter went on.
///
/// A task's clock runs while the task has a CPU, also while the hypervisor has given that CPU to another machine; the
/// kernel's own accounts leave that time out. How much was taken from the machine is known, from whom is not.
#[derive(Debug, Default)]
pub struct Stolen {
    since: Option<MachineCpu>,
}

impl Stolen {
    /// What of `counted_ns` was the job's own, when its processes are known to have spent `seen_ns`.
    ///
    /// A difference that stolen time can explain is taken for that. What is more must be processes that nobody saw: then
    /// the job lost by its part of what wanted a CPU, an estimate.
    pub fn take_off(&mut self, counted_ns: u64, seen_ns: u64, machine: Option<MachineCpu>) -> u64 {
        let Some(now) = machine else { return counted_ns };
        let then = *self.since.get_or_insert(now);
        let stolen_ns = now.steal_ns.zip(then.steal_ns).map_or(0, |(now, then)| now.saturating_sub(then));
        if seen_ns >= counted_ns.saturating_sub(stolen_ns) {
            return counted_ns.min(seen_ns);
        }
        let taken_ns = now.taken_ns.saturating_sub(then.taken_ns);
        let wanted_ns = now.busy_ns().saturating_sub(then.busy_ns()).saturating_add(stolen_ns);
        let part = u128::from(taken_ns) * u128::from(counted_ns) / u128::from(wanted_ns.max(1));
        counted_ns.saturating_sub(u64::try_from(part).unwrap_or(u64::MAX).min(taken_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[expect(clippy::unnecessary_wraps, reason = "as it is asked for")]
    fn machine(busy_ns: u64, steal_ns: u64, taken_ns: u64) -> Option<MachineCpu> {
        Some(MachineCpu { user_ns: busy_ns, steal_ns: Some(steal_ns), taken_ns, ..MachineCpu::default() })
    }

    /// CPUs were at work for 7 s and kept from it for 2 s; another second was stolen from nobody.
    fn after_a_while(counted_ns: u64, seen_ns: u64) -> u64 {
        let mut stolen = Stolen::default();
        assert_eq!(stolen.take_off(0, 0, machine(50 * SECOND, 7 * SECOND, SECOND)), 0);
        stolen.take_off(counted_ns, seen_ns, machine(57 * SECOND, 10 * SECOND, 3 * SECOND))
    }

    #[test]
    fn what_stolen_time_explains_was_stolen() {
        assert_eq!(after_a_while(9 * SECOND, 8 * SECOND), 8 * SECOND);
        assert_eq!(after_a_while(9 * SECOND, 6 * SECOND), 6 * SECOND);
        assert_eq!(
            after_a_while(8 * SECOND, 9 * SECOND),
            8 * SECOND,
            "the caller has the larger one already"
        );
    }

    #[test]
    fn unseen_processes_lost_their_part_of_it() {
        // All that wanted a CPU was the job; then half of it.
        assert_eq!(after_a_while(10 * SECOND, SECOND), 8 * SECOND);
        assert_eq!(after_a_while(5 * SECOND, SECOND), 4 * SECOND);
        // No more than all of it, whatever the numbers are.
        assert_eq!(after_a_while(90 * SECOND, SECOND), 88 * SECOND);
    }

    #[test]
    fn a_machine_that_is_nobodys_guest_loses_nothing() {
        let mut stolen = Stolen::default();
        for (steal, spent) in [(machine(0, 0, 0), 0), (machine(SECOND, 0, 0), SECOND), (None, 2 * SECOND)] {
            assert_eq!(stolen.take_off(spent, 0, steal), spent);
        }
        let unknown = Some(MachineCpu::default());
        assert_eq!(stolen.take_off(SECOND, 0, unknown), SECOND);
    }
}
