//! The top of the page: title, status, main figures, and facts about the run and its machine.

use maud::{Markup, html};
use serde_json::{Map, Value};

use super::facts::Facts;
use super::{Context, Standing, money, plots};
use crate::analysis::allocation::allocation;
use crate::human::{self, Scale};
use crate::metric::Metric;
use crate::store::recording::head::server_number;
use crate::store::recording::{Head, Run, Status};

pub(super) fn header(head: &Head, context: &Context, title: &str) -> Markup {
    let (class, word) = match Standing::of(head, context) {
        Standing::Finished => ("good", "Finished"),
        Standing::Pending => ("open", "Pending"),
        Standing::TrackerDied => ("bad", "Tracker died"),
        Standing::Failed => ("bad", "Failed"),
    };
    html! {
        header {
            p.kind { "resource-tracker report" }
            h1 { bdi { (title) } }
            p.status { strong.badge.(class) { (word) } " " (ending(head, context)) }
            (why(context))
            (tiles(head, context))
            h2.unseen { "Run and machine" }
            div.cards { (run_facts(head, context)) (machine_facts(head, context)) }
        }
    }
}

/// The exit and duration of the run.
fn ending(head: &Head, context: &Context) -> String {
    let run = head.run.as_ref();
    let duration = context.summary.duration_s().or(head.metadata.duration).map(human::duration);
    let after = duration.as_ref().map_or_else(String::new, |duration| format!("after {duration}"));
    let words = match (Standing::of(head, context), run.and_then(|run| run.status.as_ref())) {
        (Standing::Failed, _) if run.is_some_and(Run::was_killed_for_memory) => {
            let is_certain = run.and_then(|run| run.oom_kills).is_none_or(|kills| kills.certain);
            format!("killed ({}out of memory) {after}", if is_certain { "" } else { "probably " })
        }
        (Standing::Failed, _) => match run.map(|run| (run.signal, run.exit_code)) {
            Some((Some(signal), _)) => {
                let name = human::signal_name(signal).map_or_else(String::new, |name| format!(" ({name})"));
                format!("ended by signal {signal}{name} {after}")
            }
            Some((None, Some(code))) if code != 0 => format!("with exit code {code} {after}"),
            _ => after,
        },
        (Standing::Pending, Some(Status::Detached)) => {
            format!("tracking stopped {after}, before the job ended")
        }
        (Standing::TrackerDied, _) => format!("{after}; the result of the job is unknown"),
        (Standing::Pending, _) => duration.map_or_else(String::new, |time| format!("running for {time}")),
        (Standing::Finished, Some(Status::Ended)) => format!("{after}; exit code unknown"),
        (Standing::Finished, _) => after,
    };
    words.trim().to_owned()
}

/// Why the run failed, and the evidence.
fn why(context: &Context) -> Markup {
    let Some(verdict) = &context.verdict else { return html! {} };
    html! {
        div.why {
            p { strong { (verdict.message) } @if let Some(next) = &verdict.next { " Next: " (next) "." } }
            @if !verdict.evidence.is_empty() {
                ul { @for fact in &verdict.evidence { li { bdi { (fact) } } } }
            }
        }
    }
}

