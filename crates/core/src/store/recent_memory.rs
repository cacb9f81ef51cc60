//! Memory of the job in the last 10 s of a recording, in bounded space.
//!
//! In:  the length and the memory of each row. Out: [`MemoryCourse`].

use std::collections::VecDeque;

/// The time that is kept.
const WINDOW_S: f64 = 10.0;
/// Levels are at least this far apart.
const STEP_S: f64 = 0.25;

/// Memory at the start of the last 10 s, and its highest level since then.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryCourse {
    pub first_kib: f64,
    pub highest_kib: f64,
    /// From the first level to the end.
    pub seconds: f64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecentMemory {
    now_s: f64,
    /// Time, memory at this time, and the highest level since the level before.
    levels: VecDeque<(f64, f64, f64)>,
}

impl RecentMemory {
    /// `peak_kib` is the highest level within the row.
    pub fn add(&mut self, length_s: f64, memory_kib: Option<f64>, peak_kib: Option<f64>) {
        self.now_s += length_s;
        let Some(highest) = memory_kib.into_iter().chain(peak_kib).reduce(f64::max) else { return };
        let level = memory_kib.unwrap_or(highest);
        let last = self.levels.len().checked_sub(2).and_then(|index| self.levels.get(index));
        if last.is_some_and(|(at_s, ..)| self.now_s - at_s < STEP_S)
            && let Some(merged) = self.levels.back_mut()
        {
            *merged = (self.now_s, level, merged.2.max(highest));
        } else {
            self.levels.push_back((self.now_s, level, highest));
        }
        while self.levels.front().is_some_and(|(at_s, ..)| self.now_s - at_s > WINDOW_S) {
            self.levels.pop_front();
        }
    }

    /// `None` with fewer than two levels.
    pub fn course(&self) -> Option<MemoryCourse> {
        let (first, later) = (self.levels.front()?, self.levels.iter().skip(1));
        let highest_kib = later.map(|(.., highest)| *highest).reduce(f64::max)?;
        Some(MemoryCourse { first_kib: first.1, highest_kib, seconds: self.now_s - first.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn course_covers_the_last_ten_seconds_in_bounded_space() {
        let mut recent = RecentMemory::default();
        for row in 0..100_000 {
            recent.add(0.001, Some(f64::from(row)), None);
        }
        assert!(recent.levels.len() <= 82, "{}", recent.levels.len());
        let course = recent.course().unwrap();
        assert!((9.0..=10.0).contains(&course.seconds), "{course:?}");
        assert!((course.first_kib - 90_000.0).abs() < 1_000.0, "{course:?}");
        assert!((course.highest_kib - 99_999.0).abs() < 0.5, "{course:?}");
    }

    #[test]
    fn peak_within_the_last_row_is_the_highest_level() {
        let mut recent = RecentMemory::default();
        assert_eq!(recent.course(), None);
        recent.add(1.0, Some(100.0), Some(120.0));
        recent.add(1.0, Some(0.0), Some(900.0));
        let expected = MemoryCourse { first_kib: 100.0, highest_kib: 900.0, seconds: 1.0 };
        assert_eq!(recent.course(), Some(expected));
    }
}
