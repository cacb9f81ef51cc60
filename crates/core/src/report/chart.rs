//! A chart as SVG and as a table, complete without any script.
//!
//! In:  a [`Plot`] and the time axis. Out: a `<figure>`; and the same numbers as JSON for `page.js`, which draws
//!      again when the reader zooms.
//!
//! Text in a drawing that is stretched to the page's width would be stretched too. So the drawing is stretched but
//! its strokes are not, and text stands in drawings beside it in which all places are percentages. No `style`
//! attribute is needed, which the page's policy would refuse.

use std::fmt::Write as _;

use super::axis::{self, Side};
use super::html::Text;
use super::plots::{Line, Plot};
use super::timeline::{Group, Level, Timeline};
use crate::human::Zone;

/// Steps of a series that are drawn at first: about one for two pixels of a usual chart.
const DRAWN: usize = 480;

/// Steps of a series that the page holds for zooming.
pub(super) const HELD: usize = 3600;

/// Size of the drawing in its own units, whatever it is stretched to.
const WIDTH: f64 = 4000.0;
const HEIGHT: f64 = 1000.0;

/// A limit further above the data than this would press them flat.
const LIMIT_IN_SIGHT: f64 = 3.0;

/// Digits that count, of values that the page holds: as many as it ever shows.
const DIGITS: i32 = 4;

/// Writes the figure.
pub(super) fn figure(html: &mut String, plot: &Plot, timeline: &Timeline, zone: &Zone) {
    let groups = timeline.reduce(DRAWN);
    let side = axis::side(plot.scale, highest(plot));
    let canvas = Canvas { length_s: timeline.length_s, top: side.top };
    let Plot { id, title, .. } = plot;
    let _ = write!(
        html,
        "<figure class=\"chart\" id=\"chart-{id}\"><figcaption><h3>{title}</h3><span class=\"unit\">{}</span>",
        side.unit
    );
    let limits: Vec<&str> = plot.limits.iter().map(|limit| limit.label.as_str()).collect();
    let _ = write!(
        html,
        "<span class=\"limits\">{}</span></figcaption>\n<div class=\"plot\">",
        Text(&limits.join(", "))
    );
    write_side(html, &side);
    let _ = write!(
        html,
        "<svg class=\"area\" role=\"img\" aria-label=\"{}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\">",
        Text(&spoken(plot, timeline, zone))
    );
    let _ = write!(
        html,
        "<path class=\"grid\" d=\"{}\"/>",
        rules(side.marks.iter().map(|(share, _)| whole((1.0 - share) * HEIGHT)))
    );
    // The machine first, so that the job is drawn over it.
    for (number, line) in plot.lines.iter().enumerate().rev() {
        write_line(html, line, number, &canvas, &groups, timeline);
    }
    let inside: Vec<_> = plot.limits.iter().filter(|limit| limit.value <= side.top).collect();
    let drawn = rules(inside.iter().map(|limit| canvas.y(limit.value)));
    let _ =
        write!(html, "<path class=\"limit\" d=\"{drawn}\"/></svg><svg class=\"over\" aria-hidden=\"true\">");
    for limit in inside {
        let from_top = 100.0 * (1.0 - limit.value / side.top);
        let _ = write!(
            html,
            "<text class=\"limit-label\" x=\"100%\" y=\"{from_top:.2}%\" dx=\"-6\" dy=\"{}\">{}</text>",
            if from_top < 10.0 { 13 } else { -5 },
            Text(&limit.label)
        );
    }
    html.push_str("</svg>");
    html.push_str("<svg class=\"x\" aria-hidden=\"true\">");
    for (number, (share, label)) in axis::bottom(zone, timeline.start, timeline.length_s).iter().enumerate() {
        let class = if number % 2 == 1 { " class=\"odd\"" } else { "" };
        let _ = write!(html, "<text{class} x=\"{:.2}%\" y=\"15\">{label}</text>", share * 100.0);
    }
    html.push_str("</svg></div>\n");
    write_table(html, plot);
    html.push_str("</figure>\n");
}

/// Lines from left to right.
fn rules(heights: impl Iterator<Item = i32>) -> String {
    heights.fold(String::new(), |mut path, y| {
        let _ = write!(path, "M0 {y}H{WIDTH}");
        path
    })
}

/// What has to fit into the chart.
fn highest(plot: &Plot) -> f64 {
    let data = plot.lines.iter().filter_map(|line| line.max).fold(0.0, f64::max);
    let limits = plot.limits.iter().map(|limit| limit.value);
    limits.filter(|limit| *limit <= data * LIMIT_IN_SIGHT).fold(data, f64::max)
}

