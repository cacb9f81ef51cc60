//! The time axis of a recording, and its series reduced to the resolution of a screen.
//!
//! In:  timestamps and lengths of rows, values of a series per row.
//! Out: [`Timeline`]: spans of time, each covered by one row; [`Timeline::reduce`], which joins spans into groups;
//!      [`Level`] of a series over a group, with minimum and maximum so that no peak is lost.
//! Not here: the choice of series (`plots`), drawing (`chart`).
//!
//! A row covers the time since the previous row, and is drawn to scale over that time: a full interval or the last
//! 2 ms. Time without a row (a suspended machine, a clock that was set forward) stays empty.

use std::ops::Range;

/// A row longer than this many intervals missed a tick: no level is known for the first part of the row.
const MISSED: f64 = 1.5;

/// A gap between two rows below this share of an interval is clock jitter.
const JITTER: f64 = 0.5;

/// A period that one row covers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Span {
    /// Seconds since the start of the timeline.
    pub(super) from_s: f64,
    pub(super) to_s: f64,
    row: usize,
    /// Levels such as memory were read at the end of the span; `false` for the missed part of a row.
    read: bool,
}

/// The times of all rows.
pub(super) struct Clock<'a> {
    /// Unix seconds; NaN where unknown.
    pub(super) timestamps: &'a [f64],
    /// Length of each row by the monotonic clock, if recorded.
    pub(super) elapsed_s: Option<&'a [f64]>,
    /// Time of the first reading, before the first row.
    pub(super) start_time: Option<f64>,
    pub(super) interval_s: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Timeline {
    /// Unix seconds.
    pub(super) start: f64,
    pub(super) length_s: f64,
    /// Length of each row, for rates.
    pub(super) row_s: Vec<f64>,
    spans: Vec<Span>,
}

/// Neighbouring spans that are drawn as one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Group {
    pub(super) from_s: f64,
    pub(super) to_s: f64,
    spans: Range<usize>,
}

/// A series over one group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Level {
    pub(super) min: f64,
    /// Mean, weighted by the length of the spans.
    pub(super) mean: f64,
    pub(super) max: f64,
}

impl Timeline {
    /// The timeline of a recording; `None` if it has no rows.
    pub(super) fn new(clock: &Clock<'_>) -> Option<Self> {
        let interval_s = clock.interval_s;
        let first = clock.timestamps.iter().copied().find(|timestamp| timestamp.is_finite());
        let start =
            clock.start_time.filter(|start| start.is_finite()).or(first.map(|first| first - interval_s))?;
        let (mut spans, mut row_s) = (Vec::with_capacity(clock.timestamps.len()), Vec::new());
        // Total time by which the clock was set back, and the end of the previous row.
        let (mut set_back_s, mut end_s) = (0.0, 0.0);
        for (row, timestamp) in clock.timestamps.iter().enumerate() {
            let read_s = timestamp - start + set_back_s;
            let elapsed_s = clock.elapsed_s.and_then(|elapsed| elapsed.get(row)).copied();
            let usable = |length: &f64| length.is_finite() && *length >= 0.0;
            let length_s = elapsed_s
                .filter(usable)
                .or(Some(read_s - end_s).filter(|length| usable(length) && *length > 0.0))
                .unwrap_or(interval_s);
            row_s.push(length_s);
            let mut from_s = read_s - length_s;
            if !from_s.is_finite() || from_s - end_s < -JITTER * interval_s {
                // The clock was set back or has no value: the row starts at the end of the previous row.
                set_back_s += if from_s.is_finite() { end_s - from_s } else { 0.0 };
                from_s = end_s;
            } else if from_s - end_s < JITTER * interval_s {
                from_s = end_s;
            }
            let to_s = if read_s.is_finite() {
                (timestamp - start + set_back_s).max(from_s)
            } else {
                from_s + length_s
            };
            let unread_to_s = to_s - interval_s;
            if length_s > MISSED * interval_s && unread_to_s > from_s {
                spans.push(Span { from_s, to_s: unread_to_s, row, read: false });
                from_s = unread_to_s;
            }
            spans.push(Span { from_s, to_s, row, read: true });
            end_s = to_s;
        }
        let length_s = if end_s > 0.0 { end_s } else { interval_s };
        (!spans.is_empty()).then_some(Self { start, length_s, row_s, spans })
    }

