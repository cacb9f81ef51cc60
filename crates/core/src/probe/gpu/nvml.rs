//! NVIDIA GPUs through NVML, the library of the NVIDIA driver. The library is loaded at the first reading.
//!
//! In:  `libnvidia-ml.so.1`. Out: one [`NvidiaGpu`] per device. If a call fails, only its own figure is unknown.
//! Not here: which of the processes belong to the job (`share`).
//!
//! Drivers before 510 (January 2022) do not have the current calls for memory and processes. These figures are then
//! unknown.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml};

use super::share::{GpuProcess, Processes};
use crate::os::Moment;

/// Minimum window. Drivers sample processes every 1/6 to 1 s, so a shorter window may contain no sample.
const MIN_WINDOW_NS: u64 = 1_000_000_000;

/// Path of the library on WSL. The dynamic loader does not search this folder.
const WSL_LIBRARY: &str = "/usr/lib/wsl/lib/libnvidia-ml.so.1";

/// The library, with the pid of the process that loaded it. It is never unloaded, because a thread may still be in a
/// call of the driver.
static LOADED: Mutex<Option<(u32, &'static Nvml)>> = Mutex::new(None);

fn loaded() -> Result<&'static Nvml, NvmlError> {
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    // A forked child cannot use the library that its parent initialised.
    if let Some((pid, nvml)) = *loaded
        && pid == std::process::id()
    {
        return Ok(nvml);
    }
    let nvml = match Nvml::init() {
        Err(NvmlError::LibloadingError(_)) => Nvml::builder().lib_path(WSL_LIBRARY.as_ref()).init()?,
        nvml => nvml?,
    };
    let nvml: &'static Nvml = Box::leak(Box::new(nvml));
    *loaded = Some((std::process::id(), nvml));
    Ok(nvml)
}

/// Figures that the driver reports for one GPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct NvidiaGpu {
    pub name: String,
    pub uuid: String,
    /// UUIDs of the MIG instances.
    pub instances: Vec<String>,
    /// Minor number of the device file `/dev/nvidia<minor>`.
    pub minor: Option<u32>,
    pub processes: Processes,
    pub vram_total_bytes: Option<u64>,
    pub power_w: Option<f64>,
    pub temperature_c: Option<f64>,
    pub clock_mhz: Option<f64>,
}

/// The library and the GPUs that it can open.
#[derive(Debug)]
pub(super) struct Library {
    gpus: Vec<OpenGpu>,
    /// Number of GPUs that the driver counts but cannot open.
    closed: usize,
}

#[derive(Debug)]
struct OpenGpu {
    device: Device<'static>,
    name: String,
    uuid: String,
    minor: Option<u32>,
    /// MIG instances.
    instances: Vec<Device<'static>>,
    instance_uuids: Vec<String>,
    is_mig: bool,
}

impl Library {
    /// Loads the library and opens the GPUs. The error is a message for the user.
    pub(super) fn load() -> Result<Self, String> {
        let nvml = loaded().map_err(|error| match error {
            NvmlError::LibloadingError(_) => "`libnvidia-ml.so.1` cannot be loaded".to_owned(),
            error => format!("NVML does not start: {error}"),
        })?;
        let count = nvml.device_count().map_err(|error| format!("NVML cannot count the GPUs: {error}"))?;
        let open = |index| Some(OpenGpu::new(nvml.device_by_index(index).ok()?));
        let gpus: Vec<OpenGpu> = (0..count).filter_map(open).collect();
        Ok(Self { closed: count as usize - gpus.len(), gpus })
    }

    pub(super) fn read(
        &mut self,
        since_ns: Option<u64>,
        at: Moment,
        notes: &mut Vec<String>,
    ) -> Vec<NvidiaGpu> {
        if self.closed > 0 {
            let all = self.closed + self.gpus.len();
            notes.push(format!(
                "GPU: {} of {all} GPUs cannot be read and are not in the figures",
                self.closed
            ));
        }
        // The driver's timestamps are wall-clock; the length of the window comes from the monotonic clock.
        let window_ns =
            since_ns.map_or(0, |since_ns| at.monotonic_ns.saturating_sub(since_ns)).max(MIN_WINDOW_NS);
        let since_us = at.wall_ns.saturating_sub(window_ns) / 1_000;
        self.gpus.iter().map(|gpu| gpu.read(since_us, notes)).collect()
    }
}

