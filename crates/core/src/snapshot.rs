//! What the sources saw at one moment: raw counters and levels, in the kernel's own units.
//!
//! In:  filled by every `Source` in turn. Out: two of them make a row (`diff`).
//! A field is `None` where its source gave nothing; its failure stands beside it.

use crate::diff::{Counter, Within};
use crate::error::SourceError;
use crate::metric::GpuCells;
use crate::source::gpu::GpuState;
use crate::sys;

/// A moment by both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Since 1970; may be stepped, so it only dates a row.
    pub wall_ns: u64,
    /// Since boot, never back; all lengths are differences of this.
    pub monotonic_ns: u64,
}

impl Moment {
    /// Now, by the two clocks of this machine.
    #[must_use]
    pub fn now() -> Self {
        let (wall_ns, monotonic_ns) = sys::now_ns();
        Self { wall_ns, monotonic_ns }
    }

    /// Seconds since 1970.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "a date in ns keeps better than a microsecond in a double"
    )]
    pub fn wall_s(self) -> f64 {
        self.wall_ns as f64 / 1e9
    }
}

/// CPU time of the machine since it was started, all CPUs together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineCpu {
    /// User mode, at a nice value too.
    pub user_ns: u64,
    /// System mode.
    pub system_ns: u64,
    /// Given to other machines by the hypervisor, where the system tells.
    pub steal_ns: Option<u64>,
    /// Forks, threads included, where the system counts them.
    pub forks: Option<u64>,
    /// CPUs that are on line.
    pub cpus: u32,
}

impl MachineCpu {
    /// User and system time.
    #[must_use]
    pub const fn busy_ns(&self) -> u64 {
        self.user_ns.saturating_add(self.system_ns)
    }
}

/// One CPU since the machine was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SingleCpu {
    /// Which.
    pub number: u64,
    /// At work.
    pub work_ns: u64,
    /// Without work.
    pub idle_ns: u64,
    /// Given to other machines by the hypervisor.
    pub stolen_ns: u64,
}

/// Memory of the machine; `None` where the system has no such figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineMemory {
    /// Used by nothing.
    pub free_kib: Option<u64>,
    /// Total less free, buffers and cached.
    pub used_kib: Option<u64>,
    /// Metadata of file systems.
    pub buffers_kib: Option<u64>,
    /// Contents of files, which can be taken back at once.
    pub cached_kib: Option<u64>,
    /// Used recently.
    pub active_kib: Option<u64>,
    /// Not used for a while.
    pub inactive_kib: Option<u64>,
}

/// Two counters of a named device, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// As the kernel calls it.
    pub name: Box<[u8]>,
    /// Read or received.
    pub inbound: u64,
    /// Written or sent.
    pub outbound: u64,
}

/// Disk space over all real file systems.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskSpace {
    /// Size.
    pub total_bytes: u64,
    /// Taken, as `df` counts it.
    pub used_bytes: u64,
    /// What a plain user can still write.
    pub free_bytes: u64,
}

impl DiskSpace {
    /// The sum of all; `None` of none, and where it is more than can be.
    pub fn total(mut spaces: impl Iterator<Item = Self>) -> Option<Self> {
        let first = spaces.next()?;
        spaces.try_fold(first, |sum, space| {
            Some(Self {
                total_bytes: sum.total_bytes.checked_add(space.total_bytes)?,
                used_bytes: sum.used_bytes.checked_add(space.used_bytes)?,
                free_bytes: sum.free_bytes.checked_add(space.free_bytes)?,
            })
        })
    }
}

/// Time in which some task waited, in µs since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// For a CPU.
    pub cpu_us: Option<u64>,
    /// For memory.
    pub memory_us: Option<u64>,
    /// For storage.
    pub io_us: Option<u64>,
}

/// CPU time that the job has spent since the recording began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// By the inherited counter or the job's cgroup, or what was seen where that is more; never falls.
    pub spent_ns: u64,
    /// When it was read.
    pub within: Within,
    /// How it counts: over a few milliseconds ticks say nothing.
    pub counter: Counter,
    /// CPU time of processes that we saw, waited-for ones included; never falls.
    pub seen_ns: u64,
    /// A counter that misses nobody had its say: what was seen can be held against it.
    pub is_counted: bool,
}

/// Accounts of processes go by clock ticks and come in a little later than a counter: so much of a lead proves nothing.
const LATE_ACCOUNTS_NS: u64 = 50_000_000;

