//! Control groups: the groups of the job, their limits and OOM kills, and a group that is created for the job.

use serde::{Deserialize, Serialize};

#[cfg(target_os = "linux")]
pub mod groups;
#[cfg(target_os = "linux")]
mod job_cgroups;
#[cfg(target_os = "linux")]
mod job_group;
#[cfg(target_os = "linux")]
mod limits;
#[cfg(target_os = "linux")]
mod oom;
#[cfg(not(target_os = "linux"))]
mod other;
#[cfg(target_os = "linux")]
mod pids;

#[cfg(target_os = "linux")]
pub use groups::groups_of;
#[cfg(target_os = "linux")]
pub use job_cgroups::JobCgroups;
#[cfg(target_os = "linux")]
pub use job_group::JobGroup;
#[cfg(target_os = "linux")]
pub use limits::read_limits;
#[cfg(not(target_os = "linux"))]
pub use other::*;

/// Limits of a process. `None` in a field means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// CPU quota from `cpu.max` or `cpu.cfs_quota_us`, as a number of CPUs.
    pub cpu_cores: Option<f64>,
    /// Number of CPUs in the CPU set.
    pub cpuset_cpus: Option<u64>,
    /// Number of CPUs in the CPU affinity of the process.
    pub affinity_cpus: Option<u64>,
    pub memory_bytes: Option<u64>,
}

/// Processes that the kernel killed for lack of memory while a job ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OomKills {
    pub processes: u64,
    /// True if a cgroup of the job counted the kills, and the cgroup had no other processes at the start. False if the
    /// kills only probably concern the job.
    pub certain: bool,
    /// Memory limit of the cgroup that counted the kills.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
}

/// OOM kills since the start of a job, by the kernel's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OomCounts {
    /// Kills in a cgroup of the job.
    pub in_groups: Option<GroupKills>,
    /// Whether the counter of the root process's cgroup is known, at the start and now.
    pub is_group_known: bool,
    /// Kills on the whole machine.
    pub on_machine: u64,
}

/// OOM kills in one cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupKills {
    pub processes: u64,
    pub limit_bytes: Option<u64>,
    /// Whether the cgroup has processes outside the job.
    pub is_shared: bool,
}

/// Peak memory of at least this share of the available memory makes an OOM kill of the job likely.
const NEAR_LIMIT: f64 = 0.8;

impl OomCounts {
    /// The kills that concern the job; `None` without evidence.
    ///
    /// `is_killed`: `SIGKILL` ended the job or its last command. `peak_bytes`: peak memory of the job. `memory_bytes`:
    /// memory that the job could use.
    ///
    /// | evidence | kill |
    /// |---|---|
    /// | counted in a cgroup of the job without other processes | certain |
    /// | counted in a cgroup that the job shares; peak near the limit | likely |
    /// | counter of the job's cgroup unknown; counted on the machine; `SIGKILL`; peak near the limit | likely |
    /// | otherwise | none |
    pub fn of_job(
        &self,
        is_killed: bool,
        peak_bytes: Option<f64>,
        memory_bytes: Option<f64>,
    ) -> Option<OomKills> {
        #[expect(clippy::cast_precision_loss, reason = "memory sizes are far below 2^53 bytes")]
        let is_near = |limit_bytes: Option<u64>| {
            let available = limit_bytes.map(|bytes| bytes as f64).into_iter().chain(memory_bytes);
            peak_bytes.zip(available.reduce(f64::min)).is_some_and(|(peak, all)| peak >= all * NEAR_LIMIT)
        };
        if let Some(GroupKills { processes, limit_bytes, is_shared }) = self.in_groups {
            let kills = OomKills { processes, certain: !is_shared, limit_bytes };
            return Some(kills).filter(|_| !is_shared || is_near(limit_bytes));
        }
        let is_likely = self.on_machine > 0 && !self.is_group_known && is_killed && is_near(None);
        is_likely.then_some(OomKills { processes: self.on_machine, certain: false, limit_bytes: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_of_an_oom_kill_is_graded() {
        let group = |is_shared| Some(GroupKills { processes: 1, limit_bytes: Some(1000), is_shared });
        let counts = |in_groups, is_group_known| OomCounts { in_groups, is_group_known, on_machine: 1 };
        let certain = |counts: OomCounts, is_killed, peak| {
            counts.of_job(is_killed, Some(peak), Some(4000.0)).map(|kills| kills.certain)
        };
        assert_eq!(certain(counts(group(false), true), false, 1.0), Some(true), "a cgroup of the job's own");
        assert_eq!(certain(counts(group(true), true), true, 900.0), Some(false), "a shared cgroup");
        assert_eq!(certain(counts(group(true), true), true, 500.0), None, "far from the limit");
        assert_eq!(certain(counts(None, false), true, 3900.0), Some(false), "only the machine counts");
        assert_eq!(certain(counts(None, false), true, 508.0), None, "far from the memory of the machine");
        assert_eq!(certain(counts(None, false), false, 3900.0), None, "not killed");
        assert_eq!(certain(counts(None, true), true, 3900.0), None, "the job's cgroup counted no kill");
        assert_eq!(counts(None, false).of_job(true, None, Some(1.0)), None, "memory was not measured");
    }
}
