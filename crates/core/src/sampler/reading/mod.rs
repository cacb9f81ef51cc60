//! A single read of a process tree or of the machine, for `get_process_stats` and `get_system_stats`.
//!
//! In:  a pid. Out: [`ProcessReading`], [`SystemReading`]: totals since the start, and current levels.
//! Not here: usage of processes that end between two reads (`job/ledger`, used by trackers and meters).

pub mod portable;
#[cfg(target_os = "linux")]
pub mod procfs;

use once_cell::race::OnceBox;

use crate::config::Backend;
use crate::error::SourceError;
use crate::metric::{Metric, Row};
use crate::os::Moment;
use crate::os::root::Root;
use crate::probe::Source;
use crate::probe::gpu::{self, GpuTotals, Question};
use crate::probe::snapshot::{Device, DiskSpace, Snapshot};
use crate::sampler::diff::{self, Rates};
use crate::sampler::sample::Sample;

/// Usage of a process, or of a process and its descendants. A sum that overflows is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessReading {
    /// Unix seconds.
    pub timestamp: f64,
    pub pid: u32,
    /// Number of descendants that are alive; `None` if they were not requested.
    pub children: Option<u64>,
    /// User CPU time so far. With descendants, it includes the time of reaped children.
    pub user_s: Option<f64>,
    pub system_s: Option<f64>,
    /// PSS, or RSS of processes whose PSS may not be read; 0 for a tree that has ended.
    pub memory_kib: Option<u64>,
    /// Bytes read from storage so far; `None` without permission.
    pub read_bytes: Option<u64>,
    /// Bytes written to storage so far; `None` without permission.
    pub write_bytes: Option<u64>,
    pub gpu: GpuTotals,
    /// Numbers of the GPUs in use.
    pub gpu_numbers: Vec<usize>,
}

/// The machine at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct SystemReading {
    /// The cells of the system table that are levels. Cells that are growth are empty.
    pub levels: Row,
    /// CPU time since boot, like all totals below.
    pub user_s: Option<f64>,
    pub system_s: Option<f64>,
    pub net_recv_bytes: Option<u64>,
    pub net_sent_bytes: Option<u64>,
    /// Per disk: name, bytes read and bytes written.
    pub disks: Vec<(String, u64, u64)>,
    /// Per file system: mount point and sizes.
    pub spaces: Vec<(String, DiskSpace)>,
}

/// The root of all readings. It is never dropped, and in in-process mode it keeps no file open.
fn host() -> Result<&'static Root, SourceError> {
    static HOST: OnceBox<Root> = OnceBox::new();
    HOST.get_or_try_init(|| Root::host_in_process().map(Box::new))
}

impl ProcessReading {
    /// Reads a process, and its descendants too if `with_children`. A process that does not exist gives zeros.
    pub fn of(backend: Backend, pid: u32, with_children: bool) -> Result<Self, SourceError> {
        match backend {
            #[cfg(target_os = "linux")]
            Backend::Procfs => procfs::process(host()?, pid, with_children),
            _ => portable::process(host()?, pid, with_children),
        }
    }
}

impl SystemReading {
    /// Reads the machine.
    pub fn now(backend: Backend) -> Result<Self, SourceError> {
        Ok(match backend {
            #[cfg(target_os = "linux")]
            Backend::Procfs => procfs::system(host()?),
            _ => portable::system(host()?),
        })
    }

    /// Reads each source once. The values of a source that fails stay empty.
    fn read(
        root: &Root,
        sources: impl IntoIterator<Item = Box<dyn Source>>,
        spaces: Vec<(String, DiskSpace)>,
    ) -> Self {
        let mut machine = Snapshot { at: Moment::now(), ..Snapshot::default() };
        for mut source in sources {
            let _ = source.read(root, &mut machine);
        }
        machine.space = DiskSpace::total(spaces.iter().map(|(_, space)| *space));
        let gpu = gpu::read_now(root, &Question::default());
        let sample = Sample { machine, gpu, ..Sample::default() };
        let mut levels = diff::row(&Sample::default(), &sample, Rates::default());
        levels.set(Metric::Elapsed, None);
        let machine = sample.machine;
        let sum = |of: fn(&Device) -> u64| {
            machine.network.as_ref().and_then(|all| all.iter().map(of).try_fold(0, u64::checked_add))
        };
        let name = |disk: &Device| String::from_utf8_lossy(&disk.name).into_owned();
        Self {
            user_s: machine.cpu.map(|cpu| seconds(cpu.user_ns)),
            system_s: machine.cpu.map(|cpu| seconds(cpu.system_ns)),
            net_recv_bytes: sum(|interface| interface.inbound),
            net_sent_bytes: sum(|interface| interface.outbound),
            disks: machine
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
    reason = "exact below 2^53 ns, which is 104 days of one CPU; exact to the microsecond above"
)]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
