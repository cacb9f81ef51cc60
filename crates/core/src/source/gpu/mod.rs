//! GPUs: how busy each is, what its memory holds, and which part of both is the job's.
//!
//! In:  NVML or `nvidia-smi` for NVIDIA, sysfs and DRM fdinfo (through `Root`) for AMD and Intel; the job's pids.
//! Out: a [`GpuReading`] a query. On a live host the queries are made by a thread of their own (`worker`), since a
//!      driver may keep its caller waiting for seconds; a recorded tree is read in place.
//! Not here: which cells they become (`diff`), what to make of them (`recommend`).
//!
//! A host without a device file of a GPU has no [`Reader`]: no thread, no library, no process.

mod figures;
mod watch;
mod worker;

#[cfg(not(target_os = "linux"))]
#[path = "elsewhere.rs"]
mod reader;
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
mod nvidia_smi;
#[cfg(target_os = "linux")]
mod nvml;
#[cfg(target_os = "linux")]
mod nvml_old;
#[cfg(target_os = "linux")]
mod open_files;
#[cfg(target_os = "linux")]
mod share;
#[cfg(target_os = "linux")]
mod visible;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::Duration;

use crate::root::Root;
use crate::snapshot::Moment;

pub use figures::{Figures, GpuFigures};
#[cfg(target_os = "linux")]
pub use nvidia_smi::{is_helper, may_be_helper};
pub use reader::Reader;
pub use watch::Watch;
pub use worker::Gpus;

/// What a snapshot knows about GPUs.
#[derive(Clone, Debug, Default)]
pub enum GpuState {
    /// There is none: everything about it is 0.
    #[default]
    Absent,
    /// There is one, and nothing is known about it at this moment.
    Silent,
    /// What was read last.
    Read(Arc<GpuReading>),
}

/// All GPUs at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuReading {
    /// NVIDIA's by their index, then the others by theirs.
    pub gpus: Vec<Gpu>,
    /// There is a GPU that gave nothing at all, so that sums over all GPUs are unknown.
    pub is_incomplete: bool,
    /// What the reader of the figures should know.
    pub notes: Vec<String>,
}

/// Whose GPU it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Vendor {
    /// By NVML or `nvidia-smi`.
    #[default]
    Nvidia,
    /// By amdgpu.
    Amd,
    /// By i915 or xe.
    Intel,
}

/// One GPU at one moment; `None` where its driver does not say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gpu {
    /// Whose.
    pub vendor: Vendor,
    /// As its driver calls the model.
    pub name: String,
    /// NVML's UUID, or the PCI address.
    pub id: String,
    /// Part of the time in which it was busy, 0 to 1.
    pub usage: Option<f64>,
    /// Memory in use.
    pub vram_used_bytes: Option<u64>,
    /// Memory that it has; 0 for one that shares the machine's.
    pub vram_total_bytes: Option<u64>,
    /// Power drawn.
    pub power_w: Option<f64>,
    /// Temperature of the chip.
    pub temperature_c: Option<f64>,
    /// Clock of its processors.
    pub clock_mhz: Option<f64>,
    /// Major and minor number of its device file.
    pub device: Option<(u32, u32)>,
    /// Other names by which a list of visible devices may call it.
    pub aliases: Vec<String>,
    /// The job's part of it.
    pub job: Share,
    /// The job may use it, by its environment and its device cgroup.
    pub is_allowed: bool,
}

/// The job's part of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    /// Part of the time in which the job kept it busy, 0 to 1.
    pub usage: Option<f64>,
    /// Memory that the job holds.
    pub vram_bytes: Option<u64>,
    /// Not by the processes' own numbers.
    pub is_estimate: bool,
}

impl Share {
    /// The job does not touch this GPU.
    #[cfg(any(target_os = "linux", test))]
    const NOTHING: Self = Self { usage: Some(0.0), vram_bytes: Some(0), is_estimate: false };
}

/// Sums over all GPUs; unknown where one of them is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GpuTotals {
    /// 0 to the number of GPUs.
    pub usage: Option<f64>,
    /// Memory.
    pub vram_bytes: Option<u64>,
    /// GPUs with a usage above 0.
    pub utilized: Option<u64>,
}

impl GpuReading {
    /// Of the machine.
    #[must_use]
    pub fn system(&self) -> GpuTotals {
        self.totals(|gpu| gpu.usage, |gpu| gpu.vram_used_bytes)
    }

    /// Of the job.
    #[must_use]
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
    /// A host without a GPU.
    pub const NONE: Self = Self { usage: Some(0.0), vram_bytes: Some(0), utilized: Some(0) };

    /// Memory in the unit of the columns.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "exact below 2^53 bytes")]
    pub fn vram_mib(&self) -> Option<f64> {
        self.vram_bytes.map(|bytes| bytes as f64 / 1_048_576.0)
    }
}

impl GpuState {
    /// Of the machine.
    #[must_use]
    pub fn system(&self) -> GpuTotals {
        self.totals(GpuReading::system)
    }

    /// Of the job.
    #[must_use]
    pub fn job(&self) -> GpuTotals {
        self.totals(GpuReading::job)
    }

