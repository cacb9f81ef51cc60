//! The state of the machine at one moment: counters and current values, in the kernel's units.
//!
//! In:  every `Source` fills its own fields. Out: [`Snapshot`]; `sampler/diff` makes rows from two snapshots.
//! A field is `None` if its source failed; the failure is in [`Snapshot::failures`].
//! Not here: the job (`job`), GPUs (`gpu`).

use crate::error::SourceError;
use crate::os::Moment;

/// CPU time of the machine since boot, summed over all CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineCpu {
    /// Time in user mode, including that of niced processes.
    pub user_ns: u64,
    /// Without the time in interrupts.
    pub system_ns: u64,
    /// Time in interrupt handlers, and in the work that they defer; `None` if the system does not count it.
    pub irq_ns: Option<u64>,
    pub softirq_ns: Option<u64>,
    /// Time that the hypervisor gave to other machines; `None` if the system does not count it.
    pub steal_ns: Option<u64>,
    /// Number of online CPUs.
    pub cpus: u32,
}

impl MachineCpu {
    pub const fn busy_ns(&self) -> u64 {
        self.user_ns.saturating_add(self.system_ns)
    }
}

/// Times of one CPU since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SingleCpu {
    pub number: u64,
    pub work_ns: u64,
    pub idle_ns: u64,
    pub steal_ns: u64,
}

/// Memory of the machine. A field is `None` if the system does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineMemory {
    pub free_kib: Option<u64>,
    /// Total minus free, buffers and cached.
    pub used_kib: Option<u64>,
    pub buffers_kib: Option<u64>,
    pub cached_kib: Option<u64>,
    pub active_kib: Option<u64>,
    pub inactive_kib: Option<u64>,
}

/// Byte counters of a disk or a network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    pub name: Box<[u8]>,
    /// Bytes read or received.
    pub inbound: u64,
    /// Bytes written or sent.
    pub outbound: u64,
}

/// Disk space, summed over local file systems.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskSpace {
    pub total_bytes: u64,
    /// Used space as `df` counts it: blocks reserved for root do not count as used.
    pub used_bytes: u64,
    /// Free space that users other than root can use.
    pub free_bytes: u64,
}

impl DiskSpace {
    /// Sum of several spaces; `None` if the list is empty or the sum overflows.
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

/// Pressure stall information: time in which at least one task waited for the resource, in µs since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    pub cpu_us: Option<u64>,
    pub memory_us: Option<u64>,
    pub io_us: Option<u64>,
}

/// The state of the machine at one moment.
#[derive(Debug, Default)]
pub struct Snapshot {
    pub at: Moment,
    /// Number of processes of the machine.
    pub processes: Option<u64>,
    pub cpu: Option<MachineCpu>,
    /// Times of each CPU. Empty on machines without steal time, because only the steal calculation needs them.
    pub single_cpus: Vec<SingleCpu>,
    pub memory: Option<MachineMemory>,
    /// Bytes read and written by each whole disk, without partitions.
    pub disks: Option<Vec<Device>>,
    /// Bytes of network interfaces. Interfaces that would count a packet a second time are left out.
    pub network: Option<Vec<Device>>,
    /// Sum over all local file systems.
    pub space: Option<DiskSpace>,
    pub pressure: Pressure,
    /// Time for which the CPU quota stopped the tasks of the job's cgroup.
    pub throttled_ns: Option<u64>,
    /// Memory charged to the job's cgroup.
    pub cgroup_memory_bytes: Option<u64>,
    /// Shared memory and tmpfs files charged to the job's cgroup that no process has mapped, a lower bound.
    pub cgroup_unmapped_shmem_bytes: Option<u64>,
    /// Sources that failed, by name.
    pub failures: Vec<(&'static str, SourceError)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_space_of_an_empty_list_or_beyond_64_bits_is_unknown() {
        let space = |bytes| DiskSpace { total_bytes: bytes, used_bytes: 0, free_bytes: bytes };
        let total = |sizes: &[u64]| DiskSpace::total(sizes.iter().map(|size| space(*size)));
        assert_eq!(total(&[]), None);
        assert_eq!(total(&[1, 2]), Some(space(3)));
        assert_eq!(total(&[1, u64::MAX]), None);
    }
}
