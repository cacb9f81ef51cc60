//! NVIDIA GPUs through NVML, the driver's own library, loaded when it is first needed.
//!
//! In:  `libnvidia-ml.so.1`. Out: a [`NvidiaGpu`] for each; a call that fails costs its own figure.
//! Not here: which of the processes are the job's (`share`), calls of drivers before 2021 (`nvml_old`).

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml};

use super::nvidia::NvidiaGpu;
use super::nvml_old::OldCalls;
use super::share::{GpuProcess, Processes};
use crate::snapshot::Moment;

/// A driver samples processes every sixth of a second to a second: a shorter time back there may be none.
const LOOK_BACK_NS: u64 = 1_000_000_000;

/// The library of this process: initialised once and never unloaded, since a driver that hangs in it, or a program
/// that ends while it is at work, must find its code where it was.
static LOADED: Mutex<Option<(u32, &'static Nvml)>> = Mutex::new(None);

fn loaded() -> Result<&'static Nvml, NvmlError> {
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    // What a fork inherited belongs to its parent.
    if let Some((pid, nvml)) = *loaded
        && pid == std::process::id()
    {
        return Ok(nvml);
    }
    let nvml: &'static Nvml = Box::leak(Box::new(Nvml::init()?));
    *loaded = Some((std::process::id(), nvml));
    Ok(nvml)
}

/// The library and the GPUs that it knows.
#[derive(Debug)]
pub(super) struct Library {
    gpus: Vec<Known>,
    /// GPUs that the driver counts and does not open.
    closed: usize,
    old: Option<OldCalls>,
}

#[derive(Debug)]
struct Known {
    device: Device<'static>,
    name: String,
    uuid: String,
    minor: Option<u32>,
    /// Instances of a GPU that is divided (MIG).
    instances: Vec<Device<'static>>,
    instance_uuids: Vec<String>,
    is_divided: bool,
}

impl Library {
    /// Loads the library and finds the GPUs; or why not, in words.
    pub(super) fn load() -> Result<Self, String> {
        let nvml = loaded().map_err(|error| match error {
            NvmlError::LibloadingError(_) => "`libnvidia-ml.so.1` cannot be loaded".to_owned(),
            error => format!("NVML does not start: {error}"),
        })?;
        let count = nvml.device_count().map_err(|error| format!("NVML counts no GPUs: {error}"))?;
        // One that has fallen off the bus, or is not for us, costs nothing but itself.
        let open = |index| Some(Known::new(nvml.device_by_index(index).ok()?));
        let gpus: Vec<Known> = (0..count).filter_map(open).collect();
        Ok(Self { closed: count as usize - gpus.len(), gpus, old: None })
    }

    /// Asks for all GPUs.
    pub(super) fn read(
        &mut self,
        since_ns: Option<u64>,
        at: Moment,
        notes: &mut Vec<String>,
    ) -> Vec<NvidiaGpu> {
        if self.closed > 0 {
            let all = self.closed + self.gpus.len();
            notes.push(format!(
                "GPU: {} of {all} GPUs cannot be read, and are not in the figures",
                self.closed
            ));
        }
        // The driver has the wall clock; how long ago it was is told by the other, which nobody sets.
        let back_ns =
            since_ns.map_or(0, |since_ns| at.monotonic_ns.saturating_sub(since_ns)).max(LOOK_BACK_NS);
        let since_us = at.wall_ns.saturating_sub(back_ns) / 1_000;
        let old = &mut self.old;
        self.gpus.iter().map(|gpu| gpu.read(since_us, old, notes)).collect()
    }
}

impl Known {
    fn new(device: Device<'static>) -> Self {
        let is_divided = device.mig_mode().is_ok_and(|mode| mode.current != 0);
        // Places of instances may be empty.
        let places = if is_divided { device.mig_device_count().unwrap_or(0) } else { 0 };
        let instances: Vec<Device<'static>> =
            (0..places).filter_map(|place| device.mig_device_by_index(place).ok()).collect();
        Self {
            instance_uuids: instances.iter().filter_map(|instance| instance.uuid().ok()).collect(),
            name: device.name().unwrap_or_else(|_| "NVIDIA GPU".to_owned()),
            uuid: device.uuid().unwrap_or_default(),
            minor: device.minor_number().ok(),
            device,
            instances,
            is_divided,
        }
    }

