//! One rule for each cause.

use super::{Cause, Certainty, Facts, Verdict, words};
use crate::human::{self, Scale};
use crate::probe::evidence::{FullFileSystem, LimitReached};
use crate::sampler::evidence::{Evidence, SignalReceived};

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
const SIGXCPU: i32 = 24;

/// Peak memory of at least this share of the memory of the job makes a `SIGKILL` a possible out-of-memory kill.
const NEAR_MEMORY: f64 = 0.9;

/// Seconds from the time limit to the end of a job that Slurm ended: it checks limits once a minute, and a site may allow
/// some minutes more (`KillWait`, `OverTimeLimit`).
const NEAR_TIME_LIMIT_S: std::ops::Range<f64> = -60.0..600.0;

/// A signal this long before the end can be why the job ended. Slurm and containers wait 10 to 30 s between `SIGTERM`
/// and `SIGKILL`.
const SIGNAL_WITHIN_S: f64 = 60.0;

impl Facts<'_> {
    fn evidence(&self) -> Option<&Evidence> {
        self.run.evidence.as_ref()
    }

    fn ended_at(&self) -> Option<f64> {
        self.head.metadata.stop_time
    }

    /// The last signals before the end, the last one first.
    fn signals(&self) -> impl Iterator<Item = &SignalReceived> {
        let is_near = |received: &&SignalReceived| {
            self.ended_at().is_none_or(|end| end - received.at < SIGNAL_WITHIN_S)
        };
        self.evidence().into_iter().flat_map(|facts| facts.signals.iter().rev()).filter(is_near)
    }

    /// The signal of the tracker that explains the end: the same signal, or `SIGTERM` before `SIGKILL`.
    fn explaining_signal(&self) -> Option<&SignalReceived> {
        let ended_by = words::signal_of(self.run);
        let same = self.signals().find(|received| Some(received.signal) == ended_by);
        let before =
            || self.signals().find(|received| ended_by == Some(SIGKILL) && received.signal == SIGTERM);
        same.or_else(before)
    }

    /// Whether the job runs `timeout(1)`.
    fn runs_timeout(&self) -> bool {
        let in_command = self.run.command.iter().flatten().flat_map(|word| word.split_whitespace());
        self.run.programs.iter().any(|program| is_timeout(&program.name))
            || in_command.clone().any(is_timeout)
    }

    /// Whether `timeout --signal=KILL`, which also ends itself, can have ended the job.
    fn is_killed_timeout(&self) -> bool {
        let is_command =
            self.run.command.as_ref().and_then(|words| words.first()).is_some_and(|word| is_timeout(word));
        is_command && self.run.signal == Some(SIGKILL)
    }

    fn duration(&self) -> String {
        let seconds = self.summary.duration_s().or(self.head.metadata.duration);
        seconds.map_or_else(String::new, |seconds| format!(" after {}", human::duration(seconds)))
    }

    /// Whether the job can have ended by its own decision after an error: not by a signal that others send.
    fn has_failed_itself(&self) -> bool {
        !matches!(words::signal_of(self.run), Some(1..=3 | SIGKILL | 13..=SIGTERM))
    }
}

/// `SIGTERM from process 42 ("timeout")`, with its time before the end.
fn received(facts: &Facts<'_>, received: &SignalReceived) -> String {
    let sender = match (received.sender_pid, &received.sender) {
        (None, _) => "the kernel, as for a key or the end of a terminal".to_owned(),
        (Some(0), _) => "a process outside this container".to_owned(),
        (Some(pid), Some(name)) => format!("process {pid} (`{name}`)"),
        (Some(pid), None) => format!("process {pid}, which has ended since"),
    };
    let before = facts.ended_at().map(|end| (end - received.at).max(0.0));
    let before = before.map_or_else(String::new, |seconds| format!(", {seconds:.1} s before the end"));
    format!("the tracker received {} from {sender}{before}", words::signal_name(received.signal))
}

