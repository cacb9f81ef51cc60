//! A table of which the first rows are shown and the others unfold.

use maud::{Markup, html};

/// Rows that are shown at once.
const FIRST_ROWS: usize = 8;

/// `rows` are the headings and then the rows, as the tables of a run have them.
pub(super) fn folded_table(rows: &[Vec<String>], name: &str) -> Markup {
    let Some((headings, rows)) = rows.split_first() else { return Markup::default() };
    let (first, others) = rows.split_at(rows.len().min(FIRST_ROWS));
    html! {
        (table(headings, first, name))
        @if !others.is_empty() {
            details {
                summary { (others.len()) " more" }
                (table(headings, others, &format!("More {}", name.to_lowercase())))
            }
        }
    }
}

fn table(headings: &[String], rows: &[Vec<String>], label: &str) -> Markup {
    html! {
        div.scroll tabindex="0" role="group" aria-label=(label) {
            table.figures {
                thead {
                    tr { @for column in headings { th scope="col" { (heading(column)) } } }
                }
                tbody {
                    @for row in rows {
                        tr {
                            @for (column, cell) in row.iter().enumerate() {
                                @if column == 0 { th scope="row" { (cell) } } @else { td { (cell) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The heading with a capital letter.
pub(super) fn heading(column: &str) -> String {
    let mut letters = column.trim_start_matches('>').chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().to_string() + letters.as_str())
}
