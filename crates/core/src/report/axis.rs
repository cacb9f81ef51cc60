//! Axes: round numbers up the side, round times along the bottom.
//!
//! In:  the largest value or the stretch of time to show. Out: where the marks are and what they say.
//! `page.js` does the same when it zooms; the browser test holds both against each other.

use crate::human::{Scale, Zone};

/// Marks up the side.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Side {
    /// Value at the top.
    pub(super) top: f64,
    /// Unit of all labels; empty for plain numbers.
    pub(super) unit: &'static str,
    /// Share of the height (0 at the bottom) and label.
    pub(super) marks: Vec<(f64, String)>,
}

/// Intervals up the side, about.
const ROWS: f64 = 4.0;

/// Round numbers from 0 to no less than `max`.
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

/// Lengths between two marks along the bottom that people find round.
const STEPS_S: [f64; 30] = [
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1.0,
    2.0,
    5.0,
    10.0,
    15.0,
    30.0,
    60.0,
    120.0,
    300.0,
    600.0,
    900.0,
    1800.0,
    3600.0,
    7200.0,
    10_800.0,
    21_600.0,
    43_200.0,
    86_400.0,
    172_800.0,
    604_800.0,
    2_419_200.0,
];

/// Marks along the bottom, at most: fewer where their labels are longer.
fn most_columns(step_s: f64) -> f64 {
    match step_s {
        fine if fine < 1.0 => 3.0,
        clock if clock < 60.0 => 5.0,
        _ => 6.0,
    }
}

/// Share of the width and label of each mark.
pub(super) fn bottom(zone: &Zone, start: f64, length_s: f64) -> Vec<(f64, String)> {
    let step =
        STEPS_S.into_iter().find(|step| length_s / step <= most_columns(*step)).unwrap_or(length_s / 6.0);
    // Round by the clock on the wall.
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
    fn sides_have_round_numbers_in_one_unit() {
        assert_eq!(labels(Scale::Cores, 1.14), "0.0 0.5 1.0 1.5 ");
        assert_eq!(labels(Scale::Cores, 64.0), "0 20 40 60 80 ");
        assert_eq!(labels(Scale::Bytes, 779.0 * 1024.0 * 1024.0), "0 200 400 600 800 MiB");
        assert_eq!(labels(Scale::Rate, 2_500_000.0), "0 1 2 3 MB/s");
        assert_eq!(labels(Scale::Count, 1.0), "0 1 ");
        assert_eq!(labels(Scale::Cores, 0.0), "0.0 0.5 1.0 ");
        assert_eq!(labels(Scale::Bytes, f64::NAN), "0 1 B");
    }

    #[test]
    fn bottoms_have_round_times_of_the_wall_clock() {
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
        /// The top is never below what is shown, and not so far above that the plot is empty.
        #[test]
        fn what_is_shown_fits_and_fills(max in 1e-3_f64..1e15, kind in 0_usize..4) {
            let scale = [Scale::Cores, Scale::Count, Scale::Bytes, Scale::Rate][kind];
            let side = side(scale, max);
            prop_assert!(side.top >= max * (1.0 - 1e-9));
            prop_assert!(side.top <= max * 2.0 || side.marks.len() == 2);
            prop_assert!((2..=9).contains(&side.marks.len()), "{side:?}");
        }

        /// Marks are few, in order, and inside.
        #[test]
        fn marks_are_inside(length_s in 0.002_f64..1e8, start in 0.0_f64..2e9) {
            let marks = bottom(&Zone::utc(), start, length_s);
            prop_assert!(marks.len() <= 8);
            prop_assert!(marks.iter().all(|(share, _)| (0.0..=1.0).contains(share)));
        }
    }
}
