//! Usage of a job up to one moment: counters that never fall, and levels.
//!
//! Out: [`JobUsage`], the result of one sample of the job. The difference of two samples is the job's part of a row.

/// When a counter was read, by the monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadWindow {
    pub begin_ns: u64,
    pub end_ns: u64,
}

impl ReadWindow {
    pub const fn at(ns: u64) -> Self {
        Self { begin_ns: ns, end_ns: ns }
    }
}

/// The resolution of a CPU time counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counter {
    /// Exact to the nanosecond at any moment.
    #[default]
    Exact,
    /// CPU clocks of processes. The clock of a process that runs on another CPU is up to one scheduler tick behind.
    Clocks,
    /// `Clocks` at the end of the job: the last row has a rate even if its interval is short.
    ClocksNow,
    /// Clock ticks of 10 ms.
    Stepping,
    /// `Stepping` in earlier rows, and exact in the last row, at the end of the job.
    ExactNow,
}

/// CPU time that the job has spent since the recording began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// The larger of the tree counter (perf or cgroup) and the ledger; never falls.
    pub spent_ns: u64,
    pub within: ReadWindow,
    pub counter: Counter,
    /// CPU time in the ledger: of processes that were sampled, and of their reaped children. Never falls.
    pub seen_ns: u64,
    /// Whether a counter over the whole tree was read. Only then can `seen_ns` be compared with `spent_ns`.
    pub is_counted: bool,
}

/// The ledger counts in clock ticks, so it may be behind the counter by this much without missing a process.
const LEDGER_DELAY_NS: u64 = 50_000_000;

impl CpuTime {
    /// Whether the counter includes processes that the ledger missed: no parent waited for these processes, so their
    /// time is not in cutime of any process.
    pub fn proves_unreaped_processes(&self) -> bool {
        let unseen_ns = self.spent_ns.saturating_sub(self.seen_ns);
        self.is_counted && unseen_ns > (self.spent_ns / 20).max(LEDGER_DELAY_NS)
    }
}

/// Time of the job by what its threads did, since the recording began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    /// At least one thread ran.
    pub running_ns: u64,
    /// No thread ran, and at least one was ready to run.
    pub ready_ns: u64,
    /// Time that threads were ready to run, summed over all threads.
    pub queued_ns: u64,
    /// CPU time of the threads that were read.
    pub seen_ns: u64,
}

/// Usage of a job. Counters count from the start of the recording. A value that is not measured is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobUsage {
    /// The root of the tree.
    pub pid: u32,
    /// Number of descendants that are alive.
    pub children: Option<u64>,
    pub cpu: CpuTime,
    /// Clock ticks of the ledger, used only to split `cpu` into user and system time.
    pub user_ticks: u64,
    pub system_ticks: u64,
    /// Bytes read from storage; never falls.
    pub read_bytes: Option<u64>,
    /// Bytes written to storage; never falls.
    pub write_bytes: Option<u64>,
    pub major_faults: u64,
    /// PSS of the tree, or the best estimate of the PSS.
    pub memory_kib: Option<u64>,
    /// Memory that the job had at least once since the last row. The true peak may be higher.
    pub memory_peak_kib: Option<u64>,
    /// Mean memory since the last row.
    pub memory_mean_kib: Option<u64>,
    /// Sum of the RSS of all members.
    pub rss_kib: Option<u64>,
    /// Sum of the swapped memory of all members.
    pub swap_kib: Option<u64>,
    pub threads: Option<u64>,
    /// `None` if the kernel does not count the times of threads.
    pub thread_times: Option<ThreadTimes>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_ahead_of_the_ledger_by_more_than_its_delay_proves_unreaped_processes() {
        let is_proved = |spent_ms: u64, seen_ms: u64, is_counted| {
            let (spent_ns, seen_ns) = (spent_ms * 1_000_000, seen_ms * 1_000_000);
            CpuTime { spent_ns, seen_ns, is_counted, ..CpuTime::default() }.proves_unreaped_processes()
        };
        assert!(is_proved(3000, 100, true));
        assert!(!is_proved(3000, 100, false), "no counter to compare with");
        assert!(!is_proved(3000, 2900, true));
        assert!(!is_proved(25, 10, true), "a job of 25 ms whose ledger is 1.5 ticks behind");
        assert!(is_proved(100, 40, true));
    }
}
