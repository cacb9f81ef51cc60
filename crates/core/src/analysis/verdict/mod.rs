//! Why a run did not end with status 0: the most certain cause, its evidence, and what to do next.
//!
//! In:  the head of a recording with the facts at its end, the summary, the memory to request. Out: [`Verdict`].
//! Not here: the facts (`sampler/evidence`, `probe/cgroup`), the words for codes and signals (`words`).
//!
//! A rule looks for one cause. The most certain cause counts; of two that are as certain, the one of the earlier rule.
//! `docs/why.md` lists the rules.

mod rules;
#[cfg(test)]
mod tests;
mod words;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::store::history::Entry;
use crate::store::recording::{Head, Run, Status};
use crate::store::summary::Summary;

/// Why a run did not end with status 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    pub cause: Cause,
    pub certainty: Certainty,
    /// One sentence.
    pub message: String,
    /// The facts behind it, as sentences without a full stop.
    pub evidence: Vec<String>,
    /// What to do about it; `None` if the cause does not say.
    pub next: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    OutOfMemory,
    TimeLimit,
    NotFound,
    NotExecutable,
    DiskFull,
    TooManyFiles,
    TooManyProcesses,
    /// An exception ended a function or block of Python or R.
    Exception,
    Signal,
    ExitCode,
}

impl Cause {
    /// The word in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OutOfMemory => "out_of_memory",
            Self::TimeLimit => "time_limit",
            Self::NotFound => "not_found",
            Self::NotExecutable => "not_executable",
            Self::DiskFull => "disk_full",
            Self::TooManyFiles => "too_many_files",
            Self::TooManyProcesses => "too_many_processes",
            Self::Exception => "exception",
            Self::Signal => "signal",
            Self::ExitCode => "exit_code",
        }
    }
}

impl Serialize for Cause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// How well the evidence shows the cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    Possible,
    Likely,
    Certain,
}

impl Certainty {
    /// Text such as `Out of memory (likely)`.
    fn of(self, words: &str) -> String {
        match self {
            Self::Certain => words.to_owned(),
            Self::Likely => format!("{words} (likely)"),
            Self::Possible => format!("{words} (possible)"),
        }
    }
}

/// What the rules look at.
struct Facts<'a> {
    head: &'a Head,
    run: &'a Run,
    summary: &'a Summary,
    /// Memory to request for the next run.
    request_mb: Option<u32>,
}

/// A rule, and whether its cause explains more than how the run ended.
type Rule = fn(&Facts<'_>) -> Option<Verdict>;

/// Rules that find a cause. `ENDINGS` are for runs without one: they say how the run ended.
const CAUSES: [Rule; 6] = [
    rules::out_of_memory,
    rules::time_limit,
    rules::not_started,
    rules::error_text,
    rules::full_disk,
    rules::limit_reached,
];
const ENDINGS: [Rule; 3] = [rules::exception, rules::signal, rules::exit_code];

impl Entry {
    /// The entry of a run, with the cause of its verdict.
    pub fn with_cause(id: &str, head: &Head, summary: &Summary) -> Self {
        let cause = Verdict::of(head, summary, None).map(|verdict| verdict.cause.name().to_owned());
        Self { cause, ..Self::new(id, head, summary) }
    }

    /// The run of a recording, as JSON.
    pub fn object_of(head: &Head, summary: &Summary) -> Map<String, Value> {
        let id = head.run.as_ref().and_then(|run| run.id.clone()).unwrap_or_default();
        Self::with_cause(&id, head, summary).run_object()
    }
}

impl Verdict {
    /// `None` for a run that ended with status 0, or whose end is unknown. `request_mb`: memory to request next.
    pub fn of(head: &Head, summary: &Summary, request_mb: Option<u32>) -> Option<Self> {
        let run = head.run.as_ref()?;
        let has_failed = match run.status {
            Some(Status::Failed | Status::Killed) => true,
            Some(Status::Ended) => run.was_killed_for_memory(),
            _ => false,
        };
        let facts = Facts { head, run, summary, request_mb };
        let mut found: Vec<Self> = CAUSES.iter().filter_map(|rule| rule(&facts)).collect();
        // Stable: of causes that are as certain, the first stays first.
        found.sort_by_key(|verdict| std::cmp::Reverse(verdict.certainty));
        let endings = ENDINGS.iter().filter_map(|rule| rule(&facts));
        let mut verdict = found.into_iter().chain(endings).next().filter(|_| has_failed)?;
        let how = words::ending(run).filter(|how| !verdict.message.contains(how));
        verdict.evidence.splice(..0, how);
        verdict.evidence.extend(rules::unrelated_full_disks(&facts));
        Some(verdict)
    }
}
