//! Usage and memory of each GPU, and the job's share of both.
//!
//! In:  NVML for NVIDIA, sysfs and DRM fdinfo (through `Root`) for AMD and Intel; the job's pids.
//! Out: one [`GpuReading`] per query. On a live host a separate thread (`worker`) makes the queries, since a driver
//!      may block for seconds; a recorded host is read directly.
//! Not here: the columns of a row (`sampler::diff`), recommendations (`analysis::recommend`).
//!
//! A host without a GPU device file has no [`Reader`]: no thread is started and no library is loaded.

mod figures;
mod worker;

#[cfg(not(target_os = "linux"))]
mod other;
#[cfg(target_os = "linux")]
mod reader;

#[cfg(target_os = "linux")]
mod drm;
#[cfg(target_os = "linux")]
mod fdinfo;
#[cfg(target_os = "linux")]
mod kfd;
#[cfg(target_os = "linux")]
mod nvidia;
#[cfg(target_os = "linux")]
mod nvml;
#[cfg(target_os = "linux")]
mod open_files;
#[cfg(target_os = "linux")]
mod share;
#[cfg(target_os = "linux")]
mod visible;

use std::sync::{Arc, Mutex, TryLockError};
use std::time::Duration;

use crate::os::Moment;
use crate::os::root::Root;

pub use figures::{Figures, GpuFigures};
#[cfg(not(target_os = "linux"))]
use other as reader;
pub use reader::Reader;
pub use worker::Gpus;

/// Parses bytes as each kernel file about GPUs, for the fuzz test.
#[cfg(all(target_os = "linux", feature = "internals"))]
pub fn parse_any(bytes: &[u8]) {
    visible::parse_any(bytes);
    let _ = fdinfo::parse_fdinfo(&String::from_utf8_lossy(bytes)).map(|client| client.vram_bytes());
}

/// GPU part of a snapshot.
#[derive(Clone, Debug, Default)]
pub enum GpuState {
    /// The host has no GPU. All figures are 0.
    #[default]
    Absent,
    /// The host has a GPU, but its driver did not answer in time. All figures are unknown.
    Silent,
    Read(Arc<GpuReading>),
}

/// All GPUs at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuReading {
    /// NVIDIA GPUs in the order of NVML, then AMD and Intel GPUs in the order of their render nodes.
    pub gpus: Vec<Gpu>,
    /// True if a GPU could not be read at all. Sums over all GPUs are then unknown.
    pub is_incomplete: bool,
    /// Warnings for the recording.
    pub notes: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Vendor {
    #[default]
    Nvidia,
    Amd,
    Intel,
}

/// One GPU at one moment. A field is `None` if the driver does not report it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gpu {
    pub vendor: Vendor,
    /// Name of the model.
    pub name: String,
    /// UUID of an NVIDIA GPU, otherwise the PCI address.
    pub id: String,
    /// Share of the time in which the GPU was busy, 0 to 1.
    pub usage: Option<f64>,
    pub vram_used_bytes: Option<u64>,
    /// 0 for an integrated GPU, which uses the machine's memory.
    pub vram_total_bytes: Option<u64>,
    pub power_w: Option<f64>,
    pub temperature_c: Option<f64>,
    pub clock_mhz: Option<f64>,
    /// Major and minor number of the GPU's device file.
    pub device: Option<(u32, u32)>,
    /// Other ids by which a list of visible devices may name the GPU.
    pub aliases: Vec<String>,
    pub job: Share,
    /// Whether the job's environment variables and device cgroup allow the GPU.
    pub is_allowed: bool,
}

/// The job's share of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    /// Share of the time in which the job kept the GPU busy, 0 to 1.
    pub usage: Option<f64>,
    pub vram_bytes: Option<u64>,
    /// True if the driver's pids cannot be matched with the job's, so that the share is an estimate.
    pub is_estimate: bool,
}

impl Share {
    /// The job does not use this GPU.
    #[cfg(any(target_os = "linux", test))]
    const NOTHING: Self = Self { usage: Some(0.0), vram_bytes: Some(0), is_estimate: false };
}

/// Sums over all GPUs. A sum is `None` if the figure of any GPU is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GpuTotals {
    /// Sum of the usages, 0 to the number of GPUs.
    pub usage: Option<f64>,
    pub vram_bytes: Option<u64>,
    /// Number of GPUs with a usage above 0.
    pub utilized: Option<u64>,
}

impl GpuReading {
    pub fn system(&self) -> GpuTotals {
        self.totals(|gpu| gpu.usage, |gpu| gpu.vram_used_bytes)
    }

