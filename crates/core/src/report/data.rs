//! The data of all charts as JSON for `page.js`, which redraws them on zoom and shows values at the cursor.
//!
//! In:  plots, the time axis and the phases. Out: JSON with numbers, names of the tracker and names of phases; no other
//! text of the run.
//! Units, rounding and axis steps are part of the data, so that `page.js` has no formatting rules of its own.

use serde::{Serialize, Serializer};

use super::axis;
use super::bands::Band;
use super::chart::{HEIGHT, LIMIT_IN_SIGHT, WIDTH, has_range, peak};
use super::plots::{Line, Plot};
use super::timeline::{Group, Level, Timeline};
use crate::human::{DECIMALS, Scale, Zone};

/// Steps per series for zooming.
const STEPS: usize = 3600;

/// Significant digits of a value: as many as the page shows.
const DIGITS: i32 = 4;

#[derive(Serialize)]
struct Data<'a> {
    /// Start of the recording, Unix seconds.
    start: f64,
    /// Offset of the time zone, seconds east of UTC.
    offset: i32,
    /// Length of the recording in seconds.
    length: f64,
    width: f64,
    height: f64,
    limit_in_sight: f64,
    decimals: [(f64, usize); 3],
    /// Milliseconds between two labels, and the highest number of labels.
    steps: Vec<(u64, f64)>,
    spans: Vec<Span>,
    charts: Vec<Chart<'a>>,
    /// Begin and end in milliseconds, and name.
    phases: Vec<(u64, u64, &'a str)>,
}

/// A span in milliseconds: its length, preceded by the gap to the previous span if there is one.
#[derive(Serialize)]
#[serde(untagged)]
enum Span {
    Adjacent(u64),
    AfterGap(u64, u64),
}

#[derive(Serialize)]
struct Chart<'a> {
    id: &'a str,
    scale: Scale,
    /// The units of [`Scale::units`]. The last unit has no next unit: its first number is `null`.
    units: Vec<(f64, f64, &'static str)>,
    limits: Vec<(f64, &'a str)>,
    series: Vec<Series<'a>>,
}

#[derive(Serialize)]
struct Series<'a> {
    name: &'a str,
    tone: usize,
    highest: f64,
    /// Time in milliseconds since the start, and value.
    peak: Option<(u64, f64)>,
    /// Factor of the values below: a power of ten that makes them short.
    unit: f64,
    mean: Vec<Option<Short>>,
    /// `min` and `max` are absent if every minimum equals its maximum.
    #[serde(skip_serializing_if = "Option::is_none")]
    min: Option<Vec<Option<Short>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max: Option<Vec<Option<Short>>>,
}

pub(super) fn json(plots: &[Plot], timeline: &Timeline, bands: &[Band], zone: &Zone) -> String {
    let groups = timeline.reduce(STEPS);
    let charts = plots.iter().map(|plot| Chart {
        id: plot.id,
        scale: plot.scale,
        units: plot.scale.units().collect(),
        limits: plot.limits.iter().map(|limit| (limit.value, limit.label.as_str())).collect(),
        series: plot.lines.iter().map(|line| series(line, &groups, timeline)).collect(),
    });
    let data = Data {
        start: timeline.start,
        offset: zone.offset_s,
        length: timeline.length_s,
        width: WIDTH,
        height: HEIGHT,
        limit_in_sight: LIMIT_IN_SIGHT,
        decimals: DECIMALS,
        steps: axis::steps().map(|(step_s, most)| (whole_ms(step_s), most)).collect(),
        spans: spans(&groups),
        charts: charts.collect(),
        phases: bands
            .iter()
            .map(|band| (whole_ms(band.from_s), whole_ms(band.to_s), band.name.as_str()))
            .collect(),
    };
    // `<` in a label could end the script element.
    serde_json::to_string(&data).unwrap_or_default().replace('<', "\\u003c")
}

fn spans(groups: &[Group]) -> Vec<Span> {
    let mut end_ms = 0;
    let span = |group: &Group| {
        let (from_ms, to_ms) = (whole_ms(group.from_s), whole_ms(group.to_s));
        let span = match from_ms.saturating_sub(end_ms) {
            0 => Span::Adjacent(to_ms.saturating_sub(end_ms)),
            gap_ms => Span::AfterGap(gap_ms, to_ms.saturating_sub(from_ms)),
        };
        end_ms = to_ms;
        span
    };
    groups.iter().map(span).collect()
}

fn series<'a>(line: &'a Line, groups: &[Group], timeline: &Timeline) -> Series<'a> {
    let levels: Vec<_> = groups.iter().map(|group| timeline.level(group, &line.series)).collect();
    let unit = 10_f64.powi((exponent(line.max.unwrap_or(0.0)) + 1 - DIGITS).max(0));
    let all = |pick: fn(&Level) -> f64| {
        levels.iter().map(|level| level.as_ref().map(|level| Short(pick(level) / unit))).collect()
    };
    let has_range = has_range(&levels);
    Series {
        name: &line.name,
        tone: line.tone,
        highest: line.max.unwrap_or(0.0),
        peak: peak(line, timeline).map(|(at_s, value)| (whole_ms(at_s), value)),
        unit,
        mean: all(|level| level.mean),
        min: has_range.then(|| all(|level| level.min)),
        max: has_range.then(|| all(|level| level.max)),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
fn whole_ms(seconds: f64) -> u64 {
    (seconds * 1000.0).round() as u64
}

/// A value to [`DIGITS`] significant digits in few bytes: a page has up to 100,000 of them.
struct Short(f64);

impl Serialize for Short {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value = short(self.0);
        if value.fract() == 0.0 && value.abs() < 1e15 {
            #[expect(clippy::cast_possible_truncation, reason = "a whole number below 10^15")]
            return serializer.serialize_i64(value as i64);
        }
        serializer.serialize_f64(value)
    }
}

fn short(value: f64) -> f64 {
    if !value.is_finite() {
        return 0.0;
    }
    let decimals = DIGITS - 1 - exponent(value);
    let scale = 10_f64.powi(decimals.abs());
    if decimals > 0 { (value * scale).round() / scale } else { (value / scale).round() * scale }
}

/// The decimal exponent of a number; 0 for 0.
#[expect(clippy::cast_possible_truncation, reason = "the exponent of a double")]
fn exponent(value: f64) -> i32 {
    if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_take_few_bytes() {
        let shown = |value| serde_json::to_string(&Short(value)).unwrap();
        let values = [0.0, 1.0, 0.5, 12.345_6, 123_456.0, 1.5e9, 0.000_012_346, -3.25, 9999.96, f64::NAN];
        let expected =
            ["0", "1", "0.5", "12.35", "123500", "1500000000", "0.00001235", "-3.25", "10000", "0"];
        assert_eq!(values.map(shown), expected);
    }

    proptest! {
        #[test]
        fn values_are_exact_to_four_digits(value in prop::num::f64::NORMAL.prop_filter("of a usual size", |value| value.abs() < 1e18 && value.abs() > 1e-9)) {
            let json = serde_json::to_string(&Short(value)).unwrap();
            let read: f64 = serde_json::from_str(&json).unwrap();
            prop_assert!((read - value).abs() <= value.abs() * 0.000_51, "{value} {json}");
        }
    }
}
