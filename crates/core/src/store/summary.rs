//! Running statistics of a recording, updated with each row.
//!
//! In:  rows of a live tracker or of a loaded recording.
//! Out: [`Summary`]: mean, minimum, maximum and sum of every metric in constant memory; the default [`Stats`]; peak
//!      memory of the job; coverage of its CPU time.
//! Not here: statistics over any column (`stats`), recommendations (`recommend`).

use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::metric::{Metric, Row, Table};
use crate::sampler::Sink;
use crate::store::cpu_profile::CpuProfile;
use crate::store::decimal;
use crate::store::recent_memory::{MemoryCourse, RecentMemory};
use crate::store::stats::{Stats, StatsError};

/// The tables of a recording and its time grid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scope {
    pub process: bool,
    pub system: bool,
    /// Time of the baseline sample in Unix seconds; `None` if a file of another program does not contain it.
    pub start_time: Option<f64>,
    /// Nominal length of a row in seconds.
    pub interval_s: f64,
}

/// Running statistics of one metric over its measured cells.
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

    /// Number of measured cells.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The mean, weighted by the length of each row.
    pub fn mean(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^53 rows")]
        let mean = if self.weight_s > 0.0 {
            self.weighted_sum / self.weight_s
        } else {
            self.sum / self.count as f64
        };
        // Rounding errors of the sum must not move the mean out of the measured range.
        self.if_measured(mean.max(self.min).min(self.max))
    }

    pub fn max(&self) -> Option<f64> {
        self.if_measured(self.max)
    }

    pub fn min(&self) -> Option<f64> {
        self.if_measured(self.min)
    }

    pub fn sum(&self) -> Option<f64> {
        self.if_measured(self.sum)
    }
}

/// Running statistics of a recording. Memory and time do not depend on the number of rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    scope: Scope,
    rows: u64,
    last_timestamp: Option<f64>,
    moments: [Moments; Metric::ALL.len()],
    cpu_profile: CpuProfile,
    recent_memory: RecentMemory,
}

/// The default statistics, in the order of the original package.
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

/// A larger difference between wall clock and monotonic clock is a step of the wall clock. A smaller one is the rounding
/// of timestamps.
const CLOCK_STEP_S: f64 = 0.02;

/// Decimals of means and maxima in the default statistics.
const DECIMALS: u32 = 2;

#[derive(Clone, Copy)]
enum Figure {
    Mean,
    Max,
    Sum,
}

impl Summary {
    pub fn new(scope: Scope) -> Self {
        Self {
            scope,
            rows: 0,
            last_timestamp: None,
            moments: [Moments::EMPTY; Metric::ALL.len()],
            cpu_profile: CpuProfile::default(),
            recent_memory: RecentMemory::default(),
        }
    }

    pub fn add(&mut self, row: &Row) {
        let weight_s = self.row_length_s(row);
        for (moments, cell) in self.moments.iter_mut().zip(row.cells()) {
            if let Some(value) = cell.filter(|value| value.is_finite()) {
                moments.add(value, weight_s);
            }
        }
        if let Some(cores) = row.get(Metric::ProcessCpu) {
            self.cpu_profile.add(weight_s, cores * weight_s);
        }
        self.recent_memory.add(weight_s, row.get(Metric::ProcessMemory), row.get(Metric::MemoryPeak));
        self.rows += 1;
        self.last_timestamp = row.get(Metric::Timestamp).or(self.last_timestamp);
    }

    /// Length of a row: from the monotonic clock if it is recorded, otherwise from the timestamps. If the timestamps do
    /// not increase, the length is the nominal interval.
    pub(crate) fn row_length_s(&self, row: &Row) -> f64 {
        let by_timestamp = || {
            let before = self.last_timestamp.or(self.scope.start_time)?;
            Some(row.get(Metric::Timestamp)? - before)
        };
        let usable = |length: &f64| length.is_finite() && *length > 0.0;
        let elapsed = row.get(Metric::Elapsed).filter(|length| length.is_finite() && *length >= 0.0);
        elapsed.or_else(|| by_timestamp().filter(usable)).unwrap_or(self.scope.interval_s)
    }

    /// Number of rows (`n_samples`).
    pub fn rows(&self) -> u64 {
        self.rows
    }

    pub fn scope(&self) -> Scope {
        self.scope
    }

    pub fn of(&self, metric: Metric) -> &Moments {
        &self.moments[metric as usize]
    }

    /// Peak memory of the job, including peaks between two samples.
    pub fn memory_peak_kib(&self) -> Option<f64> {
        let sampled = self.of(Metric::ProcessMemory).max();
        sampled.into_iter().chain(self.of(Metric::MemoryPeak).max()).reduce(f64::max)
    }

