//! The page from top to bottom, in the order in which a person asks.
//!
//! In:  a recording and its context. Out: HTML. Every text that is not ours goes through [`Text`].
//! Not here: what fills its sections: the recommendation (`advice`), servers and prices (`money`), statistics
//! (`figures`), charts (`chart`).

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::allocation::allocation;
use crate::metric::Metric;
use crate::record::PROGRAM_VERSION;
use crate::recording::{Head, Recording, Run, Status};

use super::html::{Text, text};
use super::{Context, Standing, advice, chart, figures, gpu_table, limits, money, plots};
use crate::human::{self as format, Scale};

const CSS: &str = include_str!("page.css");
const JS: &str = include_str!("page.js");

/// What the browser may load and run: this style and this script, by their hashes, and nothing else.
const POLICY: &str = include_str!("policy.txt");

pub(super) fn render(recording: &Recording, context: &Context) -> String {
    let head = &recording.head;
    let timeline = plots::timeline(recording);
    let plots = timeline.as_ref().map(|timeline| plots::plots(recording, &context.summary, timeline));
    let plots = plots.unwrap_or_default();
    let title = text(&title(head, context));
    let mut html = String::with_capacity(1 << 20);
    let _ = write!(
        html,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>{title} – resource-tracker</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>{CSS}</style>\n</head>\n<body>\n",
        POLICY.trim()
    );
    write_header(&mut html, head, context, &title);
    html.push_str("<main>\n");
    advice::write(&mut html, head, context);
    figures::write(&mut html, head, context);
    gpu_table::write(&mut html, head);
    write_series(&mut html, &plots, timeline.as_ref(), context);
    write_about(&mut html, recording, context);
    html.push_str("</main>\n");
    write_footer(&mut html, context);
    if let Some(timeline) = timeline.as_ref().filter(|_| !plots.is_empty()) {
        let data = chart::data(&plots, timeline, &context.zone);
        let _ = write!(
            html,
            "<script type=\"application/json\" id=\"data\">{data}</script>\n<script>{JS}</script>\n"
        );
    } else {
        let _ = writeln!(html, "<script>{JS}</script>");
    }
    html.push_str("</body>\n</html>\n");
    html
}

/// What the run is called.
fn title(head: &Head, context: &Context) -> String {
    let run = head.run.as_ref();
    let given = context.title.clone().or_else(|| run?.job.clone());
    let command = || run?.command.as_ref().map(|words| words.join(" "));
    let named = given.or_else(command).filter(|name| !name.trim().is_empty());
    let name = named.unwrap_or_else(|| format!("Process {}", head.metadata.pid));
    // A command line can be a page long; it is shown in full below.
    if name.chars().count() > 120 { name.chars().take(119).chain(['…']).collect() } else { name }
}

fn write_header(html: &mut String, head: &Head, context: &Context, title: &str) {
    let (class, word) = match Standing::of(head, context) {
        Standing::Finished => ("good", "Finished"),
        Standing::Pending => ("open", "Pending"),
        Standing::Failed => ("bad", "Failed"),
    };
    let _ = write!(
        html,
        "<header>\n<p class=\"kind\">resource-tracker report</p>\n<h1><bdi>{title}</bdi></h1>\n<p class=\"status\">\
         <strong class=\"badge {class}\">{word}</strong> {}</p>\n",
        Text(&ending(head, context))
    );
    write_tiles(html, head, context);
    let moment = |unix_s: Option<f64>| {
        let moment = context.zone.at(unix_s?)?;
        Some(format!("{} {}", moment.date_time(), context.zone.name()))
    };
    let run = head.run.as_ref();
    let command = run.and_then(|run| run.command.as_ref()).map(|words| words.join(" "));
    let mut facts = Facts::default();
    for (name, value) in &context.names {
        facts.add(name, Some(value));
    }
    facts.code("Command", command.as_deref());
    facts.add("Started", moment(head.metadata.start_time).as_deref());
    let ended = if Standing::of(head, context) == Standing::Pending { "Last seen" } else { "Ended" };
    facts.add(ended, moment(head.metadata.stop_time).as_deref());
    facts.add("Host", run.and_then(|run| run.host.as_deref()));
    facts.add("Process", Some(&head.metadata.pid.to_string()).filter(|pid| *pid != "0").map(String::as_str));
    facts.add("Run", run.and_then(|run| run.id.as_deref()));
    for (key, value) in run.into_iter().flat_map(|run| &run.tags) {
        facts.add(key, Some(value));
    }
    html.push_str("<h2 class=\"unseen\">What ran, and where</h2>\n<div class=\"cards\">\n");
    facts.write(html, "The run");
    write_machine(html, head, context);
    html.push_str("</div>\n</header>\n");
}

