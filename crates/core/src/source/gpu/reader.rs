//! All GPUs of a Linux host, one reading a query.

use super::drm::{self, Drm};
use super::nvidia::{self, Nvidia};
use super::open_files::OpenFiles;
use super::visible::Permissions;
use super::{GpuReading, Question, Share};
use crate::root::Root;
use crate::snapshot::Moment;

pub(super) use super::nvidia::names_by_kernel;

/// Number of the first process namespace (`PROC_PID_INIT_INO` of `include/linux/proc_ns.h`).
const HOST_NAMESPACE: &str = "pid:[4026531836]";

/// Whether numbers of processes here are others than those of the host.
fn is_container(root: &Root) -> bool {
    root.link("/proc/self/ns/pid").is_some_and(|link| link.as_os_str() != HOST_NAMESPACE)
}

/// Reads all GPUs of a host.
#[derive(Debug)]
pub struct Reader {
    nvidia: Option<Nvidia>,
    drm: Option<Drm>,
    /// A GPU whose driver nothing here reads.
    unread: Option<String>,
    files: OpenFiles,
    permissions: Permissions,
}

impl Reader {
    /// `None` where there is no device file of a GPU. Loads nothing and starts nothing yet.
    #[must_use]
    pub fn open(root: &Root, may_start_processes: bool) -> Option<Self> {
        let nvidia = nvidia::has_door(root);
        let found = drm::find(root);
        let unread = if nvidia && root.is_recorded() {
            // A library answers for this machine, not for a recorded one.
            Some("NVIDIA GPUs of a recorded tree cannot be read".to_owned())
        } else {
            found.unread.map(|driver| format!("GPUs of the kernel driver `{driver}` are not read here"))
        };
        let nvidia =
            (nvidia && !root.is_recorded()).then(|| Nvidia::new(may_start_processes, is_container(root)));
        let drm = (!found.cards.is_empty()).then(|| Drm::new(found.cards, is_container(root)));
        (nvidia.is_some() || drm.is_some() || unread.is_some()).then(|| Self {
            nvidia,
            drm,
            unread,
            files: OpenFiles::default(),
            permissions: Permissions::default(),
        })
    }

    /// Looks at all GPUs. May take as long as the slowest driver.
    pub fn read(&mut self, root: &Root, question: &Question, at: Moment) -> GpuReading {
        let mut reading = GpuReading::default();
        // Which files the job has open is asked where something depends on it.
        if self.drm.is_some() || self.nvidia.as_ref().is_some_and(Nvidia::needs_open_files) {
            self.files.look(root, &question.members, at.monotonic_ns);
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
        self.permissions.apply(root, question.root_pid, &mut reading.gpus);
        for gpu in reading.gpus.iter_mut().filter(|gpu| !gpu.is_allowed && gpu.job.vram_bytes == Some(0)) {
            // It is not there, and cannot be.
            gpu.job.usage = gpu.job.usage.or(Some(0.0));
        }
        if question.root_pid.is_none() {
            // Nobody is followed: there is no part of anybody.
            reading.gpus.iter_mut().for_each(|gpu| gpu.job = Share::default());
        }
        if reading.gpus.iter().any(|gpu| gpu.job.is_estimate) {
            reading.notes.push(
                "GPU: the job's part is an estimate, by the GPU files that its processes have open"
                    .to_owned(),
            );
        }
        reading
    }
}
