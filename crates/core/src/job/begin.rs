//! How a job begins to be followed: one that runs already, or one that we have just started.
//!
//! Out: the job with the root that its files are below, as the sampler follows any.

use std::sync::Arc;

use super::Job;
use crate::config::CpuSource;
use crate::counter::{OwnThread, TreeCounter};
use crate::error::SourceError;
use crate::follow::{FollowedJob, Found, Sampler, Started, Wanted};
use crate::ledger::Reaped;
use crate::reading;
use crate::root::Root;
use crate::snapshot::{JobReading, Snapshot};
use crate::sys::Ended;

/// Begins to follow a job that runs already; what it spent so far is not the recording's.
///
/// # Errors
/// Where it is not there, has ended, or cannot be read.
pub fn follow(root: &Arc<Root>, wanted: Wanted<'_>, baseline: &Snapshot) -> Result<Found, SourceError> {
    let Wanted { pid, config, sampler, has_own_thread } = wanted;
    // A host is not held up for longer on a machine with more processes: those that the kernel does not list as its
    // own are not asked for their parents.
    let own = if config.as_guest { reading::descendants(root, pid) } else { None };
    let known = own.map_or_else(Vec::new, |own| {
        let all = baseline.pids.iter().flatten().copied();
        all.filter(|pid| own.binary_search(pid).is_err()).collect()
    });
    let mut job = Job::new(root, pid, config, None, known, None);
    // A host that waits for its own baseline is still there for the first look that makes a row.
    job.memory.rest(config.as_guest && pid == std::process::id());
    job.read(root, baseline, &[], sampler)?;
    if !job.is_root_alive() {
        return Err(SourceError::Gone { path: format!("/proc/{pid}").into() });
    }
    let (mut counter, mut notes) = (None, Vec::new());
    // A thread that only samples is no part of any job, be it of this tracker or of one that was here before.
    job.own_thread = has_own_thread.then(OwnThread::enter);
    if config.cpu_source == CpuSource::Best && config.children {
        match TreeCounter::for_running(root, job.members(), config.as_guest) {
            Ok(found) => counter = Some(found),
            Err(why) => notes.push(why),
        }
    }
    job.count_from_here(root, counter);
    let reading = job.read(root, baseline, &[], sampler)?;
    job.memory.rest(false);
    Ok(Found { job: Box::new(Rooted { root: Arc::clone(root), job }), reading, notes })
}

/// Begins to follow a job that we have just started.
#[must_use]
pub fn adopt(root: &Arc<Root>, started: Started<'_>) -> Box<dyn FollowedJob> {
    let Started { pid, config, known, counter } = started;
    let job = Job::new(root, pid, config, Some(std::process::id()), known, counter);
    Box::new(Rooted { root: Arc::clone(root), job })
}

/// A job, and where its files are.
struct Rooted {
    root: Arc<Root>,
    job: Job,
}

impl FollowedJob for Rooted {
    fn read(
        &mut self,
        snapshot: &Snapshot,
        reaped: &[Reaped],
        sampler: Sampler,
    ) -> Result<JobReading, SourceError> {
        self.job.read(&self.root, snapshot, reaped, sampler)
    }

    fn end(&mut self, ended: Ended, own_rss_kib: u64) {
        self.job.end(ended, own_rss_kib);
    }

    fn start_interval(&mut self) {
        self.job.start_interval();
    }

    fn is_root_still_alive(&self) -> bool {
        self.job.is_root_still_alive(&self.root)
    }

    fn pid(&self) -> u32 {
        self.job.pid()
    }

    fn members(&self) -> Vec<u32> {
        self.job.members().iter().map(|member| member.pid).collect()
    }

    fn cpu_source(&self) -> &'static str {
        self.job.cpu_source()
    }

    fn unreceived_cpu_ns(&self) -> u64 {
        self.job.unreceived_cpu_ns()
    }

    fn is_io_denied(&self) -> bool {
        self.job.is_io_denied()
    }
}
