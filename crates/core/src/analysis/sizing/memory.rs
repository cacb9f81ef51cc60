//! Memory to request for the next run of a job, by the history of the job.
//!
//! In:  past runs, the input size of the next run. Out: [`MemoryAdvice`].
//! Not here: the rules (`rule`), how they are compared (`replay`).

use serde::Serialize;

use super::past_run::{Ending, PastRun, usable};
use super::replay::{Outcome, after_kill_bytes, best_rule, rounded};
use super::rule::{ENOUGH_RUNS, Rule, Seen};
use crate::analysis::rounding::round_memory;
use crate::human::Scale;
use crate::metric::MIB;

/// Number of runs to look back on by default. Older runs may be of another version of the job.
pub const LAST_RUNS: usize = 100;

/// Why this amount of memory is advised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Too few runs to choose a rule by.
    FewRuns,
    /// The rule that would have wasted the least.
    LeastWaste,
    /// The OOM killer ended the last run.
    AfterKill,
}

/// Memory to request, and what this request would have done to past runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryAdvice {
    pub memory_bytes: f64,
    pub reason: Reason,
    /// `None` after an OOM kill.
    pub rule: Option<Rule>,
    /// The input size that the request is for, if the rule uses input sizes.
    pub input_bytes: Option<f64>,
    pub highest_peak_bytes: f64,
    /// Number of past runs that the advice is based on.
    pub runs: usize,
    /// Past runs that would have run out of memory with this request.
    pub would_have_failed: usize,
    /// Memory × time that past runs would have wasted with this request; GB are 10^9 bytes.
    pub would_have_wasted_gb_hours: f64,
    /// One or more plain sentences for the user.
    pub why: String,
    /// What can make the request too small; `None` if nothing is known. It is one of the warnings of the advice.
    #[serde(skip)]
    pub risk: Option<String>,
}

impl MemoryAdvice {
    /// The request in MiB; it is a whole number of them.
    pub fn request_mib(&self) -> u32 {
        round_memory(self.memory_bytes / MIB)
    }
}

/// Past runs of a job, and the rule that fits them.
#[derive(Clone, Debug)]
pub struct MemorySizing {
    /// In the order in which they ended.
    runs: Vec<PastRun>,
    seen: Seen,
    rule: Rule,
    /// Highest peak of the runs that did not finish.
    incomplete_bytes: Option<f64>,
}

impl MemorySizing {
    /// The latest `at_most` runs; `None` if none of them has a measured peak.
    pub fn of(history: &[PastRun], at_most: usize) -> Option<Self> {
        let runs = usable(history, at_most);
        let seen = Seen::of(&runs)?;
        let rule = if runs.len() < ENOUGH_RUNS { Rule::ALL[0] } else { best_rule(&runs) };
        let incomplete =
            history.iter().filter(|run| run.ending == Ending::Failed && run.peak_bytes.is_finite());
        let incomplete_bytes = incomplete.map(|run| run.peak_bytes).reduce(f64::max);
        Some(Self { runs, seen, rule, incomplete_bytes })
    }

    /// Memory for a run with inputs of this size. If the size is unknown, the largest past input counts.
    pub fn advise(&self, input_bytes: Option<f64>) -> MemoryAdvice {
        let largest_input = self.runs.iter().filter_map(|run| run.input_bytes).reduce(f64::max);
        let known = input_bytes.filter(|bytes| bytes.is_finite() && *bytes > 0.0);
        let input = known.or(largest_input).filter(|_| self.rule == Rule::InputLine);
        let kills = self.runs.iter().rev().take_while(|run| run.is_out_of_memory()).count();
        let killed = self.runs.last().filter(|_| kills > 0);
        let request = |input| rounded(self.rule.request_bytes(&self.seen, input));
        let highest = self.seen.highest_bytes;
        let memory_bytes = match killed {
            Some(last) => after_kill_bytes(highest, last.need_bytes(), kills),
            None => request(input),
        };
        let reason = match killed {
            Some(_) => Reason::AfterKill,
            None if self.runs.len() < ENOUGH_RUNS => Reason::FewRuns,
            None => Reason::LeastWaste,
        };
        let mut past = Outcome::default();
        for run in &self.runs {
            let past_request =
                if killed.is_none() && input.is_some() { request(run.input_bytes) } else { memory_bytes };
            past.add(run, past_request, highest);
        }
        let mut advice = MemoryAdvice {
            memory_bytes,
            reason,
            rule: killed.is_none().then_some(self.rule),
            input_bytes: input.filter(|_| killed.is_none()),
            highest_peak_bytes: highest,
            runs: past.runs,
            would_have_failed: past.failed,
            would_have_wasted_gb_hours: past.waste_gb_hours,
            why: String::new(),
            risk: None,
        };
        advice.why = self.why(&advice, killed);
        advice.risk = self.risk(&advice, known.zip(largest_input));
        advice
    }

