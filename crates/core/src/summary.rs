//! The default statistics and all other running figures, kept up to date row by row.
//!
//! In:  rows as they are measured, or those of a loaded recording.
//! Out: [`Summary`]: mean, extremes and sum of every metric in constant memory, the default
//!      [`Stats`] of the contract, the job's peak memory, the coverage of its CPU time.
//! Not here: figures over arbitrary columns (`stats`), what to make of them (`recommend`).

use crate::decimal;
use crate::metric::{Metric, Row, Table};
use crate::stats::{Stats, StatsError};

/// Which tables are recorded, and since when.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scope {
    /// The job's table is on.
    pub process: bool,
    /// The machine's table is on.
    pub system: bool,
    /// Moment of the baseline (t0), Unix seconds; unknown for some files.
    pub start_time: Option<f64>,
    /// Nominal length of a row in seconds.
    pub interval_s: f64,
}

/// Running figures of one metric, over the cells that were measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moments {
    count: u64,
    sum: f64,
    min: f64,
    max: f64,
    weight_s: f64,
    weighted_sum: f64,
}

impl Moments {
    const EMPTY: Self = Self {
        count: 0,
        sum: 0.0,
        min: f64::INFINITY,
        max: f64::NEG_INFINITY,
        weight_s: 0.0,
        weighted_sum: 0.0,
    };

    fn add(&mut self, value: f64, weight_s: f64) {
        self.count += 1;
        self.sum += value;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.weight_s += weight_s;
        self.weighted_sum += value * weight_s;
    }

    fn if_measured(&self, value: f64) -> Option<f64> {
        (self.count > 0).then_some(value)
    }

    /// Rows in which the metric was measured.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The mean, a row counting by its length.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^53 rows")]
        let mean = if self.weight_s > 0.0 {
            self.weighted_sum / self.weight_s
        } else {
            self.sum / self.count as f64
        };
        // Rounding errors of the sums must not carry a mean past what was ever measured.
        self.if_measured(mean.max(self.min).min(self.max))
    }

    /// The largest value.
    #[must_use]
    pub fn max(&self) -> Option<f64> {
        self.if_measured(self.max)
    }

    /// The smallest value.
    #[must_use]
    pub fn min(&self) -> Option<f64> {
        self.if_measured(self.min)
    }

    /// All values added up.
    #[must_use]
    pub fn sum(&self) -> Option<f64> {
        self.if_measured(self.sum)
    }
}

/// Running figures of a whole recording. Costs the same after a second and after a week.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    scope: Scope,
    rows: u64,
    last_timestamp: Option<f64>,
    moments: [Moments; Metric::ALL.len()],
}

/// The default statistics, in the contract's order.
const DEFAULT: [(Metric, &[Figure]); 8] = [
    (Metric::ProcessCpu, &[Figure::Mean, Figure::Max]),
    (Metric::ProcessMemory, &[Figure::Mean, Figure::Max]),
    (Metric::ProcessGpu, &[Figure::Mean, Figure::Max]),
    (Metric::ProcessVram, &[Figure::Mean, Figure::Max]),
    (Metric::ProcessGpus, &[Figure::Mean, Figure::Max]),
    (Metric::DiskUsed, &[Figure::Max]),
    (Metric::NetRecv, &[Figure::Sum]),
    (Metric::NetSent, &[Figure::Sum]),
];

/// Means and maxima are shown with this many decimals.
const DECIMALS: u32 = 2;

#[derive(Clone, Copy)]
enum Figure {
    Mean,
    Max,
    Sum,
}

impl Summary {
    /// Before the first row.
    #[must_use]
    pub fn new(scope: Scope) -> Self {
        Self { scope, rows: 0, last_timestamp: None, moments: [Moments::EMPTY; Metric::ALL.len()] }
    }

    /// Counts a row in.
    pub fn add(&mut self, row: &Row) {
        let weight_s = self.row_length_s(row);
        for (moments, cell) in self.moments.iter_mut().zip(row.cells()) {
            if let Some(value) = cell.filter(|value| value.is_finite()) {
                moments.add(value, weight_s);
            }
        }
        self.rows += 1;
        self.last_timestamp = row.get(Metric::Timestamp).or(self.last_timestamp);
    }

    /// How long the row is: by the monotonic clock where it was recorded, else by the timestamps, else
    /// all rows alike. A clock that stood or went back says nothing, so the nominal length counts.
    fn row_length_s(&self, row: &Row) -> f64 {
        let by_timestamp = || {
            let before = self.last_timestamp.or(self.scope.start_time)?;
            Some(row.get(Metric::Timestamp)? - before)
        };
        let usable = |length: &f64| length.is_finite() && *length > 0.0;
        let elapsed = row.get(Metric::Elapsed).filter(|length| length.is_finite() && *length >= 0.0);
        elapsed.or_else(|| by_timestamp().filter(usable)).unwrap_or(self.scope.interval_s)
    }

    /// Rows so far (`n_samples`).
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Which tables are recorded, and since when.
    #[must_use]
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// The running figures of a metric.
    #[must_use]
    pub fn of(&self, metric: Metric) -> &Moments {
        &self.moments[metric as usize]
    }

