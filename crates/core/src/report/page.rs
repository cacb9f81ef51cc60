//! The skeleton of the page: head, sections in reading order, footer, script.
//!
//! In:  a recording and its context. Out: HTML.
//! Not here: the contents of the sections (`header`, `advice`, `figures`, `gpu_table`, `chart`).

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::bands::{self, Band};
use super::facts::Facts;
use super::plots::Plot;
use super::timeline::Timeline;
use super::{
    Context, advice, chart, data, figures, gpu_table, header, plots, program_table, stood_out, title, waits,
};
use crate::PROGRAM_VERSION;
use crate::human::{self, Scale, Zone};
use crate::metric::Metric;
use crate::store::recording::Recording;

const CSS: &str = include_str!("page.css");
const JS: &str = include_str!("page.js");

/// The Content-Security-Policy: this style and this script by their hashes, and nothing else.
const POLICY: &str = include_str!("policy.txt");

pub(super) fn render(recording: &Recording, context: &Context) -> String {
    let head = &recording.head;
    let timeline = plots::timeline(recording);
    let plots = timeline.as_ref().map(|timeline| plots::plots(recording, &context.summary, timeline));
    let charts = timeline.zip(plots).filter(|(_, plots)| !plots.is_empty());
    let bands =
        charts.as_ref().map(|(timeline, _)| bands::bands(head, timeline.length_s)).unwrap_or_default();
    let title = title::title(head, context);
    let plots_of = charts.iter().flat_map(|(_, plots)| plots);
    let ids: Vec<String> = plots_of
        .map(|plot| format!("chart-{}", plot.id))
        .chain(["waits", "programs"].map(str::to_owned))
        .collect();
    let content = html! {
        (header::header(head, context, &title))
        main {
            (advice::section(head, context))
            (stood_out::section(recording, context, &ids))
            (figures::section(head, context))
            (waits::section(head, context))
            (gpu_table::section(head))
            (program_table::section(head))
            (bands::section(head))
            (series(charts.as_ref(), &bands, context))
            (about(recording, context))
        }
        (footer(&integration(context), context.made_at, &context.zone))
        @if let Some((timeline, plots)) = &charts {
            script type="application/json" id="data" { (PreEscaped(data::json(plots, timeline, &bands, &context.zone))) }
        }
    };
    document(&title, &content)
}

/// A page with this title and content, which needs no network.
pub fn document(title: &str, content: &Markup) -> String {
    let html = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="generator" content="resource-tracker";
                meta http-equiv="Content-Security-Policy" content=(POLICY.trim());
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                title { (title) " – resource-tracker" }
                link rel="icon" href="data:,";
                style { (PreEscaped(CSS)) }
            }
            body {
                (content)
                script { (PreEscaped(JS)) }
            }
        }
    };
    printable(html.into_string()) + "\n"
}

/// Replaces characters that HTML forbids even when escaped: control characters and noncharacters.
fn printable(html: String) -> String {
    let is_allowed = |letter: char| {
        let code = u32::from(letter);
        let is_noncharacter = (0xfdd0..=0xfdef).contains(&code) || code & 0xfffe == 0xfffe;
        matches!(letter, '\n' | '\t') || !letter.is_control() && !is_noncharacter
    };
    if html.chars().all(is_allowed) {
        return html;
    }
    html.chars().map(|letter| if is_allowed(letter) { letter } else { '\u{fffd}' }).collect()
}

fn series(charts: Option<&(Timeline, Vec<Plot>)>, bands: &[Band], context: &Context) -> Markup {
    html! {
        section aria-labelledby="series" {
            h2 #series { "Usage over time" }
            @if let Some((timeline, plots)) = charts {
                div.controls {
                    p.note {
                        "Time zone: " (context.zone.name()) ". "
                        span.help {
                            "Drag to zoom, double-click to reset. Arrow keys move the cursor. Click a name to hide its series."
                        }
                    }
                    button #reset type="button" hidden { "Reset zoom" }
                }
                div.charts {
                    @for plot in plots { (chart::figure(plot, timeline, bands, &context.zone)) }
                }
            } @else {
                p.empty { "No samples were recorded." }
            }
        }
    }
}

/// Sources and quality of the measurement.
fn about(recording: &Recording, context: &Context) -> Markup {
    let run = recording.head.run.as_ref();
    let summary = &context.summary;
    let mut facts = Facts::new("Sources");
    facts.add("CPU time source", run.and_then(|run| run.cpu_source.as_deref()));
    let coverage = run.and_then(|run| run.coverage).or_else(|| summary.coverage());
    let covered = |share| format!("{} of the CPU time is attributed to processes", human::percent(share));
    facts.add("Coverage", coverage.map(covered));
    let memory = summary.of(Metric::TrackerMemory).max();
    let memory =
        memory.map_or_else(String::new, |kib| format!(", {} memory", Scale::Bytes.show(kib * 1024.0)));
    let overhead = summary.of(Metric::TrackerCpu).sum().map(|seconds| {
        format!("{} CPU time{memory}; not included in the job's figures", human::duration(seconds))
    });
    facts.add("Tracker overhead", overhead);
    let missed = summary.of(Metric::MissedTicks).sum().filter(|missed| *missed > 0.0);
    facts.add("Missed samples", missed.map(|missed| Scale::Count.show(missed)));
    let software = &recording.head.metadata.resource_tracker;
    let version = Some(format!("{} ({})", software.version, software.implementation));
    facts.add("Tracker version", version.filter(|_| !software.version.is_empty()));
    let notes = run.map(|run| run.notes.as_slice()).unwrap_or_default();
    html! {
        @if !facts.is_empty() || !notes.is_empty() {
            section aria-labelledby="about" {
                h2 #about { "Measurement details" }
                div.cards {
                    (facts)
                    @if !notes.is_empty() {
                        div.card {
                            h3 { "Notes" }
                            ul.weak { @for note in notes { li { (note) } } }
                        }
                    }
                }
            }
        }
    }
}

/// Name and version of the program that makes the report, if it is not the command.
fn integration(context: &Context) -> Markup {
    let given = context.integration.as_str();
    let known = ["R", "Metaflow", "Python"].into_iter().find(|known| known.eq_ignore_ascii_case(given));
    let name = known.unwrap_or(given);
    let is_named = !name.is_empty() && !name.eq_ignore_ascii_case("standalone");
    html! {
        @if is_named {
            " from " code { (name) }
            @if let Some(version) = &context.integration_version { " " (version) }
        }
    }
}

pub fn footer(from: &Markup, made_at_s: f64, zone: &Zone) -> Markup {
    html! {
        footer {
            "Generated by " code { "resource-tracker" } " " (PROGRAM_VERSION) (from)
            @if let Some(moment) = zone.at(made_at_s) { ", " (moment.date_time()) " " (zone.name()) }
            "."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forbidden_characters_are_replaced() {
        let shown = printable("a\0b\u{1b}[31m\u{fffe}\t\u{fdd0}\r\nz".to_owned());
        assert_eq!(shown, "a\u{fffd}b\u{fffd}[31m\u{fffd}\t\u{fffd}\u{fffd}\nz");
    }
}
