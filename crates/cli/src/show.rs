//! All printing but the rows and the status line (`live/`).

use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal, Write as _};
use std::path::Path;

use anstream::{AutoStream, ColorChoice, stream::RawStream};
use anstyle::{AnsiColor, Style};
use resource_tracker::Server;
use resource_tracker::human::{self, Zone};

use crate::failure::Failure;

/// Version of all JSON output; `docs/json.md` describes it.
pub const SCHEMA_VERSION: u32 = 1;

pub const GOOD: Style = AnsiColor::Green.on_default();
pub const BAD: Style = AnsiColor::Red.on_default();
pub const LABEL: Style = Style::new().dimmed();

/// Text in a style. The printing functions remove styles that the stream or the user does not want.
pub fn styled(style: Style, text: impl fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

/// Whether the stream is a terminal that shows block characters.
pub fn can_draw_bars(stream: &impl IsTerminal) -> bool {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
    let locale = locale.to_ascii_lowercase();
    stream.is_terminal()
        && anstyle_query::term_supports_color()
        && (locale.ends_with("utf-8") || locale.ends_with("utf8"))
}

/// Prints an error with its causes and its hint, and returns the exit status.
pub fn failure(failure: &Failure) -> u8 {
    let mut text = format!("{} {}\n", styled(BAD, "error:"), clean(&failure.error.to_string()));
    let mut cause = failure.error.source();
    while let Some(error) = cause {
        let _ = writeln!(text, "  caused by: {}", clean(&error.to_string()));
        cause = error.source();
    }
    if let Some(hint) = failure.hint {
        let _ = writeln!(text, "\nhint: {hint}");
    }
    print_error(&text);
    failure.code
}

/// Prints an error in the arguments, or the requested help, and returns the exit status.
pub fn usage(error: &clap::Error) -> u8 {
    let _ = error.print();
    u8::try_from(error.exit_code()).unwrap_or(2)
}

pub fn warning(text: &str) {
    print_error(&format!("resource-tracker: warning: {text}\n"));
}

/// Prints the current step of long work, on a terminal only.
pub fn progress(text: &str) {
    if io::stderr().is_terminal() {
        print_error(&format!("{text}…\n"));
    }
}

/// Replaces the text of the current terminal line; an empty text clears the line.
pub fn progress_line(text: &str) {
    let _ = write!(io::stderr(), "\r\u{1b}[K{text}");
}

/// Prints the summary of a run to standard error; standard output belongs to the job.
pub fn summary(text: &str) {
    print_error(text);
}

/// Prints the summary of a run to standard error, as one line of JSON.
pub fn json_summary(summary: &serde_json::Value) {
    let _ = io::stderr().write_all(format!("{summary}\n").as_bytes());
}

/// Prints a result.
pub fn text(text: &str) -> Result<u8, Failure> {
    let mut out = AutoStream::always(io::stdout().lock());
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // `resource-tracker list | head` is not an error.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new(error, None)),
        _ => Ok(0),
    }
}

/// Prints a result that has styles.
pub fn styled_text(styled: &str) -> Result<u8, Failure> {
    text(&for_stream(&io::stdout(), styled))
}

/// Prints an object as JSON, with the version as its first key.
pub fn json(value: &impl serde::Serialize) -> Result<u8, Failure> {
    use serde_json::{Map, Value};
    let mut versioned = Map::from_iter([("schema_version".to_owned(), Value::from(SCHEMA_VERSION))]);
    match serde_json::to_value(value).map_err(|error| Failure::new(error, None))? {
        Value::Object(object) => versioned.extend(object),
        other => versioned.extend([("value".to_owned(), other)]),
    }
    text(&format!("{:#}\n", Value::Object(versioned)))
}

/// Prints the path of a file that was written.
pub fn path(path: &Path) {
    let _ = writeln!(io::stdout(), "{}", path.display());
}

/// One line for each label and value, with the values aligned.
pub fn aligned(lines: &[(&str, String)]) -> String {
    let width = lines.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
    lines.iter().map(|(label, value)| format!("{label:<width$}  {value}\n")).collect::<Vec<_>>().concat()
}

/// A text table. A head that starts with `>` aligns its column to the right.
pub struct Table {
    heads: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(heads: &[&str]) -> Self {
        Self { heads: heads.iter().map(ToString::to_string).collect(), rows: Vec::new() }
    }

    pub fn row(&mut self, cells: impl Into<Vec<String>>) {
        self.rows.push(cells.into());
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let heads: Vec<String> =
            self.heads.iter().map(|head| head.trim_start_matches('>').to_owned()).collect();
        let all = || std::iter::once(&heads).chain(&self.rows);
        let width = |column: usize| {
            let widths = all().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            widths.max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..heads.len()).map(width).collect();
        for row in all() {
            let mut line = String::new();
            for ((cell, head), width) in row.iter().zip(&self.heads).zip(&widths) {
                let padding = " ".repeat(width - cell.chars().count());
                let (left, right) =
                    if head.starts_with('>') { (padding, String::new()) } else { (String::new(), padding) };
                let _ = write!(line, "{left}{cell}{right}  ");
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Text with control characters replaced, so that it cannot change the terminal; line breaks stay.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

/// Text on one line of at most `width` characters, with control characters replaced.
pub fn one_line(text: &str, width: usize) -> String {
    let clean: String = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if clean.chars().count() <= width {
        clean
    } else {
        clean.chars().take(width - 1).chain(['…']).collect()
    }
}

/// Local date and time, to the minute.
pub fn local_time(unix_s: f64) -> String {
    let civil = Zone::local_at(unix_s).at(unix_s);
    civil.map(|civil| civil.date_time().chars().take("2025-03-12 14:21".len()).collect()).unwrap_or_default()
}

/// Vendor, name and price of a server.
pub fn server(server: &Server) -> String {
    let price = server.ondemand_usd().map_or_else(String::new, |usd| format!(" at {}/h", human::usd(usd)));
    format!("{} {}{price}", one_line(server.vendor_id(), 24), one_line(server.name(), 60))
}

/// Removes the styles where the stream is no terminal, or where `NO_COLOR`, `CLICOLOR` or `TERM` forbid them.
fn for_stream<S: RawStream>(stream: &S, styled: &str) -> String {
    match AutoStream::choice(stream) {
        ColorChoice::Never => anstream::adapter::strip_str(styled).to_string(),
        _ => styled.to_owned(),
    }
}

fn print_error(styled: &str) {
    let text = for_stream(&io::stderr(), styled);
    // A single write, so that lines of several trackers do not mix. A failed write cannot be reported.
    let _ = AutoStream::always(io::stderr()).write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_that_is_no_terminal_gets_plain_text() {
        let file = tempfile::tempfile().unwrap();
        assert!(!can_draw_bars(&file));
        assert_eq!(for_stream(&file, &styled(BAD, "x\n")), "x\n");
    }
}