    /// Joins neighbouring spans into about `most` groups. With at most `most` spans, each span is a group.
    pub(super) fn reduce(&self, most: usize) -> Vec<Group> {
        let alone = self.spans.len() <= most;
        #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
        let width_s = self.length_s / most.max(1) as f64;
        let mut groups: Vec<Group> = Vec::with_capacity(self.spans.len().min(2 * most));
        for (number, span) in self.spans.iter().enumerate() {
            match groups.last_mut() {
                // Spans are not joined across a visible gap.
                Some(group)
                    if !alone
                        && group.to_s - group.from_s < width_s
                        && span.from_s - group.to_s < width_s =>
                {
                    group.to_s = span.to_s;
                    group.spans.end = number + 1;
                }
                _ => groups.push(Group { from_s: span.from_s, to_s: span.to_s, spans: number..number + 1 }),
            }
        }
        groups
    }

    /// A series over a group; `None` if nothing was measured. Levels are unknown in spans that were not read.
    pub(super) fn level(&self, group: &Group, series: &Series) -> Option<Level> {
        let (mut weight_s, mut weighted) = (0.0, 0.0);
        let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
        for span in self.spans.get(group.spans.clone())?.iter().filter(|span| span.read || !series.is_level) {
            let value = series.by_row.get(span.row).copied().unwrap_or(f64::NAN);
            if value.is_nan() {
                continue;
            }
            // The minimum keeps the value of a row of length 0, which would have no weight.
            let span_s = (span.to_s - span.from_s).max(1e-9);
            weight_s += span_s;
            weighted += value * span_s;
            min = min.min(value);
            max = max.max(value).max(series.highs.get(span.row).copied().unwrap_or(value));
        }
        // Rounding must not move the mean outside of the measured range.
        (weight_s > 0.0).then(|| Level { min, mean: (weighted / weight_s).clamp(min, max), max })
    }

    /// The middle of the span in which a row was read, in seconds since the start.
    pub(super) fn middle_s(&self, row: usize) -> Option<f64> {
        let at = self.spans.partition_point(|span| span.row < row || (span.row == row && !span.read));
        self.spans.get(at).map(|span| f64::midpoint(span.from_s, span.to_s))
    }
}