fn write_side(html: &mut String, side: &Side) {
    html.push_str("<svg class=\"y\" aria-hidden=\"true\">");
    for (share, label) in &side.marks {
        let _ = write!(
            html,
            "<text x=\"100%\" y=\"{:.2}%\" dx=\"-8\" dy=\"4\">{label}</text>",
            100.0 * (1.0 - share)
        );
    }
    html.push_str("</svg>");
}

fn write_line(
    html: &mut String,
    line: &Line,
    number: usize,
    canvas: &Canvas,
    groups: &[Group],
    timeline: &Timeline,
) {
    let levels: Vec<_> = groups.iter().map(|group| timeline.level(group, &line.series)).collect();
    let runs = runs(groups, &levels);
    let _ = write!(html, "<g class=\"series tone{}\" data-series=\"{number}\">", line.tone);
    if line.tone == 0 {
        let _ = write!(html, "<path class=\"fill\" d=\"{}\"/>", canvas.fill(&runs));
    }
    if levels.iter().flatten().any(|level| level.min < level.max) {
        let _ = write!(html, "<path class=\"band\" d=\"{}\"/>", canvas.band(&runs));
    }
    let _ = write!(html, "<path class=\"line\" d=\"{}\"/>", canvas.steps(&runs, |level| level.mean));
    if let Some((at_s, value)) = peak(line, timeline) {
        // A line of no length with round ends is a dot, and stays round in a stretched drawing.
        let _ = write!(html, "<path class=\"peak\" d=\"M{} {}h0\"/>", canvas.x(at_s), canvas.y(value));
    }
    html.push_str("</g>");
}

/// Where the maximum of the statistics is: in the middle of its row, and how high.
fn peak(line: &Line, timeline: &Timeline) -> Option<(f64, f64)> {
    Some((timeline.middle_s(line.peak_row?)?, line.max?))
}

/// Groups without a gap between them, with their levels.
fn runs<'a>(groups: &'a [Group], levels: &[Option<Level>]) -> Vec<Vec<(&'a Group, Level)>> {
    let mut runs: Vec<Vec<(&Group, Level)>> = Vec::new();
    let mut end_s = f64::NEG_INFINITY;
    for (group, level) in groups.iter().zip(levels) {
        let Some(level) = level else { continue };
        match runs.last_mut() {
            Some(run) if group.from_s <= end_s => run.push((group, *level)),
            _ => runs.push(vec![(group, *level)]),
        }
        end_s = group.to_s;
    }
    runs
}

type Run<'a> = Vec<(&'a Group, Level)>;

/// From seconds and values to places in the drawing.
struct Canvas {
    length_s: f64,
    top: f64,
}

impl Canvas {
    fn x(&self, seconds: f64) -> i32 {
        whole(seconds / self.length_s * WIDTH)
    }

    fn y(&self, value: f64) -> i32 {
        whole((1.0 - value / self.top) * HEIGHT)
    }