pub(super) fn out_of_memory(facts: &Facts<'_>) -> Option<Verdict> {
    let peak_bytes = facts.summary.memory_peak_kib().map(|kib| kib * 1024.0);
    let memory_bytes = facts.head.memory_limit_mib().map(|mib| mib * 1_048_576.0);
    let bytes = |bytes: f64| Scale::Bytes.show(bytes);
    let mut evidence = Vec::new();
    #[expect(clippy::cast_precision_loss, reason = "memory sizes are far below 2^53 bytes")]
    let (certainty, detail, limit) = if let Some(kills) = facts.run.oom_kills {
        let limit = kills.limit_bytes.map(|limit| limit as f64);
        let place = match (kills.certain, limit) {
            (true, _) => "in a cgroup of the job alone",
            (false, Some(_)) => "in a cgroup that the job shares with other processes",
            (false, None) => "on this machine",
        };
        let many = if kills.processes == 1 { "kill" } else { "kills" };
        evidence.push(format!("the kernel counted {} out-of-memory {many} {place}", kills.processes));
        let whole = facts.run.was_killed_for_memory();
        let certainty = if kills.certain && whole { Certainty::Certain } else { Certainty::Likely };
        let victim = if whole { "the job" } else { "a process of the job" };
        let at = limit.map_or_else(String::new, |limit| format!(" at its limit of {}", bytes(limit)));
        (certainty, format!("the kernel killed {victim}{at}"), limit.or(memory_bytes))
    } else {
        let near = peak_bytes.zip(memory_bytes).filter(|(peak, all)| *peak >= all * NEAR_MEMORY);
        let (peak, all) = near.filter(|_| facts.run.ended_by_kill())?;
        let detail = format!("{} of {} were in use when SIGKILL ended the job", bytes(peak), bytes(all));
        (Certainty::Possible, detail, Some(all))
    };
    let of_limit = limit.map_or_else(String::new, |limit| format!(", limit {}", bytes(limit)));
    let course = facts.summary.memory_course().filter(|course| course.highest_kib > course.first_kib);
    evidence.extend(match (course, peak_bytes) {
        (Some(course), _) => Some(format!(
            "memory grew from {} to {} in the last {}{of_limit}",
            bytes(course.first_kib * 1024.0),
            bytes(course.highest_kib * 1024.0),
            human::duration(course.seconds),
        )),
        (None, Some(peak)) => Some(format!("memory reached {}{of_limit}", bytes(peak))),
        (None, None) => None,
    });
    Some(Verdict {
        cause: Cause::OutOfMemory,
        certainty,
        message: format!("{}: {detail}.", certainty.of("Out of memory")),
        evidence,
        next: facts.request_mb.map(|mb| format!("request {mb} MiB of memory")),
    })
}

fn is_timeout(word: &str) -> bool {
    word.rsplit('/').next() == Some("timeout")
}

pub(super) fn time_limit(facts: &Facts<'_>) -> Option<Verdict> {
    let ended_by = words::signal_of(facts.run);
    let by_timeout = facts.signals().find(|received| received.sender.as_deref() == Some("timeout"));
    let asked = facts.signals().find(|received| received.signal == SIGTERM);
    let is_asked = asked.is_some() || matches!(ended_by, Some(SIGTERM | SIGKILL));
    let slurm_end = facts.evidence().and_then(|facts| facts.time_limit_at).zip(facts.ended_at());
    let slurm_s =
        slurm_end.map(|(limit, end)| end - limit).filter(|late_s| NEAR_TIME_LIMIT_S.contains(late_s));
    let after = facts.duration();
    let mut evidence = Vec::new();
    let (certainty, detail, next) = if let Some(signal) = by_timeout {
        evidence.push(received(facts, signal));
        let is_same = ended_by == Some(signal.signal);
        let certainty = if is_same { Certainty::Certain } else { Certainty::Likely };
        (certainty, format!("`timeout` ended the job{after}"), "give `timeout` a longer time")
    } else if facts.run.exit_code == Some(124) {
        let certainty = if facts.runs_timeout() { Certainty::Certain } else { Certainty::Likely };
        evidence.push("`timeout` ends with exit code 124 after it has ended its command".to_owned());
        (certainty, format!("`timeout` ended the command{after}"), "give `timeout` a longer time")
    } else if let Some(late_s) = slurm_s.filter(|_| is_asked) {
        let sender = asked.filter(|signal| signal.sender.as_deref() == Some("slurmstepd"));
        evidence.extend(asked.map(|signal| received(facts, signal)));
        let side = if late_s < 0.0 { "before" } else { "after" };
        let late = human::duration(late_s.abs());
        evidence.push(format!("the run ended {late} {side} the time limit of Slurm (SLURM_JOB_END_TIME)"));
        let certainty = if sender.is_some() { Certainty::Certain } else { Certainty::Likely };
        (certainty, format!("Slurm ended the job{after}"), "ask Slurm for more time (`--time`)")
    } else if facts.is_killed_timeout() || facts.runs_timeout() && facts.run.signal.is_none() && is_asked {
        evidence.push("the job runs `timeout`, which can end its command by this signal".to_owned());
        (Certainty::Likely, format!("`timeout` ended the command{after}"), "give `timeout` a longer time")
    } else if ended_by == Some(SIGXCPU) {
        let detail = "the job used all the CPU time that it may use".to_owned();
        (Certainty::Likely, detail, "raise the limit of CPU time (`ulimit -t`)")
    } else {
        return None;
    };
    Some(Verdict {
        cause: Cause::TimeLimit,
        certainty,
        message: format!("{}: {detail}.", certainty.of("Time limit")),
        evidence,
        next: Some(next.to_owned()),
    })
}

