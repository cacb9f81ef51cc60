//! The page of a fleet: one HTML file with the looks and the policy of the report of a run, complete without scripts.
//!
//! In:  an [`Overview`]. Out: HTML.
//! Not here: the style, the script that sorts and filters the table, and the skeleton (`report`).

use std::fmt::Write as _;

use maud::{Markup, html};

use super::overview::{Job, Overview, SHARES, Size};
use super::summary::Line;
use crate::human::{self, Scale, Zone};
use crate::report;

/// Jobs in the table; the totals have all.
const MOST_JOBS: usize = 1000;
/// Jobs to resize first.
const MOST_RESIZED: usize = 10;
/// Bars of a trend. Of more days, several share a bar.
const MOST_BARS: usize = 60;
const TREND_HEIGHT: f64 = 20.0;

const HEADS: [&str; 12] = [
    "Runs",
    "Failed",
    "OOM",
    "CPU h requested",
    "Used",
    "Wasted",
    "GiB h requested",
    "Used",
    "Wasted",
    "Cost",
    "Savings",
    "Imbalance",
];

/// The page. `warning` says which runs are missing, `made_at_s` is the date of the page.
pub fn page(overview: &Overview, store: &str, warning: Option<&str>, made_at_s: f64) -> String {
    let totals = totals(&overview.lines);
    let content = html! {
        (header(overview, store, &totals))
        main {
            @if let Some(warning) = warning {
                p.note { "Warning: " bdi { (warning) } }
            }
            (resize(overview))
            (jobs(overview))
            (shares(overview))
        }
        (report::footer(&html! {}, made_at_s, &Zone::utc()))
    };
    report::document("Fleet report", &content)
}

/// The sums of all jobs.
fn totals(lines: &[Line]) -> Line {
    let sum = |of: fn(&Line) -> Option<f64>| lines.iter().filter_map(of).reduce(|sum, value| sum + value);
    Line {
        runs: lines.iter().map(|line| line.runs).sum(),
        failed: lines.iter().map(|line| line.failed).sum(),
        out_of_memory: lines.iter().map(|line| line.out_of_memory).sum(),
        cpu_hours_asked: sum(|line| line.cpu_hours_asked),
        cpu_hours_used: sum(|line| line.cpu_hours_used),
        cpu_hours_wasted: sum(|line| line.cpu_hours_wasted),
        gib_hours_asked: sum(|line| line.gib_hours_asked),
        gib_hours_used: sum(|line| line.gib_hours_used),
        gib_hours_wasted: sum(|line| line.gib_hours_wasted),
        cost_usd: sum(|line| line.cost_usd),
        savings_usd: sum(|line| line.savings_usd),
        ..Line::default()
    }
}

fn header(overview: &Overview, store: &str, totals: &Line) -> Markup {
    let days = match overview.days {
        Some((first, last)) if first == last => format!(", {first}"),
        Some((first, last)) => format!(", {first} to {last}"),
        None => String::new(),
    };
    let used = |used: Option<f64>, asked: Option<f64>| {
        Some(human::percent(used? / asked.filter(|asked| *asked > 0.0)?))
    };
    let wasted =
        |wasted: Option<f64>, unit: &str| wasted.map(|wasted| format!("{} {unit} wasted", hours(wasted)));
    let rate = |count| human::percent(share(count, totals.runs));
    let failed = format!("{} failed, {} out of memory", rate(totals.failed), rate(totals.out_of_memory));
    let savings = totals.savings_usd.map(|usd| format!("{} can be saved", human::usd(usd)));
    let tiles = [
        ("Runs", Some(totals.runs.to_string()).filter(|_| totals.runs > 0), Some(failed)),
        (
            "CPU hours, used",
            used(totals.cpu_hours_used, totals.cpu_hours_asked),
            wasted(totals.cpu_hours_wasted, "CPU h"),
        ),
        (
            "GiB hours, used",
            used(totals.gib_hours_used, totals.gib_hours_asked),
            wasted(totals.gib_hours_wasted, "GiB h"),
        ),
        ("Cost", totals.cost_usd.map(human::usd), savings),
    ];
    html! {
        header {
            p.kind { "resource-tracker fleet report" }
            h1 { bdi { (store) } }
            p.status { (plural(totals.runs, "run")) " of " (plural(overview.lines.len() as u64, "job")) (days) }
            dl.tiles {
                @for (label, value, note) in &tiles {
                    @if let Some(value) = value {
                        div.tile { dt { (label) } dd { b { (value) } span { (note.as_deref().unwrap_or_default()) } } }
                    }
                }
            }
        }
    }
}