impl CpuTime {
    /// Whether the counter saw processes of which nothing else is known: nobody waited for them, so that they handed
    /// nothing on.
    #[must_use]
    pub fn proves_dropped_processes(&self) -> bool {
        let unseen_ns = self.spent_ns.saturating_sub(self.seen_ns);
        self.is_counted && unseen_ns > (self.spent_ns / 20).max(LATE_ACCOUNTS_NS)
    }
}

/// What the job has spent so far and holds now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobReading {
    /// The root of the tree.
    pub pid: u32,
    /// Descendants that are alive.
    pub children: Option<u64>,
    /// CPU time.
    pub cpu: CpuTime,
    /// User part of what was seen, in the kernel's ticks; only its growth against `system_ticks` means anything.
    pub user_ticks: u64,
    /// System part of what was seen.
    pub system_ticks: u64,
    /// Read from storage so far; never falls.
    pub read_bytes: Option<u64>,
    /// Written to storage so far; never falls.
    pub write_bytes: Option<u64>,
    /// Faults that read from storage so far.
    pub major_faults: u64,
    /// PSS of the tree, or the best estimate of it.
    pub memory_kib: Option<u64>,
    /// The most memory that was proved since the last row.
    pub memory_peak_kib: Option<u64>,
    /// RSS summed.
    pub rss_kib: Option<u64>,
    /// Swap summed.
    pub swap_kib: Option<u64>,
    /// Threads.
    pub threads: Option<u64>,
}

/// The tracker's own cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnCost {
    /// CPU time of the sampling thread, or of the whole tracker where it is a process of its own.
    pub cpu_ns: Option<u64>,
    /// Resident memory, where it is a process of its own.
    pub rss_kib: Option<u64>,
}

/// Everything at one moment.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// When it was taken.
    pub at: Moment,
    /// All processes of the machine, in ascending order.
    pub pids: Option<Vec<u32>>,
    /// CPU time of the machine.
    pub cpu: Option<MachineCpu>,
    /// Each of its CPUs, where any time was ever stolen from it.
    pub single_cpus: Vec<SingleCpu>,
    /// Memory of the machine.
    pub memory: Option<MachineMemory>,
    /// Whole disks.
    pub disks: Option<Vec<Device>>,
    /// Real network interfaces.
    pub network: Option<Vec<Device>>,
    /// Real file systems.
    pub space: Option<DiskSpace>,
    /// Pressure stall times.
    pub pressure: Pressure,
    /// How long our cgroup's CPU limit held tasks back, in ns.
    pub throttled_ns: Option<u64>,
    /// Memory charged to our cgroup.
    pub cgroup_memory_bytes: Option<u64>,
    /// GPUs of the machine, and the job's part of them.
    pub gpu: GpuState,
    /// Each of them, numbered as in `run.gpus`.
    pub each_gpu: Vec<GpuCells>,
    /// The job.
    pub job: Option<JobReading>,
    /// The tracker itself.
    pub own: OwnCost,
    /// Sources that gave nothing, and why.
    pub failures: Vec<(&'static str, SourceError)>,
}

impl Snapshot {
    /// Empties it for the next moment, keeping what can be reused.
    pub fn reset(&mut self, at: Moment) {
        let pids = self.pids.take().map(|mut pids| {
            pids.clear();
            pids
        });
        *self = Self { at, ..Self::default() };
        // An empty listing is no listing: `pids` is filled again before anybody looks.
        self.pids = pids.filter(|pids| pids.capacity() > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_space_of_none_is_unknown_and_so_is_more_than_can_be() {
        let space = |bytes| DiskSpace { total_bytes: bytes, used_bytes: 0, free_bytes: bytes };
        let total = |sizes: &[u64]| DiskSpace::total(sizes.iter().map(|size| space(*size)));
        assert_eq!(total(&[]), None);
        assert_eq!(total(&[1, 2]), Some(space(3)));
        assert_eq!(total(&[1, u64::MAX]), None);
    }

    #[test]
    fn processes_were_dropped_where_the_counters_lead_is_more_than_late_accounts() {
        let has_dropped = |spent_ms: u64, seen_ms: u64, is_counted| {
            let (spent_ns, seen_ns) = (spent_ms * 1_000_000, seen_ms * 1_000_000);
            CpuTime { spent_ns, seen_ns, is_counted, ..CpuTime::default() }.proves_dropped_processes()
        };
        assert!(has_dropped(3000, 100, true));
        assert!(!has_dropped(3000, 100, false), "there is nothing to hold it against");
        assert!(!has_dropped(3000, 2900, true));
        assert!(!has_dropped(25, 10, true), "a job of 25 ms, a tick and a half behind");
        assert!(has_dropped(100, 40, true));
    }
}
