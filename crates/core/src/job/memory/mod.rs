//! Memory of the job: the distinct pages of all its processes, now, at its peak, and on average.
//!
//! In:  resident pages, page faults and high-water mark of each member that has run; PSS from `smaps_rollup`; the
//!      counters `AnonPages` and `Mapped` of the machine.
//! Out: [`Level`] at each sample, and the peak and the mean since the last row.
//! Not here: the members of the job (`tree`), when samples are taken (`sampler/thread`).
//!
//! A *pass* (`pass`) reads the PSS of all processes that may share pages, in one go, so that their shares add up. The
//! kernel visits every page for it, so it is not possible at every sample. Between passes, the counters of each process
//! bound what the job can have gained and lost (`process`): private growth is exact; a copy-on-write break, the end of a
//! process that shares pages, and pages that a sibling may have mapped already are not. Within these bounds, the growth
//! of the machine's counters decides (`estimate`). They count each page once, but for all processes of the machine. A
//! change outside the bounds proves that other processes disturb them: then the largest of these processes are
//! subtracted (`neighbours`), or else the lower bound counts until the next pass.

mod estimate;
mod neighbours;
mod pass;
mod process;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use self::estimate::{Estimate, Range};
use self::neighbours::Neighbours;
use self::pass::Budget;
use self::process::{Family, Process, find, risen_kib};
use crate::job::tree::Member;
use crate::os::root::Root;
use crate::probe::procfs::{KeptFile, borrows_memory, parse_meminfo};

/// More page faults than this between two samples mean that memory is changing.
const CHANGING_KIB: i64 = 1024;
/// A level of this age still shows the memory of a job that ends. Samples of a job that runs are at most this far apart.
const RECENT_NS: u64 = 300_000_000;

/// Neighbours are looked for at most this often.
const NEIGHBOURS_NS: u64 = 500_000_000;

/// Memory of the whole job at one sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// Distinct pages. Pages that processes outside the job have too count in part, as in PSS.
    pub memory_kib: u64,
    /// Sum of the RSS of all processes.
    pub rss_kib: u64,
    /// Sum of the swapped memory of all processes.
    pub swap_kib: u64,
}

/// When a sample may read PSS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Never: a host process waits for this sample.
    NoPass,
    /// Between rows: if the level is uncertain, and may be a new peak.
    BetweenRows,
    /// For a row: if the level is uncertain.
    Row,
}

/// The memory of the job, updated at every sample.
#[derive(Debug, Default)]
pub struct Memory {
    /// In ascending order of pid.
    processes: Vec<Process>,
    /// Bounds of the distinct anonymous pages of each family.
    families: BTreeMap<Family, Range>,
    anon: Estimate,
    mapped: Estimate,
    /// Mapped pages of one process that count less than once in PSS, since processes outside the job have them too.
    shared_outside_kib: i64,
    /// The level at the last sample; `None` before the first pass.
    level: Option<Level>,
    budget: Budget,
    /// Highest level since the last row, and since the start.
    peak_kib: Option<u64>,
    highest_kib: u64,
    mean: Mean,
    meminfo: KeptFile,
    neighbours: Neighbours,
    neighbours_at_ns: u64,
    buffer: Vec<u8>,
}

impl Memory {
    /// Takes a sample of all live members; returns whether memory is changing.
    pub fn sample(&mut self, root: &Root, members: &[Member], now_ns: u64, effort: Effort) -> bool {
        let before = std::mem::take(&mut self.processes);
        self.processes = self.read_processes(root, members, &before);
        if self.processes.is_empty() {
            return false;
        }
        let (anon, mapped) = self.bounds(&before);
        let (machine_anon_kib, machine_mapped_kib) = self.machine_kib(root);
        self.anon.follow(anon, machine_anon_kib, now_ns);
        self.mapped.follow(mapped, machine_mapped_kib, now_ns);
        self.budget.save(now_ns);
        self.find_neighbours(root, now_ns);
        if self.wants_pass(effort, now_ns) {
            self.pass(root, now_ns);
        }
        if self.budget.has_passed() {
            let sum = |of: fn(&Process) -> u64| self.processes.iter().map(of).fold(0, u64::saturating_add);
            let memory_kib = unsigned(self.kib());
            let rss_kib = sum(|process| unsigned(process.rss_kib()));
            let level = Level { memory_kib, rss_kib, swap_kib: sum(|process| process.swap_kib) };
            self.prove_peak(memory_kib);
            if let Some(then) = self.level.replace(level) {
                let levels_kib = [then.memory_kib, memory_kib].map(signed);
                self.prove_peak(unsigned(risen_kib(&before, &self.processes, levels_kib)));
            }
            self.mean.add(now_ns, memory_kib);
        }
        let faulted_kib = |processes: &[Process]| processes.iter().map(|one| one.faulted_kib).sum::<i64>();
        before.len() != self.processes.len()
            || (faulted_kib(&self.processes) - faulted_kib(&before)).abs() > CHANGING_KIB
    }