/// How it ended, in words.
fn ending(head: &Head, context: &Context) -> String {
    let run = head.run.as_ref();
    let duration = context.summary.duration_s().or(head.metadata.duration);
    let after = duration.map_or_else(String::new, |seconds| format!(" after {}", format::duration(seconds)));
    let signal = run.and_then(|run| run.signal);
    let code = run.and_then(|run| run.exit_code).filter(|code| *code != 0);
    let status = run.and_then(|run| run.status.as_ref());
    match (Standing::of(head, context), status) {
        (Standing::Failed, _) if run.is_some_and(Run::was_killed_for_memory) => {
            let likely = run.and_then(|run| run.oom_kills).is_some_and(|kills| !kills.certain);
            format!("killed{} for memory{after}", if likely { ", most likely" } else { "" })
        }
        (Standing::Failed, _) if signal.is_some() => {
            let signal = signal.unwrap_or_default();
            format!(
                "by signal {signal}{}{after}",
                format::signal_name(signal).map_or_else(String::new, |name| format!(" ({name})"))
            )
        }
        (Standing::Failed, _) => {
            code.map_or_else(|| after.trim().to_owned(), |code| format!("with exit code {code}{after}"))
        }
        (Standing::Pending, Some(Status::Detached)) => {
            format!("tracking was stopped{after}, before the job ended")
        }
        (Standing::Pending, Some(Status::TrackerDied)) => {
            format!("the tracker itself ended{after}, so nobody knows how the job did")
        }
        (Standing::Pending, _) => duration.map_or_else(String::new, |seconds| {
            format!("still running, {} so far", format::duration(seconds))
        }),
        (Standing::Finished, Some(Status::Ended)) => {
            format!("{after}; its exit code is not known").trim().to_owned()
        }
        (Standing::Finished, _) => after.trim().to_owned(),
    }
}

/// The four figures that people look for first.
fn write_tiles(html: &mut String, head: &Head, context: &Context) {
    let summary = &context.summary;
    let had = limits(head);
    let at_most = |value: Option<f64>| value.map(|value| format!("at most {}", Scale::Cores.show(value)));
    let of =
        |value: Option<String>| value.map_or_else(String::new, |value| format!("<small> of {value}</small>"));
    let (cpu, gpu) = (summary.of(Metric::ProcessCpu), summary.of(Metric::ProcessGpu));
    let memory_mean = summary.of(Metric::ProcessMemory).mean();
    let rows = match summary.rows() {
        1 => "one sample".to_owned(),
        rows => format!("{rows} samples, one every {}", format::duration(head.metadata.interval)),
    };
    let last = match context.cost(None).current {
        Some(cost) => (
            "Cost here",
            Some(format::usd(cost.usd)),
            Some(format!("{} an hour", format::usd(cost.usd_per_hour))),
        ),
        None if plots::has_gpu(head.server_info.as_ref(), summary) => {
            ("GPU, mean", gpu.mean().map(|mean| Scale::Cores.show(mean)), at_most(gpu.max()))
        }
        None => ("CPU time", summary.cpu_seconds().map(format::duration), Some("user and system".to_owned())),
    };
    let tiles = [
        ("Duration", summary.duration_s().map(format::duration), Some(rows)),
        (
            "CPU, mean",
            cpu.mean().map(|mean| {
                Scale::Cores.show(mean) + &of(had.cpu_cores.map(|cores| Scale::Count.show(cores)))
            }),
            at_most(cpu.max()),
        ),
        (
            "Memory, peak",
            summary
                .memory_peak_kib()
                .map(|kib| Scale::Bytes.show(kib * 1024.0) + &of(had.memory_mb.map(format::megabytes))),
            memory_mean.map(|kib| format!("{} on average", Scale::Bytes.show(kib * 1024.0))),
        ),
        last,
    ];
    if tiles.iter().all(|(_, value, _)| value.is_none()) {
        return;
    }
    html.push_str("<dl class=\"tiles\">\n");
    for (label, value, note) in tiles {
        let Some(value) = value else { continue };
        let note = note.unwrap_or_default();
        let _ = writeln!(
            html,
            "<div class=\"tile\"><dt>{label}</dt><dd><b>{value}</b><span>{note}</span></dd></div>"
        );
    }
    html.push_str("</dl>\n");
}

