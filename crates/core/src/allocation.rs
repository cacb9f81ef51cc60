//! Is the machine ours alone? The guess that `server_info` calls `allocation`.
//!
//! In:  the means of the job and of the machine.
//! Out: [`Allocation`], also as a key of `server_info`.
//! Not here: the rest of `server_info` (`host`).

use serde_json::{Map, Value, json};

use crate::metric::Metric;
use crate::summary::Summary;

/// Who uses the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Others use it too.
    Shared,
    /// Nothing of note beside the job.
    Dedicated,
}

impl Allocation {
    /// As `server_info` has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Dedicated => "dedicated",
        }
    }
}

/// From when on the machine's use is more than the job's. Either is enough.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// The machine's figure.
    pub system: Metric,
    /// The job's.
    pub process: Metric,
    /// So much of the job's above it.
    pub share: f64,
    /// Or so much above it.
    pub amount: f64,
}

/// The four checks; the first that says so decides.
pub const CHECKS: [Check; 4] = [
    Check { system: Metric::SystemCpu, process: Metric::ProcessCpu, share: 0.25, amount: 0.25 },
    Check { system: Metric::MemoryUsed, process: Metric::ProcessMemory, share: 0.5, amount: 512.0 * 1024.0 },
    Check { system: Metric::SystemGpu, process: Metric::ProcessGpu, share: 0.25, amount: 0.2 },
    Check { system: Metric::SystemVram, process: Metric::ProcessVram, share: 0.25, amount: 512.0 },
];

/// The guess; `None` before any sample, or where only one side was recorded.
#[must_use]
pub fn allocation(summary: &Summary) -> Option<Allocation> {
    let scope = summary.scope();
    if !(scope.process && scope.system) {
        return None;
    }
    let mut guess = None;
    for Check { system, process, share, amount } in &CHECKS {
        let means = summary.of(*system).mean().zip(summary.of(*process).mean());
        let Some((machine, job)) = means else { continue };
        if machine > job * (1.0 + share) || machine > job + amount {
            return Some(Allocation::Shared);
        }
        guess = Some(Allocation::Dedicated);
    }
    guess
}

/// `server_info` with the guess in it.
#[must_use]
pub fn with_allocation(mut server_info: Map<String, Value>, summary: &Summary) -> Map<String, Value> {
    server_info.insert("allocation".to_owned(), json!(allocation(summary).map(Allocation::name)));
    server_info
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Row;
    use crate::summary::Scope;

    fn guess(cells: &[(Metric, f64)]) -> Option<Allocation> {
        guess_of(cells, true)
    }

    fn guess_of(cells: &[(Metric, f64)], process: bool) -> Option<Allocation> {
        let mut row = Row::default();
        for (metric, value) in cells {
            row.set(*metric, Some(*value));
        }
        let scope = Scope { process, system: true, start_time: None, interval_s: 1.0 };
        let mut summary = Summary::new(scope);
        summary.add(&row);
        allocation(&summary)
    }

    #[test]
    fn each_figure_is_shared_above_its_share_or_its_amount() {
        let mib = 1024.0;
        let cases = [
            (Metric::SystemCpu, Metric::ProcessCpu, 0.4, [0.5, 0.51]),
            (Metric::SystemCpu, Metric::ProcessCpu, 8.0, [8.25, 8.26]),
            (Metric::MemoryUsed, Metric::ProcessMemory, 100.0 * mib, [150.0 * mib, 151.0 * mib]),
            (Metric::MemoryUsed, Metric::ProcessMemory, 4096.0 * mib, [4608.0 * mib, 4609.0 * mib]),
            (Metric::SystemGpu, Metric::ProcessGpu, 0.4, [0.5, 0.51]),
            (Metric::SystemGpu, Metric::ProcessGpu, 2.0, [2.2, 2.21]),
            (Metric::SystemVram, Metric::ProcessVram, 100.0, [125.0, 126.0]),
            (Metric::SystemVram, Metric::ProcessVram, 4096.0, [4608.0, 4609.0]),
        ];
        for (system, process, job, [dedicated, shared]) in cases {
            assert_eq!(
                guess(&[(system, dedicated), (process, job)]),
                Some(Allocation::Dedicated),
                "{system:?}"
            );
            assert_eq!(guess(&[(system, shared), (process, job)]), Some(Allocation::Shared), "{system:?}");
        }
    }

    #[test]
    fn an_idle_machine_is_dedicated_and_an_unseen_one_is_unknown() {
        assert_eq!(
            guess(&[(Metric::SystemCpu, 0.0), (Metric::ProcessCpu, 0.0)]),
            Some(Allocation::Dedicated)
        );
        assert_eq!(guess(&[(Metric::ProcessCpu, 1.0), (Metric::ProcessMemory, 1.0)]), None);
        assert_eq!(guess(&[]), None);
        let idle = [(Metric::SystemGpu, 0.0), (Metric::ProcessGpu, 0.0)];
        assert_eq!(guess_of(&idle, false), None, "zeros of a machine without a GPU say nothing of a job");
    }
}
