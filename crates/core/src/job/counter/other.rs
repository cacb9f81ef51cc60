//! CPU time counter over the whole process tree on Windows, where it is a job object, and on macOS, which has none.

use crate::config::CpuSource;
use crate::os::JobObject;
use crate::os::root::Root;

#[derive(Debug)]
pub struct TreeCounter(JobObject);

impl TreeCounter {
    /// A counter for a job that the tracker will start. The notes say why there is no counter.
    pub fn for_future_child(_root: &Root, allowed: CpuSource) -> (Option<Self>, Vec<String>) {
        if allowed == CpuSource::Procfs {
            return (None, Vec::new());
        }
        match JobObject::create() {
            Ok(object) => (Some(Self(object)), Vec::new()),
            Err(error) => (None, vec![format!("no counter over the whole job: {error}")]),
        }
    }

    /// The job object that the job must be assigned to.
    pub const fn object(&self) -> &JobObject {
        &self.0
    }

    /// The name of the CPU source in recordings.
    pub const fn name(&self) -> &'static str {
        "job object"
    }

    pub fn read_ns(&self) -> Option<u64> {
        self.0.cpu_ns()
    }

    /// Bytes read and written so far.
    pub fn storage_bytes(&self) -> Option<(u64, u64)> {
        self.0.transferred_bytes()
    }
}