    /// Mean memory of the job. Recordings without means of the rows have only the memory at the end of each row.
    pub fn memory_mean_kib(&self) -> Option<f64> {
        self.of(Metric::MemoryMean).mean().or_else(|| self.of(Metric::ProcessMemory).mean())
    }

    /// Time from the baseline to the last row, by the monotonic clock. If the time of the baseline is unknown, the first
    /// row counts as one interval.
    pub fn duration_s(&self) -> Option<f64> {
        let times = self.of(Metric::Timestamp);
        match self.scope.start_time {
            Some(start_time) => Some(self.last_timestamp? - start_time - self.clock_step_s()),
            None => Some(times.max()? - times.min()? + self.scope.interval_s),
        }
    }

    /// How far the wall clock was set forward during the recording, negative for back; 0 if it was not set, or if the
    /// recording has no lengths of rows by the monotonic clock.
    pub fn clock_step_s(&self) -> f64 {
        let elapsed = self.of(Metric::Elapsed);
        let by_monotonic_clock = elapsed.sum().filter(|_| elapsed.count() == self.rows);
        let by_wall_clock = self.last_timestamp.zip(self.scope.start_time).map(|(last, start)| last - start);
        let step_s = by_wall_clock.zip(by_monotonic_clock).map(|(wall_s, monotonic_s)| wall_s - monotonic_s);
        step_s.filter(|step_s| step_s.abs() > CLOCK_STEP_S).unwrap_or(0.0)
    }

    /// The sum of a metric; for network traffic without that of the tracker.
    pub fn sum_without_tracker(&self, metric: Metric) -> Option<f64> {
        let own = match metric {
            Metric::NetRecv => self.of(Metric::TrackerRecv).sum(),
            Metric::NetSent => self.of(Metric::TrackerSent).sum(),
            _ => None,
        };
        // The traffic of the tracker is an estimate, and may be more than the kernel has counted.
        self.of(metric).sum().map(|sum| own.map_or(sum, |own| (sum - own).max(0.0)))
    }

    /// How long the job kept how many CPUs busy.
    pub fn cpu_profile(&self) -> &CpuProfile {
        &self.cpu_profile
    }

    /// Memory of the job in its last 10 s; `None` for a single row.
    pub fn memory_course(&self) -> Option<MemoryCourse> {
        self.recent_memory.course()
    }

    /// User and system time of the job together.
    pub fn cpu_seconds(&self) -> Option<f64> {
        Some(self.of(Metric::ProcessUtime).sum()? + self.of(Metric::ProcessStime).sum()?)
    }

    /// Share of the job's CPU time that was seen in its processes; `None` if the CPU time is 0 or was not measured.
    pub fn coverage(&self) -> Option<f64> {
        let counted = self.cpu_seconds().filter(|seconds| *seconds > 0.0)?;
        Some(self.of(Metric::CpuSeen).sum()? / counted)
    }

    /// The default statistics, without tables that are not recorded. A metric that was never measured is `None`.
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
                    Figure::Mean if metric == Metric::ProcessMemory => {
                        stats.set(&column, "mean", shown(self.memory_mean_kib()));
                    }
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

/// A summary that the sampler updates and other threads read.
#[derive(Clone, Debug)]
pub struct RunningSummary(Arc<Mutex<Summary>>);

impl RunningSummary {
    pub fn new(scope: Scope) -> Self {
        Self(Arc::new(Mutex::new(Summary::new(scope))))
    }

    fn lock(&self) -> MutexGuard<'_, Summary> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts again, after the baseline sample, when the scope is known.
    pub fn restart(&self, scope: Scope) {
        *self.lock() = Summary::new(scope);
    }

    pub fn get(&self) -> Summary {
        self.lock().clone()
    }
}

impl Sink for RunningSummary {
    fn take(&mut self, row: &Row) -> io::Result<ControlFlow<()>> {
        self.lock().add(row);
        Ok(ControlFlow::Continue(()))
    }