/// The jobs whose advice is a smaller request, the most savings first.
fn resize(overview: &Overview) -> Markup {
    let smaller = |asked: Option<f64>, advice: Option<f64>| matches!((asked, advice), (Some(asked), Some(advice)) if advice < asked);
    let is_smaller = |job: &&Job| {
        smaller(job.asked.cpus, job.advice.cpus)
            || smaller(job.asked.gib, job.advice.gib)
            || smaller(job.asked.gpus, job.advice.gpus)
    };
    let first: Vec<(&Line, &Job)> = overview
        .lines
        .iter()
        .filter_map(|line| Some((line, overview.jobs.get(&line.key).filter(is_smaller)?)))
        .take(MOST_RESIZED)
        .collect();
    let month = overview.month();
    let saves = if month.is_some() { "Saves a month" } else { "Saves" };
    let saved = |line: &Line| line.savings_usd.filter(|usd| *usd > 0.0).map(|usd| usd * month.unwrap_or(1.0));
    html! {
        section aria-labelledby="resize" {
            h2 #resize { "Resize these first" }
            @if first.is_empty() {
                p.empty { "No job is known to request more than it needs." }
            } @else {
                div.scroll tabindex="0" role="group" aria-label="Jobs to resize" {
                    table.figures.held {
                        thead {
                            tr {
                                th scope="col" { "Job" }
                                @for head in ["Request next", "Requested", saves, "Wasted CPU h", "Wasted GiB h"] { th scope="col" { (head) } }
                            }
                        }
                        tbody {
                            @for (line, job) in &first {
                                tr {
                                    th scope="row" { (name(line)) }
                                    td { strong { (size(job.advice)) } }
                                    td { (size(job.asked)) }
                                    td { (saved(line).map(human::usd).unwrap_or_default()) }
                                    td { (line.cpu_hours_wasted.map(hours).unwrap_or_default()) }
                                    td { (line.gib_hours_wasted.map(hours).unwrap_or_default()) }
                                }
                            }
                        }
                    }
                }
                p.note {
                    "Requested: the size that the newest run of the job had, for each rank. Savings are estimates by list prices"
                    @if month.is_some() { ", scaled from the " (overview.length_days()) " days shown to 30 days" }
                    "."
                }
            }
        }
    }
}

fn jobs(overview: &Overview) -> Markup {
    let more = overview.lines.len().saturating_sub(MOST_JOBS);
    html! {
        section aria-labelledby="jobs" {
            h2 #jobs { "Jobs" }
            @if overview.lines.is_empty() {
                p.empty { "No runs are in the store." }
            } @else {
                p.filter hidden {
                    label { "Filter jobs " input type="search" autocomplete="off" spellcheck="false"; }
                    " " output.note {}
                }
                div.scroll.full tabindex="0" role="group" aria-label="Jobs" {
                    table.figures.held.sortable {
                        thead {
                            tr {
                                th.by scope="col" { "Job" }
                                th.trend scope="col" { "Trend" }
                                @for head in HEADS { th.by scope="col" { (head) } }
                            }
                        }
                        tbody {
                            @for line in overview.lines.iter().take(MOST_JOBS) {
                                (row(line, overview.jobs.get(&line.key), overview.length_days()))
                            }
                        }
                    }
                }
                p.note {
                    "The trend has the CPU hours of each day: requested, and used in a stronger colour. "
                    "Cost and savings are estimates by list prices. Imbalance is the CPU time of the busiest rank by the mean of all ranks."
                    @if more > 0 { " " (plural(more as u64, "more job")) " with less savings: not in this table, but in the totals." }
                }
            }
        }
    }
}

fn row(line: &Line, job: Option<&Job>, days: usize) -> Markup {
    let rate = |count| Some(share(count, line.runs));
    let cells = [
        (Some(real(line.runs)), line.runs.to_string()),
        (rate(line.failed), human::percent(share(line.failed, line.runs))),
        (rate(line.out_of_memory), human::percent(share(line.out_of_memory, line.runs))),
        shown(line.cpu_hours_asked, hours),
        shown(line.cpu_hours_used, hours),
        shown(line.cpu_hours_wasted, hours),
        shown(line.gib_hours_asked, hours),
        shown(line.gib_hours_used, hours),
        shown(line.gib_hours_wasted, hours),
        shown(line.cost_usd, human::usd),
        shown(line.savings_usd, human::usd),
        shown(line.imbalance, |value| format!("{value:.2}")),
    ];
    html! {
        tr {
            th scope="row" { (name(line)) }
            td.trend { @if let Some(job) = job { (trend(job, days)) } }
            @for (value, text) in &cells {
                @match value {
                    // Four decimals are enough to sort by.
                    Some(value) => td data-value=(format!("{value:.4}")) { (text) },
                    None => td {},
                }
            }
        }
    }
}

