//! Reads all GPUs of a Linux host.

use super::drm::{self, Drm};
use super::nvidia::{self, Nvidia};
use super::open_files::OpenFiles;
use super::visible::Permissions;
use super::{GpuReading, Question, Share};
use crate::os::Moment;
use crate::os::root::Root;

pub(super) use super::nvidia::names_by_kernel;

/// Name of the initial PID namespace (`PROC_PID_INIT_INO` of `include/linux/proc_ns.h`).
const HOST_NAMESPACE: &str = "pid:[4026531836]";

/// Whether the tracker runs in a PID namespace of its own, where pids differ from those of the host.
fn is_container(root: &Root) -> bool {
    root.link("/proc/self/ns/pid").is_some_and(|link| link.as_os_str() != HOST_NAMESPACE)
}

/// Reads all GPUs of a host.
#[derive(Debug)]
pub struct Reader {
    nvidia: Option<Nvidia>,
    drm: Option<Drm>,
    /// Reason why a GPU of this host cannot be read; `None` if all GPUs can be read.
    unread: Option<String>,
    files: OpenFiles,
    permissions: Permissions,
}

impl Reader {
    /// `None` if the host has no device file of a GPU. Libraries are loaded later, at the first reading.
    pub fn open(root: &Root) -> Option<Self> {
        let has_nvidia = nvidia::has_device(root);
        let found = drm::find(root);
        let unread = if has_nvidia && root.is_recorded() {
            // NVML would read this machine instead of the recorded host.
            Some("NVIDIA GPUs of a recorded host cannot be read".to_owned())
        } else {
            found.unread.map(|driver| format!("GPUs of the kernel driver `{driver}` are not supported"))
        };
        let nvidia = (has_nvidia && !root.is_recorded()).then(|| Nvidia::new(is_container(root)));
        let drm = (!found.cards.is_empty()).then(|| Drm::new(found.cards, is_container(root)));
        (nvidia.is_some() || drm.is_some() || unread.is_some()).then(|| Self {
            nvidia,
            drm,
            unread,
            files: OpenFiles::default(),
            permissions: Permissions::default(),
        })
    }

    /// Reads all GPUs. Blocks while a driver blocks.
    pub fn read(&mut self, root: &Root, question: &Question, at: Moment) -> GpuReading {
        let mut reading = GpuReading::default();
        if self.drm.is_some() || self.nvidia.as_ref().is_some_and(Nvidia::needs_open_files) {
            self.files.update(root, &question.members, at.monotonic_ns);
        }
        if let Some(nvidia) = &mut self.nvidia {
            nvidia.read(root, question, &mut self.files, at, &mut reading);
        }
        if let Some(drm) = &mut self.drm {
            drm.read(root, question, &self.files, at, &mut reading);
        }
        if let Some(why) = &self.unread {
            reading.is_incomplete = true;
            reading.notes.push(format!("GPU: {why}"));
        }
        let note = self.permissions.apply(root, question.root_pid, &mut reading.gpus);
        reading.notes.extend(note.map(str::to_owned));
        for gpu in reading.gpus.iter_mut().filter(|gpu| !gpu.is_allowed && gpu.job.vram_bytes == Some(0)) {
            // The job cannot open this GPU, so the job's usage is 0 if the driver does not report it.
            gpu.job.usage = gpu.job.usage.or(Some(0.0));
        }
        if question.root_pid.is_none() {
            // No job was given, so the job's share is unknown.
            reading.gpus.iter_mut().for_each(|gpu| gpu.job = Share::default());
        }
        if reading.gpus.iter().any(|gpu| gpu.job.is_estimate) {
            reading.notes.push(
                "GPU: the job's share is an estimate, based on the GPU device files that its processes have open"
                    .to_owned(),
            );
        }
        reading
    }
}
