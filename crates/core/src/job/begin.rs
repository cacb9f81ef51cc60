//! Start of tracking with procfs: attach to a running job, or track a job that the tracker has just started.
//!
//! In:  an [`AttachRequest`] or a [`LaunchedJob`]. Out: a [`TrackedJob`].

use std::sync::Arc;

use super::descendants;
use super::procfs::Job;
use crate::config::CpuSource;
use crate::error::SourceError;
use crate::job::counter::{OwnThread, TreeCounter};
use crate::job::ledger::Reaped;
use crate::job::programs::ProgramFigures;
use crate::job::usage::JobUsage;
use crate::job::{AttachRequest, AttachedJob, BetweenRows, LaunchedJob, SamplerPlace, TrackedJob};
use crate::os::Ended;
use crate::os::root::Root;
use crate::probe::MachineProbe;
use crate::probe::evidence::LimitReached;
use crate::probe::procfs::read_stat;
use crate::probe::snapshot::Snapshot;

/// Attaches to a running job. Usage before this moment is not part of the recording.
pub fn attach(
    root: &Arc<Root>,
    request: AttachRequest<'_>,
    baseline: &Snapshot,
) -> Result<AttachedJob, SourceError> {
    let AttachRequest { pid, config, sampler, has_own_thread } = request;
    let mut job = Job::new(root, pid, config, None, None);
    // A host process waits for the start, which must not take longer on a machine with many processes. So only the
    // descendants of the root are read, found by the kernel's lists of children.
    if let Some(own) = descendants::descendants(root, pid).filter(|_| config.in_process) {
        job.tree.new_pids.prepare(own);
    }
    // The host process waits for the baseline, so PSS is not read before the first row. A forked host is the exception: it
    // shares pages with its parent, and PSS shows how many only until the host has forked children of its own.
    let is_host = config.in_process && pid == std::process::id();
    job.may_pass = !is_host || read_stat(root, pid, &mut Vec::new()).is_ok_and(|stat| stat.is_forked_child);
    job.read(root, baseline, &[], sampler)?;
    if !job.is_root_alive() {
        return Err(SourceError::Gone { path: format!("/proc/{pid}").into() });
    }
    let (mut counter, mut notes) = (None, Vec::new());
    // Sampling threads, including those of other trackers in this process, are not part of any job.
    job.own_thread = has_own_thread.then(OwnThread::enter);
    if config.cpu_source == CpuSource::Best && config.children {
        match TreeCounter::for_running(root, job.members(), config.in_process) {
            Ok(found) => counter = Some(found),
            Err(why) => notes.push(why),
        }
    }
    job.count_from_here(counter);
    let usage = job.read(root, baseline, &[], sampler)?;
    job.may_pass = true;
    job.find_older_orphans();
    Ok(AttachedJob { job: Box::new(Rooted { root: Arc::clone(root), job }), usage, notes })
}

pub fn track(root: &Arc<Root>, launched: LaunchedJob<'_>) -> Box<dyn TrackedJob> {
    let LaunchedJob { pid, config, counter } = launched;
    let job = Job::new(root, pid, config, Some(std::process::id()), counter);
    Box::new(Rooted { root: Arc::clone(root), job })
}

/// A job, and the [`Root`] that its files are read from.
struct Rooted {
    root: Arc<Root>,
    job: Job,
}

impl TrackedJob for Rooted {
    fn read(
        &mut self,
        snapshot: &Snapshot,
        reaped: &[Reaped],
        sampler: SamplerPlace,
    ) -> Result<JobUsage, SourceError> {
        self.job.read(&self.root, snapshot, reaped, sampler)
    }

    fn sample(
        &mut self,
        _machine: &mut MachineProbe,
        reaped: &mut Vec<Reaped>,
        sampler: SamplerPlace,
    ) -> BetweenRows {
        self.job.sample_between_rows(&self.root, reaped, sampler)
    }

    fn end(&mut self, ended: Ended, own_rss_kib: u64) -> bool {
        self.job.end(ended, own_rss_kib)
    }

    fn start_interval(&mut self) {
        self.job.start_interval();
    }

    fn is_root_still_alive(&self) -> bool {
        self.job.is_root_still_alive(&self.root)
    }

    fn pid(&self) -> u32 {
        self.job.pid
    }

    fn members(&self) -> Vec<u32> {
        self.job.members().iter().map(|member| member.pid).collect()
    }

    fn cpu_source(&self) -> &'static str {
        self.job.cpu_source()
    }

    fn programs(&self) -> Vec<ProgramFigures> {
        self.job.programs()
    }

    fn limits_reached(&self) -> Vec<LimitReached> {
        self.job.limits.reached()
    }

    fn unreaped_cpu_ns(&self) -> u64 {
        self.job.ledger.unreaped_cpu_ns()
    }

    fn is_io_denied(&self) -> bool {
        self.job.io_denied
    }

    fn has_guessed_members(&self) -> bool {
        self.job.tree.has_guessed_members()
    }
}
