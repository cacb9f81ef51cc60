//! The cgroups of the job: throttled time and charged memory at each sample, limits, and OOM kills.
//!
//! In:  `/proc/[pid]/cgroup` of the root process at each sample; at each row, of new members and, in turn, of a few others.
//! Out: fields of [`Snapshot`], [`Limits`], [`OomCounts`].
//!
//! Before the job starts, its cgroups are those of the tracker, which it inherits. It may move itself to others, for
//! instance with `systemd-run --scope` or `cgexec`.

use super::groups::{Group, groups_in, parse_key};
use super::limits::{affinity_cpus, cpu_limit, group_limits};
use super::oom::OomWatch;
use super::pids::PidsWatch;
use super::{Limits, OomCounts};
use crate::os::pid_path;
use crate::os::root::{Kept, Root};
use crate::probe::evidence::LimitReached;
use crate::probe::procfs::parse_is_exiting;
use crate::probe::snapshot::Snapshot;

/// At most this many members are asked for their cgroups at a row, and so many of them that have been asked before.
const MOST_MEMBERS: usize = 64;
const IN_TURN: usize = 4;

#[derive(Debug, Default)]
pub struct JobCgroups {
    /// `/proc/[pid]/cgroup` of the root process when the files below were found.
    memberships: String,
    throttle: Option<Throttle>,
    memory: Option<Kept>,
    /// The file `memory.stat` and its keys of shared memory and of mapped files; only if the job has the cgroup for
    /// itself.
    memory_stat: Option<(Kept, [&'static str; 2])>,
    limits: Limits,
    oom: OomWatch,
    pids: PidsWatch,
    /// The cgroups that other members were found in.
    of_members: Vec<Vec<u8>>,
    /// The members of the last row, in ascending order, and the first of them that is asked again.
    asked: Vec<u32>,
    turn: usize,
    buffer: Vec<u8>,
}

/// The throttled time of one cgroup.
#[derive(Debug)]
struct Throttle {
    /// The file `cpu.stat`, the key of the time in this file, and its unit in nanoseconds.
    file: Kept,
    key: &'static str,
    unit_ns: u64,
    /// The counter when the job entered the cgroup, and the time that was reported then.
    at_entry_ns: u64,
    before_ns: u64,
}

impl Throttle {
    fn open(root: &Root, group: &Group) -> Option<Self> {
        // Throttled time is counted by the group that has the quota, which may be an ancestor of this group.
        let limited = group.upwards().find(|folder| cpu_limit(root, group.unified, folder).is_some())?;
        let file = root.keep(&format!("{limited}/cpu.stat")).ok()?;
        let (key, unit_ns) = if group.unified { ("throttled_usec", 1_000) } else { ("throttled_time", 1) };
        let mut opened = Self { file, key, unit_ns, at_entry_ns: 0, before_ns: 0 };
        opened.at_entry_ns = opened.read(root, &mut Vec::new())?;
        opened.before_ns = opened.at_entry_ns;
        Some(opened)
    }

    /// The throttled time of the job, which goes on growing after a change of the cgroup.
    fn read(&self, root: &Root, buffer: &mut Vec<u8>) -> Option<u64> {
        let time = parse_key(root.reread(&self.file, buffer).ok()?, self.key)?;
        time.checked_mul(self.unit_ns)?.checked_sub(self.at_entry_ns)?.checked_add(self.before_ns)
    }
}

impl JobCgroups {
    /// The cgroups of the tracker.
    pub fn new(root: &Root) -> Self {
        let mut own = Self { oom: OomWatch::start(root), ..Self::default() };
        if let Some(memberships) = root.text("/proc/self/cgroup") {
            own.enter(root, memberships, std::process::id());
        }
        own.limits.affinity_cpus = affinity_cpus(root, "self");
        own
    }

    /// Finds the cgroups of the job's root process, if they have changed since the last call.
    pub fn follow(&mut self, root: &Root, pid: u32) {
        let path = pid_path(pid, "cgroup");
        let Ok(text) = root.read(path.as_str(), &mut self.buffer) else { return };
        if text.trim_ascii_end() == self.memberships.as_bytes() {
            return;
        }
        let memberships = String::from_utf8_lossy(text).trim().to_owned();
        if is_live(root, pid) {
            self.enter(root, memberships, pid);
        }
    }

    /// Finds the cgroups of other members of the job, given in ascending order; none between rows. The kernel counts an OOM
    /// kill in the cgroup of the process.
    pub fn follow_members(&mut self, root: &Root, members: &[u32], job_pid: u32) {
        if members.is_empty() {
            return;
        }
        let first = if self.turn < members.len() { self.turn } else { 0 };
        self.turn = first + IN_TURN;
        let before = std::mem::replace(&mut self.asked, members.to_vec());
        let is_asked = |at: usize, pid: &u32| {
            (first..first + IN_TURN).contains(&at) || before.binary_search(pid).is_err()
        };
        let asked = members.iter().enumerate().filter(|(at, pid)| is_asked(*at, pid));
        for (_, pid) in asked.take(MOST_MEMBERS) {
            let Ok(text) = root.read(pid_path(*pid, "cgroup").as_str(), &mut self.buffer) else { continue };
            let text = text.trim_ascii_end();
            let is_known =
                text == self.memberships.as_bytes() || self.of_members.iter().any(|known| known == text);
            if !is_known && self.of_members.len() < MOST_MEMBERS && is_live(root, *pid) {
                let groups = groups_in(root, &String::from_utf8_lossy(text));
                self.of_members.push(text.to_vec());
                self.oom.watch(root, &groups, job_pid);
                self.pids.watch(root, &groups);
            }
        }
    }

    fn enter(&mut self, root: &Root, memberships: String, job_pid: u32) {
        let groups = groups_in(root, &memberships);
        self.memberships = memberships;
        self.limits = group_limits(root, &groups);
        self.limits.affinity_cpus = affinity_cpus(root, &job_pid.to_string());
        let before_ns = self.throttle.take().and_then(|throttle| throttle.read(root, &mut self.buffer));
        let mut limiting = groups.iter().filter(|group| group.unified || group.has("cpu"));
        self.throttle = limiting.find_map(|group| Throttle::open(root, group));
        if let Some((throttle, before_ns)) = self.throttle.as_mut().zip(before_ns) {
            throttle.before_ns = before_ns;
        }
        self.memory = groups.iter().find_map(|group| {
            let file = if group.unified { "memory.current" } else { "memory.usage_in_bytes" };
            memory_file(group, file, |path| root.keep(path).ok())
        });
        self.pids.watch(root, &groups);
        let is_own = self.oom.enter(root, &groups, job_pid);
        self.memory_stat = groups.iter().filter(|_| is_own).find_map(|group| {
            let keys =
                if group.unified { ["shmem", "file_mapped"] } else { ["total_shmem", "total_mapped_file"] };
            Some((memory_file(group, "memory.stat", |path| root.keep(path).ok())?, keys))
        });
    }

    /// The values of a cgroup that was removed are unknown.
    pub fn read(&mut self, root: &Root, snapshot: &mut Snapshot) {
        let buffer = &mut self.buffer;
        snapshot.throttled_ns = self.throttle.as_ref().and_then(|throttle| throttle.read(root, buffer));
        let text = self.memory.as_ref().and_then(|kept| root.reread(kept, buffer).ok());
        let text = text.and_then(|text| std::str::from_utf8(text).ok());
        snapshot.cgroup_memory_bytes = text.and_then(|text| text.trim().parse().ok());
        let stat = self.memory_stat.as_ref();
        snapshot.cgroup_unmapped_shmem_bytes = stat.and_then(|(kept, [shmem, mapped])| {
            let text = root.reread(kept, buffer).ok()?;
            // Mapped files include mapped shared memory, so the difference is a lower bound.
            Some(parse_key(text, shmem)?.saturating_sub(parse_key(text, mapped)?))
        });
    }

    /// The limits of the job. A program such as `taskset` changes the affinity after the start, so it is read again.
    pub fn limits(&self, root: &Root, pid: Option<u32>) -> Limits {
        let affinity_cpus = pid.and_then(|pid| affinity_cpus(root, &pid.to_string()));
        Limits { affinity_cpus: affinity_cpus.or(self.limits.affinity_cpus), ..self.limits }
    }

    pub fn oom_counts(&self, root: &Root) -> OomCounts {
        self.oom.counts(root)
    }

    /// The limit of processes of the job's cgroups, if the kernel refused a process.
    pub fn process_limit_reached(&self, root: &Root) -> Option<LimitReached> {
        self.pids.reached(root)
    }
}

/// Finds a file of the memory controller in a group, or in the nearest ancestor with this controller.
pub(super) fn memory_file<T>(group: &Group, file: &str, open: impl Fn(&str) -> Option<T>) -> Option<T> {
    let mut folders = group.upwards().filter(|_| group.counts_memory());
    folders.find_map(|folder| open(&format!("{folder}/{file}")))
}

/// Whether the process is not exiting. The version 1 cgroups of an exiting process appear as `/`.
fn is_live(root: &Root, pid: u32) -> bool {
    let mut buffer = Vec::new();
    let text = root.read(pid_path(pid, "stat").as_str(), &mut buffer).ok();
    text.and_then(parse_is_exiting) == Some(false)
}
