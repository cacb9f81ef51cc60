//! Statistics of columns: the result of `stats()`, single aggregates, and combined statistics of several runs.
//!
//! In:  the combined table and a list of [`Spec`]s; the [`Stats`] of earlier runs.
//! Out: [`Stats`], an ordered map of column → aggregate → value.
//! Not here: the default statistics, which are updated with each row (`summary`).

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, Serializer};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::store::decimal;
use crate::store::frame::{Column, Frame, FrameError};

/// Why statistics cannot be computed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StatsError {
    #[error("No metrics collected (yet)")]
    NoMetrics,
    #[error(transparent)]
    Column(#[from] FrameError),
    #[error("unknown aggregate `{name}`")]
    UnknownAggregate { name: String },
    #[error("cannot combine aggregate `{aggregate}` of `{column}` over several runs")]
    NotCombinable { column: String, aggregate: String },
}

impl StatsError {
    /// What the user can do about the error.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::UnknownAggregate { .. } => Some("use mean, max, min, sum, duration, median, or p1 to p99"),
            Self::NotCombinable { .. } => Some("use mean, max, sum or duration"),
            Self::NoMetrics | Self::Column(_) => None,
        }
    }
}

/// Ordered map of column → aggregate → value. A value is `None` if no cell of the column was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    columns: Vec<(String, Aggregates)>,
}

type Aggregates = Vec<(String, Option<f64>)>;

impl Stats {
    /// `None` if there is no such column or aggregate, or if no cell was measured.
    pub fn get(&self, column: &str, aggregate: &str) -> Option<f64> {
        let (_, aggregates) = self.columns.iter().find(|(name, _)| name == column)?;
        aggregates.iter().find(|(name, _)| name == aggregate)?.1
    }

    pub fn has(&self, column: &str) -> bool {
        self.columns.iter().any(|(name, _)| name == column)
    }

    pub fn set(&mut self, column: &str, aggregate: &str, value: Option<f64>) {
        let at = self.columns.iter().position(|(name, _)| name == column).unwrap_or_else(|| {
            self.columns.push((column.to_owned(), Vec::new()));
            self.columns.len() - 1
        });
        let aggregates = &mut self.columns[at].1;
        match aggregates.iter_mut().find(|(name, _)| name == aggregate) {
            Some((_, present)) => *present = value,
            None => aggregates.push((aggregate.to_owned(), value)),
        }
    }

    /// Column, aggregate and value of every statistic, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, Option<f64>)> {
        self.columns.iter().flat_map(|(column, aggregates)| {
            aggregates.iter().map(|(aggregate, value)| (column.as_str(), aggregate.as_str(), *value))
        })
    }

    /// Computes the requested statistics. Means and percentiles are weighted by the length of each row.
    pub fn compute(frame: &Frame, row_lengths_s: &[f64], specs: &[Spec]) -> Result<Self, StatsError> {
        if frame.is_empty() {
            return Err(StatsError::NoMetrics);
        }
        let mut stats = Self::default();
        for spec in specs {
            let value = spec.aggregate.of(frame.column(&spec.column)?, row_lengths_s);
            let value =
                value.map(|value| spec.round.map_or(value, |decimals| decimal::round(value, decimals)));
            let name = spec.name.clone().unwrap_or_else(|| spec.aggregate.to_string());
            stats.set(&spec.column, &name, value);
        }
        Ok(stats)
    }

    /// Combines the statistics of several runs: the mean of means and durations, the maximum of maxima and sums. Runs
    /// without a value are skipped.
    pub fn combine<'a>(runs: impl IntoIterator<Item = &'a Self>) -> Result<Self, StatsError> {
        let mut combined = Self::default();
        let mut counts = Self::default();
        for (column, aggregate, value) in runs.into_iter().flat_map(Self::iter) {
            let so_far = combined.get(column, aggregate);
            let value = match (aggregate, so_far, value) {
                ("mean" | "duration" | "max" | "sum", so_far, None) => so_far,
                ("mean" | "duration", _, Some(value)) => {
                    counts.set(column, aggregate, Some(counts.get(column, aggregate).unwrap_or(0.0) + 1.0));
                    Some(so_far.unwrap_or(0.0) + value)
                }
                ("max" | "sum", so_far, Some(value)) => {
                    Some(so_far.map_or(value, |so_far| so_far.max(value)))
                }
                _ => {
                    let (column, aggregate) = (column.to_owned(), aggregate.to_owned());
                    return Err(StatsError::NotCombinable { column, aggregate });
                }
            };
            combined.set(column, aggregate, value);
        }
        for (column, aggregate, count) in counts.iter() {
            let mean = combined.get(column, aggregate).zip(count).map(|(sum, count)| sum / count);
            combined.set(column, aggregate, mean);
        }
        Ok(combined)
    }
}