    pub fn job(&self) -> GpuTotals {
        self.totals(|gpu| gpu.job.usage, |gpu| gpu.job.vram_bytes)
    }

    fn totals(&self, usage: fn(&Gpu) -> Option<f64>, vram: fn(&Gpu) -> Option<u64>) -> GpuTotals {
        if self.is_incomplete {
            return GpuTotals::default();
        }
        let busy = |gpu: &Gpu| usage(gpu).map(|usage| u64::from(usage > 0.0));
        GpuTotals {
            usage: self.gpus.iter().map(usage).try_fold(0.0, |sum, usage| Some(sum + usage?)),
            vram_bytes: self.gpus.iter().map(vram).sum(),
            utilized: self.gpus.iter().map(busy).sum(),
        }
    }
}

impl GpuTotals {
    /// The sums on a host without a GPU.
    pub const NONE: Self = Self { usage: Some(0.0), vram_bytes: Some(0), utilized: Some(0) };

    /// VRAM in MiB, the unit of the columns.
    #[expect(clippy::cast_precision_loss, reason = "exact below 2^53 bytes")]
    pub fn vram_mib(&self) -> Option<f64> {
        self.vram_bytes.map(|bytes| bytes as f64 / 1_048_576.0)
    }
}

impl GpuState {
    pub fn system(&self) -> GpuTotals {
        self.totals(GpuReading::system)
    }

    pub fn job(&self) -> GpuTotals {
        self.totals(GpuReading::job)
    }

    /// Numbers of the GPUs that the job keeps busy, in the order of the driver.
    pub fn job_gpus(&self) -> Vec<usize> {
        let Self::Read(reading) = self else { return Vec::new() };
        let busy = |gpu: &Gpu| gpu.job.usage.is_some_and(|usage| usage > 0.0);
        reading.gpus.iter().enumerate().filter(|(_, gpu)| busy(gpu)).map(|(number, _)| number).collect()
    }

    fn totals(&self, of: fn(&GpuReading) -> GpuTotals) -> GpuTotals {
        match self {
            Self::Absent => GpuTotals::NONE,
            Self::Silent => GpuTotals::default(),
            Self::Read(reading) => of(reading),
        }
    }
}

/// A query to the GPU drivers: the job whose share is read, and the window of the reading.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// Pids of the job, in ascending order.
    pub members: Vec<u32>,
    /// Root process of the job. Its environment lists the visible GPUs.
    pub root_pid: Option<u32>,
    /// Start of the window on the monotonic clock; `None` for a single reading, whose window starts at the previous
    /// reading.
    pub since_ns: Option<u64>,
}

/// The GPUs in `server_info`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inventory {
    /// Model name of each GPU; `None` if a model is unknown.
    pub names: Option<Vec<String>>,
    /// Memory of all GPUs.
    pub memory_bytes: Option<u64>,
}

/// Maximum time that a single reading waits for a driver.
const READ_WAIT: Duration = Duration::from_secs(1);

/// The last reading, with the pid of the process that made it. A forked child does not use it.
static LAST: Mutex<Option<(u32, Arc<GpuReading>)>> = Mutex::new(None);

/// Stores a reading for [`inventory`].
fn remember(reading: &Arc<GpuReading>) {
    // In a forked child the lock may stay locked for ever, so `try_lock` is used.
    if let Ok(mut last) = LAST.try_lock() {
        *last = Some((std::process::id(), Arc::clone(reading)));
    }
}

fn remembered() -> Option<Arc<GpuReading>> {
    let last = match LAST.try_lock() {
        Ok(last) => last,
        Err(TryLockError::Poisoned(last)) => last.into_inner(),
        Err(TryLockError::WouldBlock) => return None,
    };
    last.as_ref().filter(|(pid, _)| *pid == std::process::id()).map(|(_, reading)| Arc::clone(reading))
}

/// The thread for single readings, with the pid of its process. A forked child does not have the thread.
static SHARED: Mutex<Option<(u32, Arc<Gpus>)>> = Mutex::new(None);

fn shared(root: &Root) -> Option<Arc<Gpus>> {
    let open = || {
        Reader::open(root)?;
        Gpus::open(&Arc::new(Root::host_in_process().ok()?)).map(Arc::new)
    };
    // In a forked child the lock may stay locked for ever.
    let Ok(mut stored) = SHARED.try_lock() else { return open() };
    if let Some((_, gpus)) = stored.as_ref().filter(|(pid, _)| *pid == std::process::id()) {
        return Some(Arc::clone(gpus));
    }
    let gpus = open()?;
    *stored = Some((std::process::id(), Arc::clone(&gpus)));
    Some(gpus)
}