    fn why(&self, advice: &MemoryAdvice, killed: Option<&PastRun>) -> String {
        let show = |bytes| Scale::Bytes.show(bytes);
        let (highest, runs) = (show(advice.highest_peak_bytes), runs_of(advice.runs));
        let basis = match (killed, self.rule, advice.input_bytes) {
            (Some(last), ..) => {
                let had = show(last.need_bytes());
                format!("the last run was out of memory at {had}, so its real need is unknown")
            }
            (None, Rule::MaximumPlus20, _) if advice.runs == 1 => {
                format!("1.2 × the peak of {highest}, rounded up")
            }
            (None, Rule::InputLine, Some(input)) => format!(
                "at {} of input request {}: memory grew with the input in {runs}",
                show(input),
                show(advice.memory_bytes)
            ),
            (None, Rule::HighPercentile, _) => {
                format!("1.05 × the 98th percentile of {runs}, rounded up; the highest peak was {highest}")
            }
            (None, rule, _) => {
                let factor = match rule {
                    Rule::MaximumPlus5 => "1.05",
                    Rule::MaximumPlus10 => "1.1",
                    _ => "1.2",
                };
                format!("{factor} × the highest peak of {runs}, {highest}, rounded up")
            }
        };
        // How much would have been enough for a killed run is unknown.
        if advice.runs == 1 || killed.is_some() {
            return basis;
        }
        format!(
            "{basis}; it would have failed {} of {} past runs and wasted {} GB h",
            advice.would_have_failed,
            advice.runs,
            amount(advice.would_have_wasted_gb_hours)
        )
    }

    fn risk(&self, advice: &MemoryAdvice, inputs: Option<(f64, f64)>) -> Option<String> {
        let show = |bytes| Scale::Bytes.show(bytes);
        let highest = show(advice.highest_peak_bytes);
        // The warnings of a run tell already that it failed.
        if self.runs.len() > 1 && self.runs.iter().all(|run| run.ending == Ending::Failed) {
            return Some("no run has finished: a complete run may need more memory".to_owned());
        }
        if let Some(peak) = self.incomplete_bytes.filter(|peak| *peak > advice.memory_bytes) {
            return Some(format!(
                "a run that failed had a peak of {}, which is more than this request",
                show(peak)
            ));
        }
        if advice.memory_bytes < advice.highest_peak_bytes {
            return Some(format!("the highest peak so far was {highest}, which is more than this request"));
        }
        let (next, largest) = inputs.filter(|(next, largest)| next > largest)?;
        Some(format!(
            "{} of input is more than any past run had ({}): the run may need more memory",
            show(next),
            show(largest)
        ))
    }
}

fn runs_of(count: usize) -> String {
    if count == 1 { "1 run".to_owned() } else { format!("{count} runs") }
}

/// About two significant digits.
fn amount(value: f64) -> String {
    let decimals = match value {
        value if value >= 10.0 => 0,
        value if value >= 1.0 => 1,
        value if value >= 0.005 => 2,
        _ => return "under 0.01".to_owned(),
    };
    format!("{value:.decimals$}")
}
