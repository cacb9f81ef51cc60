//! Follows the processes of a job and adds their usage to their programs.
//!
//! In:  the members at each sample, and their accounts at each update of the ledger. Out: [`ProgramFigures`].
//! Not here: the usage of the whole job (`ledger`), the names (`name`).
//!
//! A process is followed by its own CPU clock up to the last sample before its end. What it used after that is in cutime
//! of its parent, and is added to its program as far as the time since that sample allows. What no sample saw in a
//! process is a row of its own, so that the rows add up to the usage of the job.

use super::name::program_name;
use super::{NOT_SEEN, OTHER_PROGRAMS, ProgramFigures};
use crate::job::ledger::{Account, Reaped};
use crate::job::tree::Member;
use crate::os::pid_path;
use crate::os::root::Root;

/// Programs in a recording; the others are one row.
const MOST_ROWS: usize = 50;
/// Programs that are told apart while the job runs.
const MOST_NAMES: usize = 1000;

/// An ended process whose parent has not reaped it after this time is settled with what is known.
const REAPED_WITHIN_NS: u64 = 2_000_000_000;

/// Usage of a job so far, which the rows add up to.
#[derive(Clone, Copy, Debug, Default)]
pub struct JobTotals {
    pub cpu_ns: u64,
    /// `None` if storage bytes could not be read.
    pub storage: Option<Storage>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Storage {
    pub read_bytes: u64,
    pub write_bytes: u64,
}

impl Storage {
    pub const fn of(account: &Account) -> Self {
        Self { read_bytes: account.spent.read_bytes, write_bytes: account.spent.write_bytes }
    }

    const fn plus(self, other: Self) -> Self {
        Self {
            read_bytes: self.read_bytes.saturating_add(other.read_bytes),
            write_bytes: self.write_bytes.saturating_add(other.write_bytes),
        }
    }

