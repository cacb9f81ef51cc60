//! Whether the job had the machine to itself: the estimate `allocation` in `server_info`.
//!
//! In:  mean usage of the job and of the machine. Out: [`Allocation`], also as a key of `server_info`.
//! Not here: the other keys of `server_info` (`probe::host`).

use serde_json::{Map, Value, json};

use crate::metric::Metric;
use crate::store::summary::Summary;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Other processes use a substantial part of the machine.
    Shared,
    Dedicated,
}

impl Allocation {
    /// Value in `server_info`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Dedicated => "dedicated",
        }
    }
}

/// Compares the usage of the machine with the usage of the job. The machine is shared if it uses more than the job by
/// more than a share or an amount.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    pub system: Metric,
    pub process: Metric,
    /// Allowed difference, as a share of the job's usage.
    pub share: f64,
    /// Allowed difference, in the unit of the metric.
    pub amount: f64,
}

/// The machine is `Shared` if the difference exceeds the limits of at least one check.
pub const CHECKS: [Check; 4] = [
    Check { system: Metric::SystemCpu, process: Metric::ProcessCpu, share: 0.25, amount: 0.25 },
    Check { system: Metric::MemoryUsed, process: Metric::ProcessMemory, share: 0.5, amount: 512.0 * 1024.0 },
    Check { system: Metric::SystemGpu, process: Metric::ProcessGpu, share: 0.25, amount: 0.2 },
    Check { system: Metric::SystemVram, process: Metric::ProcessVram, share: 0.25, amount: 512.0 },
];

/// The estimated allocation; `None` before the first sample, or if the job or the machine was not recorded.
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

/// Adds the estimated allocation to `server_info`.
pub fn with_allocation(mut server_info: Map<String, Value>, summary: &Summary) -> Map<String, Value> {
    server_info.insert("allocation".to_owned(), json!(allocation(summary).map(Allocation::name)));
    server_info
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Row;
    use crate::store::summary::Scope;

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
    fn machine_is_shared_above_a_share_or_an_amount() {
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
    fn idle_machine_is_dedicated_and_unrecorded_machine_is_unknown() {
        assert_eq!(
            guess(&[(Metric::SystemCpu, 0.0), (Metric::ProcessCpu, 0.0)]),
            Some(Allocation::Dedicated)
        );
        assert_eq!(guess(&[(Metric::ProcessCpu, 1.0), (Metric::ProcessMemory, 1.0)]), None);
        assert_eq!(guess(&[]), None);
        let idle = [(Metric::SystemGpu, 0.0), (Metric::ProcessGpu, 0.0)];
        assert_eq!(guess_of(&idle, false), None, "zeros of a machine without a GPU are no evidence");
    }
}
