//! Members of a job: the descendants of its root, and orphans that the tracker adopts.
//!
//! A member stays a member when its parent ends and it gets another parent. A process that started after its supposed
//! child is not the parent: it has reused the pid of the parent.

use ::sysinfo::{Pid, ProcessStatus, ProcessesToUpdate, System};

use super::Job;
use crate::probe::portable::identity_only;

/// The process that adopts orphans of the job: the tracker, as a subreaper.
#[derive(Debug)]
pub struct Reaper {
    pub pid: u32,
    /// Processes that are older than the job. If they are children of the reaper, they are not orphans of the job.
    pub known: Vec<u32>,
}

#[derive(Clone, Debug)]
pub(super) struct Member {
    pub pid: u32,
    pub ppid: u32,
    /// Start time in Unix seconds. Pid and start time identify a process.
    pub start_s: u64,
    pub is_alive: bool,
    pub rss_kib: u64,
    /// Whether `share` was read or denied.
    pub is_share_read: bool,
    /// PSS (or USS on systems without PSS), and RSS at the same moment; `None` if it was not read or denied.
    pub share: Option<(u64, u64)>,
}

impl Member {
    /// The last share plus the growth of RSS since then; RSS if there is no share.
    pub fn memory_kib(&self) -> u64 {
        self.share.map_or(self.rss_kib, |(share_kib, rss_kib)| {
            share_kib.saturating_add(self.rss_kib).saturating_sub(rss_kib)
        })
    }
}

impl Job {
    /// Updates the members, and the memory and storage bytes of each member.
    pub(super) fn find_members(&mut self, system: &mut System) {
        let exists = |member: &Member| {
            let process = system.process(Pid::from_u32(member.pid));
            process.is_some_and(|process| process.start_time() == member.start_s)
        };
        let mut members: Vec<Member> = std::mem::take(&mut self.members);
        members.retain(exists);
        if self.ended.is_none() && !members.iter().any(|member| member.pid == self.pid) {
            members.extend(system.process(Pid::from_u32(self.pid)).map(member_of));
        }
        if self.with_children {
            self.add_descendants(system, &mut members);
        }
        members.sort_unstable_by_key(|member| member.pid);
        let pids: Vec<Pid> = members.iter().map(|member| Pid::from_u32(member.pid)).collect();
        let what = identity_only().with_memory().with_disk_usage();
        system.refresh_processes_specifics(ProcessesToUpdate::Some(&pids), true, what);
        members.retain_mut(|member| {
            let Some(process) = system.process(Pid::from_u32(member.pid)) else { return false };
            member.rss_kib = process.memory() / 1024;
            member.is_alive = is_alive(process);
            true
        });
        self.members = members;
    }

    fn add_descendants(&self, system: &System, members: &mut Vec<Member>) {
        let own = std::process::id();
        let mut others: Vec<Member> = system.processes().values().map(member_of).collect();
        // The tracker is not part of the job, unless its own process is the root.
        others.retain(|other| other.pid != own && members.iter().all(|member| member.pid != other.pid));
        if let Some(reaper) = &self.reaper {
            let is_orphan = |other: &Member| other.ppid == reaper.pid && !reaper.known.contains(&other.pid);
            members.extend(others.extract_if(.., |other| is_orphan(other) && other.pid != self.pid));
        }
        let mut at = 0;
        while let Some((parent, start_s)) = members.get(at).map(|member| (member.pid, member.start_s)) {
            at += 1;
            let is_child = |other: &mut Member| other.ppid == parent && other.start_s >= start_s;
            members.extend(others.extract_if(.., is_child));
        }
    }
}

pub(super) fn is_alive(process: &::sysinfo::Process) -> bool {
    !matches!(process.status(), ProcessStatus::Zombie | ProcessStatus::Dead)
}

fn member_of(process: &::sysinfo::Process) -> Member {
    Member {
        pid: process.pid().as_u32(),
        ppid: process.parent().map_or(0, Pid::as_u32),
        start_s: process.start_time(),
        is_alive: is_alive(process),
        rss_kib: process.memory() / 1024,
        is_share_read: false,
        share: None,
    }
}
