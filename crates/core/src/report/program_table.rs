//! The section "Programs": a table with a row for each program. Empty if one program used nearly everything.

use maud::{Markup, html};

use super::folded_table::folded_table;
use crate::store::recording::Head;

/// A program with a smaller share of the CPU time is not worth a table.
const SMALL_SHARE: f64 = 0.01;

pub(super) fn section(head: &Head) -> Markup {
    let Some(run) = &head.run else { return Markup::default() };
    let total_s: f64 = run.programs.iter().map(|program| program.cpu_seconds).sum();
    let large = run.programs.iter().filter(|program| program.cpu_seconds > total_s * SMALL_SHARE).count();
    html! {
        @if large > 1 {
            section aria-labelledby="programs" {
                h2 #programs { "Programs" }
                (folded_table(&run.program_table(), "Programs"))
            }
        }
    }
}
