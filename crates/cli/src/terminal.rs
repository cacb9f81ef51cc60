//! What a stream can show: colours, bars, nothing but text.

use std::fmt;
use std::io::IsTerminal;

/// How text is dressed for one stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    pub colour: bool,
    /// Characters beyond ASCII.
    pub bars: bool,
}

/// A colour with a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Good,
    Bad,
    Quiet,
}

impl Style {
    /// As this stream and the environment allow: dressed only for somebody who looks, and never against `NO_COLOR`.
    pub fn of(stream: &impl IsTerminal, variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        if !stream.is_terminal() || set("TERM").is_none_or(|term| term == "dumb") {
            return Self::default();
        }
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        let bars = locale.ends_with("utf-8") || locale.ends_with("utf8");
        Self { colour: set("NO_COLOR").is_none(), bars }
    }

    /// As standard error and the environment allow.
    pub fn of_stderr() -> Self {
        Self::of(&std::io::stderr(), |name| std::env::var(name).ok())
    }

    /// As standard output and the environment allow.
    pub fn of_stdout() -> Self {
        Self::of(&std::io::stdout(), |name| std::env::var(name).ok())
    }

    /// The text in a tone, where colours are shown.
    pub fn tone(self, tone: Tone, text: impl fmt::Display) -> String {
        let code = match tone {
            Tone::Good => "32",
            Tone::Bad => "31",
            Tone::Quiet => "2",
        };
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_terminal_gets_plain_text() {
        let file = tempfile::tempfile().unwrap();
        let everything = |name: &str| Some(if name == "NO_COLOR" { "" } else { "xterm.UTF-8" }.to_owned());
        assert_eq!(Style::of(&file, everything), Style::default());
        assert_eq!(Style::default().tone(Tone::Bad, "x"), "x");
    }
}