impl OpenGpu {
    fn new(device: Device<'static>) -> Self {
        let is_mig = device.mig_mode().is_ok_and(|mode| mode.current != 0);
        let slots = if is_mig { device.mig_device_count().unwrap_or(0) } else { 0 };
        let instances: Vec<Device<'static>> =
            (0..slots).filter_map(|slot| device.mig_device_by_index(slot).ok()).collect();
        Self {
            instance_uuids: instances.iter().filter_map(|instance| instance.uuid().ok()).collect(),
            name: device.name().unwrap_or_else(|_| "NVIDIA GPU".to_owned()),
            uuid: device.uuid().unwrap_or_default(),
            minor: device.minor_number().ok(),
            device,
            instances,
            is_mig,
        }
    }

    fn read(&self, since_us: u64, notes: &mut Vec<String>) -> NvidiaGpu {
        let device = &self.device;
        let (total, used) = memory(device).or_else(|| self.memory_of_instances()).unzip();
        let usage = device.utilization_rates();
        if let Err(error) = &usage {
            let why =
                if self.is_mig { "it is divided into MIG instances".to_owned() } else { error.to_string() };
            notes.push(format!("GPU: the driver reports no utilisation of `{}`: {why}", self.name));
        }
        let listed = if self.instances.is_empty() {
            processes(device)
        } else {
            // In a container the driver lists processes only by MIG instance.
            let of_all: Option<Vec<Vec<GpuProcess>>> = self.instances.iter().map(processes).collect();
            of_all.map(|lists| lists.concat()).or_else(|| processes(device))
        };
        if listed.is_none() {
            notes.push(format!("GPU: the driver does not list the processes on `{}`", self.name));
        }
        NvidiaGpu {
            name: self.name.clone(),
            uuid: self.uuid.clone(),
            instances: self.instance_uuids.clone(),
            minor: self.minor,
            processes: Processes {
                gpu_usage: usage.ok().and_then(|usage| percent(usage.gpu)),
                gpu_vram_bytes: used,
                listed,
                usages: self.usages(since_us),
                is_mig: self.is_mig,
            },
            vram_total_bytes: total,
            power_w: device.power_usage().ok().map(|milliwatts| f64::from(milliwatts) / 1000.0),
            temperature_c: device.temperature(TemperatureSensor::Gpu).ok().map(f64::from),
            clock_mhz: device.clock_info(Clock::SM).ok().map(f64::from),
        }
    }

    fn memory_of_instances(&self) -> Option<(u64, u64)> {
        let all: Option<Vec<(u64, u64)>> = self.instances.iter().map(memory).collect();
        let all = all.filter(|all| !all.is_empty())?;
        Some(all.into_iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1)))
    }

    /// Mean usage in the window by pid; `None` if the driver does not measure usage by process.
    fn usages(&self, since_us: u64) -> Option<Vec<(u32, f64)>> {
        let samples = match self.device.process_utilization_stats(since_us) {
            Ok(samples) => samples,
            // `NotFound` means that no process used the GPU.
            Err(NvmlError::NotFound) => Vec::new(),
            Err(_) => return None,
        };
        let mut sums: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
        for sample in samples.iter().filter(|sample| sample.timestamp > since_us && sample.pid != 0) {
            // Some drivers report values far above 100 %. These values are dropped.
            if let Some(usage) = percent(sample.sm_util) {
                let (sum, count) = sums.entry(sample.pid).or_default();
                *sum += usage;
                *count += 1.0;
            }
        }
        Some(sums.into_iter().map(|(pid, (sum, count))| (pid, sum / count)).collect())
    }
}

/// Converts 0 to 100 % into 0 to 1; `None` for values above 100.
fn percent(number: u32) -> Option<f64> {
    (number <= 100).then(|| f64::from(number) / 100.0)
}

/// Total and used memory in bytes.
fn memory(device: &Device<'static>) -> Option<(u64, u64)> {
    device.memory_info().ok().map(|memory| (memory.total, memory.used))
}

/// Processes with a compute or graphics context. A process with both is listed once.
fn processes(device: &Device<'static>) -> Option<Vec<GpuProcess>> {
    let mut found: Vec<GpuProcess> = device.running_compute_processes().ok()?.iter().map(process).collect();
    // Batch jobs rarely use graphics, so a missing list of graphics processes is not an error.
    for other in device.running_graphics_processes().unwrap_or_default().iter().map(process) {
        if found.iter().all(|known| known.pid != other.pid) {
            found.push(other);
        }
    }
    Some(found)
}

fn process(info: &ProcessInfo) -> GpuProcess {
    let vram_bytes = match info.used_gpu_memory {
        UsedGpuMemory::Used(bytes) => Some(bytes),
        UsedGpuMemory::Unavailable => None,
    };
    GpuProcess { pid: info.pid, vram_bytes }
}
