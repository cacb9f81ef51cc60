//! Statistics: what `stats()` returns, figures over single columns, and several runs as one.
//!
//! In:  the combined table and a list of [`Spec`]s; the [`Stats`] of earlier runs.
//! Out: [`Stats`], an ordered map of column → aggregate → value.
//! Not here: the default statistics, which are kept row by row (`summary`).

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use thiserror::Error;

use crate::decimal;
use crate::frame::{Column, Frame, FrameError};

/// Why there are no statistics.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StatsError {
    /// Nothing was measured.
    #[error("No metrics collected (yet)")]
    NoMetrics,
    /// A figure over a column that does not exist.
    #[error(transparent)]
    Column(#[from] FrameError),
    /// A name that stands for no aggregate.
    #[error("aggregate `{name}` is not known")]
    UnknownAggregate {
        /// As it was given.
        name: String,
    },
    /// Runs cannot be combined by this aggregate.
    #[error("aggregate `{aggregate}` of `{column}` cannot be combined over runs")]
    NotCombinable {
        /// The column it stands under.
        column: String,
        /// Its name.
        aggregate: String,
    },
}

impl StatsError {
    /// What the reader can do about it, if anything.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::UnknownAggregate { .. } => {
                Some("known are mean, max, min, sum, duration, median and p1 to p99")
            }
            Self::NotCombinable { .. } => Some("history can hold mean, max, sum and duration"),
            Self::NoMetrics | Self::Column(_) => None,
        }
    }
}

/// Column → aggregate → value, in the order the statistics were asked for. A value is `None` when no
/// cell of the column was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    columns: Vec<(String, Aggregates)>,
}

type Aggregates = Vec<(String, Option<f64>)>;

impl Stats {
    /// The value of an aggregate; `None` when it is not there or was not measured.
    #[must_use]
    pub fn get(&self, column: &str, aggregate: &str) -> Option<f64> {
        let (_, aggregates) = self.columns.iter().find(|(name, _)| name == column)?;
        aggregates.iter().find(|(name, _)| name == aggregate)?.1
    }

    /// Has this column at all, measured or not.
    #[must_use]
    pub fn has(&self, column: &str) -> bool {
        self.columns.iter().any(|(name, _)| name == column)
    }

    /// Sets a value, below the column's others when it is new.
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

    /// Every value in order: column, aggregate, value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, Option<f64>)> {
        self.columns.iter().flat_map(|(column, aggregates)| {
            aggregates.iter().map(|(aggregate, value)| (column.as_str(), aggregate.as_str(), *value))
        })
    }
}

impl Serialize for Stats {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Inner<'a>(&'a Aggregates);
        impl Serialize for Inner<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
            }
        }
        let mut map = serializer.serialize_map(Some(self.columns.len()))?;
        for (column, aggregates) in &self.columns {
            map.serialize_entry(column, &Inner(aggregates))?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Stats {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Outer;
        impl<'de> Visitor<'de> for Outer {
            type Value = Stats;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("statistics: a map of columns to maps of aggregates")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Stats, A::Error> {
                let mut stats = Stats::default();
                while let Some((column, Inner(aggregates))) = map.next_entry::<String, Inner>()? {
                    for (aggregate, value) in aggregates {
                        stats.set(&column, &aggregate, value);
                    }
                }
                Ok(stats)
            }
        }
        struct Inner(Aggregates);
        impl<'de> Deserialize<'de> for Inner {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_map(InnerVisitor)
            }
        }
        struct InnerVisitor;
        impl<'de> Visitor<'de> for InnerVisitor {
            type Value = Inner;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a map of aggregates to numbers")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Inner, A::Error> {
                let mut aggregates = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    aggregates.push(entry);
                }
                Ok(Inner(aggregates))
            }
        }
        deserializer.deserialize_map(Outer)
    }
}

