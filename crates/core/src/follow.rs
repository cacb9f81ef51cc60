//! A job that is followed, whichever backend reads it.
//!
//! In:  the machine's side of a moment, and the children that we reaped. Out: one [`JobReading`] a look.
//! Not here: how Linux's `/proc` is read (`job`), how other systems are (`source::sysinfo`).

use crate::config::Config;
use crate::counter::TreeCounter;
use crate::error::SourceError;
use crate::ledger::Reaped;
use crate::snapshot::{JobReading, Snapshot};
use crate::sys::Ended;

/// Where the sampling thread lives: in the job's root process its CPU time must be taken out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampler {
    /// A thread of process `pid`, which has spent `cpu_ns` so far.
    InsideOf {
        /// The host process.
        pid: u32,
        /// Spent by the sampling thread.
        cpu_ns: u64,
    },
    /// A process that is not the job's.
    Outside,
}

/// A job as one backend follows it: cumulative amounts that never fall, and levels.
pub trait FollowedJob: Send {
    /// Looks at the job now; `snapshot` has the machine's side of the same moment.
    ///
    /// # Errors
    /// Where the root is there and cannot be read.
    fn read(
        &mut self,
        snapshot: &Snapshot,
        reaped: &[Reaped],
        sampler: Sampler,
    ) -> Result<JobReading, SourceError>;
    /// The root, a child of ours, has ended, and this is exact. `own_rss_kib` is what we held when we started it.
    fn end(&mut self, ended: Ended, own_rss_kib: u64);
    /// A row was made of the last reading: peaks are of the next interval from here on.
    fn start_interval(&mut self);
    /// Whether the root is there and alive now.
    fn is_root_still_alive(&self) -> bool;
    /// The root.
    fn pid(&self) -> u32;
    /// All that belonged to it at the last look.
    fn members(&self) -> Vec<u32>;
    /// How CPU time is counted.
    fn cpu_source(&self) -> &'static str;
    /// CPU time of ended processes that nobody received: their last part was not seen.
    fn unreceived_cpu_ns(&self) -> u64;
    /// Whether some member's storage bytes could not be read.
    fn is_io_denied(&self) -> bool;
}

/// A job that runs already, as it was when we came.
pub struct Found {
    /// The job.
    pub job: Box<dyn FollowedJob>,
    /// Its part of the baseline.
    pub reading: JobReading,
    /// What could not be had.
    pub notes: Vec<String>,
}

/// Who is to be followed, and by whom.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'w> {
    /// The root of the tree.
    pub pid: u32,
    /// What the user chose.
    pub config: &'w Config,
    /// Where the sampling thread lives.
    pub sampler: Sampler,
    /// We look from a thread of our own, which is no part of the job.
    pub has_own_thread: bool,
}

/// A job that we have just started.
#[derive(Debug)]
pub struct Started<'s> {
    /// The root of the tree, a child of ours.
    pub pid: u32,
    /// What the user chose.
    pub config: &'s Config,
    /// Processes that are older than the job.
    pub known: Vec<u32>,
    /// What counts its CPU time.
    pub counter: Option<TreeCounter>,
}
