//! Axes: round numbers on the vertical axis at the side, round times on the axis at the bottom.
//!
//! In:  the highest value, or the period. Out: positions and labels.
//! `page.js` has the same algorithm for zoomed charts; a browser test compares the two.

use crate::human::{Scale, Zone};

/// The vertical axis, at the side of the chart.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Side {
    /// Value at the top of the chart.
    pub(super) top: f64,
    /// Unit of all labels; empty for numbers without a unit.
    pub(super) unit: &'static str,
    /// Share of the height (0 at the bottom) and label.
    pub(super) marks: Vec<(f64, String)>,
}

/// Approximate number of intervals on the vertical axis.
const ROWS: f64 = 4.0;

/// Round numbers from 0 to at least `max`.
pub(super) fn side(scale: Scale, max: f64) -> Side {
    let max = if max.is_finite() && max > 0.0 { max } else { 1.0 };
    let (factor, unit) = scale.unit(max);
    let raw = max / factor / ROWS;
    let magnitude = 10_f64.powf(raw.log10().floor());
    let round =
        [1.0, 2.0, 5.0, 10.0].into_iter().find(|round| raw / magnitude <= *round + 1e-9).unwrap_or(10.0);
    let whole = scale == Scale::Count || factor == 1.0 && scale != Scale::Cores;
    let step = if whole { (round * magnitude).max(1.0) } else { round * magnitude };
    let rows = (max / factor / step - 1e-9).ceil().max(1.0);
    let decimals = if step < 1.0 { if step < 0.1 { if step < 0.01 { 3 } else { 2 } } else { 1 } } else { 0 };
    let marks = std::iter::successors(Some(0.0), |row| (*row < rows).then_some(row + 1.0))
        .map(|row| (row / rows, format!("{:.decimals$}", row * step)));
    Side { top: rows * step * factor, unit, marks: marks.collect() }
}

/// Round intervals between two times, up to 28 days.
const STEPS_S: [f64; 30] = [
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0,
    300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 10_800.0, 21_600.0, 43_200.0, 86_400.0, 172_800.0,
    604_800.0, 2.4192e6,
];

/// Intervals in seconds, each with the highest number of labels that fit. Labels of short intervals are longer.
pub(super) fn steps() -> impl Iterator<Item = (f64, f64)> {
    STEPS_S.into_iter().map(|step_s| match step_s {
        ..1.0 => (step_s, 3.0),
        ..60.0 => (step_s, 5.0),
        _ => (step_s, 6.0),
    })
}

/// Position (share of the width) and label of each time.
pub(super) fn bottom(zone: &Zone, start: f64, length_s: f64) -> Vec<(f64, String)> {
    let step = steps().find(|(step, most)| length_s / step <= *most).map_or(length_s / 6.0, |(step, _)| step);
    // The labels are at round local times.
    let local = start + f64::from(zone.offset_s);
    let first = (local / step).ceil() * step;
    let marks = std::iter::successors(Some(first), |mark| Some(mark + step));
    marks
        .take_while(|mark| mark - local <= length_s)
        .filter_map(|mark| {
            let moment = zone.at(mark - f64::from(zone.offset_s))?;
            let label = match step {
                step if step >= 86_400.0 || step >= 60.0 && moment.is_midnight() => moment.day(),
                step if step >= 60.0 => moment.minutes(),
                step if step >= 1.0 => moment.clock(),
                _ => moment.fine(),
            };
            Some(((mark - local) / length_s, label))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(scale: Scale, max: f64) -> String {
        let side = side(scale, max);
        let labels: Vec<&str> = side.marks.iter().map(|(_, label)| label.as_str()).collect();
        format!("{} {}", labels.join(" "), side.unit)
    }

    #[test]
    fn side_has_round_numbers_in_one_unit() {
        assert_eq!(labels(Scale::Cores, 1.14), "0.0 0.5 1.0 1.5 ");
        assert_eq!(labels(Scale::Cores, 64.0), "0 20 40 60 80 ");
        assert_eq!(labels(Scale::Bytes, 779.0 * 1024.0 * 1024.0), "0 200 400 600 800 MiB");
        assert_eq!(labels(Scale::Rate, 2_500_000.0), "0 1 2 3 MB/s");
        assert_eq!(labels(Scale::Count, 1.0), "0 1 ");
        assert_eq!(labels(Scale::Cores, 0.0), "0.0 0.5 1.0 ");
        assert_eq!(labels(Scale::Bytes, f64::NAN), "0 1 B");
    }

    #[test]
    fn bottom_has_round_local_times() {
        let zone = Zone { offset_s: 19_800, abbreviation: "IST".into() };
        let labels = |start, length_s| {
            let marks = bottom(&zone, start, length_s);
            marks.into_iter().map(|(_, label)| label).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(labels(1_741_785_685.0, 9.0), "18:51:26 18:51:28 18:51:30 18:51:32 18:51:34");
        assert_eq!(labels(1_741_785_685.0, 86_400.0), "13 Mar 06:00 12:00 18:00");
        assert_eq!(labels(1_741_785_685.0, 6.0 * 86_400.0), "13 Mar 14 Mar 15 Mar 16 Mar 17 Mar 18 Mar");
        assert_eq!(labels(1_741_785_685.0, 0.0045), "18:51:25.000 18:51:25.002 18:51:25.004");
    }

    proptest! {
        /// The top is at least the highest value, and at most twice that.
        #[test]
        fn values_fit_and_fill_the_chart(max in 1e-3_f64..1e15, kind in 0_usize..4) {
            let scale = [Scale::Cores, Scale::Count, Scale::Bytes, Scale::Rate][kind];
            let side = side(scale, max);
            prop_assert!(side.top >= max * (1.0 - 1e-9));
            prop_assert!(side.top <= max * 2.0 || side.marks.len() == 2);
            prop_assert!((2..=9).contains(&side.marks.len()), "{side:?}");
        }

        /// There are at most eight times, all inside the chart.
        #[test]
        fn times_are_inside_the_chart(length_s in 0.002_f64..1e8, start in 0.0_f64..2e9) {
            let marks = bottom(&Zone::utc(), start, length_s);
            prop_assert!(marks.len() <= 8);
            prop_assert!(marks.iter().all(|(share, _)| (0.0..=1.0).contains(share)));
        }
    }
}
