//! The phases of a run as bands behind every chart, and the table of what they used.
//!
//! In:  the marks and phases of a run, the length of the time axis. Out: [`Band`]s in the order of time, and a section.
//! Many phases are merged into bands without a name, so that a chart has about [`MOST_BANDS`] of them.

use maud::{Markup, html};

use super::folded_table::{folded_table, heading};
use crate::sampler::marks::START;
use crate::store::recording::Head;

const MOST_BANDS: usize = 100;
/// The name of a band with several phases.
const SEVERAL: &str = "…";
/// Characters of a name over the whole width of a chart, and the shortest name worth drawing.
const CHARS_PER_WIDTH: f64 = 70.0;
const FEWEST_CHARS: usize = 3;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Band {
    pub(super) from_s: f64,
    pub(super) to_s: f64,
    pub(super) name: String,
}

/// The bands of a run; empty without marks.
pub(super) fn bands(head: &Head, length_s: f64) -> Vec<Band> {
    let Some(run) = head.run.as_ref().filter(|run| !run.marks.is_empty()) else { return Vec::new() };
    let mut bands = vec![Band { from_s: 0.0, to_s: length_s, name: START.to_owned() }];
    for mark in &run.marks {
        let from_s = mark.seconds.clamp(0.0, length_s);
        if let Some(last) = bands.last_mut() {
            last.to_s = from_s.max(last.from_s);
        }
        bands.push(Band { from_s, to_s: length_s, name: mark.name.clone() });
    }
    // Marks beyond the stored ones are only in the statistics.
    let began: u64 = run.phases.iter().map(|phase| phase.times).sum();
    if began > bands.len() as u64
        && let Some(last) = bands.last_mut()
    {
        SEVERAL.clone_into(&mut last.name);
    }
    bands.retain(|band| band.to_s > band.from_s);
    if bands.len() > MOST_BANDS { merge(bands, length_s) } else { bands }
}

/// Joins neighbouring bands that are too short to be seen. Half of the bands can be long, and lie between joined ones.
#[expect(clippy::cast_precision_loss, reason = "a small constant")]
fn merge(bands: Vec<Band>, length_s: f64) -> Vec<Band> {
    let is_short = |band: &Band| band.to_s - band.from_s < length_s * 2.0 / MOST_BANDS as f64;
    let mut merged: Vec<(Band, bool)> = Vec::new();
    for band in bands {
        let short = is_short(&band);
        match merged.last_mut() {
            Some((last, true)) if short => {
                last.to_s = band.to_s;
                SEVERAL.clone_into(&mut last.name);
            }
            _ => merged.push((band, short)),
        }
    }
    merged.into_iter().map(|(band, _)| band).collect()
}

/// The names of bands that are wide enough, with their place as a share of the width.
pub(super) fn labels(bands: &[Band], length_s: f64) -> Vec<(f64, String)> {
    let label = |band: &Band| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 70")]
        let room = ((band.to_s - band.from_s) / length_s * CHARS_PER_WIDTH) as usize;
        let is_cut = band.name.chars().count() > room;
        let name: String =
            band.name.chars().take(if is_cut { room.saturating_sub(1) } else { room }).collect();
        (room >= FEWEST_CHARS).then(|| (band.from_s / length_s, if is_cut { name + SEVERAL } else { name }))
    };
    bands.iter().filter_map(label).collect()
}

/// The section "Phases": a table with a row for each phase. Empty without marks.
pub(super) fn section(head: &Head) -> Markup {
    let Some(run) = &head.run else { return Markup::default() };
    let rows = run.phase_table();
    html! {
        @if !rows.is_empty() {
            section aria-labelledby="phases" {
                h2 #phases { "Phases" }
                (folded_table(&rows, "Phases"))
                @if let Some(sentence) = run.phase_sentence() { p.note { (heading(&sentence.replace('`', ""))) "." } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::sampler::phases::PlacedMark;
    use crate::store::recording::Run;

    fn head(marks: Vec<PlacedMark>) -> Head {
        Head::new(&Config::default(), 1, 0.0, Run { marks, ..Run::default() })
    }

    fn mark(seconds: f64, name: &str) -> PlacedMark {
        PlacedMark { seconds, name: name.to_owned() }
    }

    #[test]
    fn bands_cover_the_time_axis() {
        assert_eq!(bands(&head(Vec::new()), 10.0), []);
        let bands =
            bands(&head(vec![mark(2.0, "load"), mark(4.0, "a very long name"), mark(99.0, "late")]), 10.0);
        let shown: Vec<_> = bands.iter().map(|band| (band.from_s, band.to_s, band.name.as_str())).collect();
        assert_eq!(shown, [(0.0, 2.0, "start"), (2.0, 4.0, "load"), (4.0, 10.0, "a very long name")]);
        assert_eq!(labels(&bands, 100.0), [(0.04, "a v…".to_owned())]);
    }

    #[test]
    fn many_short_phases_are_merged_and_long_ones_keep_their_names() {
        let mut marks: Vec<_> =
            (0..900_u32).map(|at| mark(f64::from(at) / 100.0, &format!("{}", at % 7))).collect();
        marks.push(mark(9.0, "long"));
        let bands = bands(&head(marks), 10.0);
        assert!(bands.len() <= MOST_BANDS, "{}", bands.len());
        let shown: Vec<_> = bands.iter().map(|band| (band.to_s, band.name.as_str())).collect();
        assert_eq!(shown, [(9.0, SEVERAL), (10.0, "long")]);
    }
}
