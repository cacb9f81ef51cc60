//! A card with a list of names and values.

use maud::{Markup, Render, html};

pub(super) struct Facts {
    title: &'static str,
    rows: Vec<(String, Markup)>,
}

impl Facts {
    pub(super) fn new(title: &'static str) -> Self {
        Self { title, rows: Vec::new() }
    }

    /// Adds a value; does nothing if it is `None` or blank.
    pub(super) fn add(&mut self, name: &str, value: Option<impl AsRef<str>>) {
        let value = value.filter(|value| !value.as_ref().trim().is_empty());
        self.rows.extend(value.map(|value| (name.to_owned(), html! { bdi { (value.as_ref()) } })));
    }

    pub(super) fn add_code(&mut self, name: &str, value: Option<String>) {
        self.rows.extend(value.map(|value| (name.to_owned(), html! { code { (value) } })));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl Render for Facts {
    fn render(&self) -> Markup {
        html! {
            div.card {
                h3 { (self.title) }
                @if self.rows.is_empty() {
                    p.empty { "Not recorded." }
                } @else {
                    dl.facts {
                        @for (name, value) in &self.rows {
                            div { dt { (name) } dd { (value) } }
                        }
                    }
                }
            }
        }
    }
}
