//! Counters that see all of a job's CPU time, on systems other than Linux: a job object, where there is such a thing.

use crate::config::CpuSource;
use crate::root::Root;
use crate::sys::JobObject;

/// A counter over a whole tree of processes.
#[derive(Debug)]
pub struct TreeCounter(JobObject);

impl TreeCounter {
    /// For a job that we will start. The notes say why none was to be had.
    #[must_use]
    pub fn for_future_child(_root: &Root, allowed: CpuSource) -> (Option<Self>, Vec<String>) {
        if allowed == CpuSource::Procfs {
            return (None, Vec::new());
        }
        match JobObject::create() {
            Ok(object) => (Some(Self(object)), Vec::new()),
            Err(error) => (None, vec![format!("no counter over the whole job: {error}")]),
        }
    }

    /// What the job must be put into to be counted.
    #[must_use]
    pub const fn object(&self) -> &JobObject {
        &self.0
    }

    /// As the recording names it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        "job object"
    }

    /// All CPU time so far.
    #[must_use]
    pub fn read_ns(&self, _root: &Root) -> Option<u64> {
        self.0.cpu_ns()
    }

    /// All bytes read and written so far.
    #[must_use]
    pub fn storage_bytes(&self) -> Option<(u64, u64)> {
        self.0.transferred_bytes()
    }
}
