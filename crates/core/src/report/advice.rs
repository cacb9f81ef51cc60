//! The section "Recommended resources": the request for the next run, its reasons, snippets to copy, servers that fit.

use maud::{Markup, html};

use super::snippets::snippets;
use super::{Context, Standing, money};
use crate::analysis::recommend::{Advice, Resources};
use crate::human::{self, Scale};
use crate::metric::Metric;
use crate::store::recording::Head;

pub(super) fn section(head: &Head, context: &Context) -> Markup {
    html! {
        section aria-labelledby="size" {
            h2 #size { "Recommended resources" }
            @match &context.advice {
                Ok(advice) => {
                    div.cards.size {
                        (request(head, context, advice))
                        (copyable(&advice.to_ask()))
                        (money::servers(context))
                    }
                }
                Err(error) => p.empty { "No recommendation: " (error) "." }
            }
        }
    }
}

fn request(head: &Head, context: &Context, advice: &Advice) -> Markup {
    let about_standing = match Standing::of(head, context) {
        Standing::Failed => Some("the run failed: a successful run may need more".to_owned()),
        Standing::TrackerDied => {
            Some("the tracker died before the run ended: the figures are incomplete".to_owned())
        }
        Standing::Pending => Some("the run has not ended: the figures are preliminary".to_owned()),
        Standing::Finished => None,
    };
    let findings: Vec<String> = advice.findings.iter().map(ToString::to_string).collect();
    let warnings = advice.warnings.iter().map(ToString::to_string);
    let warnings: Vec<String> = about_standing.into_iter().chain(warnings).collect();
    html! {
        div.card {
            h3 { "Request for the next run" }
            dl.needs { (needs(head, context, advice)) }
            @if let Some(requested) = &context.requested {
                p.note { "Requested for this run: " code { (requested) } }
            }
            (list("Possible improvements", &findings))
            (list("Reliability", &warnings))
        }
    }
}

fn needs(head: &Head, context: &Context, advice: &Advice) -> Markup {
    let (resources, basis, had) = (advice.to_ask(), &advice.basis, head.limits());
    let over = match basis.runs {
        1 => String::new(),
        runs => format!(" over {runs} runs"),
    };
    // Earlier runs may have had other machines, so a share is always that of this run.
    let this_run = if basis.runs == 1 { "" } else { "this run: " };
    let used = |share: Option<f64>, what: &str| {
        share.map_or_else(String::new, |share| {
            format!(" ({this_run}{} of the available {what})", human::percent(share))
        })
    };
    let cores = |value: Option<f64>| value.map_or_else(String::new, |value| Scale::Cores.show(value));
    let megabytes = |value: Option<f64>| value.map_or_else(String::new, human::megabytes);
    let summary = &context.summary;
    let mean_cores = summary.of(Metric::ProcessCpu).mean();
    let cpu_share = mean_cores.zip(had.cpu_cores).map(|(mean, had)| mean / had);
    let peak_mb = basis.memory_peak_kib.map(|kib| kib / 1024.0);
    let memory_share = summary.memory_peak_kib().zip(had.memory_mb).map(|(kib, had)| kib / 1024.0 / had);
    let cpu_reason = format!("mean usage {}{over}{}", cores(basis.cpu_mean_cores), used(cpu_share, "CPUs"));
    let margin = if resources == advice.resources {
        ", plus 20 %, rounded up"
    } else {
        "; estimate after an OOM kill"
    };
    let memory_reason = format!("peak {}{over}{}{margin}", megabytes(peak_mb), used(memory_share, "memory"));
    html! {
        (need("CPU", &count(resources.cpu, "CPU"), &cpu_reason, cpu_share))
        (need("Memory", &memory(resources.memory_mb), &memory_reason, memory_share))
        @if resources.gpu > 0 {
            (need("GPU", &count(resources.gpu, "GPU"), &format!("mean usage {}{over}", cores(basis.gpu_mean)), None))
        }
        @if resources.vram_mb > 0 {
            @let reason = format!("peak {}{over}, plus 20 %, rounded up", megabytes(basis.vram_peak_mib));
            (need("VRAM", &memory(resources.vram_mb), &reason, None))
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

fn copyable(resources: &Resources) -> Markup {
    html! {
        div.card {
            h3 { "Snippets to copy" }
            @for (name, text) in snippets(resources) {
                div.snippet {
                    h4 { (name) }
                    pre tabindex="0" aria-label={ (name) " snippet" } { (text) }
                }
            }
        }
    }
}