    /// The most memory the job is known to have held at any moment, between the samples included.
    #[must_use]
    pub fn memory_peak_kib(&self) -> Option<f64> {
        let sampled = self.of(Metric::ProcessMemory).max();
        sampled.into_iter().chain(self.of(Metric::MemoryPeak).max()).reduce(f64::max)
    }

    /// From t0 to the last row; for files without t0 from one interval before the first row.
    #[must_use]
    pub fn duration_s(&self) -> Option<f64> {
        let times = self.of(Metric::Timestamp);
        match self.scope.start_time {
            Some(start_time) => Some(self.last_timestamp? - start_time),
            None => Some(times.max()? - times.min()? + self.scope.interval_s),
        }
    }

    /// CPU seconds of the job in all rows, user and system.
    #[must_use]
    pub fn cpu_seconds(&self) -> Option<f64> {
        Some(self.of(Metric::ProcessUtime).sum()? + self.of(Metric::ProcessStime).sum()?)
    }

    /// Share of the job's CPU time that was seen in its processes; `None` where nothing can be said.
    #[must_use]
    pub fn coverage(&self) -> Option<f64> {
        let counted = self.cpu_seconds().filter(|seconds| *seconds > 0.0)?;
        Some(self.of(Metric::CpuSeen).sum()? / counted)
    }

