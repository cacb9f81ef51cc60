//! All that is printed: the only place that writes to the terminal.

use std::fmt::Write as _;
use std::path::Path;

use resource_tracker::human::Zone;

use crate::failure::Failure;
use crate::terminal::{Style, Tone};

/// The version of all JSON that is printed; `docs/json.md` describes it.
pub const SCHEMA_VERSION: u32 = 1;

/// Prints a failure; its exit status.
pub fn failure(failure: &Failure) -> u8 {
    let mut text =
        format!("{} {}\n", Style::of_stderr().tone(Tone::Bad, "error:"), clean(&failure.error.to_string()));
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

/// Prints what is wrong with the arguments, or the help that was asked for; the exit status.
pub fn usage(error: &clap::Error) -> u8 {
    let _ = error.print();
    u8::try_from(error.exit_code()).unwrap_or(2)
}

/// A note to the user; that it cannot be printed is nobody's failure.
pub fn warning(text: &str) {
    print_error(&format!("resource-tracker: warning: {text}\n"));
}

/// Where long work is; only for somebody who watches.
pub fn progress(text: &str) {
    if std::io::IsTerminal::is_terminal(&std::io::stderr()) {
        print_error(&format!("{text}…\n"));
    }
}

/// The same on one line that is written over; an empty text takes it away.
pub fn progress_line(text: &str) {
    print_error(&format!("\r\u{1b}[K{text}"));
}

/// A summary, which belongs to nobody's results.
pub fn summary(text: &str) {
    print_error(text);
}

/// Prints a result; a reader that has gone away has seen enough.
pub fn text(text: &str) -> Result<u8, Failure> {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::new(error, None)),
        _ => Ok(0),
    }
}

/// Prints an object as JSON, its version first.
pub fn json(value: &impl serde::Serialize) -> Result<u8, Failure> {
    use serde_json::{Map, Value};
    let mut versioned = Map::from_iter([("schema_version".to_owned(), Value::from(SCHEMA_VERSION))]);
    match serde_json::to_value(value).map_err(|error| Failure::new(error, None))? {
        Value::Object(object) => versioned.extend(object),
        other => versioned.extend([("value".to_owned(), other)]),
    }
    text(&format!("{:#}\n", Value::Object(versioned)))
}

/// Labels and values, the values below each other.
pub fn aligned(lines: &[(&str, String)]) -> String {
    let width = lines.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
    lines.iter().map(|(label, value)| format!("{label:<width$}  {value}")).collect::<Vec<_>>().join("\n")
        + "\n"
}

/// Columns as wide as their widest cell; a head that starts with `>` is set to the right.
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
                let (before, behind) =
                    if head.starts_with('>') { (padding, String::new()) } else { (String::new(), padding) };
                let _ = write!(line, "{before}{cell}{behind}  ");
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Text without anything that could steer a terminal; its lines stay.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

/// Text of a run on one line, cut to a width and without anything that could steer a terminal.
pub fn one_line(text: &str, width: usize) -> String {
    let clean: String = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if clean.chars().count() <= width {
        clean
    } else {
        clean.chars().take(width - 1).chain(['…']).collect()
    }
}

/// Date and time on the wall, to the minute.
pub fn moment(unix_s: f64) -> String {
    let civil = Zone::local_at(unix_s).at(unix_s);
    civil.map(|civil| civil.date_time().chars().take("2025-03-12 14:21".len()).collect()).unwrap_or_default()
}

fn print_error(text: &str) {
    use std::io::Write as _;
    // Nobody can be told when standard error is gone.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Prints where something was written.
pub fn path(path: &Path) {
    use std::io::Write as _;
    // A reader that has gone away does not want to know.
    let _ = writeln!(std::io::stdout(), "{}", path.display());
}
