//! A number for the whole process, which a fork does not take along.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts for one process: a forked child has a copy of what was counted, none of which is its own, and starts with 0.
#[derive(Debug)]
pub struct Tally(AtomicU64);

impl Tally {
    /// Nothing yet.
    #[must_use]
    pub const fn zero() -> Self {
        Self(AtomicU64::new(0))
    }

    fn of_this_process(entry: u64) -> u32 {
        let [own, count] = [entry >> 32, entry & 0xffff_ffff].map(|half| u32::try_from(half).unwrap_or(0));
        if own == std::process::id() { count } else { 0 }
    }

    /// As it is in this process.
    pub fn get(&self) -> u32 {
        Self::of_this_process(self.0.load(Ordering::Relaxed))
    }

    /// Changes it.
    pub fn change(&self, change: impl Fn(u32) -> u32) {
        let changed = |entry| {
            Some(u64::from(std::process::id()) << 32 | u64::from(change(Self::of_this_process(entry))))
        };
        // It always gives a value.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, changed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_process_counted_is_not_ours() {
        let tally = Tally::zero();
        assert_eq!(tally.get(), 0);
        tally.change(|count| count + 3);
        tally.change(|count| count - 1);
        assert_eq!(tally.get(), 2);
        // As a forked child finds it.
        tally.0.store(u64::from(std::process::id() + 1) << 32 | 7, Ordering::Relaxed);
        assert_eq!(tally.get(), 0);
        tally.change(|count| count + 1);
        assert_eq!(tally.get(), 1);
    }
}
