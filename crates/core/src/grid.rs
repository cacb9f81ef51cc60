//! The time grid of rows: pure, all times in nanoseconds and given by the caller.

use std::num::NonZeroU64;

/// A first tick must leave the job this much time.
const ROOM_NS: u64 = 50_000_000;

/// Grid lines at `first + n × interval` of the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    first_ns: u64,
    interval_ns: NonZeroU64,
}

/// The row to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// Its place on the grid, from 0.
    pub number: u64,
    /// Grid lines that passed unsampled since the last row.
    pub missed: u64,
    /// When it is due, by the monotonic clock.
    pub at_ns: u64,
}

impl Grid {
    /// A grid that starts at the next wall-clock multiple of the interval after `wall_ns`, or at the one after
    /// that when it is closer than 50 ms; kept on the monotonic clock from there on.
    #[must_use]
    pub fn new(wall_ns: u64, monotonic_ns: u64, interval_ns: NonZeroU64) -> Self {
        let wait_ns = interval_ns.get() - wall_ns % interval_ns;
        let wait_ns = if wait_ns < ROOM_NS { wait_ns + interval_ns.get() } else { wait_ns };
        Self { first_ns: monotonic_ns + wait_ns, interval_ns }
    }

    /// The next tick after `last` (`None` before the first), seen from `now_ns`. A grid, not `sleep(interval)`:
    /// a slow tick delays one row, shifts none; a line that has passed is skipped, not queued.
    #[must_use]
    pub fn next(&self, last: Option<u64>, now_ns: u64) -> Tick {
        let due = last.map_or(0, |last| last + 1);
        let passed = now_ns.checked_sub(self.first_ns).map_or(0, |since| since / self.interval_ns + 1);
        let number = due.max(passed);
        Tick { number, missed: number - due, at_ns: self.first_ns + number * self.interval_ns.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: NonZeroU64 = NonZeroU64::new(1_000_000_000).unwrap();

    #[test]
    fn the_first_tick_is_the_next_round_second_with_room() {
        assert_eq!(Grid::new(10_300_000_000, 77, SECOND).first_ns, 77 + 700_000_000);
        assert_eq!(
            Grid::new(10_960_000_000, 77, SECOND).first_ns,
            77 + 1_040_000_000,
            "40 ms are too little"
        );
        assert_eq!(Grid::new(10_950_000_000, 77, SECOND).first_ns, 77 + 50_000_000);
    }

    #[test]
    fn a_slow_tick_shifts_no_later_one_and_is_not_made_up_for() {
        let grid = Grid::new(0, 0, SECOND);
        assert_eq!(grid.next(None, 5), Tick { number: 0, missed: 0, at_ns: 1_000_000_000 });
        assert_eq!(grid.next(Some(0), 1_000_000_001), Tick { number: 1, missed: 0, at_ns: 2_000_000_000 });
        assert_eq!(grid.next(Some(1), 5_500_000_000), Tick { number: 5, missed: 3, at_ns: 6_000_000_000 });
    }
}
