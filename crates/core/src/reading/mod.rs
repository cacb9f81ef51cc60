//! One look at a process tree or at the machine: totals so far, as `get_process_stats` and `get_system_stats` give them.
//!
//! In:  a pid, and the backend. Out: [`ProcessReading`], [`SystemReading`]; rows are differences of two of them.
//! Not here: what is lost when processes end between two looks (`ledger`, behind `tracker` and `meter`).

#[cfg(target_os = "linux")]
mod procfs;

#[cfg(target_os = "linux")]
pub(crate) use procfs::descendants;
#[cfg(target_os = "linux")]
pub use procfs::{process, system};

#[cfg(not(target_os = "linux"))]
pub use crate::source::sysinfo::{process, system};

use crate::metric::{Metric, Row};
use crate::snapshot::{Device, DiskSpace, Snapshot};
use crate::source::gpu::GpuTotals;

/// A process, or it and its descendants, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessReading {
    /// Unix seconds.
    pub timestamp: f64,
    /// The root.
    pub pid: u32,
    /// Descendants that are alive; `None` where they were not looked at.
    pub children: Option<u64>,
    /// User CPU time so far, waited-for children included where children are; `None` where the kernel's numbers, here
    /// and below, add up to more than can be.
    pub user_s: Option<f64>,
    /// System CPU time so far, likewise.
    pub system_s: Option<f64>,
    /// PSS, or RSS where that is refused; 0 for a tree that has ended.
    pub memory_kib: Option<u64>,
    /// Read from storage so far; `None` where nothing could be read.
    pub read_bytes: Option<u64>,
    /// Written to storage so far.
    pub write_bytes: Option<u64>,
    /// Its part of the GPUs; 0 where there is none, unknown where they cannot be read.
    pub gpu: GpuTotals,
}

/// The machine at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct SystemReading {
    /// A cell for each metric of the system table that is a level; growths are empty.
    pub levels: Row,
    /// User CPU time so far.
    pub user_s: Option<f64>,
    /// System CPU time so far.
    pub system_s: Option<f64>,
    /// Received so far.
    pub net_recv_bytes: Option<u64>,
    /// Sent so far.
    pub net_sent_bytes: Option<u64>,
    /// Disk, bytes read and bytes written so far.
    pub disks: Vec<(String, u64, u64)>,
    /// Mount point and sizes.
    pub spaces: Vec<(String, DiskSpace)>,
}

impl SystemReading {
    /// Of what the sources saw, and of the file systems one by one.
    pub(crate) fn new(mut snapshot: Snapshot, spaces: Vec<(String, DiskSpace)>) -> Self {
        snapshot.space = DiskSpace::total(spaces.iter().map(|(_, space)| *space));
        let mut levels = crate::diff::row(&Snapshot::default(), &snapshot, crate::diff::Rates::default());
        levels.set(Metric::Elapsed, None);
        let sum = |of: fn(&Device) -> u64| {
            snapshot.network.as_ref().and_then(|all| all.iter().map(of).try_fold(0, u64::checked_add))
        };
        let name = |disk: &Device| String::from_utf8_lossy(&disk.name).into_owned();
        Self {
            user_s: snapshot.cpu.map(|cpu| seconds(cpu.user_ns)),
            system_s: snapshot.cpu.map(|cpu| seconds(cpu.system_ns)),
            net_recv_bytes: sum(|interface| interface.inbound),
            net_sent_bytes: sum(|interface| interface.outbound),
            disks: snapshot
                .disks
                .iter()
                .flatten()
                .map(|disk| (name(disk), disk.inbound, disk.outbound))
                .collect(),
            spaces,
            levels,
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "exact below 2^53 ns, 104 days of one CPU; then to the microsecond"
)]
pub(crate) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