/// A figure over the measured cells of one column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Aggregate {
    /// The plain mean: every row counts the same.
    Mean,
    /// The largest cell.
    Max,
    /// The smallest cell.
    Min,
    /// All cells added up.
    Sum,
    /// The value that this share of the cells (0 to 100) does not exceed, interpolated between ranks.
    Percentile(f64),
    /// Largest less smallest, as for timestamps.
    Duration,
}

impl Aggregate {
    /// The figure, or `None` when no cell was measured.
    #[must_use]
    pub fn of(self, column: &Column) -> Option<f64> {
        let max = || column.present().reduce(f64::max);
        let min = || column.present().reduce(f64::min);
        match self {
            Self::Mean => {
                let (sum, count) =
                    column.present().fold((0.0, 0.0), |(sum, count), cell| (sum + cell, count + 1.0));
                (count > 0.0).then(|| sum / count)
            }
            Self::Max => max(),
            Self::Min => min(),
            Self::Sum => column.present().reduce(|sum, cell| sum + cell),
            Self::Percentile(share) => percentile(column.present().collect(), share),
            Self::Duration => Some(max()? - min()?),
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rank is not negative and far below 2^53"
)]
fn percentile(mut cells: Vec<f64>, share: f64) -> Option<f64> {
    let last = cells.len().checked_sub(1)?;
    cells.sort_by(f64::total_cmp);
    let rank = last as f64 * (share / 100.0).clamp(0.0, 1.0);
    let (low, high) = (cells.get(rank.floor() as usize)?, cells.get(rank.ceil() as usize)?);
    Some(low + (high - low) * rank.fract())
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

/// One figure that was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Column of the combined table.
    pub column: String,
    /// What to compute.
    pub aggregate: Aggregate,
    /// What to call it, in place of the aggregate's own name.
    pub name: Option<String>,
    /// Decimals to round to, as Python rounds.
    pub round: Option<u32>,
}

/// The figures asked for, over the columns as they are.
///
/// # Errors
///
/// When the table has no rows, or lacks a column.
pub fn compute(frame: &Frame, specs: &[Spec]) -> Result<Stats, StatsError> {
    if frame.is_empty() {
        return Err(StatsError::NoMetrics);
    }
    let mut stats = Stats::default();
    for spec in specs {
        let value = spec.aggregate.of(frame.column(&spec.column)?);
        let value = value.map(|value| spec.round.map_or(value, |decimals| decimal::round(value, decimals)));
        let name = spec.name.clone().unwrap_or_else(|| spec.aggregate.to_string());
        stats.set(&spec.column, &name, value);
    }
    Ok(stats)
}

/// Several runs as one: means and durations averaged, maxima and sums by their maximum. A figure that
/// a run lacks does not count for that run.
///
/// # Errors
///
/// At any other aggregate, since it has no meaning over runs.
pub fn aggregate_stats<'a>(runs: impl IntoIterator<Item = &'a Stats>) -> Result<Stats, StatsError> {
    let mut combined = Stats::default();
    let mut counts = Stats::default();
    for (column, aggregate, value) in runs.into_iter().flat_map(Stats::iter) {
        let so_far = combined.get(column, aggregate);
        let value = match (aggregate, so_far, value) {
            ("mean" | "duration" | "max" | "sum", so_far, None) => so_far,
            ("mean" | "duration", _, Some(value)) => {
                counts.set(column, aggregate, Some(counts.get(column, aggregate).unwrap_or(0.0) + 1.0));
                Some(so_far.unwrap_or(0.0) + value)
            }
            ("max" | "sum", so_far, Some(value)) => Some(so_far.map_or(value, |so_far| so_far.max(value))),
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
    fn figures_skip_what_was_not_measured() {
        let frame = frame(&[4.0, f64::NAN, 1.0, 3.0]);
        let names = ["mean", "max", "min", "sum", "p50", "p25", "duration", "median"];
        let specs: Vec<_> = names.iter().map(|name| spec(name, Some(2))).collect();
        let stats = compute(&frame, &specs).unwrap();
        assert_eq!(
            serde_json::to_string(&stats).unwrap(),
            r#"{"x":{"mean":2.67,"max":4.0,"min":1.0,"sum":8.0,"p50":3.0,"p25":2.0,"duration":3.0}}"#
        );
    }

    #[test]
    fn a_column_without_a_reading_has_none_and_a_table_without_rows_is_an_error() {
        assert_eq!(compute(&frame(&[f64::NAN]), &[spec("sum", None)]).unwrap().get("x", "sum"), None);
        assert_eq!(compute(&frame(&[]), &[spec("sum", None)]), Err(StatsError::NoMetrics));
        assert_eq!(StatsError::NoMetrics.to_string(), "No metrics collected (yet)");
        let other = Spec { column: "y".into(), ..spec("max", None) };
        assert_eq!(compute(&frame(&[1.0]), &[other]).unwrap_err().to_string(), "column `y` not found");
    }

    #[test]
    fn a_name_of_ones_own_is_used_and_unknown_aggregates_are_named() {
        let named = Spec { name: Some("peak".into()), ..spec("max", None) };
        assert_eq!(compute(&frame(&[7.0]), &[named]).unwrap().get("x", "peak"), Some(7.0));
        for name in ["p", "p101", "p-1", "pNaN", "average", ""] {
            assert_eq!(
                name.parse::<Aggregate>().unwrap_err(),
                StatsError::UnknownAggregate { name: name.to_owned() }
            );
        }
    }

    #[test]
    fn runs_combine_by_mean_or_maximum() {
        let runs = [
            stats(r#"{"a":{"mean":1,"max":5},"n":{"sum":10},"timestamp":{"duration":4}}"#),
            stats(r#"{"a":{"mean":2,"max":3},"n":{"sum":30},"timestamp":{"duration":8}}"#),
            stats(r#"{"a":{"mean":null,"max":4}}"#),
        ];
        assert_eq!(
            serde_json::to_string(&aggregate_stats(&runs).unwrap()).unwrap(),
            r#"{"a":{"mean":1.5,"max":5.0},"n":{"sum":30.0},"timestamp":{"duration":6.0}}"#
        );
        assert_eq!(
            aggregate_stats(&[stats(r#"{"a":{"min":1}}"#)]).unwrap_err().to_string(),
            "aggregate `min` of `a` cannot be combined over runs"
        );
    }

    proptest! {
        /// Percentiles lie within the column, grow with their share, and meet its ends.
        #[test]
        fn percentiles_are_ordered(cells in proptest::collection::vec(-1e6_f64..1e6, 1..50), a in 0.0..100.0, b in 0.0..100.0) {
            let column = Column::new("x", cells);
            let at = |share| Aggregate::Percentile(share).of(&column);
            let (low, high) = if a < b { (a, b) } else { (b, a) };
            prop_assert!(at(low).unwrap() <= at(high).unwrap() + 1e-9);
            prop_assert_eq!((at(0.0), at(100.0)), (Aggregate::Min.of(&column), Aggregate::Max.of(&column)));
        }

        /// A run combined with itself is itself.
        #[test]
        fn one_run_many_times_is_that_run(mean in -1e9_f64..1e9, max in -1e9_f64..1e9, times in 1_usize..5) {
            let mut run = Stats::default();
            run.set("c", "mean", Some(mean));
            run.set("c", "max", Some(max));
            let combined = aggregate_stats(std::iter::repeat_n(&run, times)).unwrap();
            prop_assert!((combined.get("c", "mean").unwrap() - mean).abs() <= mean.abs() * 1e-12);
            prop_assert_eq!(combined.get("c", "max"), Some(max));
        }

        #[test]
        fn statistics_survive_json(names in proptest::collection::vec(("[a-z]{1,4}", "[a-z]{1,4}", proptest::option::of(any::<i32>())), 0..6)) {
            let mut stats = Stats::default();
            for (column, aggregate, value) in &names {
                stats.set(column, aggregate, value.map(f64::from));
            }
            let json = serde_json::to_string(&stats).unwrap();
            prop_assert_eq!(serde_json::from_str::<Stats>(&json).unwrap(), stats);
        }
    }
}
