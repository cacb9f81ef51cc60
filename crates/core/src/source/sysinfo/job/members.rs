//! Who belongs to a job: the processes below its root, by who started whom, and orphans that come to us.
//!
//! Once a member, always a member: a process whose parent ends is given to another, and would leave the tree. A parent
//! that is younger than its child is somebody else who got the number.

use ::sysinfo::{Pid, ProcessStatus, ProcessesToUpdate, System};

use super::super::listed;
use super::Job;

/// Who receives the job's orphans, where the system gives them to us.
#[derive(Debug)]
pub struct Reaper {
    /// We.
    pub pid: u32,
    /// Children that we had before the job.
    pub known: Vec<u32>,
}

/// One process of the job.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub pid: u32,
    pub ppid: u32,
    /// Seconds since 1970: with the pid, who it is.
    pub start_s: u64,
    pub is_alive: bool,
    pub rss_kib: u64,
    /// Its pages were looked at, or that was refused.
    pub is_looked_at: bool,
    /// Its share of memory (PSS, USS where there is none), and what was resident at that look.
    pub share: Option<(u64, u64)>,
}

impl Member {
    /// The last share and the growth of RSS since; RSS where there is none.
    pub fn memory_kib(&self) -> u64 {
        self.share.map_or(self.rss_kib, |(share_kib, rss_kib)| {
            share_kib.saturating_add(self.rss_kib).saturating_sub(rss_kib)
        })
    }
}

impl Job {
    /// Who belongs to the job now, with the memory and the storage bytes of each.
    pub(super) fn find_members(&mut self, system: &mut System) {
        let is_there = |member: &Member| {
            let process = system.process(Pid::from_u32(member.pid));
            process.is_some_and(|process| process.start_time() == member.start_s)
        };
        let mut members: Vec<Member> = std::mem::take(&mut self.members);
        members.retain(is_there);
        if self.ended.is_none() && !members.iter().any(|member| member.pid == self.pid) {
            members.extend(system.process(Pid::from_u32(self.pid)).map(member_of));
        }
        if self.with_children {
            self.add_descendants(system, &mut members);
        }
        members.sort_unstable_by_key(|member| member.pid);
        let pids: Vec<Pid> = members.iter().map(|member| Pid::from_u32(member.pid)).collect();
        let what = listed().with_memory().with_disk_usage();
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
        // We are no part of the job we watch, unless it is our own host.
        others.retain(|other| other.pid != own && members.iter().all(|member| member.pid != other.pid));
        if let Some(reaper) = &self.reaper {
            let is_orphan = |other: &Member| other.ppid == reaper.pid && !reaper.known.contains(&other.pid);
            members.extend(others.extract_if(.., |other| is_orphan(other) && other.pid != self.pid));
        }
        let mut at = 0;
        while let Some((parent, since_s)) = members.get(at).map(|member| (member.pid, member.start_s)) {
            at += 1;
            let is_child = |other: &mut Member| other.ppid == parent && other.start_s >= since_s;
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
        is_looked_at: false,
        share: None,
    }
}
