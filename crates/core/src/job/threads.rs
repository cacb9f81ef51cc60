//! How long any thread of the job ran, and how long threads waited for a CPU.
//!
//! In:  `/proc/[pid]/task/[tid]/schedstat` of the threads of members that have run since the last slice.
//! Out: [`ThreadTimes`], which never fall.
//! Not here: what a job waits for while no thread can run (`sampler/waits`).
//!
//! The kernel counts for each thread how long it ran and how long it was ready to run. How long *any* thread ran lies
//! between the longest of these times and their sum. The estimate takes the threads as independent, and knows that no
//! more threads run at once than there are CPUs.

use crate::job::tree::Member;
use crate::job::usage::ThreadTimes;
use crate::os::root::Root;
use crate::probe::procfs::parse_schedstat;

/// Slices within a row are at least this long.
const SHORTEST_NS: u64 = 50_000_000;
/// Processes, and threads of one process, that are read in a slice.
const MOST_PROCESSES: usize = 64;
const MOST_THREADS: usize = 128;

#[derive(Clone, Copy, Debug)]
struct Thread {
    pid: u32,
    tid: u32,
    ran_ns: u64,
    queued_ns: u64,
}

#[derive(Debug, Default)]
pub struct Threads {
    /// In ascending order of process and thread.
    known: Vec<Thread>,
    times: ThreadTimes,
    /// Whether the kernel counts these times.
    is_counted: bool,
    /// Time and number of the sample at the end of the last slice, and CPU time of the job up to then.
    at_ns: u64,
    sample: u64,
    spent_ns: u64,
    buffer: Vec<u8>,
}

/// The end of a slice of time: a row, or a part of it.
#[derive(Clone, Copy, Debug)]
pub struct SliceEnd {
    pub at_ns: u64,
    /// Number of the sample.
    pub sample: u64,
    /// CPU time of the job so far.
    pub spent_ns: u64,
    /// Number of CPUs that the job may use.
    pub cpus: u64,
    /// The sampling thread in a host process. It is not part of the job.
    pub sampler_tid: Option<u32>,
}

impl Threads {
    /// The threads of a job that starts at this moment.
    pub fn since(at_ns: u64) -> Self {
        Self { at_ns, ..Self::default() }
    }

    /// The times so far; `None` if the kernel does not count them.
    pub fn times(&self) -> Option<ThreadTimes> {
        self.is_counted.then_some(self.times)
    }