/// The four main figures.
fn tiles(head: &Head, context: &Context) -> Markup {
    let summary = &context.summary;
    let had = head.limits();
    let cores = |value: f64| Scale::Cores.show(value);
    let kib = |value: f64| Scale::Bytes.show(value * 1024.0);
    let peak = |value: Option<f64>| value.map(|value| format!("peak {}", cores(value)));
    let (cpu, gpu) = (summary.of(Metric::ProcessCpu), summary.of(Metric::ProcessGpu));
    let samples = match summary.rows() {
        1 => "1 sample".to_owned(),
        rows => format!("{rows} samples, {} interval", human::duration(head.metadata.interval)),
    };
    let mean_memory = summary.memory_mean_kib().map(|mean| format!("mean {}", kib(mean)));
    let last = match context.cost(None).current {
        Some(cost) => {
            let per_hour = format!("{}/h", human::usd(cost.usd_per_hour));
            ("Cost of this run", Some(human::usd(cost.usd)), None, Some(per_hour))
        }
        None if plots::has_gpu(head.server_info.as_ref(), summary) => {
            ("GPU, mean", gpu.mean().map(cores), None, peak(gpu.max()))
        }
        None => {
            let spent = summary.cpu_seconds().map(human::duration);
            ("CPU time", spent, None, Some("user and system".to_owned()))
        }
    };
    let tiles = [
        ("Duration", summary.duration_s().map(human::duration), None, Some(samples)),
        (
            "CPU, mean",
            cpu.mean().map(cores),
            had.cpu_cores.map(|cpus| Scale::Count.show(cpus)),
            peak(cpu.max()),
        ),
        (
            "Memory, peak",
            summary.memory_peak_kib().map(kib),
            had.memory_mb.map(human::megabytes),
            mean_memory,
        ),
        last,
    ];
    html! {
        @if tiles.iter().any(|(_, value, ..)| value.is_some()) {
            dl.tiles {
                @for (label, value, limit, note) in &tiles {
                    @if let Some(value) = value {
                        div.tile {
                            dt { (label) }
                            dd {
                                b { (value) @if let Some(limit) = limit { small { " of " (limit) } } }
                                span { (note.as_deref().unwrap_or_default()) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn run_facts(head: &Head, context: &Context) -> Facts {
    let moment = |unix_s: Option<f64>| {
        let moment = context.zone.at(unix_s?)?;
        Some(format!("{} {}", moment.date_time(), context.zone.name()))
    };
    let run = head.run.as_ref();
    let mut facts = Facts::new("Run");
    for (name, value) in &context.names {
        facts.add(name, Some(value));
    }
    let command = run.and_then(|run| run.command.as_ref());
    facts.add_code("Command", command.map(|words| words.join(" ")));
    facts.add_code("Error", run.and_then(|run| run.error.clone()));
    facts.add("Started", moment(head.metadata.start_time));
    let is_open = matches!(Standing::of(head, context), Standing::Pending | Standing::TrackerDied);
    facts.add(if is_open { "Last sample" } else { "Ended" }, moment(head.metadata.stop_time));
    facts.add("Host", run.and_then(|run| run.host.as_deref()));
    facts.add("Process", Some(head.metadata.pid.to_string()).filter(|pid| pid != "0"));
    facts.add("Run id", run.and_then(|run| run.id.as_deref()));
    for (key, value) in run.into_iter().flat_map(|run| &run.tags) {
        facts.add(key, Some(value));
    }
    facts
}

fn machine_facts(head: &Head, context: &Context) -> Facts {
    let info = head.server_info.as_ref();
    let number = |key| server_number(info, key);
    let word = |key: &str| info?.get(key)?.as_str().filter(|word| !word.is_empty());
    let limited = |machine: Option<f64>, limit: Option<f64>, show: &dyn Fn(f64) -> String| match limit {
        Some(limit) => {
            let machine = machine.map_or_else(String::new, |machine| format!("{}, ", show(machine)));
            Some(format!("{machine}limited to {}", show(limit)))
        }
        None => machine.map(show),
    };
    let mut facts = Facts::new("Machine");
    facts.add("CPUs", limited(number("vcpus"), number("cpu_limit"), &|cpus| Scale::Count.show(cpus)));
    facts.add("Memory", limited(number("memory_mb"), number("memory_limit_mb"), &human::megabytes));
    facts.add("GPUs", gpus(info));
    let allocation = word("allocation").or_else(|| Some(allocation(&context.summary)?.name()));
    let allocation = allocation.map(|word| match word {
        "dedicated" => "dedicated to this job",
        "shared" => "shared with other jobs",
        other => other,
    });
    facts.add("Allocation", allocation);
    facts.add("System", word("os"));
    money::add_cloud(&mut facts, head, context);
    facts
}

fn gpus(info: Option<&Map<String, Value>>) -> Option<String> {
    let count = server_number(info, "gpu_count")?;
    let names = info?.get("gpu_names").and_then(Value::as_array);
    let mut names: Vec<&str> = names.into_iter().flatten().filter_map(Value::as_str).collect();
    names.dedup();
    let vram = server_number(info, "gpu_memory_mb").map(|mb| format!(", {}", human::megabytes(mb)));
    Some(format!("{} {}{}", Scale::Count.show(count), names.join(", "), vram.unwrap_or_default()))
}
