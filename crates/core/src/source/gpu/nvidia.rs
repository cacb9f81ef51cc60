//! NVIDIA GPUs: NVML where its library can be loaded, else `nvidia-smi`, else a reason.
//!
//! In:  device files, the library, the command. Out: a [`Gpu`] each, with the job's share of it.

use super::nvidia_smi::Smi;
use super::nvml::Library;
use super::open_files::OpenFiles;
use super::share::{Container, Job, Processes, share};
use super::{Gpu, GpuReading, Question, Vendor};
use crate::root::Root;
use crate::snapshot::Moment;

/// What the driver says about one GPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct NvidiaGpu {
    pub name: String,
    pub uuid: String,
    /// UUIDs of its instances (MIG).
    pub instances: Vec<String>,
    /// Of its device file, `/dev/nvidia<minor>`.
    pub minor: Option<u32>,
    pub processes: Processes,
    pub vram_total_bytes: Option<u64>,
    pub power_w: Option<f64>,
    pub temperature_c: Option<f64>,
    pub clock_mhz: Option<f64>,
}

/// Of NVIDIA's device files (`Documentation/admin-guide/devices.txt`).
const MAJOR: u32 = 195;

/// The device by which a Linux on Windows reaches GPUs.
const WINDOWS_DOOR: &str = "/dev/dxg";

/// Whether a driver of NVIDIA is here: its control device, a device of its own, or that of a Windows host.
pub(super) fn has_door(root: &Root) -> bool {
    ["/dev/nvidiactl", "/dev/nvidia0", WINDOWS_DOOR].iter().any(|door| root.exists(door))
}

/// Models as the kernel driver itself names them, for where nothing else answers.
pub(super) fn names_by_kernel(root: &Root) -> Option<Vec<String>> {
    let mut cards = root.names("/proc/driver/nvidia/gpus");
    cards.sort();
    let name = |card: &String| {
        let text = root.text(&format!("/proc/driver/nvidia/gpus/{card}/information"))?;
        let model = text.lines().find_map(|line| line.strip_prefix("Model:"))?;
        Some(model.trim().to_owned())
    };
    let names: Option<Vec<String>> = cards.iter().map(name).collect();
    names.filter(|names| !names.is_empty())
}

/// How the driver is asked.
#[derive(Debug)]
enum Way {
    /// Nothing was tried.
    Untried,
    Nvml(Box<Library>),
    Smi(Box<Smi>, String),
    /// Nothing works, and why.
    None(String),
}

/// All NVIDIA GPUs.
#[derive(Debug)]
pub(super) struct Nvidia {
    way: Way,
    may_start_processes: bool,
    is_container: bool,
}

impl Nvidia {
    pub(super) const fn new(may_start_processes: bool, is_container: bool) -> Self {
        Self { way: Way::Untried, may_start_processes, is_container }
    }

    /// Whether the job's open device files are wanted: only where the driver's numbers may not be ours.
    pub(super) const fn needs_open_files(&self) -> bool {
        self.is_container
    }

    pub(super) fn read(
        &mut self,
        root: &Root,
        question: &Question,
        files: &mut OpenFiles,
        at: Moment,
        reading: &mut GpuReading,
    ) {
        if matches!(self.way, Way::Untried) {
            self.try_ways(root, files);
        }
        let answer = match &mut self.way {
            Way::Nvml(library) => Some(library.read(question.since_ns, at, &mut reading.notes)),
            Way::Smi(smi, why) => {
                reading.notes.push(format!("GPU: asked through `nvidia-smi`, since {why}"));
                smi.read(at, &mut reading.notes)
            }
            Way::None(why) => {
                reading.notes.push(format!("GPU: not measured, since {why}"));
                None
            }
            Way::Untried => None,
        };
        let Some(gpus) = answer else {
            reading.is_incomplete = true;
            return;
        };
        let mut visible = Vec::new();
        if self.needs_open_files() {
            // Where the list fails every number looks foreign, and the share is an estimate as it says.
            let _ = root.pids(&mut visible, &mut Vec::new());
        }
        // The driver of a Windows host lists nobody of ours, whoever is there.
        let lists_nobody = root.exists(WINDOWS_DOOR);
        for mut gpu in gpus {
            gpu.processes.listed = gpu.processes.listed.filter(|listed| !(lists_nobody && listed.is_empty()));
            let holders = gpu.minor.map(|minor| files.holders(minor)).unwrap_or_default();
            let container = self
                .needs_open_files()
                .then_some(Container { holders: &holders, visible: &visible })
                .filter(|_| gpu.minor.is_some());
            let job = share(&gpu.processes, Job { members: &question.members, container });
            reading.gpus.push(Gpu {
                vendor: Vendor::Nvidia,
                name: gpu.name,
                id: gpu.uuid,
                usage: gpu.processes.gpu_usage,
                vram_used_bytes: gpu.processes.gpu_vram_bytes,
                vram_total_bytes: gpu.vram_total_bytes,
                power_w: gpu.power_w,
                temperature_c: gpu.temperature_c,
                clock_mhz: gpu.clock_mhz,
                device: gpu.minor.map(|minor| (MAJOR, minor)),
                aliases: gpu.instances,
                job,
                is_allowed: true,
            });
        }
    }

    fn try_ways(&mut self, root: &Root, files: &mut OpenFiles) {
        // The library opens device files of its own in this process, which must not look like the job's.
        let before = OpenFiles::own_nvidia_files(root);
        let why = match Library::load() {
            Ok(library) => {
                files.ignore_own(OpenFiles::own_nvidia_files(root), &before);
                self.way = Way::Nvml(Box::new(library));
                return;
            }
            Err(why) => why,
        };
        self.way = match Smi::find() {
            Some(smi) if self.may_start_processes => Way::Smi(Box::new(smi), why),
            Some(_) => Way::None(format!("{why}, and `nvidia-smi` is not started inside of another program")),
            None => Way::None(format!("{why}, and there is no `nvidia-smi`")),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_driver_names_its_gpus_where_nothing_else_does() {
        let folder = tempfile::tempdir().unwrap();
        let root = |folder: &std::path::Path| Root::recorded(folder).unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        assert_eq!(names_by_kernel(&root(folder.path())), None);
        for (card, model) in [("0000:01:00.0", "Tesla T4"), ("0000:02:00.0", "NVIDIA A10")] {
            let card = folder.path().join("proc/driver/nvidia/gpus").join(card);
            std::fs::create_dir_all(&card).unwrap();
            std::fs::write(card.join("information"), format!("Model: \t\t {model}\nIRQ:   \t\t 35\n"))
                .unwrap();
        }
        assert_eq!(
            names_by_kernel(&root(folder.path())),
            Some(vec!["Tesla T4".to_owned(), "NVIDIA A10".to_owned()])
        );
    }
}