/// A shell could not start a command.
pub(super) fn not_started(facts: &Facts<'_>) -> Option<Verdict> {
    let (cause, words, detail, next) = match facts.run.exit_code? {
        126 => (
            Cause::NotExecutable,
            "Not executable",
            "a shell found a command and could not execute it",
            "make the file executable with `chmod +x`, and check its `#!` line",
        ),
        127 => (
            Cause::NotFound,
            "Command not found",
            "a shell did not find a command, or the dynamic linker a library",
            "check the spelling of the command, PATH and loaded modules",
        ),
        _ => return None,
    };
    Some(Verdict {
        cause,
        certainty: Certainty::Likely,
        message: format!("{}: {detail}.", Certainty::Likely.of(words)),
        evidence: Vec::new(),
        next: Some(next.to_owned()),
    })
}

/// The text of an exception names the cause itself.
pub(super) fn error_text(facts: &Facts<'_>) -> Option<Verdict> {
    let error = facts.run.error.as_deref()?;
    let next_memory = facts.request_mb.map(|mb| format!("request more memory than {mb} MiB"));
    let texts = [
        ("MemoryError", Cause::OutOfMemory, "Out of memory"),
        ("cannot allocate", Cause::OutOfMemory, "Out of memory"),
        ("No space left on device", Cause::DiskFull, "Disk full"),
        ("Too many open files", Cause::TooManyFiles, "Too many open files"),
        ("Resource temporarily unavailable", Cause::TooManyProcesses, "Too many processes"),
        ("can't start new thread", Cause::TooManyProcesses, "Too many processes"),
    ];
    let (_, cause, words) = texts.into_iter().find(|(text, ..)| error.contains(text))?;
    Some(Verdict {
        cause,
        certainty: Certainty::Likely,
        message: format!("{}: {}.", Certainty::Likely.of(words), one_line(error)),
        evidence: Vec::new(),
        next: if cause == Cause::OutOfMemory { next_memory } else { None },
    })
}

fn is_full(disk: &FullFileSystem) -> String {
    let what = if disk.no_inodes { "no inode for another file".to_owned() } else { free(disk.free_bytes) };
    let role = disk.role.as_ref().map_or_else(String::new, |role| format!(" ({role})"));
    format!("the file system `{}`{role} had {what} left at the end", disk.mount_point)
}

#[expect(clippy::cast_precision_loss, reason = "less than 1 MiB")]
fn free(bytes: u64) -> String {
    if bytes == 0 { "no space".to_owned() } else { Scale::Bytes.show(bytes as f64) }
}

pub(super) fn full_disk(facts: &Facts<'_>) -> Option<Verdict> {
    let disks = &facts.evidence()?.full_file_systems;
    let disk = disks.iter().find(|disk| disk.role.is_some()).filter(|_| facts.has_failed_itself())?;
    let certainty = Certainty::Likely;
    Some(Verdict {
        cause: Cause::DiskFull,
        certainty,
        message: format!("{}: nothing can be written to `{}`.", certainty.of("Disk full"), disk.mount_point),
        evidence: vec![is_full(disk)],
        next: Some(format!("free space on `{}`, or write to another file system", disk.mount_point)),
    })
}