fn write_machine(html: &mut String, head: &Head, context: &Context) {
    let info = head.server_info.as_ref();
    let number = |key| plots::number(info, key);
    let word = |key: &str| {
        info.and_then(|info| info.get(key)).and_then(Value::as_str).filter(|word| !word.is_empty())
    };
    let limited = |all: Option<String>, allowed: Option<String>| match (all, allowed) {
        (Some(all), Some(allowed)) => Some(format!("{all}, {allowed} of them allowed")),
        (all, allowed) => all.or_else(|| allowed.map(|allowed| format!("{allowed} allowed"))),
    };
    let mut facts = Facts::default();
    facts.add(
        "CPUs",
        limited(
            number("vcpus").map(|n| Scale::Count.show(n)),
            number("cpu_limit").map(|n| Scale::Count.show(n)),
        )
        .as_deref(),
    );
    facts.add(
        "Memory",
        limited(number("memory_mb").map(format::megabytes), number("memory_limit_mb").map(format::megabytes))
            .as_deref(),
    );
    facts.add("GPUs", gpus(info).as_deref());
    facts.add(
        "Used by",
        word("allocation").or_else(|| Some(allocation(&context.summary)?.name())).map(|word| match word {
            "dedicated" => "this job alone (dedicated)",
            "shared" => "others too (shared)",
            other => other,
        }),
    );
    facts.add("System", word("os"));
    money::add_cloud(&mut facts, head, context);
    facts.write(html, "The machine");
}

fn gpus(info: Option<&Map<String, Value>>) -> Option<String> {
    let count = plots::number(info, "gpu_count")?;
    let names = info?.get("gpu_names").and_then(Value::as_array);
    let mut names: Vec<&str> = names.into_iter().flatten().filter_map(Value::as_str).collect();
    names.dedup();
    let vram = plots::number(info, "gpu_memory_mb").map(|mb| format!(", {}", format::megabytes(mb)));
    Some(format!("{} {}{}", Scale::Count.show(count), names.join(", "), vram.unwrap_or_default()))
}

fn write_series(
    html: &mut String,
    plots: &[plots::Plot],
    timeline: Option<&super::timeline::Timeline>,
    context: &Context,
) {
    html.push_str("<section aria-labelledby=\"series\">\n<h2 id=\"series\">Over time</h2>\n");
    let Some(timeline) = timeline.filter(|_| !plots.is_empty()) else {
        html.push_str(
            "<p class=\"empty\">No sample was recorded, so there is nothing to draw.</p>\n</section>\n",
        );
        return;
    };
    let _ = write!(
        html,
        "<div class=\"controls\"><p class=\"note\">Times are {}. <span class=\"help\">Drag to zoom, double-click to reset; \
         arrow keys move the cursor; a click on a name hides its series.</span></p>\
         <button type=\"button\" id=\"reset\" hidden>Reset zoom</button></div>\n<div class=\"charts\">\n",
        Text(&context.zone.name())
    );
    for plot in plots {
        chart::figure(html, plot, timeline, &context.zone);
    }
    html.push_str("</div>\n</section>\n");
}

