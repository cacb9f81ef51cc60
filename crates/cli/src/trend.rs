//! The course of a metric over a run, drawn as a few characters: ▁▃▇█▅.
//!
//! In:  any number of values. Out: bars. Memory use does not grow with the length of the run.

use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use resource_tracker::{Metric, Row, Sink};

/// Number of buckets: twice the 16 bars of the summary, so that rounding moves a peak by less than a bar.
const BUCKETS: usize = 32;
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The peak of each part of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trend {
    peaks: Vec<f64>,
    /// Number of values in each bucket; the last bucket may have fewer.
    per_bucket: usize,
    in_last: usize,
}

impl Trend {
    pub fn add(&mut self, value: f64) {
        if self.in_last == 0 || self.in_last >= self.per_bucket.max(1) {
            if self.peaks.len() == BUCKETS {
                self.peaks =
                    self.peaks.chunks(2).map(|pair| pair.iter().copied().fold(0.0, f64::max)).collect();
                self.per_bucket = self.per_bucket.max(1) * 2;
            }
            self.peaks.push(value);
            self.in_last = 1;
        } else if let Some(last) = self.peaks.last_mut() {
            *last = last.max(value);
            self.in_last += 1;
        }
    }

    /// At most `width` bars, scaled to the largest value. Empty for fewer than two buckets, or if all values are 0.
    pub fn bars(&self, width: usize) -> String {
        let top = self.peaks.iter().copied().fold(0.0, f64::max);
        if self.peaks.len() < 2 || top <= 0.0 || width == 0 {
            return String::new();
        }
        let parts = self.peaks.len().min(width);
        let part = |number: usize| number * self.peaks.len() / parts;
        let peak =
            |number: usize| self.peaks[part(number)..part(number + 1)].iter().copied().fold(0.0, f64::max);
        (0..parts).map(|number| bar(peak(number) / top)).collect()
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of 1; `as` saturates")]
fn bar(share: f64) -> char {
    let step = (share * 7.0).round() as usize;
    LEVELS[step.min(7)]
}

#[derive(Clone, Debug, Default)]
pub struct Trends {
    pub cpu: Trend,
    pub memory: Trend,
}

impl Trends {
    pub fn add(&mut self, row: &Row) {
        for (trend, metric) in
            [(&mut self.cpu, Metric::ProcessCpu), (&mut self.memory, Metric::ProcessMemory)]
        {
            if let Some(value) = row.get(metric).filter(|value| value.is_finite()) {
                trend.add(value);
            }
        }
    }
}

/// Collects trends while the job runs; clones share the same trends.
#[derive(Clone, Debug, Default)]
pub struct TrendSink(Arc<Mutex<Trends>>);

impl TrendSink {
    pub fn trends(&self) -> Trends {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Sink for TrendSink {
    fn take(&mut self, row: &Row) -> io::Result<ControlFlow<()>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).add(row);
        Ok(ControlFlow::Continue(()))
    }

    fn name(&self) -> String {
        "summary".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trend(values: impl IntoIterator<Item = f64>) -> Trend {
        let mut trend = Trend::default();
        values.into_iter().for_each(|value| trend.add(value));
        trend
    }

    #[test]
    fn largest_value_is_a_full_bar_and_zero_an_empty_one() {
        assert_eq!(trend([0.0, 1.0, 2.0, 4.0, 8.0]).bars(16), "▁▂▃▅█");
        assert_eq!(trend([]).bars(16), "");
        assert_eq!(trend([3.0]).bars(16), "", "one value is no trend");
        assert_eq!(trend([0.0, 0.0]).bars(16), "");
    }

    #[test]
    fn one_peak_in_a_week_is_drawn_at_its_place_in_bounded_memory() {
        let week = 604_800;
        let trend = trend((0..week).map(|second| if second == week / 2 { 9.0 } else { 1.0 }));
        assert!(trend.peaks.len() <= BUCKETS);
        let bars = trend.bars(16);
        assert_eq!(bars.chars().count(), 16);
        assert_eq!(bars.chars().filter(|bar| *bar == '█').count(), 1);
        let at = bars.chars().position(|bar| bar == '█').unwrap();
        assert!((6..=10).contains(&at), "{bars}");
    }
}
