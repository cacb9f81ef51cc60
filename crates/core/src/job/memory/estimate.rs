//! An amount of memory between two bounds, and its estimate by a counter of the whole machine.
//!
//! Not here: where the bounds come from (`process`), exact amounts (`pass`).

use std::ops::Add;

/// The counter may differ from the job by this much: it is read a moment after the processes, and the kernel adds up the
/// counters of its CPUs only now and then.
const SKEW_KIB: i64 = 12 * 1024;
/// The kernel takes up to this long to free the pages of a process that has ended.
const FREEING_NS: u64 = 300_000_000;
/// A disturbed counter is not used for this time. It doubles with every disturbance.
const DISTRUST_NS: u64 = 1_000_000_000;
const DISTRUST_MAX_NS: u64 = 60_000_000_000;

/// Bounds of an amount in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    pub low: i64,
    pub high: i64,
}

impl Range {
    pub const fn at(kib: i64) -> Self {
        Self { low: kib, high: kib }
    }

    pub const fn width(self) -> i64 {
        self.high - self.low
    }

    /// The part of this range inside `bounds`, which are always true.
    pub fn within(self, bounds: Self) -> Self {
        let high = bounds.high.max(bounds.low);
        Self { low: self.low.clamp(bounds.low, high), high: self.high.clamp(bounds.low, high) }
    }
}

impl Add for Range {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { low: self.low.saturating_add(other.low), high: self.high.saturating_add(other.high) }
    }
}

/// The amount of the job between passes. The machine's counter moves with the job, and with all other processes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Estimate {
    range: Range,
    /// The amount when it was last known exactly, and the machine's counter at that moment.
    known_kib: i64,
    machine_then_kib: Option<i64>,
    /// The amount by the machine's counter; `None` while the counter is not used.
    counted_kib: Option<i64>,
    shrank_at_ns: u64,
    distrust_ns: u64,
    distrusted_until_ns: u64,
}

impl Estimate {
    /// The amount now: by the machine's counter, or the lower bound if other processes disturb the counter.
    pub fn kib(&self) -> i64 {
        self.counted_kib.unwrap_or(self.range.low).clamp(self.range.low, self.range.high.max(self.range.low))
    }

    pub const fn range(&self) -> Range {
        self.range
    }

    /// Whether the machine's counter is used.
    pub const fn is_counted(&self) -> bool {
        self.counted_kib.is_some()
    }

    /// Follows the job to an amount in `range`; `machine_kib` is the machine's counter now.
    pub fn follow(&mut self, range: Range, machine_kib: Option<i64>, now_ns: u64) {
        if self.range.high - range.high > SKEW_KIB {
            self.shrank_at_ns = now_ns;
        }
        self.range = range;
        let is_freed = now_ns.saturating_sub(self.shrank_at_ns) > FREEING_NS;
        let grown_kib = machine_kib.zip(self.machine_then_kib).map(|(now, then)| now - then);
        self.counted_kib = grown_kib.map(|kib| self.known_kib + kib);
        let is_outside = self.counted_kib.is_some_and(|kib| {
            kib < range.low - SKEW_KIB - range.low / 32
                || (is_freed && kib > range.high + SKEW_KIB + range.high / 32)
        });
        if is_outside && now_ns >= self.distrusted_until_ns {
            self.distrust_ns = (2 * self.distrust_ns).clamp(DISTRUST_NS, DISTRUST_MAX_NS);
            self.distrusted_until_ns = now_ns + self.distrust_ns;
        }
        if self.is_distrusted(now_ns) {
            self.counted_kib = None;
            self.know(range.low, machine_kib);
        } else if range.width() == 0 && is_freed {
            self.know(range.low, machine_kib);
        }
    }

    pub const fn is_distrusted(&self, now_ns: u64) -> bool {
        now_ns < self.distrusted_until_ns
    }

    /// Continues with a counter without the processes that disturbed it.
    pub fn trust(&mut self, machine_kib: Option<i64>) {
        self.know(self.kib(), machine_kib);
        self.distrusted_until_ns = 0;
    }

    /// Takes over the bounds after a pass.
    pub fn correct(&mut self, range: Range, machine_kib: Option<i64>) {
        self.range = range;
        if range.width() == 0 {
            self.counted_kib = self.counted_kib.map(|_| range.low);
            self.know(range.low, machine_kib);
        }
    }

    const fn know(&mut self, kib: i64, machine_kib: Option<i64>) {
        self.known_kib = kib;
        self.machine_then_kib = machine_kib;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    const fn mib(mib: i64) -> i64 {
        mib * 1024
    }

    fn range(low: i64, high: i64) -> Range {
        Range { low: mib(low), high: mib(high) }
    }

    /// An amount of 100 MiB, known when the machine's counter was 1,000 MiB.
    fn known() -> Estimate {
        let mut estimate = Estimate::default();
        estimate.correct(range(100, 100), Some(mib(1000)));
        estimate
    }

    #[test]
    fn counter_of_the_machine_decides_within_the_bounds() {
        let mut estimate = known();
        estimate.follow(range(100, 300), Some(mib(1050)), 1000 * MS);
        assert_eq!(estimate.kib(), mib(150));
        estimate.follow(range(160, 300), Some(mib(1055)), 1010 * MS);
        assert_eq!(estimate.kib(), mib(160), "the counter is a little late");
        estimate.follow(range(160, 300), None, 1020 * MS);
        assert_eq!(estimate.kib(), mib(160), "without a counter, the lower bound");
    }

    #[test]
    fn change_outside_the_bounds_proves_a_disturbance_which_is_distrusted_for_longer_each_time() {
        let mut estimate = known();
        let mut follow = |machine_mib, now_ms: u64| {
            estimate.follow(range(100, 300), Some(mib(machine_mib)), now_ms * MS);
            (estimate.is_counted(), estimate.kib() / 1024)
        };
        assert_eq!(follow(1500, 1000), (false, 100), "too much");
        assert_eq!(follow(1150, 1900), (false, 100));
        assert_eq!(follow(1200, 2100), (true, 150), "trusted again, from the lower bound on");
        assert_eq!(follow(1000, 2200), (false, 100), "too little");
        assert_eq!(follow(1000, 4100), (false, 100), "for twice as long");
        assert_eq!(follow(1010, 4300), (true, 110));
    }

    #[test]
    fn pages_that_the_kernel_frees_late_are_no_disturbance() {
        let mut estimate = known();
        estimate.follow(range(600, 600), Some(mib(1500)), 1000 * MS);
        estimate.follow(range(100, 100), Some(mib(1500)), 1100 * MS);
        assert!(estimate.is_counted() && estimate.kib() == mib(100));
        estimate.follow(range(100, 400), Some(mib(1010)), 1200 * MS);
        assert_eq!(estimate.kib(), mib(110));
        estimate.follow(range(100, 400), Some(mib(1900)), 1600 * MS);
        assert!(!estimate.is_counted(), "but pages that are still not freed after some time are");
    }

    #[test]
    fn exact_amounts_are_the_base_of_later_ones() {
        let mut estimate = known();
        // Other processes grow slowly, by 600 MiB in all.
        for step in 1..=60 {
            let now_ns = 1000 * MS * u64::try_from(step).unwrap();
            estimate.follow(range(100, 100), Some(mib(1000 + 10 * step)), now_ns);
        }
        estimate.follow(range(100, 900), Some(mib(1630)), 61_000 * MS);
        assert_eq!((estimate.is_counted(), estimate.kib()), (true, mib(130)));
    }
}
