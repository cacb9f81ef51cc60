//! The section "What stood out": at most five sentences, each with a link to what shows it.

use maud::{Markup, html};

use super::Context;
use crate::analysis::stood_out::stood_out;
use crate::store::recording::Recording;

pub(super) fn section(recording: &Recording, context: &Context, ids: &[String]) -> Markup {
    let waits = context.waits(&recording.head);
    let found = stood_out(recording, &context.summary, context.advice.as_ref().ok(), waits.as_ref());
    html! {
        @if !found.is_empty() {
            section aria-labelledby="stood-out" {
                h2 #stood-out { "What stood out" }
                ul.stood-out {
                    @for one in &found {
                        li {
                            @if ids.iter().any(|id| id == one.link) { a href={ "#" (one.link) } { (one.sentence) } }
                            @else { (one.sentence) }
                        }
                    }
                }
            }
        }
    }
}
