//! Control groups: the groups of a process, their limits and OOM kills, and a group that is created for the job.

use serde::{Deserialize, Serialize};

#[cfg(target_os = "linux")]
pub mod groups;
#[cfg(target_os = "linux")]
mod job_group;
#[cfg(target_os = "linux")]
mod limits;
#[cfg(target_os = "linux")]
mod oom;
#[cfg(not(target_os = "linux"))]
mod other;
#[cfg(target_os = "linux")]
mod own_group;

#[cfg(target_os = "linux")]
pub use groups::groups_of;
#[cfg(target_os = "linux")]
pub use job_group::JobGroup;
#[cfg(target_os = "linux")]
pub(crate) use limits::count_cpus;
#[cfg(target_os = "linux")]
pub use limits::read_limits;
#[cfg(target_os = "linux")]
pub use oom::OomWatch;
#[cfg(not(target_os = "linux"))]
pub use other::*;
#[cfg(target_os = "linux")]
pub use own_group::OwnGroupSource;

/// Processes that the kernel killed for lack of memory while a job ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OomKills {
    pub processes: u64,
    /// True if the job's cgroup counted the kills. False if only the machine counted them and `SIGKILL` ended the job.
    pub certain: bool,
}
