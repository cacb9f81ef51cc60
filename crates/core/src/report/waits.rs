//! "What it waited for": a bar of the run's duration, divided, with one sentence. Empty if it was not measured.

use maud::{Markup, html};

use super::Context;
use crate::analysis::waits::Waits;
use crate::human;
use crate::store::recording::Head;

/// Parts below this share are not drawn.
const SMALL: f64 = 0.005;

pub(super) fn section(head: &Head, context: &Context) -> Markup {
    let waits = context.waits(head);
    html! {
        @if let Some(waits) = &waits {
            section aria-labelledby="waits" {
                h2 #waits { "What it waited for" }
                p { (waits.sentence) }
                (bar(waits))
                @if let Some(coverage) = waits.coverage.filter(|coverage| *coverage < 0.95) {
                    p.note { "Threads that were seen used " (human::percent(coverage)) " of the CPU time." }
                }
            }
        }
    }
}

fn bar(waits: &Waits) -> Markup {
    let shown = || waits.parts.iter().enumerate().filter(|(_, part)| part.share >= SMALL);
    let from = |number: usize| waits.parts.iter().take(number).map(|part| part.share).sum::<f64>();
    html! {
        svg.waits viewBox="0 0 1000 20" preserveAspectRatio="none" role="img" aria-label=(waits.sentence) {
            @for (number, part) in shown() {
                rect class=(format!("part{number}")) x=(format!("{:.1}", from(number) * 1000.0)) y="0"
                    width=(format!("{:.1}", part.share * 1000.0)) height="20" {}
            }
        }
        ul.parts {
            @for (number, part) in shown() {
                li { span class=(format!("key part{number}")) {} (part.name) " " b { (human::percent(part.share)) } }
            }
        }
    }
}