/// Reads all GPUs and the job's share once. Waits at most one second for the drivers.
pub fn read_now(root: &Root, question: &Question) -> GpuState {
    if root.is_recorded() {
        return Reader::open(root).map_or(GpuState::Absent, |mut reader| {
            GpuState::Read(Arc::new(reader.read(root, question, Moment::default())))
        });
    }
    shared(root).map_or(GpuState::Absent, |gpus| gpus.ask_and_wait(question.clone(), READ_WAIT))
}

/// Maximum time that [`inventory`] waits for a driver that has not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    None,
    Second,
}

pub fn inventory(root: &Root, patience: Patience) -> Inventory {
    // An earlier reading of this process saves the wait for the driver.
    let known = if root.is_recorded() { None } else { remembered() };
    let ask = || match patience {
        Patience::None if !root.is_recorded() => {
            Reader::open(root).map_or(GpuState::Absent, |_| GpuState::Silent)
        }
        Patience::None | Patience::Second => read_now(root, &Question::default()),
    };
    let state = known.map_or_else(ask, GpuState::Read);
    let reading = match state {
        GpuState::Absent => return Inventory { names: Some(Vec::new()), memory_bytes: Some(0) },
        GpuState::Silent => return Inventory { names: reader::names_by_kernel(root), memory_bytes: None },
        GpuState::Read(reading) => reading,
    };
    let mut names: Vec<String> = reading.gpus.iter().map(|gpu| gpu.name.clone()).collect();
    if !reading.is_incomplete {
        return Inventory {
            names: Some(names),
            memory_bytes: reading.gpus.iter().map(|gpu| gpu.vram_total_bytes).sum(),
        };
    }
    // The kernel driver also names GPUs that NVML cannot read.
    if !reading.gpus.iter().any(|gpu| gpu.vendor == Vendor::Nvidia) {
        names.extend(reader::names_by_kernel(root).unwrap_or_default());
    }
    Inventory { names: Some(names).filter(|names| !names.is_empty()), memory_bytes: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(usage: Option<f64>, job: Option<f64>) -> Gpu {
        Gpu { usage, job: Share { usage: job, ..Share::NOTHING }, vram_used_bytes: Some(5), ..Gpu::default() }
    }

    #[test]
    fn sum_over_gpus_is_unknown_when_one_gpu_is_unknown() {
        let reading = GpuReading {
            gpus: vec![gpu(Some(0.5), Some(0.0)), gpu(Some(1.0), None)],
            ..GpuReading::default()
        };
        let all = reading.system();
        assert_eq!((all.usage, all.vram_bytes, all.utilized), (Some(1.5), Some(10), Some(2)));
        let job = reading.job();
        assert_eq!((job.usage, job.vram_bytes, job.utilized), (None, Some(0), None));
        let none = GpuReading::default().system().usage.unwrap();
        assert!(none == 0.0 && none.is_sign_positive(), "0 and not -0");
        let incomplete = GpuReading { is_incomplete: true, ..reading };
        assert_eq!(incomplete.system(), GpuTotals::default());
    }

    #[test]
    fn gpus_in_use_are_listed_by_number() {
        let gpus = vec![gpu(Some(1.0), Some(0.0)), gpu(Some(1.0), None), gpu(Some(1.0), Some(0.2))];
        let read = GpuState::Read(Arc::new(GpuReading { gpus, ..GpuReading::default() }));
        assert_eq!(read.job_gpus(), [2]);
        assert!(GpuState::Absent.job_gpus().is_empty());
    }

    #[test]
    fn absent_gpu_is_zero_and_silent_gpu_is_unknown() {
        assert_eq!(GpuState::Absent.system(), GpuTotals::NONE);
        assert_eq!(GpuState::Silent.job(), GpuTotals::default());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn host_without_gpu_device_file_has_no_reader() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        let root = Root::recorded(folder.path()).unwrap();
        assert!(Reader::open(&root).is_none());
        std::fs::create_dir(folder.path().join("dev")).unwrap();
        std::fs::write(folder.path().join("dev/nvidiactl"), "").unwrap();
        let reading = Reader::open(&root).unwrap().read(&root, &Question::default(), Moment::default());
        assert!(reading.is_incomplete && reading.gpus.is_empty() && reading.notes.len() == 1);
    }
}