    /// Takes a sample of a job in which no process has run since the last sample.
    pub fn sample_idle(&mut self, root: &Root, now_ns: u64) {
        let (anon_kib, mapped_kib) = self.machine_kib(root);
        self.anon.follow(self.anon.range(), anon_kib, now_ns);
        self.mapped.follow(self.mapped.range(), mapped_kib, now_ns);
        if let Some(level) = self.level {
            self.mean.add(now_ns, level.memory_kib);
            self.prove_peak(level.memory_kib);
        }
    }

    fn read_processes(&mut self, root: &Root, members: &[Member], before: &[Process]) -> Vec<Process> {
        // After `vfork`, a child uses the address space of its parent until it calls `exec`.
        let borrows = |member: &Member| {
            let parent = || members.iter().find(|other| other.pid == member.stat.ppid);
            member.stat.is_forked_child
                && find(before, member.pid).is_none()
                && parent().is_some_and(|parent| {
                    borrows_memory(root, (member.pid, &member.stat), (parent.pid, &parent.stat))
                })
        };
        let alive = members.iter().filter(|member| !member.stat.is_zombie() && !member.is_leaving);
        alive
            .filter(|member| !borrows(member))
            .map(|member| Process::read(root, member, before, &mut self.buffer))
            .collect()
    }

    /// Updates the bounds of each process and of each family; returns those of all anonymous and of all mapped pages.
    fn bounds(&mut self, before: &[Process]) -> (Range, Range) {
        let inherited = self.share_with_new_children(before);
        let is_alone = before.len() == 1 && self.processes.len() == 1;
        let then = std::mem::take(&mut self.families);
        let mut mapped = self.mapped.range();
        // Bounds that hold whatever was read before: the largest process of a family, and the sum of all.
        let mut sizes: BTreeMap<Family, Range> = BTreeMap::new();
        let mut mapped_sizes = Range { low: -self.shared_outside_kib, high: 0 };
        for process in &mut self.processes {
            let old = process.same_in(before);
            let (inherited_kib, outside_kib) = inherited.get(&process.pid).copied().unwrap_or_default();
            process.outside_kib = process.outside_kib.max(outside_kib);
            let (anon_growth, mapped_growth) = process.follow(old, inherited_kib, is_alone);
            let family = self.families.entry(process.family);
            let family = family.or_insert_with(|| then.get(&process.family).copied().unwrap_or_default());
            *family = *family + anon_growth;
            mapped = mapped + mapped_growth;
            let size = sizes.entry(process.family).or_default();
            size.high += process.anon_kib;
            size.low = size.low.max(process.anon_kib - process.outside_kib);
            mapped_sizes.high += process.mapped_kib;
            mapped_sizes.low = mapped_sizes.low.max(process.mapped_kib - self.shared_outside_kib);
        }
        for ended in before.iter().filter(|process| process.same_in(&self.processes).is_none()) {
            let (anon_growth, mapped_growth) = ended.growth_by_end();
            if let Some(family) = self.families.get_mut(&ended.family) {
                *family = *family + anon_growth;
            }
            mapped = mapped + mapped_growth;
        }
        for (family, size) in sizes {
            self.families.entry(family).and_modify(|range| *range = range.within(size));
        }
        (self.anon_range(), mapped.within(mapped_sizes))
    }

    /// A new forked child shares all pages with its parent, or with any relative if its parent has ended. Returns the
    /// anonymous pages that each new child inherited, and how many of them processes outside the job may have: all, if
    /// its parent is not in the job.
    fn share_with_new_children(&mut self, before: &[Process]) -> BTreeMap<u32, (i64, i64)> {
        let mut inherited = BTreeMap::new();
        let mut sharing: Vec<u32> = Vec::new();
        let is_new = |process: &&Process| process.is_forked && process.same_in(before).is_none();
        for new in self.processes.iter().filter(is_new) {
            let all = before.iter().chain(&self.processes);
            let relatives = || all.clone().filter(|one| one.family == new.family && one.pid != new.pid);
            let inherited_kib = relatives().map(|one| one.anon_kib).max().unwrap_or(0);
            let parent = find(before, new.ppid).filter(|parent| parent.family == new.family);
            let outside_kib = parent.map_or(new.anon_kib, |parent| parent.outside_kib);
            inherited.insert(new.pid, (inherited_kib, outside_kib));
            let has_parent = relatives().any(|one| one.pid == new.ppid);
            sharing.push(new.pid);
            sharing.extend(relatives().map(|one| one.pid).filter(|pid| !has_parent || *pid == new.ppid));
        }
        for process in self.processes.iter_mut().filter(|process| sharing.contains(&process.pid)) {
            process.shared_kib = process.anon_kib;
        }
        inherited
    }

