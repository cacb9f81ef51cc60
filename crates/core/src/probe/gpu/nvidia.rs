//! Reads NVIDIA GPUs through NVML, or returns the reason why they cannot be read.
//!
//! In:  device files and NVML. Out: one [`Gpu`] per device, with the job's share.
//! Not here: calls to the library (`nvml`), calculation of the job's share (`share`).

use super::nvml::Library;
use super::open_files::OpenFiles;
use super::share::{Container, Job, share};
use super::{Gpu, GpuReading, Question, Vendor};
use crate::os::Moment;
use crate::os::root::Root;

/// Major number of NVIDIA's device files (`Documentation/admin-guide/devices.txt`).
const MAJOR: u32 = 195;

/// GPU device file of WSL (Linux on Windows).
const WSL_DEVICE: &str = "/dev/dxg";

/// Whether an NVIDIA driver is present: its control device, a GPU device, or the device of WSL.
pub(super) fn has_device(root: &Root) -> bool {
    ["/dev/nvidiactl", "/dev/nvidia0", WSL_DEVICE].iter().any(|device| root.exists(device))
}

/// Model names from the kernel driver, for GPUs that NVML does not report.
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

/// All NVIDIA GPUs.
#[derive(Debug)]
pub(super) struct Nvidia {
    /// NVML, loaded at the first reading. The error is the reason why it cannot be loaded.
    library: Option<Result<Box<Library>, String>>,
    is_container: bool,
}

impl Nvidia {
    pub(super) const fn new(is_container: bool) -> Self {
        Self { library: None, is_container }
    }

    /// Whether a reading needs the job's open device files: in a container the driver may list pids of the host.
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
        let library = match self.library.get_or_insert_with(|| load(root, files)) {
            Ok(library) => library,
            Err(why) => {
                reading.notes.push(format!("GPU: not measured: {why}"));
                reading.is_incomplete = true;
                return;
            }
        };
        let gpus = library.read(question.since_ns, at, &mut reading.notes);
        let mut visible = Vec::new();
        if self.is_container {
            // If listing fails, no pid counts as one of this container, and the share is marked as an estimate.
            let _ = root.pids(&mut visible, &mut Vec::new());
        }
        // The driver of WSL does not list Linux processes.
        let lists_no_processes = root.exists(WSL_DEVICE);
        for mut gpu in gpus {
            gpu.processes.listed =
                gpu.processes.listed.filter(|listed| !(lists_no_processes && listed.is_empty()));
            let holders = gpu.minor.map(|minor| files.holders(minor)).unwrap_or_default();
            let container = (self.is_container && gpu.minor.is_some())
                .then_some(Container { holders: &holders, visible: &visible });
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
}

/// Loads NVML. NVML opens device files in this process, which must not count as files of the job.
fn load(root: &Root, files: &mut OpenFiles) -> Result<Box<Library>, String> {
    let before = OpenFiles::own_nvidia_files(root);
    let library = Library::load()?;
    files.ignore_own(OpenFiles::own_nvidia_files(root), &before);
    Ok(Box::new(library))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_driver_names_the_gpus() {
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