/// Full file systems that the job is not known to use are no cause, but worth a line.
pub(super) fn unrelated_full_disks(facts: &Facts<'_>) -> Vec<String> {
    let disks = facts.evidence().map(|facts| facts.full_file_systems.as_slice()).unwrap_or_default();
    let unrelated = disks.iter().filter(|disk| disk.role.is_none() && facts.has_failed_itself());
    unrelated.map(is_full).collect()
}

pub(super) fn limit_reached(facts: &Facts<'_>) -> Option<Verdict> {
    let reached = facts.evidence()?.limits_reached.first().filter(|_| facts.has_failed_itself())?;
    let LimitReached { used, maximum, .. } = reached;
    let is_files = reached.limit == LimitReached::OPEN_FILES;
    let (cause, words, next) = if is_files {
        (
            Cause::TooManyFiles,
            "Too many open files",
            "raise the limit with `ulimit -n`, or keep fewer files open",
        )
    } else {
        let next = "raise the limit (`ulimit -u`, or `pids.max` of the cgroup), or start fewer processes";
        (Cause::TooManyProcesses, "Too many processes", next)
    };
    let program = reached.program.as_ref().map_or_else(|| "a process".to_owned(), |name| format!("`{name}`"));
    let evidence = match reached.refused {
        Some(1) => format!("the kernel refused 1 new process: the cgroup may have {maximum}"),
        Some(refused) => format!("the kernel refused {refused} new processes: the cgroup may have {maximum}"),
        None if is_files => format!("{program} had {used} of {maximum} files open"),
        None => format!("the job had {used} of the {maximum} processes and threads of its user"),
    };
    let certainty = Certainty::Likely;
    Some(Verdict {
        cause,
        certainty,
        message: format!("{}: the limit is {maximum}.", certainty.of(words)),
        evidence: vec![evidence],
        next: Some(next.to_owned()),
    })
}

pub(super) fn exception(facts: &Facts<'_>) -> Option<Verdict> {
    let error = facts.run.error.as_deref()?;
    Some(Verdict {
        cause: Cause::Exception,
        certainty: Certainty::Certain,
        message: format!("An exception ended the run: {}.", one_line(error)),
        evidence: Vec::new(),
        next: None,
    })
}

pub(super) fn signal(facts: &Facts<'_>) -> Option<Verdict> {
    let signal = words::signal_of(facts.run)?;
    let name = words::signal_name(signal);
    let explaining = facts.explaining_signal();
    let by = explaining.and_then(|received| received.sender.as_ref());
    let what = if facts.run.signal.is_some() { "the job" } else { "the last command of the job" };
    let meaning = words::meaning_of_signal(signal).map_or_else(String::new, |words| format!(": {words}"));
    let by = by.map_or_else(String::new, |sender| format!(" from `{sender}`"));
    let mut evidence: Vec<String> = explaining.into_iter().map(|signal| received(facts, signal)).collect();
    if explaining.is_none() && matches!(signal, 1..=3 | SIGTERM) {
        evidence.push(format!(
            "the tracker received no {name}: it was sent to {what} directly, and the kernel does not say by which process"
        ));
    }
    if signal == SIGKILL {
        evidence.push("the kernel does not say which process sent SIGKILL".to_owned());
        evidence.push("no out-of-memory kill of the job was counted".to_owned());
    }
    Some(Verdict {
        cause: Cause::Signal,
        certainty: Certainty::Certain,
        message: format!("{name}{by} ended {what}{meaning}."),
        evidence,
        next: None,
    })
}

pub(super) fn exit_code(facts: &Facts<'_>) -> Option<Verdict> {
    let code = facts.run.exit_code?;
    Some(Verdict {
        cause: Cause::ExitCode,
        certainty: Certainty::Certain,
        message: match words::meaning_of_code(code) {
            Some(meaning) => format!("The job ended with exit code {code}: {meaning}."),
            None => format!("The job ended with exit code {code}."),
        },
        evidence: Vec::new(),
        next: Some("read the messages of the job itself".to_owned()),
    })
}

/// The first line of an error, without a full stop, at most 200 letters.
fn one_line(error: &str) -> String {
    let line = error.lines().next().unwrap_or_default();
    line.trim_end_matches('.').chars().take(200).collect()
}