    /// Whether the last slice is long enough for another one. Slices end where processes start or end, so that a process
    /// does not share its slice with those before and after it.
    pub const fn is_due(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.at_ns) >= SHORTEST_NS
    }

    /// Adds the threads of a slice. The first slice of a job that was running before is the baseline.
    #[expect(clippy::cast_precision_loss, reason = "durations of a slice are far below 2^53 ns")]
    pub fn add(&mut self, root: &Root, members: &[Member], end: SliceEnd) {
        let before = std::mem::take(&mut self.known);
        let is_baseline = self.at_ns == 0;
        let length_ns = end.at_ns.saturating_sub(self.at_ns).max(1);
        let mut shares = Shares::default();
        let mut seen_ns = 0_u64;
        let mut processes = 0;
        for member in members {
            let from = before.partition_point(|thread| thread.pid < member.pid);
            let known = before.get(from..).unwrap_or_default().iter();
            let known = known.take_while(|thread| thread.pid == member.pid);
            if member.read_at <= self.sample || processes >= MOST_PROCESSES {
                self.known.extend(known);
                continue;
            }
            processes += 1;
            for thread in self.threads(root, member, end.sampler_tid) {
                let then = known.clone().find(|then| then.tid == thread.tid);
                let grown =
                    |now: u64, then: Option<u64>| now.saturating_sub(then.unwrap_or(0)).min(length_ns);
                let ran_ns = grown(thread.ran_ns, then.map(|then| then.ran_ns));
                let queued_ns = grown(thread.queued_ns, then.map(|then| then.queued_ns));
                seen_ns = seen_ns.saturating_add(ran_ns);
                if !is_baseline {
                    self.times.queued_ns += queued_ns;
                    self.times.seen_ns += ran_ns;
                }
                shares.add(ran_ns as f64 / length_ns as f64, queued_ns as f64 / length_ns as f64);
                self.known.push(thread);
            }
        }
        // Processes that started and ended within the slice.
        let unseen_ns = end.spent_ns.saturating_sub(self.spent_ns).saturating_sub(seen_ns).min(length_ns);
        shares.add(unseen_ns as f64 / length_ns as f64, 0.0);
        if !is_baseline {
            let (running, ready) = shares.of_any(end.cpus.max(1) as f64);
            self.times.running_ns += part(length_ns, running);
            self.times.ready_ns += part(length_ns, ready);
        }
        (self.at_ns, self.sample, self.spent_ns) = (end.at_ns, end.sample, end.spent_ns);
    }

    fn threads(&mut self, root: &Root, member: &Member, sampler_tid: Option<u32>) -> Vec<Thread> {
        let pid = member.pid;
        let tids: Vec<u32> = match member.stat.threads {
            0 | 1 => vec![pid],
            _ => {
                root.names(&format!("/proc/{pid}/task")).iter().filter_map(|name| name.parse().ok()).collect()
            }
        };
        let mut threads = Vec::new();
        for tid in tids.into_iter().filter(|tid| Some(*tid) != sampler_tid).take(MOST_THREADS) {
            let path = format!("/proc/{pid}/task/{tid}/schedstat");
            let Some((ran_ns, queued_ns)) = root.read(&path, &mut self.buffer).ok().and_then(parse_schedstat)
            else {
                continue;
            };
            self.is_counted = true;
            threads.push(Thread { pid, tid, ran_ns, queued_ns });
        }
        threads
    }
}

/// Shares of a slice in which threads ran and were ready.
#[derive(Debug)]
struct Shares {
    sum: f64,
    longest: f64,
    /// Probability that no thread ran, and that no thread ran or was ready.
    none_ran: f64,
    none_ready: f64,
}

impl Default for Shares {
    fn default() -> Self {
        Self { sum: 0.0, longest: 0.0, none_ran: 1.0, none_ready: 1.0 }
    }
}

impl Shares {
    fn add(&mut self, ran: f64, queued: f64) {
        self.sum += ran;
        self.longest = self.longest.max(ran);
        self.none_ran *= 1.0 - ran;
        self.none_ready *= 1.0 - (ran + queued).min(1.0);
    }

    /// The shares in which any thread ran, and in which none ran but one was ready.
    fn of_any(&self, cpus: f64) -> (f64, f64) {
        let running = (1.0 - self.none_ran).max(self.sum / cpus).max(self.longest).min(1.0);
        (running, (1.0 - self.none_ready - running).max(0.0))
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a share of a duration"
)]
fn part(length_ns: u64, share: f64) -> u64 {
    (length_ns as f64 * share) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_any(threads: &[(f64, f64)], cpus: f64) -> (f64, f64) {
        let mut shares = Shares::default();
        for (ran, queued) in threads {
            shares.add(*ran, *queued);
        }
        let (running, ready) = shares.of_any(cpus);
        ((running * 1000.0).round() / 1000.0, (ready * 1000.0).round() / 1000.0)
    }

    #[test]
    fn any_thread_runs_between_the_longest_share_and_the_sum() {
        assert_eq!(of_any(&[], 2.0), (0.0, 0.0));
        assert_eq!(of_any(&[(1.0, 0.0)], 2.0), (1.0, 0.0));
        assert_eq!(of_any(&[(0.3, 0.2)], 2.0), (0.3, 0.2));
        assert_eq!(of_any(&[(0.5, 0.5); 4], 2.0), (1.0, 0.0), "four threads that share two CPUs");
        assert_eq!(of_any(&[(0.9, 0.0), (0.0, 0.0)], 2.0), (0.9, 0.0), "beside a thread that sleeps");
        assert_eq!(of_any(&[(0.5, 0.0), (0.5, 0.0)], 8.0), (0.75, 0.0));
    }
}
