//! Intervals for differences between runs, at a confidence level of 95 %.
//!
//! In:  values of a figure. Out: [`Interval`]; `None` with too few values.
//! Not here: which values are compared (`compare`).
//!
//! Student's t quantile is computed here, because crates with it bring whole libraries of distributions for the one
//! function that is needed. With t = √ν tan θ the density of t becomes cos^(ν−1) θ, which is integrated numerically.

use serde::Serialize;

/// Number of runs needed to estimate the spread of a job.
pub(super) const ENOUGH_RUNS: usize = 3;
const CONFIDENCE: f64 = 0.95;
const STEPS: u32 = 200;
/// With more degrees of freedom, the quantile is up to 1.3 % smaller, and the density too narrow for the steps.
const MOST_FREEDOM: f64 = 100.0;

/// How an interval was computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Welch's interval for the difference of two means.
    Welch,
    /// Prediction interval for one more run of a job.
    Prediction,
}

/// An interval for a difference, in the unit of the figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
    pub method: Method,
}

impl Interval {
    fn around(difference: f64, half_width: f64, method: Method) -> Self {
        Self { low: difference - half_width, high: difference + half_width, method }
    }

    /// The difference of the means of two groups, `others` minus `first`.
    pub(super) fn of_means(first: &[f64], others: &[f64]) -> Option<Self> {
        let (first, others) = (Sample::of(first)?, Sample::of(others)?);
        let (a, b) = (first.variance / first.count, others.variance / others.count);
        // The Welch-Satterthwaite equation; without any spread the degrees of freedom do not matter.
        let freedom = (a + b).powi(2) / (a * a / (first.count - 1.0) + b * b / (others.count - 1.0));
        let quantile = t_quantile(if freedom.is_nan() { 1.0 } else { freedom });
        Some(Self::around(others.mean - first.mean, quantile * (a + b).sqrt(), Method::Welch))
    }

    /// The difference of one more run from the mean of a group. It includes 0 if the run is like those of the group.
    pub(super) fn of_run(group: &[f64], run: f64) -> Option<Self> {
        let group = Sample::of(group)?;
        let spread = (group.variance * (1.0 + 1.0 / group.count)).sqrt();
        Some(Self::around(run - group.mean, t_quantile(group.count - 1.0) * spread, Method::Prediction))
    }

    /// The interval of the opposite difference.
    pub(super) fn reversed(self) -> Self {
        Self { low: -self.high, high: -self.low, ..self }
    }
}

struct Sample {
    count: f64,
    mean: f64,
    variance: f64,
}

impl Sample {
    fn of(values: &[f64]) -> Option<Self> {
        if values.len() < ENOUGH_RUNS {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "a few runs")]
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
        Some(Self { count, mean, variance })
    }
}

/// The value that Student's t with these degrees of freedom exceeds on neither side with a probability of 95 %.
fn t_quantile(freedom: f64) -> f64 {
    let freedom = freedom.clamp(1.0, MOST_FREEDOM);
    let step = std::f64::consts::FRAC_PI_2 / f64::from(STEPS);
    let density = |number: u32| ((f64::from(number) + 0.5) * step).cos().powf(freedom - 1.0);
    let parts: Vec<f64> = (0..STEPS).map(density).collect();
    let mut left = CONFIDENCE * parts.iter().sum::<f64>();
    let mut angle = 0.0;
    for part in parts {
        if left <= part {
            angle += step * left / part;
            break;
        }
        left -= part;
        angle += step;
    }
    freedom.sqrt() * angle.tan()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t_quantiles_are_those_of_published_tables() {
        // NIST/SEMATECH e-Handbook of Statistical Methods, section 1.3.6.7.2; 2.5 by `qt(0.975, 2.5)` of R.
        let table = [
            (1.0, 12.706),
            (2.0, 4.303),
            (2.5, 3.575),
            (3.0, 3.182),
            (4.0, 2.776),
            (9.0, 2.262),
            (30.0, 2.042),
            (100.0, 1.984),
        ];
        for (freedom, published) in table {
            assert!((t_quantile(freedom) - published).abs() < 0.001, "{freedom}: {}", t_quantile(freedom));
        }
        assert_eq!(t_quantile(1e9), t_quantile(100.0));
    }

    #[test]
    fn intervals_are_those_of_a_worked_example() {
        let round = |interval: Option<Interval>| {
            interval.map(|interval| {
                (
                    (interval.low * 100.0).round() / 100.0,
                    (interval.high * 100.0).round() / 100.0,
                    interval.method,
                )
            })
        };
        // `t.test(c(18, 20, 22), c(10, 11, 12))$conf.int` of R: 50/17 degrees of freedom.
        let (first, others) = ([10.0, 11.0, 12.0], [18.0, 20.0, 22.0]);
        assert_eq!(round(Interval::of_means(&first, &others)), Some((4.84, 13.16, Method::Welch)));
        assert_eq!(
            round(Interval::of_means(&others, &first).map(Interval::reversed)),
            Some((4.84, 13.16, Method::Welch))
        );
        // 4.3027 × 1 × √(4/3) = 4.968
        assert_eq!(round(Interval::of_run(&first, 15.0)), Some((-0.97, 8.97, Method::Prediction)));
    }

    #[test]
    fn two_runs_tell_nothing_about_the_spread() {
        assert_eq!(Interval::of_run(&[1.0, 2.0], 9.0), None);
        assert_eq!(Interval::of_means(&[1.0, 2.0], &[1.0, 2.0, 3.0]), None);
        assert_eq!(Interval::of_means(&[1.0, 2.0, 3.0], &[1.0, 2.0]), None);
    }

    #[test]
    fn equal_runs_have_an_interval_without_width() {
        let same = Interval::of_means(&[5.0; 3], &[7.0; 3]).unwrap();
        assert_eq!((same.low, same.high), (2.0, 2.0));
    }
}