impl Serialize for Stats {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let inner = |aggregates: &Aggregates| -> Map<String, Value> {
            aggregates.iter().map(|(name, value)| (name.clone(), Value::from(*value))).collect()
        };
        serializer.collect_map(self.columns.iter().map(|(column, aggregates)| (column, inner(aggregates))))
    }
}

impl<'de> Deserialize<'de> for Stats {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut stats = Self::default();
        for (column, aggregates) in Map::<String, Value>::deserialize(deserializer)? {
            let aggregates = Map::<String, Value>::deserialize(aggregates).map_err(D::Error::custom)?;
            for (aggregate, value) in aggregates {
                let value = Option::deserialize(value).map_err(D::Error::custom)?;
                stats.set(&column, &aggregate, value);
            }
        }
        Ok(stats)
    }
}

/// A statistic over the measured cells of one column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Aggregate {
    /// The mean, weighted by the length of each row.
    Mean,
    Max,
    Min,
    Sum,
    /// A percentile from 0 to 100, weighted by the length of each row. With rows of equal length it is interpolated between
    /// the two nearest cells.
    Percentile(f64),
    /// Maximum minus minimum, used for timestamps.
    Duration,
}

impl Aggregate {
    /// The statistic of a column with rows of these lengths; `None` if no cell was measured.
    pub fn of(self, column: &Column, row_lengths_s: &[f64]) -> Option<f64> {
        let max = || column.present().reduce(f64::max);
        let min = || column.present().reduce(f64::min);
        match self {
            Self::Mean => {
                let cells = weighted(column, row_lengths_s);
                let (sum, weight) = cells
                    .iter()
                    .fold((0.0, 0.0), |(sum, all), (cell, weight)| (sum + cell * weight, all + weight));
                // Rounding errors of the sum must not move the mean out of the measured range.
                (!cells.is_empty())
                    .then(|| (sum / weight).max(min().unwrap_or(sum)).min(max().unwrap_or(sum)))
            }
            Self::Max => max(),
            Self::Min => min(),
            Self::Sum => column.present().reduce(|sum, cell| sum + cell),
            Self::Percentile(share) => percentile(weighted(column, row_lengths_s), share / 100.0),
            Self::Duration => Some(max()? - min()?),
        }
    }
}

/// The measured cells and the length of their rows. If no row has a length, all count the same.
fn weighted(column: &Column, row_lengths_s: &[f64]) -> Vec<(f64, f64)> {
    let lengths = row_lengths_s.iter().copied().chain(std::iter::repeat(0.0));
    let cells = column.iter().zip(lengths);
    let mut cells: Vec<(f64, f64)> = cells.filter_map(|(cell, length_s)| Some((cell?, length_s))).collect();
    if cells.iter().all(|(_, length_s)| *length_s <= 0.0) {
        for (_, weight) in &mut cells {
            *weight = 1.0;
        }
    }
    cells
}

/// The weighted quantile of Akinshin, "Weighted quantile estimators" (2023), of type 7: the mean of the cells within a
/// window of the cumulative weight. The window is as wide as one cell of the effective number of cells (Kish), so that
/// cells of equal weight give the usual interpolated quantile.
fn percentile(mut cells: Vec<(f64, f64)>, share: f64) -> Option<f64> {
    cells.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let (first, last) = (cells.first()?.0, cells.last()?.0);
    if share <= 0.0 || share >= 1.0 {
        return Some(if share <= 0.0 { first } else { last });
    }
    let total: f64 = cells.iter().map(|(_, weight)| weight).sum();
    let effective = total * total / cells.iter().map(|(_, weight)| weight * weight).sum::<f64>();
    let start = share * (effective - 1.0) / effective * total;
    let (end, mut reached, mut sum) = (start + total / effective, 0.0, 0.0);
    for (cell, weight) in cells {
        let (from, to) = (f64::max(reached, start), f64::min(reached + weight, end));
        sum += cell * (to - from).max(0.0);
        reached += weight;
    }
    Some((sum / (end - start)).clamp(first, last))
}