    /// The default statistics of the contract. Tables that are off have no columns; a figure that was
    /// never measured is `None`.
    ///
    /// # Errors
    ///
    /// [`StatsError::NoMetrics`] before the first row.
    pub fn stats(&self) -> Result<Stats, StatsError> {
        if self.rows == 0 || !(self.scope.process || self.scope.system) {
            return Err(StatsError::NoMetrics);
        }
        let mut stats = Stats::default();
        for (metric, figures) in DEFAULT {
            let (on, prefix) = match metric.table() {
                Table::System => (self.scope.system, "system_"),
                _ => (self.scope.process, "process_"),
            };
            if !on {
                continue;
            }
            let column = format!("{prefix}{}", metric.column());
            for figure in figures {
                let moments = self.of(metric);
                let shown = |value: Option<f64>| value.map(|value| decimal::round(value, DECIMALS));
                match figure {
                    Figure::Mean => stats.set(&column, "mean", shown(moments.mean())),
                    Figure::Max if metric == Metric::ProcessMemory => {
                        stats.set(&column, "max", shown(self.memory_peak_kib()));
                    }
                    Figure::Max => stats.set(&column, "max", shown(moments.max())),
                    Figure::Sum => stats.set(&column, "sum", moments.sum()),
                }
            }
        }
        stats.set("timestamp", "duration", self.duration_s());
        Ok(stats)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SCOPE: Scope = Scope { process: true, system: true, start_time: Some(100.0), interval_s: 1.0 };

    fn row(cells: &[(Metric, f64)]) -> Row {
        let mut row = Row::default();
        for (metric, value) in cells {
            row.set(*metric, Some(*value));
        }
        row
    }

    fn summary(scope: Scope, rows: &[Row]) -> Summary {
        let mut summary = Summary::new(scope);
        for row in rows {
            summary.add(row);
        }
        summary
    }

    use Metric::{Elapsed, MemoryPeak, NetRecv, ProcessCpu, ProcessMemory, Timestamp};

    #[test]
    fn default_statistics_come_in_the_contracts_order() {
        let rows = [row(&[(Timestamp, 101.0), (ProcessCpu, 0.5), (ProcessMemory, 10.0), (NetRecv, 7.0)])];
        let stats = summary(SCOPE, &rows).stats().unwrap();
        assert_eq!(
            serde_json::to_string(&stats).unwrap(),
            r#"{"process_cpu_usage":{"mean":0.5,"max":0.5},"process_memory":{"mean":10.0,"max":10.0},"#
                .to_owned()
                + r#""process_gpu_usage":{"mean":null,"max":null},"process_gpu_vram":{"mean":null,"max":null},"#
                + r#""process_gpu_utilized":{"mean":null,"max":null},"system_disk_space_used_gb":{"max":null},"#
                + r#""system_net_recv_bytes":{"sum":7.0},"system_net_sent_bytes":{"sum":null},"timestamp":{"duration":1.0}}"#
        );
    }

    #[test]
    fn a_row_counts_by_its_length_however_that_is_known() {
        let with_elapsed = [
            row(&[(Timestamp, 101.0), (Elapsed, 1.0), (ProcessCpu, 4.0)]),
            row(&[(Timestamp, 900.0), (Elapsed, 3.0), (ProcessCpu, 0.0)]),
        ];
        assert_eq!(summary(SCOPE, &with_elapsed).of(ProcessCpu).mean(), Some(1.0));
        let by_timestamp = [
            row(&[(Timestamp, 101.0), (ProcessCpu, 4.0)]),
            row(&[(Timestamp, 104.0), (ProcessCpu, 0.0)]),
            row(&[(Timestamp, 50.0), (ProcessCpu, 0.0)]), // the clock was set back: one interval
        ];
        assert_eq!(summary(SCOPE, &by_timestamp).of(ProcessCpu).mean(), Some(0.8));
        let equal = [row(&[(ProcessCpu, 4.0)]), row(&[(ProcessCpu, 1.0)])];
        assert_eq!(summary(SCOPE, &equal).of(ProcessCpu).mean(), Some(2.5));
        let no_time_passed =
            [row(&[(Elapsed, 0.0), (ProcessCpu, 4.0)]), row(&[(Elapsed, 0.0), (ProcessCpu, 2.0)])];
        assert_eq!(summary(SCOPE, &no_time_passed).of(ProcessCpu).mean(), Some(3.0));
    }

    #[test]
    fn a_failed_reading_is_skipped_and_not_taken_for_zero() {
        let rows = [
            row(&[(Timestamp, 101.0), (ProcessMemory, 10.0)]),
            row(&[(Timestamp, 102.0)]),
            row(&[(Timestamp, 103.0), (ProcessMemory, f64::NAN)]),
            row(&[(Timestamp, 104.0), (ProcessMemory, 20.0)]),
        ];
        let stats = summary(SCOPE, &rows).stats().unwrap();
        assert_eq!(stats.get("process_memory", "mean"), Some(15.0));
        assert_eq!(stats.get("timestamp", "duration"), Some(4.0));
    }

    #[test]
    fn the_memory_maximum_is_the_true_peak() {
        let rows = [row(&[(ProcessMemory, 10.0), (MemoryPeak, 70.0)]), row(&[(ProcessMemory, 50.0)])];
        assert_eq!(summary(SCOPE, &rows).stats().unwrap().get("process_memory", "max"), Some(70.0));
        let rows = [row(&[(ProcessMemory, 50.0), (MemoryPeak, 7.0)])];
        assert_eq!(summary(SCOPE, &rows).memory_peak_kib(), Some(50.0));
        assert_eq!(summary(SCOPE, &[row(&[(MemoryPeak, 7.0)])]).memory_peak_kib(), Some(7.0));
        assert_eq!(summary(SCOPE, &[row(&[])]).memory_peak_kib(), None);
    }

    #[test]
    fn duration_without_a_known_start_counts_the_first_interval_in() {
        let scope = Scope { start_time: None, interval_s: 2.0, ..SCOPE };
        let rows = [row(&[(Timestamp, 10.0)]), row(&[(Timestamp, 12.0)]), row(&[(Timestamp, 14.0)])];
        assert_eq!(summary(scope, &rows).duration_s(), Some(6.0));
        assert_eq!(summary(scope, &[row(&[(ProcessCpu, 1.0)])]).duration_s(), None);
    }

    #[test]
    fn a_table_that_is_off_has_no_statistics_and_no_rows_are_an_error() {
        assert_eq!(Summary::new(SCOPE).stats(), Err(StatsError::NoMetrics));
        let only_system =
            summary(Scope { process: false, ..SCOPE }, &[row(&[(Timestamp, 101.0)])]).stats().unwrap();
        assert!(!only_system.has("process_memory") && only_system.has("system_net_sent_bytes"));
        let only_process =
            summary(Scope { system: false, ..SCOPE }, &[row(&[(Timestamp, 101.0)])]).stats().unwrap();
        assert!(only_process.has("process_memory") && !only_process.has("system_net_sent_bytes"));
        let neither = Scope { process: false, system: false, ..SCOPE };
        assert_eq!(summary(neither, &[row(&[])]).stats(), Err(StatsError::NoMetrics));
    }

    #[test]
    fn coverage_is_what_was_seen_of_what_was_counted() {
        let rows = [row(&[(Metric::ProcessUtime, 3.0), (Metric::ProcessStime, 1.0), (Metric::CpuSeen, 3.0)])];
        assert_eq!(summary(SCOPE, &rows).coverage(), Some(0.75));
        let idle = [row(&[(Metric::ProcessUtime, 0.0), (Metric::ProcessStime, 0.0), (Metric::CpuSeen, 0.0)])];
        assert_eq!(summary(SCOPE, &idle).coverage(), None);
    }

    proptest! {
        /// Rows of equal length give the plain mean; the mean lies between the extremes.
        #[test]
        fn equal_rows_give_the_plain_mean(values in proptest::collection::vec(0.0_f64..1e9, 1..100), length in 0.001_f64..100.0) {
            let rows: Vec<_> = values.iter().map(|value| row(&[(Elapsed, length), (ProcessMemory, *value)])).collect();
            let summary = summary(SCOPE, &rows);
            let moments = summary.of(ProcessMemory);
            #[expect(clippy::cast_precision_loss, reason = "a hundred rows")]
            let plain = values.iter().sum::<f64>() / values.len() as f64;
            prop_assert!((moments.mean().unwrap() - plain).abs() <= 1e-9 * plain.abs());
            prop_assert!(moments.min() <= moments.mean() && moments.mean() <= moments.max());
        }
    }
}
