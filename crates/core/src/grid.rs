//! The time grid of rows: pure, all times in nanoseconds of the monotonic clock and given by the caller.

use std::num::NonZeroU64;

/// A first tick must leave the job this much time.
const ROOM_NS: u64 = 50_000_000;

/// Grid lines at `first + n × interval`, and how far rows have come on them. A grid, not `sleep(interval)`: a slow row
/// delays itself and shifts no later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    first_ns: u64,
    interval_ns: NonZeroU64,
    /// The line of the next row.
    due: u64,
    /// Lines that passed unsampled and were given up.
    missed: u64,
}

/// The row to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// Its place on the grid, from 0.
    pub number: u64,
    /// When it is due.
    pub at_ns: u64,
}

impl Grid {
    /// A grid that starts at the next wall-clock multiple of the interval after `wall_ns`, or at the one after
    /// that when it is closer than 50 ms; kept on the monotonic clock from there on.
    #[must_use]
    pub fn new(wall_ns: u64, monotonic_ns: u64, interval_ns: NonZeroU64) -> Self {
        let wait_ns = interval_ns.get() - wall_ns % interval_ns;
        let wait_ns = if wait_ns < ROOM_NS { wait_ns + interval_ns.get() } else { wait_ns };
        Self { first_ns: monotonic_ns + wait_ns, interval_ns, due: 0, missed: 0 }
    }

    /// The next row. It stays the next until it is taken, however late that is: whoever does something between two
    /// rows and takes too long has a late row, not one less.
    #[must_use]
    pub const fn next(&self) -> Tick {
        Tick { number: self.due, at_ns: self.first_ns + self.due * self.interval_ns.get() }
    }

    /// A row is made now, for all lines that have passed; gives how many of them are missed with it.
    pub fn take(&mut self, now_ns: u64) -> u64 {
        let next = self.passed(now_ns).max(self.due + 1);
        let missed = std::mem::take(&mut self.missed) + next - self.due - 1;
        self.due = next;
        missed
    }

    /// The row is ready. Lines that passed while it was made are missed: rows that take longer than an interval must
    /// not follow one another without a rest.
    pub fn rest(&mut self, now_ns: u64) {
        let next = self.passed(now_ns).max(self.due);
        self.missed += next - self.due;
        self.due = next;
    }

    /// Lines up to now have no row, and are not missed.
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
    fn the_first_tick_is_the_next_round_second_with_room() {
        let first = |wall_ms| Grid::new(ms(wall_ms), 77, SECOND).first_ns - 77;
        assert_eq!(first(10_300), ms(700));
        assert_eq!(first(10_960), ms(1040), "40 ms are too little");
        assert_eq!(first(10_950), ms(50));
    }

    #[test]
    fn a_slow_row_shifts_no_later_one_and_is_not_made_up_for() {
        let mut grid = Grid::new(0, 0, SECOND);
        assert_eq!(at(&grid), (0, 1000));
        assert_eq!(grid.take(ms(1001)), 0);
        grid.rest(ms(1300));
        assert_eq!(at(&grid), (1, 2000));
        assert_eq!(grid.take(ms(2000)), 0);
        grid.rest(ms(5500));
        assert_eq!(at(&grid), (5, 6000), "the lines at 3, 4 and 5 s passed while the row was made");
        assert_eq!(grid.take(ms(6000)), 3);
    }

    #[test]
    fn a_look_that_ends_after_the_line_makes_the_row_late_and_not_missed() {
        let mut grid = Grid::new(0, 0, SECOND);
        assert_eq!(at(&grid), (0, 1000), "a look began at 0.9 s");
        assert_eq!(at(&grid), (0, 1000), "and ended at 1.2 s");
        assert_eq!(grid.take(ms(1200)), 0);
        assert_eq!(at(&grid), (1, 2000));
        assert_eq!(grid.take(ms(4200)), 2, "held up for more than an interval, which no rest announced");
    }

    #[test]
    fn lines_before_the_job_are_not_missed() {
        let mut grid = Grid::new(0, 0, SECOND);
        grid.begin(ms(3500));
        assert_eq!(at(&grid), (3, 4000));
        assert_eq!(grid.take(ms(4000)), 0);
    }
}
