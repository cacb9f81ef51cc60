//! "What it used": the statistics of this run beside those of earlier ones.
//!
//! In:  the statistics. Out: a table; figures that the statistics do not have are left blank, those that were never
//!      measured are said to be so.

use std::fmt::Write as _;

use crate::metric::Metric;
use crate::recording::Head;
use crate::stats::{Stats, aggregate_stats};
use crate::summary::Summary;

use super::{Context, plots};
use crate::human::{self as format, Scale};

/// A row of the table: a column of the statistics, or what else the summary knows of its total.
struct Figure {
    label: &'static str,
    column: &'static str,
    /// What one unit of the column is in base units.
    factor: f64,
    scale: Scale,
    total: fn(&Summary) -> Option<String>,
}

const KIB: f64 = 1024.0;
const MIB: f64 = 1_048_576.0;
const GIB: f64 = 1_073_741_824.0;

const fn figure(label: &'static str, column: &'static str, factor: f64, scale: Scale) -> Figure {
    Figure { label, column, factor, scale, total: |_| None }
}

const FIGURES: [Figure; 11] = [
    figure("Duration", "timestamp", 1.0, Scale::Count),
    Figure {
        total: |summary| summary.cpu_seconds().map(|seconds| format!("{} of CPU", format::duration(seconds))),
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
    figure("Inbound network traffic", "system_net_recv_bytes", 1.0, Scale::Bytes),
    figure("Outbound network traffic", "system_net_sent_bytes", 1.0, Scale::Bytes),
];

fn bytes(summary: &Summary, metric: Metric) -> Option<String> {
    summary.of(metric).sum().map(|bytes| Scale::Bytes.show(bytes))
}

/// Writes the section.
pub(super) fn write(html: &mut String, head: &Head, context: &Context) {
    html.push_str("<section aria-labelledby=\"used\">\n<h2 id=\"used\">What it used</h2>\n");
    let Ok(stats) = context.summary.stats() else {
        html.push_str(
            "<p class=\"empty\">No sample was recorded, so there are no figures.</p>\n</section>\n",
        );
        return;
    };
    let history = aggregate_stats(&context.history).ok().filter(|_| !context.history.is_empty());
    let runs = match context.history.len() {
        1 => "The run before".to_owned(),
        runs => format!("{runs} earlier runs"),
    };
    html.push_str(
        "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"Statistics\"><table class=\"figures\"><thead>\n",
    );
    let columns = "<th scope=\"col\">Mean</th><th scope=\"col\">Max</th><th scope=\"col\">Total</th>";
    if history.is_some() {
        let _ = writeln!(
            html,
            "<tr><td></td><th scope=\"colgroup\" colspan=\"3\">This run</th><th scope=\"colgroup\" colspan=\"3\">{runs}</th></tr>"
        );
    }
    let again = if history.is_some() { columns } else { "" };
    let _ = writeln!(html, "<tr><th scope=\"col\">Figure</th>{columns}{again}</tr></thead><tbody>");
    let gpu = plots::has_gpu(head.server_info.as_ref(), &context.summary);
    for figure in FIGURES.iter().filter(|figure| gpu || !figure.column.starts_with("process_gpu")) {
        write_row(html, figure, &context.summary, &stats, history.as_ref());
    }
    html.push_str("</tbody></table></div>\n");
    html.push_str(if history.is_some() {
        "<p class=\"note\">Percentages are against the earlier runs, of which means and durations are averaged, maxima and \
         sums are the largest.</p>\n"
    } else {
        "<p class=\"note\">There are no earlier runs of this job to compare with.</p>\n"
    });
    html.push_str("</section>\n");
}

fn write_row(html: &mut String, figure: &Figure, summary: &Summary, stats: &Stats, history: Option<&Stats>) {
    let other = (figure.total)(summary);
    if !stats.has(figure.column) && other.is_none() {
        return;
    }
    let _ = write!(html, "<tr><th scope=\"row\">{}</th>", figure.label);
    for aggregates in [&["mean"][..], &["max"], &["sum", "duration"]] {
        let now = cell(figure, stats, aggregates);
        let before = history.and_then(|history| cell(figure, history, aggregates)).flatten();
        let change = now.flatten().zip(before).and_then(|(now, before)| change(now, before));
        let shown = match now {
            Some(value) => shown(figure, value),
            None => other.clone().filter(|_| aggregates.contains(&"sum")).unwrap_or_default(),
        };
        let _ = write!(html, "<td>{shown}{}</td>", change.unwrap_or_default());
    }
    if let Some(history) = history {
        for aggregates in [&["mean"][..], &["max"], &["sum", "duration"]] {
            let value = cell(figure, history, aggregates);
            let _ = write!(html, "<td>{}</td>", value.map_or_else(String::new, |value| shown(figure, value)));
        }
    }
    html.push_str("</tr>\n");
}

/// The first of these aggregates that the statistics have: unmeasured (`Some(None)`), or a value in base units.
#[expect(clippy::option_option, reason = "not asked for and not measured are shown differently")]
fn cell(figure: &Figure, stats: &Stats, aggregates: &[&str]) -> Option<Option<f64>> {
    let mut found = stats
        .iter()
        .filter(|(column, aggregate, _)| *column == figure.column && aggregates.contains(aggregate));
    found.next().map(|(_, _, value)| value.map(|value| value * figure.factor))
}

fn shown(figure: &Figure, value: Option<f64>) -> String {
    match value {
        None => "not measured".to_owned(),
        Some(value) if figure.column == "timestamp" => format::duration(value),
        Some(value) => figure.scale.show(value),
    }
}

/// By how much it went up or down, where that can be said.
fn change(now: f64, before: f64) -> Option<String> {
    let percent = (now / before - 1.0) * 100.0;
    let shown = match percent {
        percent if !percent.is_finite() => return None,
        percent if percent.abs() < 0.5 => "±0".to_owned(),
        percent => format!("{percent:+.0}").replace('-', "−"),
    };
    Some(format!("<small>{shown} %</small>"))
}
