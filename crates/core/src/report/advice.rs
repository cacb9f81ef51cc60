//! The section "Recommended resources": the request for the next run, its reasons, snippets to copy, servers that fit.

use maud::{Markup, html};

use super::{Context, Standing, money};
use crate::analysis::recommend::{Advice, Warning};
use crate::analysis::requests::Requests;
use crate::human;
use crate::metric::Metric;
use crate::store::recording::{Head, Status};

/// Snippets that are shown at once; the others unfold.
const FIRST_SNIPPETS: usize = 2;

pub(super) fn section(head: &Head, context: &Context) -> Markup {
    html! {
        section aria-labelledby="size" {
            h2 #size { "Recommended resources" }
            @match &context.advice {
                Ok(advice) => {
                    div.cards.size {
                        (request(head, context, advice))
                        (copyable(&advice.request.requests(head.run.as_ref())))
                        (what_if(context))
                        (money::servers(context))
                    }
                }
                Err(error) => p.empty { "No recommendation: " (error) "." }
            }
        }
    }
}

fn request(head: &Head, context: &Context, advice: &Advice) -> Markup {
    // Metaflow tells the status beside the recording.
    let beside = match Standing::of(head, context) {
        Standing::Failed if context.failed => Some(Status::Failed),
        Standing::Pending if context.running => Some(Status::Running),
        _ => None,
    };
    let beside = beside.map(|status| Warning::Incomplete { status });
    let own = advice
        .warnings
        .iter()
        .filter(|warning| beside.is_none() || !matches!(warning, Warning::Incomplete { .. }));
    let warnings: Vec<String> = beside.iter().chain(own).map(ToString::to_string).collect();
    html! {
        div.card {
            h3 { "Request for the next run" }
            dl.needs { (needs(head, context, advice)) }
            @if let Some(requested) = &context.requested {
                p.note { "Requested for this run: " code { (requested) } }
            }
            (list("Reliability", &warnings))
        }
    }
}

fn needs(head: &Head, context: &Context, advice: &Advice) -> Markup {
    let (request, had) = (&advice.request, head.limits());
    let mean_cores = context.summary.of(Metric::ProcessCpu).mean();
    let cpu_share = mean_cores.zip(had.cpu_cores).map(|(mean, had)| mean / had);
    let peak_mib = context.summary.memory_peak_kib().map(|kib| kib / 1024.0);
    let memory_share = peak_mib.zip(had.memory_mb).map(|(peak, had)| peak / had);
    // Earlier runs may have had other machines, so a share is always that of this run.
    let used = |share: Option<f64>, what: &str| {
        share.map_or_else(String::new, |share| {
            format!(" ({} of the available {what} used)", human::percent(share))
        })
    };
    let cpu = advice.cpu.as_ref().map_or("", |cpu| cpu.why.as_str());
    let memory_why = advice.memory.as_ref().map_or("", |memory| memory.why.as_str());
    html! {
        (need("CPU", &count(request.cpu, "CPU"), &format!("{cpu}{}", used(cpu_share, "CPUs")), cpu_share))
        (need("Memory", &memory(request.memory_mb), &format!("{memory_why}{}", used(memory_share, "memory")), memory_share))
        @if let Some(gpu) = &advice.gpu {
            (need("GPU", &count(request.gpu, "GPU"), &gpu.why, None))
            @if request.vram_mb > 0 {
                (need("VRAM", &memory(request.vram_mb), "1.2 × the peak, rounded up", None))
            }
        }
    }
}

/// Predicted time and cost with 1, 2, 4, … CPUs.
fn what_if(context: &Context) -> Markup {
    if context.what_if.is_empty() {
        return Markup::default();
    }
    html! {
        div.card.wide {
            h3 { "Time and cost by number of CPUs" }
            div.scroll tabindex="0" role="group" aria-label="Time and cost by number of CPUs" {
                table.figures {
                    thead {
                        tr {
                            th scope="col" { "CPUs" }
                            th scope="col" { "Predicted time" }
                            th.word scope="col" { "Cheapest server" }
                            th scope="col" { "Cost of a run" }
                            th.word scope="col" { "Best" }
                        }
                    }
                    tbody {
                        @for row in &context.what_if {
                            tr {
                                th scope="row" { (row.cpus) }
                                td { (human::duration(row.predicted_seconds)) }
                                td.word { @if let Some(server) = &row.server { (server.vendor_id) " " bdi { (server.name) } } }
                                td { @if let Some(usd) = row.cost_usd { (human::usd(usd)) } }
                                td.word { (row.marks()) }
                            }
                        }
                    }
                }
            }
            p.note { "The prediction assumes the same work and the same waiting times as in this run. It does not know how fast each server is." }
        }
    }
}

fn need(label: &str, value: &Markup, reason: &str, share: Option<f64>) -> Markup {
    html! {
        div {
            dt { (label) }
            dd {
                b { (value) }
                @if let Some(share) = share {
                    svg.bar aria-hidden="true" {
                        rect width={ (format_args!("{:.1}", (share * 100.0).clamp(0.5, 100.0))) "%" } height="100%" {}
                    }
                }
                span { (reason) }
            }
        }
    }
}

fn count(number: u32, unit: &str) -> Markup {
    html! { (number) " " (unit) @if number != 1 { "s" } }
}

/// A recommended size: whole GiB where possible, else MiB.
fn memory(mb: u32) -> Markup {
    html! {
        @if mb.is_multiple_of(1024) { (mb / 1024) " GiB " small { (mb) " MiB" } } @else { (mb) " MiB" }
    }
}

fn list(title: &str, lines: &[String]) -> Markup {
    html! {
        @if !lines.is_empty() {
            h4 { (title) }
            ul.weak { @for line in lines { li { (line) } } }
        }
    }
}

fn copyable(requests: &Requests) -> Markup {
    let named = requests.named();
    let (first, others) = named.split_at(named.len().min(FIRST_SNIPPETS));
    let names: Vec<&str> = others.iter().map(|(name, _)| *name).collect();
    html! {
        div.card {
            h3 { "Snippets to copy" }
            @for (name, text) in first { (snippet(name, text)) }
            @if !others.is_empty() {
                details {
                    summary { (names.join(", ")) }
                    @for (name, text) in others { (snippet(name, text)) }
                }
            }
        }
    }
}

fn snippet(name: &str, text: &str) -> Markup {
    html! {
        div.snippet {
            h4 { (name) }
            pre tabindex="0" aria-label={ (name) " snippet" } { (text) }
        }
    }
}
