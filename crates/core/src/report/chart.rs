//! One chart as SVG, with a table of its figures. Complete without scripts.
//!
//! In:  a [`Plot`] and the time axis. Out: a `<figure>`. `page.js` redraws it from `data` on zoom.
//!
//! The drawing is stretched to the width of the page, and `vector-effect` keeps its strokes unstretched. Text would be
//! stretched, so it is in separate drawings beside and over the first, with all positions in percent. This needs no
//! `style` attribute, which the policy of the page forbids.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::axis::{self, Side};
use super::bands::{self, Band};
use super::plots::{Line, Plot};
use super::timeline::{Group, Level, Timeline};
use crate::human::{Scale, Zone};

/// Steps per series in the first drawing: about one for two pixels.
const DRAWN: usize = 480;

/// Size of the drawing in its own units.
pub(super) const WIDTH: f64 = 4000.0;
pub(super) const HEIGHT: f64 = 1000.0;

/// A limit is part of the chart up to this multiple of the data. A higher limit would flatten the data.
pub(super) const LIMIT_IN_SIGHT: f64 = 3.0;

pub(super) fn figure(plot: &Plot, timeline: &Timeline, bands: &[Band], zone: &Zone) -> Markup {
    let groups = timeline.reduce(DRAWN);
    let side = axis::side(plot.scale, highest(plot));
    let canvas = Canvas { length_s: timeline.length_s, top: side.top };
    let labels: Vec<&str> = plot.limits.iter().map(|limit| limit.label.as_str()).collect();
    let inside: Vec<_> = plot.limits.iter().filter(|limit| limit.value <= side.top).collect();
    let grid = rules(side.marks.iter().map(|(share, _)| whole((1.0 - share) * HEIGHT)));
    let percent = |share: f64| format!("{:.2}%", share * 100.0);
    html! {
        figure.chart id={ "chart-" (plot.id) } {
            figcaption {
                h3 { (plot.title) }
                span.unit { (side.unit) }
                span.limits { (labels.join(", ")) }
            }
            div.plot {
                (side_labels(&side))
                svg.area role="img" aria-label=(spoken(plot, timeline, zone))
                    viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" {
                    @if !bands.is_empty() { path.phase d=(canvas.shade(bands)) {} }
                    path.grid d=(grid) {}
                    // The job is last, so that it is drawn over the machine.
                    @for (number, line) in plot.lines.iter().enumerate().rev() {
                        (series(line, number, &canvas, &groups, timeline))
                    }
                    path.limit d=(rules(inside.iter().map(|limit| canvas.y(limit.value)))) {}
                }
                svg.over aria-hidden="true" {
                    @for (share, name) in bands::labels(bands, timeline.length_s) {
                        text.phase-label x=(percent(share)) dx="4" dy="12" { (name) }
                    }
                    @for limit in &inside {
                        @let from_top = 1.0 - limit.value / side.top;
                        @let dy = if from_top < 0.1 { 13 } else { -5 };
                        text.limit-label x="100%" y=(percent(from_top)) dx="-6" dy=(dy) { (limit.label) }
                    }
                }
                svg.x aria-hidden="true" {
                    @for (number, (share, label)) in axis::bottom(zone, timeline.start, timeline.length_s).iter().enumerate() {
                        text.odd[number % 2 == 1] x=(percent(*share)) y="15" { (label) }
                    }
                }
            }
            (table(plot))
        }
    }
}

/// Horizontal lines across the drawing.
fn rules(heights: impl Iterator<Item = i32>) -> String {
    heights.fold(String::new(), |mut path, y| {
        let _ = write!(path, "M0 {y}H{WIDTH}");
        path
    })
}

/// The highest value that the chart has to show.
fn highest(plot: &Plot) -> f64 {
    let data = plot.lines.iter().filter_map(|line| line.max).fold(0.0, f64::max);
    let limits = plot.limits.iter().map(|limit| limit.value);
    limits.filter(|limit| *limit <= data * LIMIT_IN_SIGHT).fold(data, f64::max)
}

fn side_labels(side: &Side) -> Markup {
    html! {
        svg.y aria-hidden="true" {
            @for (share, label) in &side.marks {
                text x="100%" y=(format_args!("{:.2}%", 100.0 * (1.0 - share))) dx="-8" dy="4" { (label) }
            }
        }
    }
}

fn series(line: &Line, number: usize, canvas: &Canvas, groups: &[Group], timeline: &Timeline) -> Markup {
    let levels: Vec<_> = groups.iter().map(|group| timeline.level(group, &line.series)).collect();
    let runs = runs(groups, &levels);
    html! {
        g.series.{ "tone" (line.tone) } data-series=(number) {
            @if line.tone == 0 { path.fill d=(canvas.fill(&runs)) {} }
            @if has_range(&levels) { path.band d=(canvas.band(&runs)) {} }
            path.line d=(canvas.steps(&runs, |level| level.mean)) {}
            @if let Some((at_s, value)) = peak(line, timeline) {
                // A line of length 0 with round caps is a dot, and stays round in a stretched drawing.
                path.peak d={ "M" (canvas.x(at_s)) " " (canvas.y(value)) "h0" } {}
            }
        }
    }
}