    fn read(&self, since_us: u64, old: &mut Option<OldCalls>, notes: &mut Vec<String>) -> NvidiaGpu {
        let device = &self.device;
        let (total, used) = memory(device, old).or_else(|| self.memory_of_instances(old)).unzip();
        let usage = device.utilization_rates();
        if let Err(error) = &usage {
            let why = match error {
                _ if self.is_divided => "it is divided (MIG)".to_owned(),
                error => error.to_string(),
            };
            notes.push(format!("GPU: the driver gives no utilisation of `{}`: {why}", self.name));
        }
        let listed = if self.instances.is_empty() {
            processes(device, old)
        } else {
            // Inside of a container only the instances tell.
            let of_all: Option<Vec<Vec<GpuProcess>>> =
                self.instances.iter().map(|instance| processes(instance, old)).collect();
            of_all.map(|lists| lists.concat()).or_else(|| processes(device, old))
        };
        if listed.is_none() {
            notes.push(format!("GPU: the driver does not list the processes on `{}`", self.name));
        }
        let usages = self.usages(since_us);
        NvidiaGpu {
            name: self.name.clone(),
            uuid: self.uuid.clone(),
            instances: self.instance_uuids.clone(),
            minor: self.minor,
            processes: Processes {
                gpu_usage: usage.ok().and_then(|usage| percent(usage.gpu)),
                gpu_vram_bytes: used,
                listed,
                usages,
                is_divided: self.is_divided,
            },
            vram_total_bytes: total,
            power_w: self.device.power_usage().ok().map(|milliwatts| f64::from(milliwatts) / 1000.0),
            temperature_c: self.device.temperature(TemperatureSensor::Gpu).ok().map(f64::from),
            clock_mhz: self.device.clock_info(Clock::SM).ok().map(f64::from),
        }
    }

    fn memory_of_instances(&self, old: &mut Option<OldCalls>) -> Option<(u64, u64)> {
        let all: Option<Vec<(u64, u64)>> =
            self.instances.iter().map(|instance| memory(instance, old)).collect();
        let all = all.filter(|all| !all.is_empty())?;
        Some(all.into_iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1)))
    }

    /// Mean usage by process since then; `None` where the driver does not measure it.
    fn usages(&self, since_us: u64) -> Option<Vec<(u32, f64)>> {
        let samples = match self.device.process_utilization_stats(since_us) {
            Ok(samples) => samples,
            // No process did anything.
            Err(NvmlError::NotFound) => Vec::new(),
            Err(_) => return None,
        };
        let mut sums: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
        for sample in samples.iter().filter(|sample| sample.timestamp > since_us && sample.pid != 0) {
            // Some drivers put numbers far above 100 there, which say nothing.
            if let Some(usage) = percent(sample.sm_util) {
                let (sum, count) = sums.entry(sample.pid).or_default();
                *sum += usage;
                *count += 1.0;
            }
        }
        Some(sums.into_iter().map(|(pid, (sum, count))| (pid, sum / count)).collect())
    }
}

/// 0 to 100 as 0 to 1.
fn percent(number: u32) -> Option<f64> {
    (number <= 100).then(|| f64::from(number) / 100.0)
}

/// Total and used bytes.
fn memory(device: &Device<'static>, old: &mut Option<OldCalls>) -> Option<(u64, u64)> {
    match device.memory_info() {
        Ok(memory) => Some((memory.total, memory.used)),
        Err(error) if is_missing(&error) => OldCalls::loaded(old)?.memory(device),
        Err(_) => None,
    }
}

/// All processes with a context, compute or graphics, each once.
fn processes(device: &Device<'static>, old: &mut Option<OldCalls>) -> Option<Vec<GpuProcess>> {
    let compute = newest(device.running_compute_processes(), || device.running_compute_processes_v2());
    let mut found = match compute {
        Ok(found) => found.iter().map(process).collect(),
        Err(error) if is_missing(&error) => OldCalls::loaded(old)?.compute_processes(device)?,
        Err(_) => return None,
    };
    // Drawing is rare in batch jobs, and a driver without this list still has the other.
    let graphics = newest(device.running_graphics_processes(), || device.running_graphics_processes_v2());
    for other in graphics.unwrap_or_default().iter().map(process) {
        if found.iter().all(|known: &GpuProcess| known.pid != other.pid) {
            found.push(other);
        }
    }
    Some(found)
}

type Listed = Result<Vec<ProcessInfo>, NvmlError>;

/// The newest call that the driver has.
fn newest(latest: Listed, before: impl FnOnce() -> Listed) -> Listed {
    match latest {
        Err(error) if is_missing(&error) => before(),
        answer => answer,
    }
}

/// The driver is older than the call.
fn is_missing(error: &NvmlError) -> bool {
    matches!(error, NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound)
}

fn process(info: &ProcessInfo) -> GpuProcess {
    let vram_bytes = match info.used_gpu_memory {
        UsedGpuMemory::Used(bytes) => Some(bytes),
        UsedGpuMemory::Unavailable => None,
    };
    GpuProcess { pid: info.pid, vram_bytes }
}