    /// One step a group: across its time at its height.
    fn steps(&self, runs: &[Run<'_>], height: impl Fn(&Level) -> f64) -> String {
        let mut path = String::new();
        for run in runs {
            let mut pen = None;
            for (group, level) in run {
                let (x, y) = (self.x(group.to_s), self.y(height(level)));
                let (at_x, at_y) = *pen.get_or_insert_with(|| {
                    let start = (self.x(group.from_s), y);
                    let _ = write!(path, "M{} {}", start.0, start.1);
                    start
                });
                if y != at_y {
                    let _ = write!(path, "v{}", y - at_y);
                }
                let _ = write!(path, "h{}", x - at_x);
                pen = Some((x, y));
            }
        }
        path
    }

    /// The same, closed along the bottom.
    fn fill(&self, runs: &[Run<'_>]) -> String {
        let close = |run: &Run<'_>| {
            let from = run.first().map_or(0, |(group, _)| self.x(group.from_s));
            format!("{}V{HEIGHT}H{from}z", self.steps(std::slice::from_ref(run), |level| level.mean))
        };
        runs.iter().map(close).collect()
    }

    /// From the most of each group to the least: there and back.
    fn band(&self, runs: &[Run<'_>]) -> String {
        let mut path = String::new();
        for run in runs {
            path += &self.steps(std::slice::from_ref(run), |level| level.max);
            let mut at_x = run.last().map_or(0, |(group, _)| self.x(group.to_s));
            for (group, level) in run.iter().rev() {
                let from = self.x(group.from_s);
                let _ = write!(path, "V{}h{}", self.y(level.min), from - at_x);
                at_x = from;
            }
            path.push('z');
        }
        path
    }
}

#[expect(clippy::cast_possible_truncation, reason = "places within the drawing; `as` stops at the ends")]
fn whole(place: f64) -> i32 {
    place.round() as i32
}

/// The chart for those who cannot see it.
fn spoken(plot: &Plot, timeline: &Timeline, zone: &Zone) -> String {
    let clock =
        |seconds: f64| zone.at(timeline.start + seconds).map_or_else(String::new, |moment| moment.clock());
    let mut text = format!("{} from {} to {}.", plot.title, clock(0.0), clock(timeline.length_s));
    for line in &plot.lines {
        let show =
            |value: Option<f64>| value.map_or_else(|| "unknown".to_owned(), |value| plot.scale.show(value));
        let _ = write!(text, " {}: mean {}, highest {}.", line.name, show(line.mean), show(line.max));
    }
    text
}

fn write_table(html: &mut String, plot: &Plot) {
    let totals = plot.lines.iter().any(|line| line.total.is_some());
    let _ = write!(
        html,
        "<table class=\"legend\"><caption class=\"unseen\">{}: figures of each series</caption><thead><tr>\
         <th scope=\"col\">Series</th><th scope=\"col\" class=\"now\">At cursor</th><th scope=\"col\">Mean</th>\
         <th scope=\"col\">Max</th>{}</tr></thead><tbody>",
        plot.title,
        if totals { "<th scope=\"col\">Total</th>" } else { "" }
    );
    for (number, line) in plot.lines.iter().enumerate() {
        let show = |value: Option<f64>| value.map_or_else(String::new, |value| plot.scale.show(value));
        let _ = write!(
            html,
            "<tr data-series=\"{number}\"><th scope=\"row\"><span class=\"key tone{}\"><span>{}</span></span></th>\
             <td class=\"now\"></td><td>{}</td><td>{}</td>",
            line.tone,
            Text(&line.name),
            show(line.mean),
            show(line.max),
        );
        if totals {
            let total = line.total.map_or_else(String::new, |total| crate::human::Scale::Bytes.show(total));
            let _ = write!(html, "<td>{total}</td>");
        }
        html.push_str("</tr>");
    }
    html.push_str("</tbody></table>\n");
}

/// The numbers behind all charts, for `page.js`. Numbers and our own names only: nothing of the run's text.
pub(super) fn data(plots: &[Plot], timeline: &Timeline, zone: &Zone) -> String {
    let groups = timeline.reduce(HELD);
    let mut json = format!(
        "{{\"start\":{},\"offset\":{},\"length\":{},\"spans\":[",
        timeline.start, zone.offset_s, timeline.length_s
    );
    // Where each span starts if not at the end of the one before, and how long it is, in ms.
    let mut end_ms = 0;
    for (number, group) in groups.iter().enumerate() {
        let (from_ms, to_ms) = (whole_ms(group.from_s), whole_ms(group.to_s));
        let comma = if number > 0 { "," } else { "" };
        let _ = match from_ms.saturating_sub(end_ms) {
            0 => write!(json, "{comma}{}", to_ms.saturating_sub(end_ms)),
            gap_ms => write!(json, "{comma}[{gap_ms},{}]", to_ms.saturating_sub(from_ms)),
        };
        end_ms = to_ms;
    }
    json.push_str("],\"charts\":[");
    for (number, plot) in plots.iter().enumerate() {
        let comma = if number > 0 { "," } else { "" };
        let _ =
            write!(json, "{comma}{{\"id\":\"{}\",\"scale\":\"{}\",\"limits\":[", plot.id, plot.scale.key());
        let limits: Vec<String> = plot
            .limits
            .iter()
            .map(|limit| serde_json::json!([limit.value, limit.label]).to_string())
            .collect();
        let _ = write!(json, "{}],\"series\":[", limits.join(","));
        for (number, line) in plot.lines.iter().enumerate() {
            json.push_str(if number > 0 { ",{" } else { "{" });
            write_series(&mut json, line, &groups, timeline);
            json.push('}');
        }
        json.push_str("]}");
    }
    json.push_str("]}");
    // Nothing in it can end the script element, whatever a label may one day hold.
    json.replace('<', "\\u003c")
}

fn write_series(json: &mut String, line: &Line, groups: &[Group], timeline: &Timeline) {
    let levels: Vec<_> = groups.iter().map(|group| timeline.level(group, &line.series)).collect();
    let _ = write!(
        json,
        "\"name\":\"{}\",\"tone\":{},\"highest\":{}",
        line.name,
        line.tone,
        line.max.unwrap_or(0.0)
    );
    if let Some((at_s, value)) = peak(line, timeline) {
        let _ = write!(json, ",\"peak\":[{},{value}]", whole_ms(at_s));
    }
    let mut write_all = |name: &str, pick: fn(&Level) -> f64| {
        let _ = write!(json, ",\"{name}\":[");
        for (number, level) in levels.iter().enumerate() {
            if number > 0 {
                json.push(',');
            }
            match level {
                Some(level) => write_number(json, pick(level)),
                None => json.push_str("null"),
            }
        }
        json.push(']');
    };
    write_all("mean", |level| level.mean);
    if levels.iter().flatten().any(|level| level.min < level.max) {
        write_all("min", |level| level.min);
        write_all("max", |level| level.max);
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` stops at the ends")]
fn whole_ms(seconds: f64) -> u64 {
    (seconds * 1000.0).round() as u64
}

/// A number to [`DIGITS`] digits in as few bytes as JSON allows: there are a hundred thousand of them.
fn write_number(json: &mut String, value: f64) {
    if value == 0.0 || !value.is_finite() {
        json.push('0');
        return;
    }
    let exponent = whole(value.abs().log10().floor());
    let mut power = exponent + 1 - DIGITS;
    let mut mantissa = whole(value / 10_f64.powi(power));
    while mantissa % 10 == 0 && mantissa != 0 {
        mantissa /= 10;
        power += 1;
    }
    let _ = match power {
        0 => write!(json, "{mantissa}"),
        1 => write!(json, "{mantissa}0"),
        2 => write!(json, "{mantissa}00"),
        -4..0 => {
            let unit = 10_i32.pow(power.unsigned_abs());
            let sign = if mantissa < 0 { "-" } else { "" };
            let digits = mantissa.unsigned_abs() as usize;
            let unit = unit.unsigned_abs() as usize;
            write!(
                json,
                "{sign}{}.{:0width$}",
                digits / unit,
                digits % unit,
                width = power.unsigned_abs() as usize
            )
        }
        _ => write!(json, "{mantissa}e{power}"),
    };
}

#[cfg(test)]
mod tests {
    use super::super::timeline::{Clock, Series};
    use super::*;
    use proptest::prelude::*;

    fn timeline(timestamps: &[f64]) -> Timeline {
        let clock = Clock { timestamps, elapsed_s: None, start_time: Some(0.0), interval_s: 1.0 };
        Timeline::new(&clock).unwrap()
    }

    fn steps(timeline: &Timeline, values: &[f64], top: f64) -> String {
        let groups = timeline.reduce(DRAWN);
        let series = Series { by_row: values.to_vec(), ..Series::default() };
        let levels: Vec<_> = groups.iter().map(|group| timeline.level(group, &series)).collect();
        let canvas = Canvas { length_s: timeline.length_s, top };
        canvas.steps(&runs(&groups, &levels), |level| level.mean)
    }

    #[test]
    fn a_row_is_a_step_and_what_was_not_measured_a_gap() {
        let timeline = timeline(&[1.0, 2.0, 3.0, 4.0]);
        assert_eq!(
            steps(&timeline, &[0.0, 2.0, f64::NAN, 1.0], 2.0),
            "M0 1000h1000v-1000h1000M3000 500h1000"
        );
    }

    #[test]
    fn a_part_row_is_drawn_to_scale() {
        assert_eq!(steps(&timeline(&[1.0, 1.25]), &[1.0, 0.0], 1.0), "M0 0h3200v1000h800");
    }

    #[test]
    fn a_band_goes_there_along_the_most_and_back_along_the_least() {
        let timeline = timeline(&[1.0, 2.0]);
        let groups = timeline.reduce(2);
        let levels = [(1.0, 3.0), (2.0, 4.0)].map(|(min, max)| Some(Level { min, mean: 2.0, max }));
        let canvas = Canvas { length_s: 2.0, top: 4.0 };
        let runs = runs(&groups, &levels);
        assert_eq!(canvas.band(&runs), "M0 250h2000v-250h2000V500h-2000V750h-2000z");
        assert_eq!(canvas.fill(&runs), "M0 500h2000h2000V1000H0z");
    }

    #[test]
    fn numbers_take_few_bytes() {
        let shown = |value| {
            let mut json = String::new();
            write_number(&mut json, value);
            json
        };
        let values =
            [0.0, 1.0, 0.5, 12.345_6, 123_456.0, 1.5e9, 0.000_012_346, -3.25, 100.0, 9999.96, f64::NAN];
        assert_eq!(
            values.map(shown),
            ["0", "1", "0.5", "12.35", "123500", "15e8", "1235e-8", "-3.25", "100", "1e4", "0"]
        );
    }

    proptest! {
        /// What the page holds is JSON, and as exact as it is shown.
        #[test]
        fn numbers_survive(value in prop::num::f64::NORMAL.prop_filter("of any size met", |value| value.abs() < 1e18 && value.abs() > 1e-9)) {
            let mut json = String::new();
            write_number(&mut json, value);
            let read: f64 = serde_json::from_str(&json).unwrap();
            prop_assert!((read - value).abs() <= value.abs() * 0.000_51, "{value} {json}");
        }
    }
}
