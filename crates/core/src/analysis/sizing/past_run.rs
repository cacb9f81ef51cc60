//! A past run as sizing sees it, and which past runs can be compared.

/// How a past run ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ending {
    Finished,
    /// Ended for another reason than memory. The peak of such a run says little about a complete run.
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

/// The latest runs that can be compared, in the order in which they ended. Failed runs count only if no other run
/// exists.
pub(super) fn usable(history: &[PastRun], at_most: usize) -> Vec<PastRun> {
    let mut runs: Vec<PastRun> = history.iter().filter_map(|run| run.checked()).collect();
    if runs.iter().any(|run| run.ending != Ending::Failed) {
        runs.retain(|run| run.ending != Ending::Failed);
    }
    runs.sort_by(|a, b| a.end_s().total_cmp(&b.end_s()));
    runs.split_off(runs.len().saturating_sub(at_most))
}