    fn kib(&self) -> i64 {
        self.anon.kib() + self.mapped.kib()
    }

    fn anon_range(&self) -> Range {
        self.families.values().fold(Range::default(), |sum, family| sum + *family)
    }

    /// Anonymous pages of the machine without its large neighbours, and mapped pages of the machine.
    fn machine_kib(&mut self, root: &Root) -> (Option<i64>, Option<i64>) {
        let text = self.meminfo.text(root, "/proc/meminfo").ok();
        let found = text.and_then(|text| parse_meminfo(text).ok()).unwrap_or_default();
        let others_kib = self.neighbours.anon_kib(root, &mut self.buffer);
        (found.anon_kib.map(|kib| signed(kib) - others_kib), found.mapped_kib.map(signed))
    }

    /// If the counter is disturbed: looks for the processes that disturb it.
    fn find_neighbours(&mut self, root: &Root, now_ns: u64) {
        let was_tried = now_ns.saturating_sub(self.neighbours_at_ns) < NEIGHBOURS_NS;
        if !self.anon.is_distrusted(now_ns) || was_tried || !self.budget.is_positive() {
            return;
        }
        self.neighbours_at_ns = now_ns;
        let start_ns = spent_ns();
        let processes = &self.processes;
        self.neighbours.find(root, |pid| find(processes, pid).is_some(), &mut self.buffer);
        self.budget.spend(spent_ns() - start_ns);
        let (anon_kib, _) = self.machine_kib(root);
        self.anon.trust(anon_kib);
    }

    /// Adds a proof that the job had this much memory at some moment of the interval.
    pub fn prove_peak(&mut self, kib: u64) {
        self.peak_kib = self.peak_kib.max(Some(kib));
        self.highest_kib = self.highest_kib.max(kib);
    }

    /// The largest high-water mark of any member at the last sample.
    pub fn largest_peak_rss_kib(&self) -> Option<u64> {
        self.processes.iter().map(|process| unsigned(process.peak_rss_kib)).max()
    }

    /// Whether the next sample may show a new peak of the job.
    pub fn is_near_peak(&self) -> bool {
        self.level.is_none_or(|level| level.memory_kib > self.highest_kib / 8 * 7)
    }

    /// Whether a sample has given a level so far.
    pub const fn has_level(&self) -> bool {
        self.level.is_some()
    }

    /// The level at the last sample; `None` if that was so long ago that it does not show the memory at this row.
    pub fn level(&self, now_ns: u64) -> Option<Level> {
        let is_recent = |(at_ns, _): (u64, u64)| now_ns.saturating_sub(at_ns) <= RECENT_NS;
        self.level.filter(|_| self.peak_kib.is_some() || self.mean.last.is_some_and(is_recent))
    }

    /// The largest memory that was proved since the last row.
    pub const fn peak_kib(&self) -> Option<u64> {
        self.peak_kib
    }

    /// The mean since the last row, weighted by time.
    pub fn mean_kib(&self) -> Option<u64> {
        self.mean.kib().or_else(|| Some(self.level?.memory_kib))
    }

    /// CPU time of the pass of the last sample; 0 without a pass.
    pub const fn pass_cost_ns(&self) -> u64 {
        self.budget.last_cost_ns
    }

    /// Called after each row: peak and mean start again.
    pub const fn start_interval(&mut self) {
        self.peak_kib = None;
        self.mean.restart();
    }
}

/// Integral of the memory over time since the last row.
#[derive(Debug, Default)]
struct Mean {
    kib_ns: u128,
    elapsed_ns: u64,
    /// Time and level of the last sample.
    last: Option<(u64, u64)>,
}

impl Mean {
    fn add(&mut self, at_ns: u64, kib: u64) {
        if let Some((then_ns, then_kib)) = self.last.replace((at_ns, kib)) {
            let elapsed_ns = at_ns.saturating_sub(then_ns);
            self.elapsed_ns += elapsed_ns;
            self.kib_ns += u128::from(elapsed_ns) * (u128::from(then_kib) + u128::from(kib)) / 2;
        }
    }

    fn kib(&self) -> Option<u64> {
        u64::try_from(self.kib_ns.checked_div(u128::from(self.elapsed_ns))?).ok()
    }

    const fn restart(&mut self) {
        (self.kib_ns, self.elapsed_ns) = (0, 0);
    }
}

/// CPU time of this thread so far. On a busy machine, the duration of a pass is longer than its CPU time.
fn spent_ns() -> u64 {
    crate::os::thread_cpu_ns().unwrap_or(0)
}

fn page_kib() -> i64 {
    i64::try_from(rustix::param::page_size() / 1024).unwrap_or(4)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX / 1024)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
