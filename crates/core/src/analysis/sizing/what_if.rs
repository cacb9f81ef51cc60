//! The predicted time and cost of a run with 1, 2, 4, … CPUs.
//!
//! In:  the CPU profile of a run, a function that finds a server for a number of CPUs and its price. Out: a row for
//!      each number of CPUs, with the cheapest and the fastest marked.

use serde::Serialize;

use crate::analysis::rounding::round_up;
use crate::store::cpu_profile::CpuProfile;

/// Predicted times up to this multiple of each other are about equal.
const ABOUT_EQUAL: f64 = 1.01;

/// The largest number of CPUs in the table.
const MAX_CPUS: u32 = 1024;

/// A run with a number of CPUs. `S` is a server.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WhatIf<S> {
    pub cpus: u32,
    pub predicted_seconds: f64,
    pub server: Option<S>,
    pub cost_usd: Option<f64>,
    pub cheapest: bool,
    pub fastest: bool,
}

impl<S> WhatIf<S> {
    /// `cheapest`, `fastest`, both or nothing.
    pub fn marks(&self) -> &'static str {
        match (self.cheapest, self.fastest) {
            (true, true) => "cheapest and fastest",
            (true, false) => "cheapest",
            (false, true) => "fastest",
            (false, false) => "",
        }
    }
}

/// Rows for 1, 2, 4, … CPUs, up to the number at which the run takes as long as it did. `server` finds a server with a
/// number of CPUs and its price per hour.
pub fn what_if<S>(profile: &CpuProfile, mut server: impl FnMut(u32) -> Option<(S, f64)>) -> Vec<WhatIf<S>> {
    if profile.duration_s() <= 0.0 {
        return Vec::new();
    }
    let last = round_up(profile.max_cores()).clamp(1, MAX_CPUS).next_power_of_two();
    let numbers = std::iter::successors(Some(1), |cpus| Some(cpus * 2)).take_while(|cpus| *cpus <= last);
    let mut rows: Vec<WhatIf<S>> = numbers
        .map(|cpus| {
            let predicted_seconds = profile.predicted_s(f64::from(cpus));
            let (server, per_hour) = server(cpus).unzip();
            let cost_usd = per_hour.map(|per_hour| per_hour * predicted_seconds / 3600.0);
            WhatIf { cpus, predicted_seconds, server, cost_usd, cheapest: false, fastest: false }
        })
        .collect();
    // With about equal times or equal costs, the smaller number of CPUs is marked.
    let least_seconds = rows.iter().map(|row| row.predicted_seconds).fold(f64::INFINITY, f64::min);
    if let Some(row) = rows.iter_mut().find(|row| row.predicted_seconds <= least_seconds * ABOUT_EQUAL) {
        row.fastest = true;
    }
    let priced = rows.iter_mut().filter_map(|row| Some((row.cost_usd?, row)));
    if let Some((_, row)) = priced.min_by(|a, b| a.0.total_cmp(&b.0)) {
        row.cheapest = true;
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::sizing::cpu::tests::profile;

    #[test]
    fn table_ends_where_more_cpus_save_no_time_and_marks_the_best() {
        // Small servers cost $1 per CPU and hour, and there is none with 4 CPUs.
        let price = |cpus: u32| (cpus != 4).then(|| (format!("cpu{cpus}"), f64::from(cpus)));
        let rows = what_if(&profile(&[(1800.0, 1.0), (1800.0, 3.0)]), price);
        let shown = rows.iter().map(|row| {
            (row.cpus, row.predicted_seconds, row.cost_usd, row.cheapest, row.fastest, row.server.as_deref())
        });
        assert_eq!(
            shown.collect::<Vec<_>>(),
            [
                (1, 7200.0, Some(2.0), true, false, Some("cpu1")),
                (2, 4500.0, Some(2.5), false, false, Some("cpu2")),
                (4, 3600.0, None, false, true, None),
            ]
        );
    }

    #[test]
    fn idle_run_needs_one_row_and_no_rows_give_no_table() {
        let none = |_| None::<((), f64)>;
        assert_eq!(what_if(&profile(&[(10.0, 0.0)]), none).len(), 1);
        assert_eq!(what_if(&CpuProfile::default(), none), []);
    }
}
