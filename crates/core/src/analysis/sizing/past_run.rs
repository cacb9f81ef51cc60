//! A past run as sizing sees it, and which past runs can be compared.

use crate::store::history::Entry;
use crate::store::recording::Status;

/// How a past run ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ending {
    Finished,
    /// Not complete: failed for another reason than memory, or still running. Its peak says little about a complete run.
    Failed,
    /// Ended by the OOM killer. The need is unknown, but above the memory that the run had.
    OutOfMemory {
        /// The memory that the run had; `None` if unknown.
        limit_bytes: Option<f64>,
    },
}

/// A past run of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PastRun {
    /// Unix seconds.
    pub start_s: f64,
    pub duration_s: f64,
    pub peak_bytes: f64,
    /// Total size of the inputs; `None` if unknown.
    pub input_bytes: Option<f64>,
    pub ending: Ending,
}

impl PastRun {
    /// The run of a history entry; `None` without a peak. Entries of earlier versions have it in their statistics only.
    pub fn of(entry: &Entry) -> Option<Self> {
        let figures = entry.sizing.clone().unwrap_or_default();
        let peak_of_stats = || Some(entry.stats.as_ref()?.get("process_memory", "max")? * 1024.0);
        #[expect(clippy::cast_precision_loss, reason = "sizes of inputs need no more than 53 bits")]
        let input_bytes = figures.input_bytes.map(|bytes| bytes as f64);
        let ending = match &entry.status {
            _ if figures.out_of_memory => Ending::OutOfMemory { limit_bytes: figures.memory_limit_bytes },
            // Recordings of the original package have no status.
            Some(Status::Finished | Status::Ended) | None => Ending::Finished,
            _ => Ending::Failed,
        };
        Some(Self {
            start_s: entry.start_time.unwrap_or(0.0),
            duration_s: entry.duration_s.unwrap_or(0.0),
            peak_bytes: figures.peak_memory_bytes.or_else(peak_of_stats)?,
            input_bytes,
            ending,
        })
    }

    pub(super) fn end_s(&self) -> f64 {
        self.start_s + self.duration_s
    }

    /// The memory that the run is known to need.
    pub(super) fn need_bytes(&self) -> f64 {
        match self.ending {
            Ending::OutOfMemory { limit_bytes: Some(limit) } => self.peak_bytes.max(limit),
            _ => self.peak_bytes,
        }
    }

    pub(super) fn is_out_of_memory(&self) -> bool {
        matches!(self.ending, Ending::OutOfMemory { .. })
    }

    /// The run with unusable figures removed; `None` without a usable peak.
    fn checked(self) -> Option<Self> {
        let usable = |value: &f64| value.is_finite() && *value > 0.0;
        let or_zero = |value: f64| if value.is_finite() { value } else { 0.0 };
        let ending = match self.ending {
            Ending::OutOfMemory { limit_bytes } => {
                Ending::OutOfMemory { limit_bytes: limit_bytes.filter(usable) }
            }
            ending => ending,
        };
        usable(&self.peak_bytes).then_some(Self {
            start_s: or_zero(self.start_s),
            duration_s: or_zero(self.duration_s).max(0.0),
            input_bytes: self.input_bytes.filter(usable),
            ending,
            ..self
        })
    }
}

/// The latest runs that can be compared, in the order in which they ended. Incomplete runs count only if no other run
/// exists.
pub(super) fn usable(history: &[PastRun], at_most: usize) -> Vec<PastRun> {
    let mut runs: Vec<PastRun> = history.iter().filter_map(|run| run.checked()).collect();
    if runs.iter().any(|run| run.ending != Ending::Failed) {
        runs.retain(|run| run.ending != Ending::Failed);
    }
    runs.sort_by(|a, b| a.end_s().total_cmp(&b.end_s()));
    runs.split_off(runs.len().saturating_sub(at_most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::history::SizingFigures;
    use crate::store::stats::Stats;

    #[test]
    fn entry_becomes_a_past_run() {
        let figures = SizingFigures {
            peak_memory_bytes: Some(3e9),
            memory_limit_bytes: Some(4e9),
            input_bytes: Some(7),
            ..SizingFigures::default()
        };
        let entry = Entry {
            status: Some(Status::Finished),
            start_time: Some(10.0),
            duration_s: Some(5.0),
            sizing: Some(figures.clone()),
            ..Entry::default()
        };
        let run = PastRun::of(&entry).unwrap();
        assert_eq!((run.end_s(), run.need_bytes(), run.input_bytes), (15.0, 3e9, Some(7.0)));
        assert_eq!(run.ending, Ending::Finished);
        let with = |status, out_of_memory| {
            let sizing = Some(SizingFigures { out_of_memory, ..figures.clone() });
            PastRun::of(&Entry { status, sizing, ..entry.clone() }).unwrap()
        };
        assert_eq!(with(Some(Status::Killed), true).need_bytes(), 4e9, "the run needs more than it had");
        for status in [Status::Failed, Status::Killed, Status::TrackerDied, Status::Running] {
            assert_eq!(with(Some(status), false).ending, Ending::Failed);
        }
        let mut stats = Stats::default();
        stats.set("process_memory", "max", Some(2048.0));
        let earlier_version = Entry { sizing: None, stats: Some(stats), ..entry.clone() };
        assert_eq!(PastRun::of(&earlier_version).unwrap().peak_bytes, 2_097_152.0);
        assert_eq!(PastRun::of(&Entry { sizing: None, ..entry }), None);
    }
}
