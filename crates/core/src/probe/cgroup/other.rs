//! Systems other than Linux have no cgroups.

use super::{Limits, OomCounts};
use crate::os::root::Root;
use crate::probe::evidence::LimitReached;
use crate::probe::snapshot::Snapshot;

#[derive(Debug, Default)]
pub struct JobCgroups;

impl JobCgroups {
    pub const fn follow(&mut self, _root: &Root, _pid: u32) {}

    pub const fn follow_members(&mut self, _root: &Root, _members: &[u32], _job_pid: u32) {}

    pub const fn read(&mut self, _root: &Root, _snapshot: &mut Snapshot) {}

    pub fn limits(&self, _root: &Root, _pid: Option<u32>) -> Limits {
        Limits::default()
    }

    pub fn oom_counts(&self, _root: &Root) -> OomCounts {
        OomCounts::default()
    }

    pub const fn process_limit_reached(&self, _root: &Root) -> Option<LimitReached> {
        None
    }
}

pub fn read_limits(_root: &Root, _pid: &str) -> Limits {
    Limits::default()
}
