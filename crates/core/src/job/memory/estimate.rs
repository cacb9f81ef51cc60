//! An amount between two bounds, and its estimate by a counter that also counts other processes.
//!
//! Not here: where the bounds come from (`process`).

use std::ops::Add;

/// A disturbed counter is distrusted for this time.
const DISTRUST_NS: u64 = 1_000_000_000;
/// The kernel takes some time to free the pages of a process that has ended.
const FREEING_NS: u64 = 300_000_000;
/// The counter may be early or late by this much: it is read a moment after the processes, and the kernel adds up the
/// counters of CPUs only now and then.
const SKEW_KIB: i64 = 12 * 1024;

/// Bounds of an amount in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    pub low: i64,
    pub high: i64,
}

impl Range {
    pub const ZERO: Self = Self::at(0);

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

    fn clamp(self, kib: i64) -> i64 {
        kib.clamp(self.low, self.high.max(self.low))
    }
}

impl Add for Range {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { low: self.low.saturating_add(other.low), high: self.high.saturating_add(other.high) }
    }
}

/// An amount of the job, between passes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Estimate {
    pub range: Range,
    /// The amount by the counter of the machine.
    counted_kib: i64,
    machine_kib: Option<i64>,
    /// Growth of the machine's counter that the processes did not show yet; negative if they showed more.
    early_kib: i64,
    /// What the job has lost by its bounds, but the machine not yet.
    freeing_kib: i64,
    freeing_until_ns: u64,
    distrusted_until_ns: u64,
}

impl Estimate {
    /// The amount that the job has now. If its processes were read over some time, they may have shown more than they
    /// had together at any moment; the machine's counter shows that.
    pub fn kib(&self) -> i64 {
        self.range.clamp(self.counted_kib) + self.early_kib.min(0)
    }

    /// Follows a change of the job by `growth` to an amount in `range`; `machine_kib` is the counter of the machine.
    pub fn advance(&mut self, range: Range, growth: Range, machine_kib: Option<i64>, now_ns: u64) {
        let before_kib = std::mem::replace(&mut self.machine_kib, machine_kib);
        let counted = before_kib.zip(machine_kib).map(|(then, now)| now - then + self.early_kib);
        if growth.low < 0 {
            self.freeing_until_ns = now_ns + FREEING_NS;
        } else if now_ns >= self.freeing_until_ns {
            self.freeing_kib = 0;
        }
        let growth = Range { low: growth.low + self.freeing_kib, high: growth.high.max(0) };
        let counted_kib = counted.unwrap_or(growth.low);
        let mut grown_kib = growth.clamp(counted_kib);
        self.freeing_kib = (growth.low - grown_kib).min(0);
        self.early_kib = counted_kib - grown_kib;
        if self.early_kib.abs() > SKEW_KIB + (growth.high.abs() + growth.low.abs()) / 8 {
            self.distrusted_until_ns = now_ns + DISTRUST_NS;
        }
        if now_ns < self.distrusted_until_ns {
            (grown_kib, self.early_kib) = (growth.low, 0);
        }
        self.range = range;
        let near = Range { low: range.low - SKEW_KIB, high: range.high + SKEW_KIB };
        self.counted_kib = near.clamp(self.counted_kib + grown_kib);
    }

    /// Whether other processes disturb the counter.
    pub const fn is_disturbed(&self, now_ns: u64) -> bool {
        now_ns < self.distrusted_until_ns
    }

    /// Continues with another counter.
    pub const fn trust(&mut self, machine_kib: Option<i64>) {
        self.machine_kib = machine_kib;
        self.early_kib = 0;
        self.distrusted_until_ns = 0;
    }

    /// Takes over the result of a pass.
    pub fn correct(&mut self, range: Range, machine_kib: Option<i64>) {
        self.range = range;
        self.counted_kib = range.clamp(self.counted_kib);
        self.machine_kib = machine_kib;
        self.early_kib = 0;
    }
}