    fn totals(&self, of: fn(&GpuReading) -> GpuTotals) -> GpuTotals {
        match self {
            Self::Absent => GpuTotals::NONE,
            Self::Silent => GpuTotals::default(),
            Self::Read(reading) => of(reading),
        }
    }
}

/// Who asks, and about whom.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// The job's processes, in ascending order.
    pub members: Vec<u32>,
    /// The root of the job, whose environment says which GPUs it may use.
    pub root_pid: Option<u32>,
    /// Since when, by the monotonic clock, for whoever follows a job from its beginning; a single look is about the
    /// time since the last one.
    pub since_ns: Option<u64>,
}

/// What `server_info` says about GPUs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inventory {
    /// Models, one a GPU; `None` where there are GPUs and nothing is known of them.
    pub names: Option<Vec<String>>,
    /// Memory of all of them.
    pub memory_bytes: Option<u64>,
}

/// How long a single look waits for a driver.
const LOOK_WAIT: Duration = Duration::from_secs(1);

/// The GPUs of this host as they were last read in this process.
static LAST: Mutex<Option<(u32, Arc<GpuReading>)>> = Mutex::new(None);

/// Keeps a reading of the host for whoever asks what GPUs there are.
fn remember(reading: &Arc<GpuReading>) {
    // Never waits: a fork may have left the lock taken for ever.
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

/// The thread for single looks, kept from one to the next; of this process, not of the one that forked it.
static SHARED: Mutex<Option<(u32, Arc<Gpus>)>> = Mutex::new(None);

/// When this machine was last seen to have no GPU, by the monotonic clock. Four lookups a look are a sixth of what a
/// look at one small process costs; a GPU that comes is seen a second later.
static ABSENT_AT_NS: AtomicU64 = AtomicU64::new(0);

/// For how long that is believed.
const ABSENT_FOR_NS: u64 = 1_000_000_000;

fn shared(root: &Root) -> Option<Arc<Gpus>> {
    let now_ns = Moment::now().monotonic_ns;
    let absent_at_ns = ABSENT_AT_NS.load(Ordering::Relaxed);
    if absent_at_ns != 0 && now_ns.saturating_sub(absent_at_ns) < ABSENT_FOR_NS {
        return None;
    }
    let open = || {
        if Reader::open(root, false).is_none() {
            ABSENT_AT_NS.store(now_ns, Ordering::Relaxed);
            return None;
        }
        let root = Root::host_as_guest().ok()?;
        Gpus::open(&Arc::new(root), false).map(Arc::new)
    };
    // A lock that is taken, perhaps by a thread that a fork left behind, is not waited for.
    let Ok(mut kept) = SHARED.try_lock() else { return open() };
    let own = kept.as_ref().filter(|(pid, _)| *pid == std::process::id());
    if let Some((_, gpus)) = own {
        return Some(Arc::clone(gpus));
    }
    let gpus = open()?;
    *kept = Some((std::process::id(), Arc::clone(&gpus)));
    Some(gpus)
}

/// One look at all GPUs, and at what processes use of them. A driver has a second to answer.
#[must_use]
pub fn look(root: &Root, question: &Question) -> GpuState {
    if root.is_recorded() {
        return Reader::open(root, false).map_or(GpuState::Absent, |mut reader| {
            GpuState::Read(Arc::new(reader.read(root, question, Moment::default())))
        });
    }
    shared(root).map_or(GpuState::Absent, |gpus| gpus.ask_and_wait(question.clone(), LOOK_WAIT))
}

/// Whether a driver that was not heard before is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// No.
    None,
    /// For a second.
    Second,
}

/// The GPUs that `server_info` names.
#[must_use]
pub fn inventory(root: &Root, patience: Patience) -> Inventory {
    // Nobody waits twice for a driver that this process has heard before.
    let known = if root.is_recorded() { None } else { remembered() };
    let ask = || match patience {
        Patience::None if !root.is_recorded() => {
            Reader::open(root, false).map_or(GpuState::Absent, |_| GpuState::Silent)
        }
        Patience::None | Patience::Second => look(root, &Question::default()),
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
    // Those that give nothing have names, where their kernel driver tells.
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
    fn sums_are_over_all_gpus_and_one_that_is_unknown_makes_them_unknown() {
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
    fn no_gpu_is_zero_and_a_silent_one_is_unknown() {
        assert_eq!(GpuState::Absent.system(), GpuTotals::NONE);
        assert_eq!(GpuState::Silent.job(), GpuTotals::default());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_host_without_a_device_file_of_a_gpu_has_no_reader() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        let root = Root::recorded(folder.path()).unwrap();
        assert!(Reader::open(&root, true).is_none());
        std::fs::create_dir(folder.path().join("dev")).unwrap();
        std::fs::write(folder.path().join("dev/nvidiactl"), "").unwrap();
        let reading = Reader::open(&root, true).unwrap().read(&root, &Question::default(), Moment::default());
        assert!(reading.is_incomplete && reading.gpus.is_empty() && reading.notes.len() == 1);
    }
}