fn hours(value: f64) -> String {
    Scale::Hours.show(value)
}

fn shown(value: Option<f64>, show: impl Fn(f64) -> String) -> (Option<f64>, String) {
    (value, value.map(show).unwrap_or_default())
}

/// CPU hours requested and used, a bar for each day.
fn trend(job: &Job, days: usize) -> Markup {
    let days_of_bar = days.div_ceil(MOST_BARS).max(1);
    let mut bars = vec![[0.0; 2]; days.div_ceil(days_of_bar)];
    for (day, hours) in &job.days {
        if let Some(bar) = bars.get_mut(day / days_of_bar) {
            bar.iter_mut().zip(hours).for_each(|(sum, hours)| *sum += hours);
        }
    }
    let highest = bars.iter().flatten().copied().fold(0.0, f64::max);
    if highest <= 0.0 {
        return html! {};
    }
    let path = |which: usize| {
        let mut path = String::new();
        for (at, bar) in bars.iter().enumerate().filter(|(_, bar)| bar[which] > 0.0) {
            let top = TREND_HEIGHT * (1.0 - bar[which] / highest);
            let _ = write!(path, "M{} 20V{:.0}", at * 4 + 2, top.min(19.0));
        }
        path
    };
    let used = job.days.values().fold([0.0; 2], |sum, hours| [sum[0] + hours[0], sum[1] + hours[1]]);
    let share = if used[0] > 0.0 {
        format!(", {} of the CPU hours used", human::percent(used[1] / used[0]))
    } else {
        String::new()
    };
    let label = format!("{} of use{share}", plural(job.days.len() as u64, "day"));
    html! {
        svg.spark viewBox=(format!("0 0 {} 20", bars.len() * 4)) preserveAspectRatio="none" role="img" aria-label=(label) {
            path.asked d=(path(0)) {}
            path.used d=(path(1)) {}
        }
    }
}

/// How much of their requests runs used.
fn shares(overview: &Overview) -> Markup {
    let tables = [("CPU", &overview.cpu_shares), ("Memory, by its peak", &overview.memory_shares)];
    html! {
        @if !overview.lines.is_empty() {
            section aria-labelledby="shares" {
                h2 #shares { "Part of the request that was used" }
                div.cards {
                    @for (title, shares) in tables { div.card { h3 { (title) } (histogram(title, shares)) } }
                }
                p.note { "Runs by the part of their requested CPU hours and GiB hours that they used. Ranks count one by one." }
            }
        }
    }
}

fn histogram(title: &str, shares: &[u64; SHARES]) -> Markup {
    let highest = shares.iter().copied().max().unwrap_or(0);
    let label = |at: usize| {
        if at < SHARES - 1 { format!("{}–{} %", at * 10, at * 10 + 10) } else { "more".to_owned() }
    };
    html! {
        table.histogram {
            caption.unseen { (title) }
            thead { tr { th scope="col" { "Used" } th scope="col" { span.unseen { "Bar" } } th scope="col" { "Runs" } } }
            tbody {
                @for (at, count) in shares.iter().enumerate() {
                    tr {
                        th scope="row" { (label(at)) }
                        td {
                            svg.bar aria-hidden="true" {
                                rect width=(format!("{:.1}%", 100.0 * share(*count, highest))) height="100%" {}
                            }
                        }
                        td { (count) }
                    }
                }
            }
        }
    }
}

fn name(line: &Line) -> Markup {
    html! {
        @match &line.key {
            Some(name) => bdi { (name) },
            None => "(none)",
        }
    }
}

/// `4 CPUs, 16 GiB, 1 GPU`
fn size(size: Size) -> String {
    let count = |value: f64, unit: &str| {
        let ending = if value == 1.0 { "" } else { "s" };
        format!("{} {unit}{ending}", Scale::Count.show(value))
    };
    let parts = [
        size.cpus.map(|cpus| count(cpus, "CPU")),
        size.gib.map(|gib| human::megabytes(gib * 1024.0)),
        size.gpus.filter(|gpus| *gpus > 0.0).map(|gpus| count(gpus, "GPU")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn plural(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// `count` of `all`; 0 of none.
fn share(count: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { real(count) / real(all) }
}

#[expect(clippy::cast_precision_loss, reason = "counts of runs")]
fn real(count: u64) -> f64 {
    count as f64
}