/// How it was measured.
fn write_about(html: &mut String, recording: &Recording, context: &Context) {
    let head = &recording.head;
    let run = head.run.as_ref();
    let summary = &context.summary;
    let mut facts = Facts::default();
    facts.add("Counted by", run.and_then(|run| run.cpu_source.as_deref()));
    let coverage = run.and_then(|run| run.coverage).or_else(|| summary.coverage());
    facts.add(
        "Seen in processes",
        coverage.map(|share| format!("{} of the CPU time", format::percent(share))).as_deref(),
    );
    let own = summary.of(Metric::TrackerCpu).sum();
    let memory = summary.of(Metric::TrackerMemory).max();
    let memory =
        memory.map_or_else(String::new, |kib| format!(", {} of memory", Scale::Bytes.show(kib * 1024.0)));
    facts.add(
        "The tracker itself",
        own.map(|seconds| {
            format!("{} of CPU time{memory}, not in the job's figures", format::duration(seconds))
        })
        .as_deref(),
    );
    let missed = summary.of(Metric::MissedTicks).sum().filter(|missed| *missed > 0.0);
    facts.add("Missed samples", missed.map(|missed| Scale::Count.show(missed)).as_deref());
    let software = &head.metadata.resource_tracker;
    let version = Some(format!("{} ({})", software.version, software.implementation));
    facts.add("Recorded by", version.filter(|_| !software.version.is_empty()).as_deref());
    let notes = run.map(|run| run.notes.as_slice()).unwrap_or_default();
    if facts.is_empty() && notes.is_empty() {
        return;
    }
    html.push_str("<section aria-labelledby=\"about\">\n<h2 id=\"about\">How it was measured</h2>\n<div class=\"cards\">\n");
    facts.write(html, "Sources");
    if !notes.is_empty() {
        html.push_str("<div class=\"card\"><h3>Notes</h3><ul class=\"weak\">");
        for note in notes {
            let _ = write!(html, "<li>{}</li>", Text(note));
        }
        html.push_str("</ul></div>\n");
    }
    html.push_str("</div>\n</section>\n");
}

fn write_footer(html: &mut String, context: &Context) {
    // As people write them; what is not known here is shown as it was given.
    let known = ["R", "Metaflow", "Python"]
        .into_iter()
        .find(|known| known.eq_ignore_ascii_case(&context.integration));
    let from = match known.unwrap_or(&context.integration) {
        name if name.is_empty() || name.eq_ignore_ascii_case("standalone") => String::new(),
        name => format!(" from <code>{}</code>", Text(name)),
    };
    let moment = context.zone.at(context.made_at);
    let when = moment.map(|moment| format!(", {} {}", moment.date_time(), context.zone.name()));
    let _ = writeln!(
        html,
        "<footer>Made by <code>resource-tracker</code> {PROGRAM_VERSION}{from}{}.</footer>",
        Text(&when.unwrap_or_default())
    );
}

/// Names and values, in a card.
#[derive(Default)]
pub(super) struct Facts {
    rows: Vec<(String, String)>,
}

impl Facts {
    /// A fact as text, if it is known.
    pub(super) fn add(&mut self, name: &str, value: Option<&str>) {
        let value = value.filter(|value| !value.trim().is_empty());
        self.rows.extend(value.map(|value| (text(name), format!("<bdi>{}</bdi>", Text(value)))));
    }

    fn code(&mut self, name: &str, value: Option<&str>) {
        self.rows.extend(value.map(|value| (text(name), format!("<code>{}</code>", Text(value)))));
    }

    fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn write(&self, html: &mut String, title: &str) {
        if self.rows.is_empty() {
            let _ = writeln!(
                html,
                "<div class=\"card\"><h3>{title}</h3><p class=\"empty\">Nothing is known.</p></div>"
            );
            return;
        }
        let _ = write!(html, "<div class=\"card\"><h3>{title}</h3><dl class=\"facts\">");
        for (name, value) in &self.rows {
            let _ = write!(html, "<div><dt>{name}</dt><dd>{value}</dd></div>");
        }
        html.push_str("</dl></div>\n");
    }
}
