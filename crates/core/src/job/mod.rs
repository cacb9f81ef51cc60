//! The processes of a job, and their usage.
//!
//! In:  a snapshot of the machine, and the children that the tracker reaped. Out: one [`JobUsage`] per sample.
//! [`TrackedJob`] has one implementation per backend: `procfs` on Linux, and `portable` on all systems.

#[cfg(target_os = "linux")]
mod begin;
pub mod counter;
#[cfg(target_os = "linux")]
pub(crate) mod descendants;
pub mod ledger;
#[cfg(target_os = "linux")]
mod limit_watch;
#[cfg(target_os = "linux")]
pub mod memory;
#[cfg(target_os = "linux")]
mod new_pids;
#[cfg(target_os = "linux")]
mod orphans;
pub(crate) mod portable;
#[cfg(target_os = "linux")]
pub mod procfs;
pub mod programs;
#[cfg(target_os = "linux")]
mod steal;
#[cfg(target_os = "linux")]
mod threads;
#[cfg(target_os = "linux")]
pub mod tree;
pub mod usage;

use crate::config::{Backend, Config};
use crate::error::SourceError;
use crate::job::counter::TreeCounter;
use crate::job::ledger::Reaped;
use crate::job::programs::ProgramFigures;
use crate::job::usage::JobUsage;
use crate::os::Ended;
use crate::probe::MachineProbe;
use crate::probe::evidence::LimitReached;
use crate::probe::snapshot::Snapshot;

/// Where the sampling thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplerPlace {
    /// In threads of process `pid`, which may be the root of the job. `cpu_ns` is the CPU time of these threads so far,
    /// and is subtracted from the CPU time of the process.
    InHostProcess { pid: u32, cpu_ns: u64 },
    /// In a process that is not part of the job.
    OwnProcess,
}

impl SamplerPlace {
    /// CPU time of the sampling threads in this process so far; `None` if it has none.
    pub fn cpu_ns_in(self, process: u32) -> Option<u64> {
        match self {
            Self::InHostProcess { pid, cpu_ns } => (pid == process).then_some(cpu_ns),
            Self::OwnProcess => None,
        }
    }
}

/// What a sample between rows found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BetweenRows {
    pub memory: MemoryActivity,
    /// CPU time for reading PSS, which has a budget of its own.
    pub pass_cost_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryActivity {
    /// Memory has changed, or processes have started or ended.
    Changing,
    /// The same, and memory is near its highest level so far.
    NearPeak,
    Steady,
    /// No process of the job has run.
    Idle,
    /// Memory is read at rows only.
    NotFollowed,
}

/// A job as one backend tracks it.
pub trait TrackedJob: Send {
    /// Takes a sample; `snapshot` is the machine at the same moment.
    fn read(
        &mut self,
        snapshot: &Snapshot,
        reaped: &[Reaped],
        sampler: SamplerPlace,
    ) -> Result<JobUsage, SourceError>;
    /// Takes a sample between two rows. Clears `reaped` if it was counted.
    fn sample(
        &mut self,
        machine: &mut MachineProbe,
        reaped: &mut Vec<Reaped>,
        sampler: SamplerPlace,
    ) -> BetweenRows;
    /// Called when the root, a child of the tracker, has ended: `ended` is its exact usage. `own_rss_kib` is the RSS of
    /// the tracker when it forked the root, since `VmHWM` of a forked child starts with this value. Returns
    /// whether the last row has a peak of the kernel that no sample saw: it may be from any moment of the run.
    fn end(&mut self, ended: Ended, own_rss_kib: u64) -> bool;
    /// Called after each row: peaks start again.
    fn start_interval(&mut self);
    /// Whether the root is alive now.
    fn is_root_still_alive(&self) -> bool;
    /// Pid of the root.
    fn pid(&self) -> u32;
    /// Pids of all members at the last sample, in ascending order.
    fn members(&self) -> Vec<u32>;
    fn cpu_source(&self) -> &'static str;
    /// CPU time of ended processes that no parent reaped, up to the last sample of each process.
    fn unreaped_cpu_ns(&self) -> u64;
    /// Whether the storage bytes of a member could not be read.
    fn is_io_denied(&self) -> bool;
    /// Usage by program; empty where it is not measured.
    fn programs(&self) -> Vec<ProgramFigures> {
        Vec::new()
    }
    /// Limits that the processes of the job came near; empty where they are not read.
    fn limits_reached(&self) -> Vec<LimitReached> {
        Vec::new()
    }
    /// Whether processes that left the tree are counted as members by a guess.
    fn has_guessed_members(&self) -> bool;
}

/// The running job to attach to.
#[derive(Clone, Copy, Debug)]
pub struct AttachRequest<'c> {
    /// Pid of the root.
    pub pid: u32,
    pub config: &'c Config,
    pub sampler: SamplerPlace,
    /// Whether the calling thread only samples, and is not part of the job.
    pub has_own_thread: bool,
}

/// A running job, with its usage at the baseline.
pub struct AttachedJob {
    pub job: Box<dyn TrackedJob>,
    pub usage: JobUsage,
    /// Notes for the user about sources that are not available.
    pub notes: Vec<String>,
}

/// A job that the tracker has just started.
#[derive(Debug)]
pub struct LaunchedJob<'c> {
    /// Pid of the root, which is a child of the tracker.
    pub pid: u32,
    pub config: &'c Config,
    pub counter: Option<TreeCounter>,
}

/// Attaches to a running job.
pub fn attach(
    machine: &MachineProbe,
    request: AttachRequest<'_>,
    baseline: &Snapshot,
) -> Result<AttachedJob, SourceError> {
    machine.root().check_processes()?;
    match machine.backend() {
        #[cfg(target_os = "linux")]
        Backend::Procfs => begin::attach(machine.root(), request, baseline),
        _ => portable::attach(machine.table(), request, baseline),
    }
}

/// Starts to track a job that the tracker has just started.
pub fn track(machine: &MachineProbe, launched: LaunchedJob<'_>) -> Box<dyn TrackedJob> {
    match machine.backend() {
        #[cfg(target_os = "linux")]
        Backend::Procfs => begin::track(machine.root(), launched),
        _ => portable::track(machine.table(), launched),
    }
}