pub(super) fn has_range(levels: &[Option<Level>]) -> bool {
    levels.iter().flatten().any(|level| level.min < level.max)
}

/// Time and value of the maximum in the statistics. The time is the middle of the row with the maximum.
pub(super) fn peak(line: &Line, timeline: &Timeline) -> Option<(f64, f64)> {
    Some((timeline.middle_s(line.peak_row?)?, line.max?))
}

/// Splits the groups at gaps, with their levels.
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

/// Converts seconds and values to positions in the drawing.
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

    /// Every second phase as an area.
    fn shade(&self, bands: &[Band]) -> String {
        bands.iter().skip(1).step_by(2).fold(String::new(), |mut path, band| {
            let (from, to) = (self.x(band.from_s), self.x(band.to_s));
            let _ = write!(path, "M{from} 0H{to}V{HEIGHT}H{from}z");
            path
        })
    }

    /// A step line: one horizontal stroke per group.
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

    /// The area under the step line.
    fn fill(&self, runs: &[Run<'_>]) -> String {
        let close = |run: &Run<'_>| {
            let from = run.first().map_or(0, |(group, _)| self.x(group.from_s));
            format!("{}V{HEIGHT}H{from}z", self.steps(std::slice::from_ref(run), |level| level.mean))
        };
        runs.iter().map(close).collect()
    }

    /// The area between the maximum and the minimum of each group.
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

#[expect(clippy::cast_possible_truncation, reason = "positions in the drawing; `as` saturates")]
fn whole(place: f64) -> i32 {
    place.round() as i32
}

/// The chart in words, for screen readers.
fn spoken(plot: &Plot, timeline: &Timeline, zone: &Zone) -> String {
    let clock =
        |seconds: f64| zone.at(timeline.start + seconds).map_or_else(String::new, |moment| moment.clock());
    let show =
        |value: Option<f64>| value.map_or_else(|| "unknown".to_owned(), |value| plot.scale.show(value));
    let mut text = format!("{} from {} to {}.", plot.title, clock(0.0), clock(timeline.length_s));
    for line in &plot.lines {
        let _ = write!(text, " {}: mean {}, max {}.", line.name, show(line.mean), show(line.max));
    }
    text
}

fn table(plot: &Plot) -> Markup {
    let show = |value: Option<f64>, scale: Scale| value.map_or_else(String::new, |value| scale.show(value));
    let totals = plot.lines.iter().any(|line| line.total.is_some());
    html! {
        table.legend {
            caption.unseen { (plot.title) ": figures of each series" }
            thead {
                tr {
                    th scope="col" { "Series" }
                    th.now scope="col" { "At cursor" }
                    th scope="col" { "Mean" }
                    th scope="col" { "Max" }
                    @if totals { th scope="col" { "Total" } }
                }
            }
            tbody {
                @for (number, line) in plot.lines.iter().enumerate() {
                    tr data-series=(number) {
                        th scope="row" { span.key.{ "tone" (line.tone) } { span { (line.name) } } }
                        td.now {}
                        td { (show(line.mean, plot.scale)) }
                        td { (show(line.max, plot.scale)) }
                        @if totals { td { (show(line.total, Scale::Bytes)) } }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::timeline::{Clock, Series};
    use super::*;

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
    fn unmeasured_row_is_a_gap_between_steps() {
        let timeline = timeline(&[1.0, 2.0, 3.0, 4.0]);
        assert_eq!(
            steps(&timeline, &[0.0, 2.0, f64::NAN, 1.0], 2.0),
            "M0 1000h1000v-1000h1000M3000 500h1000"
        );
    }

    #[test]
    fn short_row_is_drawn_to_scale() {
        assert_eq!(steps(&timeline(&[1.0, 1.25]), &[1.0, 0.0], 1.0), "M0 0h3200v1000h800");
    }

    #[test]
    fn every_second_phase_is_shaded() {
        let band = |from_s: f64, to_s: f64| Band { from_s, to_s, name: String::new() };
        let canvas = Canvas { length_s: 10.0, top: 1.0 };
        assert_eq!(canvas.shade(&[band(0.0, 2.0), band(2.0, 4.0), band(4.0, 10.0)]), "M800 0H1600V1000H800z");
    }

    #[test]
    fn band_is_the_area_between_maximum_and_minimum() {
        let timeline = timeline(&[1.0, 2.0]);
        let groups = timeline.reduce(2);
        let levels = [(1.0, 3.0), (2.0, 4.0)].map(|(min, max)| Some(Level { min, mean: 2.0, max }));
        let canvas = Canvas { length_s: 2.0, top: 4.0 };
        let runs = runs(&groups, &levels);
        assert_eq!(canvas.band(&runs), "M0 250h2000v-250h2000V500h-2000V750h-2000z");
        assert_eq!(canvas.fill(&runs), "M0 500h2000h2000V1000H0z");
    }
}
