//! Rows on demand: the caller samples in its own thread, at moments it chooses or on a time grid.
//!
//! In:  a [`Config`] and the target process. Out: one row per call, from the previous row to now.
//! Not here: sleeping between rows (the caller), the sampling thread (`tracker`).

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use crate::config::Config;
use crate::metric::Row;
use crate::os::Moment;
use crate::os::root::Root;
use crate::probe::host::zfs_pools;
use crate::probe::is_partition;
use crate::probe::snapshot::DiskSpace;
use crate::run::tracker::TrackerError;
use crate::sampler::grid::Grid;
use crate::sampler::{Engine, Target};

/// A sampler without a thread of its own.
pub struct Meter {
    engine: Engine,
    target: Target,
    interval_ns: NonZeroU64,
    /// `None` until [`Meter::begin`].
    grid: Option<Grid>,
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Meter").field("target", &self.target).finish_non_exhaustive()
    }
}

impl Meter {
    /// Whether a disk of this name is a partition of another disk.
    pub fn is_partition(name: &str) -> bool {
        is_partition(name)
    }

    /// Space of each ZFS pool of this machine.
    pub fn zfs_pools() -> Vec<(String, DiskSpace)> {
        zfs_pools()
    }

    /// Reads the baseline of a process, or of the machine alone, in the calling thread. The CPU time of that thread
    /// counts as the job's.
    pub fn start(config: Config, pid: Option<u32>) -> Result<Self, TrackerError> {
        let target = pid.map_or(Target::None, Target::Running);
        let root = Arc::new(Root::host_in_process().map_err(TrackerError::Host)?);
        let config = Config { in_process: true, ..config };
        let interval_ns = config.interval.ns();
        let engine = Engine::start_in(root, config, target, false)
            .map_err(|source| TrackerError::new(target, source))?;
        Ok(Self { engine, target, interval_ns, grid: None })
    }

    /// The row from the previous row, or the baseline, to now.
    pub fn row(&mut self) -> Row {
        self.engine.wait_for_gpus();
        let at = Moment::now();
        let missed = self.grid.as_mut().map_or(0, |grid| grid.take(at.monotonic_ns));
        let row = self.engine.tick(at, missed, false);
        self.engine.drop_notes();
        row
    }

    /// Reads a new baseline and puts the rows on the grid `start_time_s + n × interval` (Unix seconds). Usage before
    /// this call is in no row, and the members of the job stay known. If the process has ended, there is no new
    /// baseline, and the next row holds the final usage of the process.
    pub fn begin(&mut self, start_time_s: f64) {
        if !self.has_ended() {
            self.row();
            self.engine.start_anew();
        }
        self.grid = Some(grid_from(start_time_s, Moment::now(), self.interval_ns));
    }

    /// Seconds until the next grid point; 0 before [`Meter::begin`]. Grid points that have passed count as missed.
    pub fn seconds_to_next_row(&mut self) -> f64 {
        let now_ns = Moment::now().monotonic_ns;
        let Some(grid) = &mut self.grid else { return 0.0 };
        grid.rest(now_ns);
        Duration::from_nanos(grid.next().at_ns.saturating_sub(now_ns)).as_secs_f64()
    }

    /// Whether the target process has ended; false without a target process.
    pub fn has_ended(&self) -> bool {
        matches!(self.target, Target::Running(_)) && !self.engine.is_target_alive()
    }
}

/// A start in the future is the origin of the grid. After a start in the past, the first grid point is the next one.
fn grid_from(start_time_s: f64, now: Moment, interval_ns: NonZeroU64) -> Grid {
    let since_s = Duration::from_nanos(now.wall_ns).as_secs_f64() - start_time_s;
    // Negative and non-finite lengths become 0. Half the range of u64 leaves room for sums.
    let ns = |seconds| {
        let length = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        u64::try_from(length.as_nanos()).unwrap_or(u64::MAX).min(u64::MAX / 2)
    };
    Grid::new(ns(since_s), now.monotonic_ns + ns(-since_s), interval_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Interval;
    use crate::metric::Metric;

    #[test]
    fn cpu_time_of_the_calling_thread_belongs_to_the_job() {
        let config = Config { track_system: false, ..Config::default() };
        let mut meter = Meter::start(config, Some(std::process::id())).unwrap();
        let before_ns = crate::os::thread_cpu_ns().unwrap();
        let mut spent_ns = 0;
        while spent_ns < 50_000_000 {
            spent_ns = crate::os::thread_cpu_ns().unwrap() - before_ns;
        }
        let row = meter.row();
        let reported = row.get(Metric::ProcessUtime).unwrap() + row.get(Metric::ProcessStime).unwrap();
        assert!(reported >= 0.049, "{reported}");
        assert!(!meter.has_ended());
    }

    #[test]
    fn rows_are_due_on_the_grid_of_the_start_time() {
        let second = NonZeroU64::new(1_000_000_000).unwrap();
        let now = Moment { wall_ns: 1_000_300_000_000, monotonic_ns: 77_000_000_000 };
        let first_ms = |start_time_s| grid_from(start_time_s, now, second).next().at_ns / 1_000_000 - 77_000;
        assert_eq!(first_ms(1000.3), 1000, "a start now");
        assert_eq!(first_ms(900.0), 700, "a start in the past");
        assert_eq!(first_ms(1002.3), 3000, "a start in the future");
        assert_eq!(first_ms(f64::NAN), 1000);
    }

    #[test]
    fn grid_points_that_passed_between_rows_are_missed() {
        let config = Config { interval: Interval::from_seconds(0.1).unwrap(), ..Config::default() };
        let mut meter = Meter::start(config, None).unwrap();
        assert_eq!(meter.seconds_to_next_row(), 0.0);
        meter.begin(0.0);
        let now = Moment::now();
        meter.grid = Some(Grid::new(0, now.monotonic_ns - 1_000_000_000, meter.interval_ns));
        assert!(meter.seconds_to_next_row() <= 0.1);
        let missed = meter.row().get(Metric::MissedTicks).unwrap();
        assert!(missed >= 9.0, "{missed}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn notes_of_rows_on_demand_do_not_accumulate() {
        use crate::sampler::progress::Progress;
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        // A machine without files: each source fails, which is noted.
        let engine = || {
            let root = Arc::new(Root::recorded(folder.path()).unwrap());
            Engine::start_in(root, Config::default(), Target::None, false).unwrap()
        };
        let notes = |engine: &mut Engine| {
            let progress = Progress::new(None);
            engine.publish_notes(&progress);
            progress.notes()
        };
        assert!(!notes(&mut engine()).is_empty());
        let interval_ns = Config::default().interval.ns();
        let mut meter = Meter { engine: engine(), target: Target::None, interval_ns, grid: None };
        meter.row();
        assert_eq!(notes(&mut meter.engine), [""; 0]);
    }
}