impl fmt::Display for Aggregate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mean => formatter.write_str("mean"),
            Self::Max => formatter.write_str("max"),
            Self::Min => formatter.write_str("min"),
            Self::Sum => formatter.write_str("sum"),
            Self::Percentile(share) => write!(formatter, "p{share}"),
            Self::Duration => formatter.write_str("duration"),
        }
    }
}

impl FromStr for Aggregate {
    type Err = StatsError;

    fn from_str(name: &str) -> Result<Self, StatsError> {
        let share = |digits: &str| digits.parse().ok().filter(|share| (0.0..=100.0).contains(share));
        match name {
            "mean" => Some(Self::Mean),
            "max" => Some(Self::Max),
            "min" => Some(Self::Min),
            "sum" => Some(Self::Sum),
            "median" => Some(Self::Percentile(50.0)),
            "duration" => Some(Self::Duration),
            _ => name.strip_prefix('p').and_then(share).map(Self::Percentile),
        }
        .ok_or_else(|| StatsError::UnknownAggregate { name: name.to_owned() })
    }
}

/// A requested statistic.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Name of a column of the combined table.
    pub column: String,
    pub aggregate: Aggregate,
    /// Name of the aggregate in the result; `None` for its own name.
    pub name: Option<String>,
    /// Number of decimals, rounded as by Python's `round`; `None` for no rounding.
    pub round: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(cells: &[f64]) -> Frame {
        Frame::from_columns(vec![Column::new("x", cells.to_vec())]).unwrap()
    }

    fn spec(aggregate: &str, round: Option<u32>) -> Spec {
        Spec { column: "x".into(), aggregate: aggregate.parse().unwrap(), name: None, round }
    }

    fn stats(json: &str) -> Stats {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn missing_cells_are_skipped() {
        let frame = frame(&[4.0, f64::NAN, 1.0, 3.0]);
        let names = ["mean", "max", "min", "sum", "p50", "p25", "duration", "median"];
        let specs: Vec<_> = names.iter().map(|name| spec(name, Some(2))).collect();
        let stats = Stats::compute(&frame, &[], &specs).unwrap();
        assert_eq!(
            serde_json::to_string(&stats).unwrap(),
            r#"{"x":{"mean":2.67,"max":4.0,"min":1.0,"sum":8.0,"p50":3.0,"p25":2.0,"duration":3.0}}"#
        );
    }

    #[test]
    fn column_without_values_is_none_and_table_without_rows_is_an_error() {
        assert_eq!(
            Stats::compute(&frame(&[f64::NAN]), &[], &[spec("sum", None)]).unwrap().get("x", "sum"),
            None
        );
        assert_eq!(Stats::compute(&frame(&[]), &[], &[spec("sum", None)]), Err(StatsError::NoMetrics));
        assert_eq!(StatsError::NoMetrics.to_string(), "No metrics collected (yet)");
        let other = Spec { column: "y".into(), ..spec("max", None) };
        assert_eq!(
            Stats::compute(&frame(&[1.0]), &[], &[other]).unwrap_err().to_string(),
            "column `y` not found"
        );
    }

    #[test]
    fn means_and_percentiles_are_weighted_by_the_length_of_rows() {
        // A job that used 1 for 100 s, and 9 in its last row of 1 s.
        let column = Column::new("x", vec![1.0, 1.0, 9.0]);
        let of =
            |name: &str, lengths: &[f64]| name.parse::<Aggregate>().unwrap().of(&column, lengths).unwrap();
        let lengths = [50.0, 50.0, 1.0];
        assert!((of("mean", &lengths) - 109.0 / 101.0).abs() < 1e-12);
        assert_eq!((of("median", &lengths), of("p100", &lengths), of("sum", &lengths)), (1.0, 9.0, 11.0));
        assert!(of("p90", &lengths) < 1.5, "{}", of("p90", &lengths));
        // One second more or less of a row of 50 s changes little.
        assert!((of("p60", &[50.0, 50.0, 0.0]) - of("p60", &lengths)).abs() < 0.5);
        assert_eq!(of("p75", &[2.0, 2.0, 2.0]), of("p75", &[]), "equal rows are not weighted");
        assert_eq!(of("p75", &[]), 5.0);
        let missing = Column::new("x", vec![f64::NAN, 4.0, 1.0]);
        assert_eq!(Aggregate::Mean.of(&missing, &[9.0, 1.0, 2.0]), Some(2.0));
    }

    #[test]
    fn given_name_replaces_the_aggregate_and_unknown_aggregates_are_errors() {
        let named = Spec { name: Some("peak".into()), ..spec("max", None) };
        assert_eq!(Stats::compute(&frame(&[7.0]), &[], &[named]).unwrap().get("x", "peak"), Some(7.0));
        for name in ["p", "p101", "p-1", "pNaN", "average", ""] {
            assert_eq!(
                name.parse::<Aggregate>().unwrap_err(),
                StatsError::UnknownAggregate { name: name.to_owned() }
            );
        }
    }

    #[test]
    fn runs_are_combined_by_mean_or_maximum() {
        let runs = [
            stats(r#"{"a":{"mean":1,"max":5},"n":{"sum":10},"timestamp":{"duration":4}}"#),
            stats(r#"{"a":{"mean":2,"max":3},"n":{"sum":30},"timestamp":{"duration":8}}"#),
            stats(r#"{"a":{"mean":null,"max":4}}"#),
        ];
        assert_eq!(
            serde_json::to_string(&Stats::combine(&runs).unwrap()).unwrap(),
            r#"{"a":{"mean":1.5,"max":5.0},"n":{"sum":30.0},"timestamp":{"duration":6.0}}"#
        );
        assert_eq!(
            Stats::combine(&[stats(r#"{"a":{"min":1}}"#)]).unwrap_err().to_string(),
            "cannot combine aggregate `min` of `a` over several runs"
        );
    }

    proptest! {
        /// A higher percentile is never smaller than a lower one. 0 is the minimum, 100 the maximum.
        #[test]
        fn percentiles_are_ordered(cells in proptest::collection::vec(-1e6_f64..1e6, 1..50), a in 0.0..100.0, b in 0.0..100.0) {
            let column = Column::new("x", cells);
            let at = |share| Aggregate::Percentile(share).of(&column, &[]);
            let (low, high) = if a < b { (a, b) } else { (b, a) };
            prop_assert!(at(low).unwrap() <= at(high).unwrap() + 1e-9);
            prop_assert_eq!((at(0.0), at(100.0)), (Aggregate::Min.of(&column, &[]), Aggregate::Max.of(&column, &[])));
        }

        /// Combining copies of one run gives the statistics of this run.
        #[test]
        fn combined_copies_of_a_run_equal_the_run(mean in -1e9_f64..1e9, max in -1e9_f64..1e9, times in 1_usize..5) {
            let mut run = Stats::default();
            run.set("c", "mean", Some(mean));
            run.set("c", "max", Some(max));
            let combined = Stats::combine(std::iter::repeat_n(&run, times)).unwrap();
            prop_assert!((combined.get("c", "mean").unwrap() - mean).abs() <= mean.abs() * 1e-12);
            prop_assert_eq!(combined.get("c", "max"), Some(max));
        }

        #[test]
        fn statistics_are_read_back_from_json_unchanged(names in proptest::collection::vec(("[a-z]{1,4}", "[a-z]{1,4}", proptest::option::of(any::<i32>())), 0..6)) {
            let mut stats = Stats::default();
            for (column, aggregate, value) in &names {
                stats.set(column, aggregate, value.map(f64::from));
            }
            let json = serde_json::to_string(&stats).unwrap();
            prop_assert_eq!(serde_json::from_str::<Stats>(&json).unwrap(), stats);
        }
    }
}
