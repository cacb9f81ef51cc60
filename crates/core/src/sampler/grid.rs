//! The time grid of rows.
//!
//! In:  times of the monotonic clock in nanoseconds, from the caller. Out: the next [`Tick`], and missed grid points.

use std::num::NonZeroU64;

/// Minimum time from the start to the first tick. A first row of less than 45 ms may have no CPU rate (`diff::Usage`).
const FIRST_ROW_MIN_NS: u64 = 50_000_000;

/// Grid points at `first + n × interval`. Unlike with `sleep(interval)`, a late row does not shift later rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    first_ns: u64,
    interval_ns: NonZeroU64,
    /// The grid point of the next row.
    due: u64,
    /// Grid points that passed while the last row was made.
    missed: u64,
}

/// The grid point of the next row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// Number of the grid point, from 0.
    pub number: u64,
    pub at_ns: u64,
}

impl Grid {
    /// The first grid point is the next multiple of the interval by the wall clock. If that is less than 50 ms away,
    /// the first grid point is one interval later. Later grid points follow the monotonic clock.
    pub fn new(wall_ns: u64, monotonic_ns: u64, interval_ns: NonZeroU64) -> Self {
        let wait_ns = interval_ns.get() - wall_ns % interval_ns;
        let wait_ns = if wait_ns < FIRST_ROW_MIN_NS { wait_ns + interval_ns.get() } else { wait_ns };
        Self { first_ns: monotonic_ns + wait_ns, interval_ns, due: 0, missed: 0 }
    }

    /// The tick of the next row. It does not change until `take`: if a sample between rows takes too long, the next row
    /// is late and is not skipped.
    pub const fn next(&self) -> Tick {
        Tick { number: self.due, at_ns: self.first_ns + self.due * self.interval_ns.get() }
    }

    /// Called before a row is made, for the last grid point that has passed; returns how many before it have no row.
    pub fn take(&mut self, now_ns: u64) -> u64 {
        let next = self.passed(now_ns).max(self.due + 1);
        let missed = std::mem::take(&mut self.missed) + next - self.due - 1;
        self.due = next;
        missed
    }

    /// Called after a row is made. Grid points that passed while the row was made are missed, so that rows that take
    /// longer than an interval do not follow each other without a pause.
    pub fn rest(&mut self, now_ns: u64) {
        let next = self.passed(now_ns).max(self.due);
        self.missed += next - self.due;
        self.due = next;
    }

    /// Called when the job starts: earlier grid points do not count as missed.
    pub fn begin(&mut self, now_ns: u64) {
        self.due = self.passed(now_ns).max(self.due);
    }

    fn passed(&self, now_ns: u64) -> u64 {
        now_ns.checked_sub(self.first_ns).map_or(0, |since| since / self.interval_ns + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: NonZeroU64 = NonZeroU64::new(1_000_000_000).unwrap();

    fn at(grid: &Grid) -> (u64, u64) {
        (grid.next().number, grid.next().at_ns / 1_000_000)
    }

    const fn ms(ms: u64) -> u64 {
        ms * 1_000_000
    }

    #[test]
    fn first_tick_is_the_next_round_second_at_least_50_ms_away() {
        let first = |wall_ms| Grid::new(ms(wall_ms), 77, SECOND).first_ns - 77;
        assert_eq!(first(10_300), ms(700));
        assert_eq!(first(10_960), ms(1040), "40 ms are too short");
        assert_eq!(first(10_950), ms(50));
    }

    #[test]
    fn slow_row_does_not_shift_later_rows() {
        let mut grid = Grid::new(0, 0, SECOND);
        assert_eq!(at(&grid), (0, 1000));
        assert_eq!(grid.take(ms(1001)), 0);
        grid.rest(ms(1300));
        assert_eq!(at(&grid), (1, 2000));
        assert_eq!(grid.take(ms(2000)), 0);
        grid.rest(ms(5500));
        assert_eq!(at(&grid), (5, 6000), "the grid points at 3, 4 and 5 s passed while the row was made");
        assert_eq!(grid.take(ms(6000)), 3);
    }

    #[test]
    fn sample_that_ends_after_the_grid_point_makes_the_row_late_and_not_missed() {
        let mut grid = Grid::new(0, 0, SECOND);
        assert_eq!(at(&grid), (0, 1000), "a sample started at 0.9 s");
        assert_eq!(at(&grid), (0, 1000), "and ended at 1.2 s");
        assert_eq!(grid.take(ms(1200)), 0);
        assert_eq!(at(&grid), (1, 2000));
        assert_eq!(grid.take(ms(4200)), 2, "late by more than an interval");
    }

    #[test]
    fn grid_points_before_the_job_are_not_missed() {
        let mut grid = Grid::new(0, 0, SECOND);
        grid.begin(ms(3500));
        assert_eq!(at(&grid), (3, 4000));
        assert_eq!(grid.take(ms(4000)), 0);
    }
}
