//! Counters that restart at 0 in a forked child.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter that is stored with the pid of its process. A forked child finds its parent's pid there, and starts at 0.
#[derive(Debug)]
pub struct ProcessCounter(AtomicU64);

impl ProcessCounter {
    pub const fn zero() -> Self {
        Self(AtomicU64::new(0))
    }

    fn of_this_process(entry: u64) -> u32 {
        let [own, count] = [entry >> 32, entry & 0xffff_ffff].map(|half| u32::try_from(half).unwrap_or(0));
        if own == std::process::id() { count } else { 0 }
    }

    pub fn get(&self) -> u32 {
        Self::of_this_process(self.0.load(Ordering::Relaxed))
    }

    pub fn change(&self, change: impl Fn(u32) -> u32) {
        let changed = |entry| {
            Some(u64::from(std::process::id()) << 32 | u64::from(change(Self::of_this_process(entry))))
        };
        // `changed` never returns `None`, so this cannot fail.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, changed);
    }
}

static BACKGROUND_CPU_US: ProcessCounter = ProcessCounter::zero();

/// CPU time of the tracker's ended background threads in this process. It is not part of the job.
pub fn background_cpu_ns() -> u64 {
    u64::from(BACKGROUND_CPU_US.get()) * 1_000
}

/// Adds the CPU time of the calling background thread, which is about to end.
pub fn note_background_cpu() {
    let us = u32::try_from(super::thread_cpu_ns().unwrap_or(0) / 1_000).unwrap_or(u32::MAX);
    BACKGROUND_CPU_US.change(|spent| spent.saturating_add(us));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_restarts_at_zero_in_a_forked_child() {
        let counter = ProcessCounter::zero();
        assert_eq!(counter.get(), 0);
        counter.change(|count| count + 3);
        counter.change(|count| count - 1);
        assert_eq!(counter.get(), 2);
        // As in a forked child: the memory has the parent's pid and count.
        counter.0.store(u64::from(std::process::id() + 1) << 32 | 7, Ordering::Relaxed);
        assert_eq!(counter.get(), 0);
        counter.change(|count| count + 1);
        assert_eq!(counter.get(), 1);
    }
}