    const fn minus(self, other: Self) -> Self {
        Self {
            read_bytes: self.read_bytes.saturating_sub(other.read_bytes),
            write_bytes: self.write_bytes.saturating_sub(other.write_bytes),
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Program {
    name: String,
    processes: u64,
    cpu_ns: u64,
    storage: Storage,
    memory_peak_kib: u64,
    first_ns: u64,
    last_ns: u64,
}

/// A process at the last sample that read it.
#[derive(Clone, Copy, Debug)]
struct Process {
    pid: u32,
    start_ticks: u64,
    ppid: u32,
    /// Fingerprint of the address space, and whether it is that of the parent: `exec` changes one of them.
    image: (Option<(u64, u64)>, bool),
    /// `None` if its name could not be read.
    program: Option<usize>,
    cpu_ns: u64,
    /// CPU time of reaped children, in total and up to the last child that was settled.
    cutime_ns: u64,
    settled_cutime_ns: u64,
    threads: u64,
    seen_ns: u64,
    /// Storage bytes of the process and of its reaped children at the last update of the ledger.
    storage: Storage,
    /// Storage bytes of children that ended since then; `None` if none did.
    ended_children: Option<Storage>,
}

#[derive(Debug, Default)]
pub struct Programs {
    programs: Vec<Program>,
    /// In ascending order of pid.
    processes: Vec<Process>,
    /// Ended processes whose parent has not reaped them yet.
    unsettled: Vec<Process>,
    buffer: Vec<u8>,
}

fn find(processes: &[Process], pid: u32) -> Option<usize> {
    processes.binary_search_by_key(&pid, |process| process.pid).ok()
}

impl Programs {
    /// Forgets the usage so far. The processes stay known: their usage counts from here.
    pub fn count_from_here(&mut self) {
        for program in &mut self.programs {
            *program = Program { name: std::mem::take(&mut program.name), ..Program::default() };
        }
    }

    /// Adds a sample. `members` are in ascending order of pid. A member that ran has `sample` as its `read_at`.
    pub fn update(&mut self, root: &Root, members: &[Member], sample: u64, now_ns: u64, tick_ns: u64) {
        let before = std::mem::take(&mut self.processes);
        for member in members.iter().filter(|member| !member.is_leaving) {
            let known = find(&before, member.pid).and_then(|at| before.get(at)).copied();
            let known = known.filter(|known| known.start_ticks == member.stat.start_ticks);
            let process = match known {
                Some(known) if member.read_at != sample => known,
                _ => self.follow(root, member, known, &before, now_ns, tick_ns),
            };
            self.processes.push(process);
        }
        for ended in before {
            let is_alive = find(&self.processes, ended.pid)
                .and_then(|at| self.processes.get(at))
                .is_some_and(|now| now.start_ticks == ended.start_ticks);
            if !is_alive {
                self.end(ended);
            }
        }
        self.settle(now_ns);
    }

    fn follow(
        &mut self,
        root: &Root,
        member: &Member,
        known: Option<Process>,
        before: &[Process],
        now_ns: u64,
        tick_ns: u64,
    ) -> Process {
        let stat = &member.stat;
        let ticks_ns = |ticks: u64| ticks.saturating_mul(tick_ns);
        let image = (stat.fingerprint, stat.is_forked_child);
        let own_ticks_ns = ticks_ns(stat.utime_ticks.saturating_add(stat.stime_ticks));
        let cpu_ns = member.clock_ns().unwrap_or(own_ticks_ns);
        let cutime_ns = ticks_ns(stat.cutime_ticks.saturating_add(stat.cstime_ticks));
        let program = match known {
            Some(known) if known.image == image || stat.is_zombie() => known.program,
            // A fork runs the program of its parent until it calls `exec`.
            None if stat.is_forked_child && find(before, stat.ppid).is_some() => {
                find(before, stat.ppid).and_then(|at| before.get(at)).and_then(|parent| parent.program)
            }
            _ => self.program_of(root, member.pid).or(known.and_then(|known| known.program)),
        };
        let before_ns = known.map_or(0, |known| known.cpu_ns);
        if let Some(program) = program.and_then(|at| self.programs.get_mut(at)) {
            program.cpu_ns = program.cpu_ns.saturating_add(cpu_ns.saturating_sub(before_ns));
            program.memory_peak_kib =
                program.memory_peak_kib.max(stat.rss_pages.saturating_mul(crate::os::page_bytes() / 1024));
            program.first_ns = if program.first_ns == 0 { now_ns } else { program.first_ns };
            program.last_ns = now_ns;
        }
        Process {
            pid: member.pid,
            start_ticks: stat.start_ticks,
            ppid: stat.ppid,
            image,
            program,
            cpu_ns: cpu_ns.max(before_ns),
            cutime_ns,
            settled_cutime_ns: known.map_or(cutime_ns, |known| known.settled_cutime_ns),
            // The clock of a zombie does not move.
            threads: if stat.is_zombie() { 0 } else { stat.threads.max(1) },
            seen_ns: now_ns,
            storage: known.map_or(Storage::default(), |known| known.storage),
            ended_children: known.and_then(|known| known.ended_children),
        }
    }

    fn program_of(&mut self, root: &Root, pid: u32) -> Option<usize> {
        let text = root.read(pid_path(pid, "cmdline").as_str(), &mut self.buffer).ok()?;
        let name = program_name(text)?;
        if let Some(at) = self.programs.iter().position(|program| program.name == name) {
            return Some(at);
        }
        if self.programs.len() >= MOST_NAMES {
            return self.programs.iter().position(|program| program.name == OTHER_PROGRAMS);
        }
        let name = if self.programs.len() + 1 == MOST_NAMES { OTHER_PROGRAMS.to_owned() } else { name };
        self.programs.push(Program { name, ..Program::default() });
        Some(self.programs.len() - 1)
    }

    fn end(&mut self, ended: Process) {
        if let Some(program) = ended.program.and_then(|at| self.programs.get_mut(at)) {
            program.processes += 1;
        }
        if let Some(parent) = find(&self.processes, ended.ppid).and_then(|at| self.processes.get_mut(at)) {
            let children = parent.ended_children.get_or_insert_default();
            *children = children.plus(ended.storage);
        }
        self.unsettled.push(ended);
    }

    /// Adds what ended processes used after their last sample: the growth of cutime of their parent.
    fn settle(&mut self, now_ns: u64) {
        for parent in &mut self.processes {
            let grown_ns = parent.cutime_ns.saturating_sub(parent.settled_cutime_ns);
            if grown_ns == 0 {
                continue;
            }
            parent.settled_cutime_ns = parent.cutime_ns;
            let children: Vec<Process> =
                self.unsettled.extract_if(.., |ended| ended.ppid == parent.pid).collect();
            let known_ns = children.iter().map(|child| child.cpu_ns.saturating_add(child.cutime_ns)).sum();
            let share_ns = grown_ns.saturating_sub(known_ns) / (children.len() as u64).max(1);
            for child in children {
                let most_ns = child.threads.saturating_mul(now_ns.saturating_sub(child.seen_ns));
                if let Some(program) = child.program.and_then(|at| self.programs.get_mut(at)) {
                    program.cpu_ns = program.cpu_ns.saturating_add(share_ns.min(most_ns));
                }
            }
        }
        self.unsettled.retain(|ended| now_ns.saturating_sub(ended.seen_ns) < REAPED_WITHIN_NS);
    }

    /// Adds the exact CPU time of processes that the tracker reaped.
    pub fn add_reaped(&mut self, reaped: &[Reaped]) {
        for child in reaped {
            let is_child = |process: &&Process| process.pid == child.pid;
            let Some(known) = self.processes.iter().chain(&self.unsettled).find(is_child).copied() else {
                continue;
            };
            let own_ns = child.spent.cpu_ns.saturating_sub(known.cutime_ns);
            if let Some(program) = known.program.and_then(|at| self.programs.get_mut(at)) {
                program.cpu_ns = program.cpu_ns.saturating_add(own_ns.saturating_sub(known.cpu_ns));
            }
            self.unsettled.retain(|ended| ended.pid != child.pid);
        }
    }

    /// Adds the storage bytes of an update of the ledger. The kernel adds those of an ended process to its parent: the
    /// growth of such a parent cannot be told from that of its children.
    pub fn add_storage(&mut self, accounts: &[Account]) {
        for account in accounts.iter().filter(|account| !account.is_exiting) {
            let Some(process) = find(&self.processes, account.pid).and_then(|at| self.processes.get_mut(at))
            else {
                continue;
            };
            let grown = Storage::of(account).minus(process.storage);
            process.storage = Storage::of(account);
            let had_ended_children = process.ended_children.take().is_some();
            if let Some(program) = process.program.and_then(|at| self.programs.get_mut(at))
                && !had_ended_children
            {
                program.storage = program.storage.plus(grown);
            }
        }
    }

    /// The programs with the most CPU time first, and the rows that make them add up to `totals`.
    #[expect(clippy::cast_precision_loss, reason = "exact to the nanosecond for 104 days of CPU time")]
    pub fn figures(&self, totals: JobTotals, start_ns: u64) -> Vec<ProgramFigures> {
        let mut programs = self.programs.clone();
        for process in &self.processes {
            if let Some(program) = process.program.and_then(|at| programs.get_mut(at)) {
                program.processes += 1;
            }
        }
        programs.retain(|program| program.processes > 0);
        programs.sort_by(|a, b| b.cpu_ns.cmp(&a.cpu_ns).then_with(|| a.name.cmp(&b.name)));
        let seconds = |ns: u64| ns as f64 / 1e9;
        let since_start = |ns: u64| seconds(ns.saturating_sub(start_ns));
        let mut rest = totals;
        let mut rows: Vec<ProgramFigures> = Vec::new();
        for (number, program) in programs.iter().enumerate() {
            rest.cpu_ns = rest.cpu_ns.saturating_sub(program.cpu_ns);
            rest.storage = rest.storage.map(|storage| storage.minus(program.storage));
            let row = ProgramFigures {
                name: program.name.clone(),
                processes: Some(program.processes),
                cpu_seconds: seconds(program.cpu_ns),
                memory_peak_kib: Some(program.memory_peak_kib).filter(|peak| *peak > 0),
                read_bytes: totals.storage.map(|_| program.storage.read_bytes),
                write_bytes: totals.storage.map(|_| program.storage.write_bytes),
                first_seen: Some(since_start(program.first_ns)),
                last_seen: Some(since_start(program.last_ns)),
            };
            match rows.last_mut() {
                Some(last) if number >= MOST_ROWS => last.merge(&row),
                _ => rows.push(row),
            }
            if number == MOST_ROWS - 1 && programs.len() > MOST_ROWS {
                rows.push(ProgramFigures { name: OTHER_PROGRAMS.to_owned(), ..ProgramFigures::default() });
            }
        }
        let not_seen = ProgramFigures {
            name: NOT_SEEN.to_owned(),
            cpu_seconds: seconds(rest.cpu_ns),
            read_bytes: rest.storage.map(|storage| storage.read_bytes),
            write_bytes: rest.storage.map(|storage| storage.write_bytes),
            ..ProgramFigures::default()
        };
        let is_anything =
            rest.cpu_ns > 0 || rest.storage.is_some_and(|storage| storage != Storage::default());
        rows.extend(Some(not_seen).filter(|_| is_anything && !rows.is_empty()));
        rows
    }
}