/// The values of a series per row; NaN where not measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Series {
    pub(super) by_row: Vec<f64>,
    /// Peaks between two readings; empty if unknown.
    pub(super) highs: Vec<f64>,
    /// Whether the values were read at the end of a row; else they were measured over the row.
    pub(super) is_level: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn timeline(timestamps: &[f64], elapsed_s: Option<&[f64]>) -> Timeline {
        let clock = Clock { timestamps, elapsed_s, start_time: Some(100.0), interval_s: 1.0 };
        Timeline::new(&clock).unwrap()
    }

    fn shape(timeline: &Timeline) -> Vec<(f64, f64, usize, bool)> {
        timeline.spans.iter().map(|span| (span.from_s, span.to_s, span.row, span.read)).collect()
    }

    #[test]
    fn short_rows_keep_their_length() {
        let timeline = timeline(&[100.25, 101.25, 101.5], None);
        assert_eq!(shape(&timeline), [(0.0, 0.25, 0, true), (0.25, 1.25, 1, true), (1.25, 1.5, 2, true)]);
        assert_eq!((timeline.length_s, timeline.row_s.as_slice()), (1.5, [0.25, 1.0, 0.25].as_slice()));
    }

    #[test]
    fn suspended_machine_leaves_a_gap() {
        let timeline = timeline(&[101.0, 161.0], Some(&[1.0, 1.0]));
        assert_eq!(shape(&timeline), [(0.0, 1.0, 0, true), (60.0, 61.0, 1, true)]);
    }

    #[test]
    fn missed_tick_has_usage_but_no_levels() {
        let timeline = timeline(&[101.0, 104.0], Some(&[1.0, 3.0]));
        assert_eq!(shape(&timeline), [(0.0, 1.0, 0, true), (1.0, 3.0, 1, false), (3.0, 4.0, 1, true)]);
        let groups = timeline.reduce(9);
        let mut series = Series { by_row: vec![1.0, 2.0], ..Series::default() };
        let means = |series: &Series| -> Vec<Option<f64>> {
            groups.iter().map(|group| timeline.level(group, series).map(|level| level.mean)).collect()
        };
        assert_eq!(means(&series), [Some(1.0), Some(2.0), Some(2.0)]);
        series.is_level = true;
        assert_eq!(means(&series), [Some(1.0), None, Some(2.0)]);
        assert_eq!([0, 1, 2].map(|row| timeline.middle_s(row)), [Some(0.5), Some(3.5), None]);
    }

    #[test]
    fn clock_that_was_set_back_does_not_reverse_time() {
        let timeline = timeline(&[101.0, 102.0, 42.5, 43.5], Some(&[1.0; 4]));
        let ends: Vec<f64> = timeline.spans.iter().map(|span| span.to_s).collect();
        assert_eq!(ends, [1.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn rows_without_timestamp_or_start_are_placed() {
        let clock =
            Clock { timestamps: &[f64::NAN, 5.0], elapsed_s: None, start_time: None, interval_s: 2.0 };
        let timeline = Timeline::new(&clock).unwrap();
        assert_eq!(timeline.start, 3.0);
        assert!(timeline.spans.iter().all(|span| span.from_s.is_finite() && span.to_s >= span.from_s));
        let nothing = Clock { timestamps: &[], elapsed_s: None, start_time: Some(1.0), interval_s: 1.0 };
        assert_eq!(Timeline::new(&nothing), None);
    }

    #[test]
    fn unmeasured_rows_have_no_level() {
        let timeline = timeline(&[101.0, 102.0], None);
        let series = Series { by_row: vec![f64::NAN, 4.0], highs: vec![f64::NAN, 9.0], is_level: true };
        let groups = timeline.reduce(2);
        assert_eq!(timeline.level(&groups[0], &series), None);
        assert_eq!(timeline.level(&groups[1], &series), Some(Level { min: 4.0, mean: 4.0, max: 9.0 }));
    }

    proptest! {
        /// Groups keep the minimum and maximum of all rows, are in order, and are at most about `most`.
        #[test]
        fn reduction_keeps_minimum_and_maximum(
            steps in prop::collection::vec((-3.0_f64..40.0, 0.0_f64..3.0, -5.0_f64..5.0), 1..400),
            most in 1_usize..40,
        ) {
            let mut now = 100.0;
            let timestamps: Vec<f64> = steps.iter().map(|(step, _, _)| { now += step; now }).collect();
            let elapsed: Vec<f64> = steps.iter().map(|(_, elapsed, _)| *elapsed).collect();
            let values: Vec<f64> = steps.iter().map(|(_, _, value)| *value).collect();
            let timeline = timeline(&timestamps, Some(&elapsed));
            let groups = timeline.reduce(most);
            prop_assert!(groups.len() <= 2 * most + 1 || groups.len() <= timeline.spans.len().min(most));
            for pair in groups.windows(2) {
                prop_assert!(pair[0].from_s <= pair[0].to_s && pair[0].to_s <= pair[1].from_s);
            }
            let series = Series { by_row: values.clone(), ..Series::default() };
            let levels: Vec<Level> = groups.iter().filter_map(|group| timeline.level(group, &series)).collect();
            let most_of = |pick: fn(&Level) -> f64| levels.iter().map(pick).fold(f64::NEG_INFINITY, f64::max);
            prop_assert_eq!(most_of(|level| level.max), values.iter().copied().fold(f64::NEG_INFINITY, f64::max));
            prop_assert_eq!(-most_of(|level| -level.min), values.iter().copied().fold(f64::INFINITY, f64::min));
        }
    }
}
