//! How long a run kept how many CPUs busy: enough to predict its time with fewer CPUs.
//!
//! In:  length and CPU seconds of each row. Out: [`CpuProfile`], a histogram whose size does not depend on the number of
//!      rows, and the predicted time with any number of CPUs.
//!
//! The prediction is the sum over rows of max(elapsed, CPU seconds / CPUs): work is kept, and idle time stays. A bin keeps
//! the sums of its rows, so only the bin that contains the number of CPUs is not exact. Its error is at most a quarter
//! of its width: 0.75 %.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Upper end of a bin as a multiple of its lower end.
const WIDTH: f64 = 1.03;

/// Usage below this is in the first bin, usage above the second in the last bin.
const RANGE_CORES: (f64, f64) = (0.05, 10_000.0);

/// A histogram of CPU usage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<(f64, f64)>", into = "Vec<(f64, f64)>")]
pub struct CpuProfile {
    bins: BTreeMap<u16, Bin>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Bin {
    seconds: f64,
    cpu_seconds: f64,
}

impl CpuProfile {
    /// Adds a row. A row without a length or with an invalid CPU time is left out.
    pub fn add(&mut self, seconds: f64, cpu_seconds: f64) {
        let is_valid = seconds.is_finite() && cpu_seconds.is_finite() && seconds > 0.0 && cpu_seconds >= 0.0;
        if !is_valid {
            return;
        }
        let bin = self.bins.entry(bin_of(cpu_seconds / seconds)).or_default();
        bin.seconds += seconds;
        bin.cpu_seconds += cpu_seconds;
    }

    /// Adds the rows of another run.
    pub fn merge(&mut self, other: &Self) {
        for (number, bin) in &other.bins {
            let sum = self.bins.entry(*number).or_default();
            sum.seconds += bin.seconds;
            sum.cpu_seconds += bin.cpu_seconds;
        }
    }

    /// Duration of all rows.
    pub fn duration_s(&self) -> f64 {
        self.bins.values().map(|bin| bin.seconds).sum()
    }

    /// `None` without rows.
    pub fn mean_cores(&self) -> Option<f64> {
        let cpu_seconds: f64 = self.bins.values().map(|bin| bin.cpu_seconds).sum();
        (!self.bins.is_empty()).then(|| cpu_seconds / self.duration_s())
    }

    /// The number of CPUs with which no row takes longer, up to the width of a bin.
    pub fn max_cores(&self) -> f64 {
        self.bins.values().map(|bin| bin.cpu_seconds / bin.seconds).fold(0.0, f64::max)
    }

    /// The predicted duration with a number of CPUs.
    pub fn predicted_s(&self, cpus: f64) -> f64 {
        self.bins.values().map(|bin| bin.seconds.max(bin.cpu_seconds / cpus)).sum()
    }
}

fn bin_of(cores: f64) -> u16 {
    let (low, high) = RANGE_CORES;
    let steps = (cores.clamp(low, high) / low).ln() / WIDTH.ln();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 413")]
    let bin = steps.floor() as u16;
    bin
}

/// Stored as pairs of mean usage and seconds.
impl From<CpuProfile> for Vec<(f64, f64)> {
    fn from(profile: CpuProfile) -> Self {
        let short = |value: f64| (value * 1e4).round() / 1e4;
        profile.bins.values().map(|bin| (short(bin.cpu_seconds / bin.seconds), short(bin.seconds))).collect()
    }
}

impl From<Vec<(f64, f64)>> for CpuProfile {
    fn from(pairs: Vec<(f64, f64)>) -> Self {
        let mut profile = Self::default();
        for (cores, seconds) in pairs {
            profile.add(seconds, cores * seconds);
        }
        profile
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn prediction_keeps_work_and_idle_time() {
        let mut profile = CpuProfile::default();
        profile.add(10.0, 40.0);
        profile.add(10.0, 0.0);
        profile.add(10.0, 10.0);
        assert_eq!([1.0, 2.0, 4.0, 8.0].map(|cpus| profile.predicted_s(cpus)), [60.0, 40.0, 30.0, 30.0]);
        assert_eq!((profile.mean_cores(), profile.max_cores()), (Some(50.0 / 30.0), 4.0));
    }

    #[test]
    fn invalid_rows_are_left_out() {
        let mut profile = CpuProfile::default();
        for (seconds, cpu_seconds) in
            [(0.0, 1.0), (-1.0, 1.0), (f64::NAN, 1.0), (1.0, -1.0), (1.0, f64::INFINITY)]
        {
            profile.add(seconds, cpu_seconds);
        }
        assert_eq!((profile.clone(), profile.mean_cores()), (CpuProfile::default(), None));
    }

    proptest! {
        /// For any number of CPUs the prediction is within 1 % of that from the rows, also after it was stored, and
        /// the size of the profile is bounded.
        #[test]
        fn prediction_is_within_one_percent_of_the_rows(
            rows in proptest::collection::vec((0.1_f64..10.0, 0.0_f64..100.0), 1..300),
            cpus in 0.1_f64..128.0,
        ) {
            let mut profile = CpuProfile::default();
            for (seconds, cores) in &rows {
                profile.add(*seconds, seconds * cores);
            }
            let exact: f64 = rows.iter().map(|(seconds, cores)| seconds.max(seconds * cores / cpus)).sum();
            let stored: CpuProfile = serde_json::from_str(&serde_json::to_string(&profile).unwrap()).unwrap();
            for predicted in [profile.predicted_s(cpus), stored.predicted_s(cpus)] {
                prop_assert!((predicted / exact - 1.0).abs() < 0.01, "{predicted} instead of {exact}");
            }
            prop_assert!(profile.bins.len() <= 414);
        }
    }
}
