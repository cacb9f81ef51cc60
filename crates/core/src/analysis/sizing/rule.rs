//! The rules that memory advice chooses from, and the figures of past runs that they use.
//!
//! In:  runs that had ended. Out: [`Seen`], and the memory that a [`Rule`] requests from it.

use serde::Serialize;

use super::line::Line;
use super::past_run::PastRun;

/// Fewer runs than this give no line, and too little to choose a rule by.
pub(super) const ENOUGH_RUNS: usize = 5;

/// No rule requests more than this multiple of the highest peak: past runs say nothing about larger sizes.
pub(super) const HEADROOM: f64 = 1.2;

const HIGH_PERCENTILE: f64 = 0.98;

/// Headroom above the high percentile.
const PERCENTILE_HEADROOM: f64 = 1.05;

/// A rule that turns past runs into memory to request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// 1.2 × the highest peak.
    MaximumPlus20,
    /// 1.1 × the highest peak.
    MaximumPlus10,
    /// 1.05 × the highest peak.
    MaximumPlus5,
    /// 1.05 × the 98th percentile of the peaks.
    HighPercentile,
    /// A line through input sizes and peaks.
    InputLine,
}

impl Rule {
    /// All rules. The first one is used while there are too few runs, and wins ties.
    pub const ALL: [Self; 5] =
        [Self::MaximumPlus20, Self::MaximumPlus10, Self::MaximumPlus5, Self::HighPercentile, Self::InputLine];

    /// The memory to request before rounding. Without a line or an input size, `InputLine` requests as much
    /// as the first rule.
    pub(super) fn request_bytes(self, seen: &Seen, input_bytes: Option<f64>) -> f64 {
        let highest = seen.highest_bytes;
        let request = match self {
            Self::MaximumPlus20 => None,
            Self::MaximumPlus10 => Some(1.1 * highest),
            Self::MaximumPlus5 => Some(1.05 * highest),
            Self::HighPercentile => Some(PERCENTILE_HEADROOM * seen.high_percentile_bytes),
            Self::InputLine => seen.line.zip(input_bytes).map(|(line, input)| line.at(input)),
        };
        request.unwrap_or(f64::INFINITY).min(HEADROOM * highest)
    }
}

/// What is known after a number of runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub highest_bytes: f64,
    high_percentile_bytes: f64,
    line: Option<Line>,
}

impl Seen {
    /// `None` without runs.
    pub fn of(runs: &[PastRun]) -> Option<Self> {
        let mut needs: Vec<f64> = runs.iter().map(PastRun::need_bytes).collect();
        needs.sort_by(f64::total_cmp);
        let points: Vec<(f64, f64)> =
            runs.iter().filter_map(|run| Some((run.input_bytes?, run.need_bytes()))).collect();
        Some(Self {
            highest_bytes: *needs.last()?,
            high_percentile_bytes: percentile(&needs, HIGH_PERCENTILE)?,
            line: Line::through(&points, ENOUGH_RUNS),
        })
    }
}

/// Percentile of sorted values by linear interpolation.
fn percentile(sorted: &[f64], share: f64) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^53 runs")]
    let rank = sorted.len().checked_sub(1)? as f64 * share;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank of the slice")]
    let (low, high) = (*sorted.get(rank.floor() as usize)?, *sorted.get(rank.ceil() as usize)?);
    Some(low + (high - low) * rank.fract())
}
