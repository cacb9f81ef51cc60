//! The section "Resource usage": the statistics of this run beside those of earlier runs.
//!
//! A statistic that is not defined for a metric is blank. A statistic without a value is "not measured".

use maud::{Markup, html};

use super::{Context, plots};
use crate::human::{self, Scale};
use crate::metric::Metric;
use crate::store::recording::Head;
use crate::store::stats::Stats;
use crate::store::summary::Summary;

/// A row of the table.
struct Figure {
    label: &'static str,
    /// Column in the statistics; empty if the statistics do not have this figure.
    column: &'static str,
    /// Size of the column's unit in base units.
    factor: f64,
    scale: Scale,
    /// The metric whose total excludes the traffic of the tracker.
    network: Option<Metric>,
    /// The total from the summary, for figures whose sum is not in the statistics.
    total: fn(&Summary) -> Option<String>,
}

const KIB: f64 = 1024.0;
const MIB: f64 = 1_048_576.0;
const GIB: f64 = 1_073_741_824.0;

const fn figure(label: &'static str, column: &'static str, factor: f64, scale: Scale) -> Figure {
    Figure { label, column, factor, scale, network: None, total: |_| None }
}

const FIGURES: [Figure; 11] = [
    figure("Duration", "timestamp", 1.0, Scale::Count),
    Figure {
        total: |summary| {
            summary.cpu_seconds().map(|seconds| format!("{} CPU time", human::duration(seconds)))
        },
        ..figure("CPU usage", "process_cpu_usage", 1.0, Scale::Cores)
    },
    figure("Memory", "process_memory", KIB, Scale::Bytes),
    figure("GPU usage", "process_gpu_usage", 1.0, Scale::Cores),
    figure("VRAM", "process_gpu_vram", MIB, Scale::Bytes),
    figure("GPUs in use", "process_gpu_utilized", 1.0, Scale::Count),
    Figure {
        total: |summary| bytes(summary, Metric::ProcessRead),
        ..figure("Disk read", "", 1.0, Scale::Bytes)
    },
    Figure {
        total: |summary| bytes(summary, Metric::ProcessWrite),
        ..figure("Disk write", "", 1.0, Scale::Bytes)
    },
    figure("Disk space used", "system_disk_space_used_gb", GIB, Scale::Bytes),
    Figure {
        network: Some(Metric::NetRecv),
        ..figure("Inbound network traffic", "system_net_recv_bytes", 1.0, Scale::Bytes)
    },
    Figure {
        network: Some(Metric::NetSent),
        ..figure("Outbound network traffic", "system_net_sent_bytes", 1.0, Scale::Bytes)
    },
];

fn bytes(summary: &Summary, metric: Metric) -> Option<String> {
    summary.of(metric).sum().map(|bytes| Scale::Bytes.show(bytes))
}

/// Aggregates of the three columns of the table.
const COLUMNS: [(&str, &[&str]); 3] =
    [("Mean", &["mean"]), ("Max", &["max"]), ("Total", &["sum", "duration"])];

pub(super) fn section(head: &Head, context: &Context) -> Markup {
    html! {
        section aria-labelledby="used" {
            h2 #used { "Resource usage" }
            @match context.summary.stats() {
                Ok(stats) => (table(head, context, &stats)),
                Err(_) => p.empty { "No samples were recorded." }
            }
        }
    }
}

fn table(head: &Head, context: &Context, stats: &Stats) -> Markup {
    let history = Stats::combine(&context.history).ok().filter(|_| !context.history.is_empty());
    let runs = match context.history.len() {
        1 => "Previous run".to_owned(),
        runs => format!("{runs} earlier runs"),
    };
    let has_gpu = plots::has_gpu(head.server_info.as_ref(), &context.summary);
    let figures = FIGURES.iter().filter(|figure| has_gpu || !figure.column.starts_with("process_gpu"));
    html! {
        div.scroll tabindex="0" role="group" aria-label="Statistics" {
            table.figures {
                thead {
                    @if history.is_some() {
                        tr {
                            td {}
                            th scope="colgroup" colspan="3" { "This run" }
                            th scope="colgroup" colspan="3" { (runs) }
                        }
                    }
                    tr {
                        th scope="col" { "Metric" }
                        @for _ in 0..=usize::from(history.is_some()) {
                            @for (name, _) in COLUMNS { th scope="col" { (name) } }
                        }
                    }
                }
                tbody { @for figure in figures { (row(figure, &context.summary, stats, history.as_ref())) } }
            }
        }
        p.note {
            @if history.is_some() {
                "Percentages compare this run with the earlier runs: with the average of their means and durations, and \
                 with the largest of their maxima and totals."
            } @else {
                "No earlier runs of this job to compare with."
            }
        }
    }
}

fn row(figure: &Figure, summary: &Summary, stats: &Stats, history: Option<&Stats>) -> Markup {
    let total = (figure.total)(summary);
    let cells = COLUMNS.map(|(_, aggregates)| {
        let network = figure.network.and_then(|metric| summary.sum_without_tracker(metric));
        let now = cell(figure, stats, aggregates).map(|now| network.or(now));
        let before = history.and_then(|history| cell(figure, history, aggregates));
        let change = now.flatten().zip(before.flatten()).and_then(|(now, before)| change(now, before));
        let shown = match now {
            Some(value) => show(figure, value),
            None => total.clone().filter(|_| aggregates.contains(&"sum")).unwrap_or_default(),
        };
        (shown, change, before.map(|value| show(figure, value)))
    });
    html! {
        @if stats.has(figure.column) || total.is_some() {
            tr {
                th scope="row" { (figure.label) }
                @for (shown, change, _) in &cells {
                    td { (shown) @if let Some(change) = change { small { (change) } } }
                }
                @if history.is_some() {
                    @for (.., before) in &cells { td { (before.as_deref().unwrap_or_default()) } }
                }
            }
        }
    }
}

/// The first of the aggregates in the statistics, in base units. `None`: not defined; `Some(None)`: not measured.
#[expect(clippy::option_option, reason = "undefined and not measured are shown differently")]
fn cell(figure: &Figure, stats: &Stats, aggregates: &[&str]) -> Option<Option<f64>> {
    let mut found = stats
        .iter()
        .filter(|(column, aggregate, _)| *column == figure.column && aggregates.contains(aggregate));
    found.next().map(|(_, _, value)| value.map(|value| value * figure.factor))
}

fn show(figure: &Figure, value: Option<f64>) -> String {
    match value {
        None => "not measured".to_owned(),
        Some(value) if figure.column == "timestamp" => human::duration(value),
        Some(value) => figure.scale.show(value),
    }
}

/// The relative change in percent; `None` if the earlier value is 0.
fn change(now: f64, before: f64) -> Option<String> {
    let percent = (now / before - 1.0) * 100.0;
    match percent {
        percent if !percent.is_finite() => None,
        percent if percent.abs() < 0.5 => Some("±0 %".to_owned()),
        percent => Some(format!("{percent:+.0} %").replace('-', "−")),
    }
}