    fn name(&self) -> String {
        "summary".to_owned()
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
    fn default_statistics_have_the_order_of_the_original_package() {
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
    fn mean_is_weighted_by_the_length_of_rows() {
        let with_elapsed = [
            row(&[(Timestamp, 101.0), (Elapsed, 1.0), (ProcessCpu, 4.0)]),
            row(&[(Timestamp, 900.0), (Elapsed, 3.0), (ProcessCpu, 0.0)]),
        ];
        assert_eq!(summary(SCOPE, &with_elapsed).of(ProcessCpu).mean(), Some(1.0));
        let by_timestamp = [
            row(&[(Timestamp, 101.0), (ProcessCpu, 4.0)]),
            row(&[(Timestamp, 104.0), (ProcessCpu, 0.0)]),
            row(&[(Timestamp, 50.0), (ProcessCpu, 0.0)]), // the clock was set back: the row counts as one interval
        ];
        assert_eq!(summary(SCOPE, &by_timestamp).of(ProcessCpu).mean(), Some(0.8));
        let equal = [row(&[(ProcessCpu, 4.0)]), row(&[(ProcessCpu, 1.0)])];
        assert_eq!(summary(SCOPE, &equal).of(ProcessCpu).mean(), Some(2.5));
        let no_time_passed =
            [row(&[(Elapsed, 0.0), (ProcessCpu, 4.0)]), row(&[(Elapsed, 0.0), (ProcessCpu, 2.0)])];
        assert_eq!(summary(SCOPE, &no_time_passed).of(ProcessCpu).mean(), Some(3.0));
    }

    #[test]
    fn duration_does_not_follow_steps_of_the_wall_clock() {
        let duration_s = |timestamps: [f64; 3]| {
            let rows = timestamps.map(|time| row(&[(Timestamp, time), (Elapsed, 1.0)]));
            summary(SCOPE, &rows).duration_s().unwrap()
        };
        assert!((duration_s([101.0, 102.0, 103.0]) - 3.0).abs() < 1e-9);
        assert!((duration_s([101.0, 104.2, 105.2]) - 3.0).abs() < 1e-9, "set forward");
        assert!((duration_s([101.0, 50.0, 51.0]) - 3.0).abs() < 1e-9, "set back");
        assert_eq!(duration_s([101.0, 102.001, 103.001]), 103.001 - 100.0, "rounding is not a step");
        let without_lengths = [row(&[(Timestamp, 109.0)])];
        assert_eq!(summary(SCOPE, &without_lengths).duration_s(), Some(9.0));
    }

    #[test]
    fn missing_cell_is_skipped_and_not_zero() {
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
    fn peak_memory_between_two_samples_is_the_maximum() {
        let rows = [row(&[(ProcessMemory, 10.0), (MemoryPeak, 70.0)]), row(&[(ProcessMemory, 50.0)])];
        assert_eq!(summary(SCOPE, &rows).stats().unwrap().get("process_memory", "max"), Some(70.0));
        let rows = [row(&[(ProcessMemory, 50.0), (MemoryPeak, 7.0)])];
        assert_eq!(summary(SCOPE, &rows).memory_peak_kib(), Some(50.0));
        assert_eq!(summary(SCOPE, &[row(&[(MemoryPeak, 7.0)])]).memory_peak_kib(), Some(7.0));
        assert_eq!(summary(SCOPE, &[row(&[])]).memory_peak_kib(), None);
    }

    #[test]
    fn duration_without_a_known_start_includes_the_first_interval() {
        let scope = Scope { start_time: None, interval_s: 2.0, ..SCOPE };
        let rows = [row(&[(Timestamp, 10.0)]), row(&[(Timestamp, 12.0)]), row(&[(Timestamp, 14.0)])];
        assert_eq!(summary(scope, &rows).duration_s(), Some(6.0));
        assert_eq!(summary(scope, &[row(&[(ProcessCpu, 1.0)])]).duration_s(), None);
    }

    #[test]
    fn table_that_is_not_recorded_has_no_statistics_and_no_rows_are_an_error() {
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
    fn cpu_profile_has_the_cpu_seconds_of_all_rows() {
        let cpu = |cores, elapsed| row(&[(ProcessCpu, cores), (Elapsed, elapsed)]);
        let summary = summary(SCOPE, &[cpu(4.0, 2.0), cpu(0.5, 2.0), row(&[(Elapsed, 5.0)])]);
        let profile = summary.cpu_profile();
        assert_eq!((profile.duration_s(), profile.mean_cores()), (4.0, Some(2.25)));
        assert_eq!(profile.predicted_s(2.0), 6.0, "8 CPU seconds on 2 CPUs, and a row that stays as it was");
    }

    #[test]
    fn coverage_is_the_seen_share_of_cpu_time() {
        let rows = [row(&[(Metric::ProcessUtime, 3.0), (Metric::ProcessStime, 1.0), (Metric::CpuSeen, 3.0)])];
        assert_eq!(summary(SCOPE, &rows).coverage(), Some(0.75));
        let idle = [row(&[(Metric::ProcessUtime, 0.0), (Metric::ProcessStime, 0.0), (Metric::CpuSeen, 0.0)])];
        assert_eq!(summary(SCOPE, &idle).coverage(), None);
    }

    proptest! {
        /// If all rows have the same length, the mean is the plain mean. It is between minimum and maximum.
        #[test]
        fn mean_of_rows_of_equal_length_is_the_plain_mean(
            values in proptest::collection::vec(0.0_f64..1e9, 1..100),
            length in 0.001_f64..100.0,
        ) {
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
