//! CPUs to request: the fewest with which the run would hardly have taken longer.
//!
//! In:  the CPU profiles of a run and of earlier runs, and the CPUs that they could use. Out: [`CpuAdvice`].
//! Not here: the prediction itself (`store::cpu_profile`).

use serde::Serialize;

use crate::analysis::rounding::round_up;
use crate::human;
use crate::store::cpu_profile::CpuProfile;

/// A run may take this much longer by default: 5 %.
pub const SLOWDOWN: f64 = 0.05;

/// CPUs to request, and the predicted time with them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CpuAdvice {
    pub cpus: u32,
    pub mean_cores: f64,
    pub duration_seconds: f64,
    pub predicted_seconds: f64,
    /// Number of runs that the number of CPUs is based on.
    pub runs: usize,
    /// One plain sentence for the user.
    pub why: String,
}

/// The fewest CPUs with which the run and earlier runs are predicted to take at most `slowdown` longer together; `None`
/// without rows. Earlier runs with another number of CPUs are left out. Never less than the mean usage of the run / (1 +
/// `slowdown`).
pub fn advise_cpu(
    profile: &CpuProfile,
    earlier: &[(CpuProfile, Option<f64>)],
    limit_cores: Option<f64>,
    slowdown: f64,
) -> Option<CpuAdvice> {
    let mean_cores = profile.mean_cores()?;
    let slowdown = if slowdown.is_finite() { slowdown.max(0.0) } else { SLOWDOWN };
    let (mut all, mut runs) = (profile.clone(), 1);
    for (earlier, _) in earlier.iter().filter(|(_, limit)| *limit == limit_cores) {
        all.merge(earlier);
        runs += 1;
    }
    let cpus = fewest_cpus(&all, slowdown).max(round_up(mean_cores / (1.0 + slowdown)));
    let (duration_seconds, predicted_seconds) = (profile.duration_s(), profile.predicted_s(f64::from(cpus)));
    let why = why(cpus, mean_cores, duration_seconds, predicted_seconds, runs);
    Some(CpuAdvice { cpus, mean_cores, duration_seconds, predicted_seconds, runs, why })
}

fn fewest_cpus(profile: &CpuProfile, slowdown: f64) -> u32 {
    let allowed = profile.duration_s() * (1.0 + slowdown);
    // The time falls with every CPU, so the answer can be searched by halving.
    let (mut below, mut enough) = (0, round_up(profile.max_cores()).max(1));
    while enough - below > 1 {
        let middle = below + (enough - below) / 2;
        if profile.predicted_s(f64::from(middle)) <= allowed { enough = middle } else { below = middle }
    }
    enough
}

fn why(cpus: u32, mean_cores: f64, duration_seconds: f64, predicted_seconds: f64, runs: usize) -> String {
    let cpus = if cpus == 1 { "1 CPU".to_owned() } else { format!("{cpus} CPUs") };
    let (took, predicted) = (human::duration(duration_seconds), human::duration(predicted_seconds));
    let why = if predicted == took {
        format!(
            "with {cpus} the run takes as long as it did, {took}, at {mean_cores:.2} busy CPUs on average"
        )
    } else {
        format!(
            "with {cpus} the run takes {predicted} instead of {took}, at {mean_cores:.2} busy CPUs on average"
        )
    };
    if runs == 1 { why } else { format!("{why}; based on {runs} runs") }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(in crate::analysis::sizing) fn profile(rows: &[(f64, f64)]) -> CpuProfile {
        let mut profile = CpuProfile::default();
        for (seconds, cores) in rows {
            profile.add(*seconds, seconds * cores);
        }
        profile
    }

    fn cpus(rows: &[(f64, f64)]) -> u32 {
        advise_cpu(&profile(rows), &[], None, SLOWDOWN).unwrap().cpus
    }

    #[test]
    fn advice_is_the_fewest_cpus_with_hardly_more_time() {
        assert_eq!(cpus(&[(10.0, 0.9)]), 1);
        assert_eq!(cpus(&[(10.0, 0.0)]), 1);
        assert_eq!(cpus(&[(100.0, 1.0), (1.0, 4.0)]), 1, "1 s of 4 CPUs takes 4 s on one: 3 % longer in all");
        assert_eq!(cpus(&[(100.0, 1.0), (2.0, 4.0)]), 2, "2 s of 4 CPUs take 8 s on one: 6 % longer in all");
        assert_eq!(cpus(&[(50.0, 1.0), (50.0, 4.0)]), 4);
        assert_eq!(cpus(&[(100.0, 4.1)]), 4, "4.1 CPUs on 4 take 2.5 % longer");
        assert_eq!(
            cpus(&[(100.0, 2.38), (20.0, 3.69)]),
            3,
            "the example of the README: never below the mean"
        );
    }

    #[test]
    fn earlier_runs_on_as_many_cpus_count() {
        let large = profile(&[(100.0, 4.0)]);
        let advise = |earlier: &[(CpuProfile, Option<f64>)]| {
            advise_cpu(&profile(&[(10.0, 1.0)]), earlier, Some(8.0), SLOWDOWN).unwrap()
        };
        assert_eq!((advise(&[]).cpus, advise(&[(large.clone(), Some(2.0))]).cpus), (1, 1));
        let both = advise(&[(large, Some(8.0))]);
        assert_eq!(
            (both.cpus, both.why.as_str()),
            (
                4,
                "with 4 CPUs the run takes as long as it did, 10 s, at 1.00 busy CPUs on average; based on 2 runs"
            )
        );
        // Idle earlier runs do not take away what this run has used.
        let idle = [(profile(&[(1000.0, 0.1)]), None)];
        assert_eq!(advise_cpu(&profile(&[(10.0, 4.0)]), &idle, None, SLOWDOWN).unwrap().cpus, 4);
    }

    #[test]
    fn run_without_rows_gives_no_advice() {
        assert_eq!(advise_cpu(&CpuProfile::default(), &[], Some(4.0), SLOWDOWN), None);
    }

    proptest! {
        /// Advice is never below mean / 1.05, keeps the time, and one CPU less does not.
        #[test]
        fn advice_is_enough_and_minimal(rows in proptest::collection::vec((0.01_f64..100.0, 0.0_f64..70.0), 1..50)) {
            let profile = profile(&rows);
            let advice = advise_cpu(&profile, &[], None, SLOWDOWN).unwrap();
            let allowed = profile.duration_s() * 1.05;
            prop_assert!(f64::from(advice.cpus) >= advice.mean_cores / 1.05 - 1e-9);
            prop_assert!(advice.predicted_seconds <= allowed * (1.0 + 1e-9));
            if advice.cpus > 1 {
                prop_assert!(profile.predicted_s(f64::from(advice.cpus - 1)) > allowed);
            }
        }
    }
}
