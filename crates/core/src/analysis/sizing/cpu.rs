//! CPUs to request: the fewest with which the run would hardly have taken longer.
//!
//! In:  the CPU profile of a run, the CPUs that it could use. Out: [`CpuAdvice`].
//! Not here: the prediction itself (`store::cpu_profile`).

use serde::Serialize;

use crate::human;
use crate::store::cpu_profile::CpuProfile;

/// A run may take this much longer by default: 5 %.
pub const SLOWDOWN: f64 = 0.05;

/// Mean CPU usage above this share of the limit means that all CPUs were busy.
const ALL_BUSY: f64 = 0.9;

/// CPUs to request, and the predicted time with them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CpuAdvice {
    pub cpus: u32,
    pub mean_cores: f64,
    pub duration_seconds: f64,
    pub predicted_seconds: f64,
    /// The run kept all its CPUs busy, so more CPUs may make it faster.
    pub all_busy: bool,
    /// One plain sentence for the user.
    pub why: String,
}

/// The fewest CPUs with which the run is predicted to take at most `slowdown` longer; `None` without rows. Never less
/// than the mean usage / (1 + `slowdown`), since the prediction keeps all work.
pub fn advise_cpu(profile: &CpuProfile, limit_cores: Option<f64>, slowdown: f64) -> Option<CpuAdvice> {
    let duration_seconds = profile.duration_s();
    let mean_cores = profile.mean_cores()?;
    let slowdown = if slowdown.is_finite() { slowdown.max(0.0) } else { SLOWDOWN };
    let allowed = duration_seconds * (1.0 + slowdown);
    // The time falls with every CPU, so the answer can be searched by halving.
    let (mut below, mut enough) = (0, whole(profile.max_cores()).max(1));
    while enough - below > 1 {
        let middle = below + (enough - below) / 2;
        if profile.predicted_s(f64::from(middle)) <= allowed { enough = middle } else { below = middle }
    }
    let predicted_seconds = profile.predicted_s(f64::from(enough));
    let all_busy = limit_cores.is_some_and(|limit| mean_cores >= ALL_BUSY * limit);
    let cpus = if enough == 1 { "1 CPU".to_owned() } else { format!("{enough} CPUs") };
    let took = human::duration(duration_seconds);
    let mut why = if predicted_seconds <= duration_seconds * 1.005 {
        format!(
            "with {cpus} the run takes as long as it did, {took}, at {mean_cores:.2} busy CPUs on average"
        )
    } else {
        let predicted = human::duration(predicted_seconds);
        format!(
            "with {cpus} the run takes {predicted} instead of {took}, at {mean_cores:.2} busy CPUs on average"
        )
    };
    if all_busy {
        why += "; it kept all its CPUs busy: more may make it faster, by how much is not known";
    }
    Some(CpuAdvice { cpus: enough, mean_cores, duration_seconds, predicted_seconds, all_busy, why })
}

/// The next whole number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, and converts NaN to 0"
)]
pub(super) fn whole(value: f64) -> u32 {
    value.ceil() as u32
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
        advise_cpu(&profile(rows), None, SLOWDOWN).unwrap().cpus
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
    fn run_that_kept_all_cpus_busy_says_so() {
        let busy = advise_cpu(&profile(&[(60.0, 3.9)]), Some(4.0), SLOWDOWN).unwrap();
        assert_eq!(
            (busy.cpus, busy.why.as_str()),
            (
                4,
                "with 4 CPUs the run takes as long as it did, 1 min 0 s, at 3.90 busy CPUs on average; it kept all its \
                 CPUs busy: more may make it faster, by how much is not known"
            )
        );
        assert!(!advise_cpu(&profile(&[(60.0, 2.0)]), Some(4.0), SLOWDOWN).unwrap().all_busy);
    }

    #[test]
    fn run_without_rows_gives_no_advice() {
        assert_eq!(advise_cpu(&CpuProfile::default(), Some(4.0), SLOWDOWN), None);
    }

    proptest! {
        /// Advice is never below mean / 1.05, keeps the time, and one CPU less does not.
        #[test]
        fn advice_is_enough_and_minimal(rows in proptest::collection::vec((0.01_f64..100.0, 0.0_f64..70.0), 1..50)) {
            let profile = profile(&rows);
            let advice = advise_cpu(&profile, None, SLOWDOWN).unwrap();
            let allowed = profile.duration_s() * 1.05;
            prop_assert!(f64::from(advice.cpus) >= advice.mean_cores / 1.05 - 1e-9);
            prop_assert!(advice.predicted_seconds <= allowed * (1.0 + 1e-9));
            if advice.cpus > 1 {
                prop_assert!(profile.predicted_s(f64::from(advice.cpus - 1)) > allowed);
            }
        }
    }
}
