//! How rules would have done on past runs: each run is requested with what had ended before it started.
//!
//! In:  past runs in the order in which they ended. Out: the [`Outcome`] of each rule.

use super::past_run::PastRun;
use super::rule::{HEADROOM, Rule, Seen};
use crate::analysis::rounding::round_memory;
use crate::metric::MIB;

/// Weight of a failed attempt, as a multiple of the memory and time that it wasted.
const FAILURE_WEIGHT: f64 = 30.0;

/// Limit for requests of needs that are larger than any memory.
const MAX_RETRIES: usize = 12;

const GB: f64 = 1e9;
const HOUR_S: f64 = 3600.0;

/// What a rule would have done to past runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    pub runs: usize,
    /// Runs that would have run out of memory at the first attempt.
    pub failed: usize,
    /// Memory × time that was requested and not used, failed attempts included.
    pub waste_gb_hours: f64,
    /// Waste with the weight of failures.
    pub(super) loss: f64,
}

impl Outcome {
    /// Adds a run with the memory that it would have requested.
    pub(super) fn add(&mut self, run: &PastRun, request_bytes: f64, highest_bytes: f64) {
        let gb_hours = |bytes: f64| bytes / GB * run.duration_s / HOUR_S;
        let (mut request, mut attempts) = (request_bytes, 0);
        while request < run.need_bytes() && attempts < MAX_RETRIES {
            attempts += 1;
            self.waste_gb_hours += gb_hours(request);
            self.loss += FAILURE_WEIGHT * gb_hours(request);
            request = after_kill_bytes(highest_bytes, request, attempts);
        }
        let unused = gb_hours((request - run.need_bytes()).max(0.0));
        self.runs += 1;
        self.failed += usize::from(attempts > 0);
        self.waste_gb_hours += unused;
        self.loss += unused;
    }
}

/// The rule with the least loss over past runs.
pub(super) fn best_rule(runs: &[PastRun]) -> Rule {
    let mut outcomes = [Outcome::default(); Rule::ALL.len()];
    // Runs that started together saw the same past runs.
    let mut seen_after: Vec<Option<Seen>> = vec![None; runs.len() + 1];
    for (number, run) in runs.iter().enumerate() {
        let ended = runs.partition_point(|other| other.end_s() <= run.start_s).min(number);
        let seen = seen_after.get_mut(ended);
        let Some(seen) = seen.and_then(|seen| {
            *seen = seen.or_else(|| Seen::of(&runs[..ended]));
            *seen
        }) else {
            continue;
        };
        for (outcome, rule) in outcomes.iter_mut().zip(Rule::ALL) {
            outcome.add(run, rounded(rule.request_bytes(&seen, run.input_bytes)), seen.highest_bytes);
        }
    }
    let losses = outcomes.iter().map(|outcome| outcome.loss).zip(Rule::ALL);
    losses.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(Rule::ALL[0], |(_, rule)| rule)
}

/// Memory to request after a number of OOM kills in a row: 1.2 × the highest peak seen, the memory of the killed run
/// included; after the second kill double the memory of the killed run.
pub fn after_kill_bytes(highest_bytes: f64, killed_at_bytes: f64, kills: usize) -> f64 {
    rounded(if kills <= 1 { HEADROOM * highest_bytes.max(killed_at_bytes) } else { 2.0 * killed_at_bytes })
}

/// Rounds up to the sizes of the original tracker.
pub(super) fn rounded(bytes: f64) -> f64 {
    f64::from(round_memory(bytes / MIB)) * MIB
}
