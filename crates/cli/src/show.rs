//! All printing but the rows and the status line (`live/`).
//!
//! Every text is made safe where it is written (`rendered`): no path, name or argument can change the terminal.

use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal, Write as _};
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anstream::{AutoStream, ColorChoice, stream::RawStream};
use clap::error::ErrorKind;
use resource_tracker::human::{self, Zone};
use resource_tracker::{Answer, ReportContext, Server};
use serde_json::{Map, Value};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::failure::Failure;

/// Version of all JSON output; `docs/json.md` describes it.
pub const SCHEMA_VERSION: u32 = 2;

/// A style in a text: a character that has no meaning in Unicode, and the escape sequence that replaces it.
#[derive(Clone, Copy)]
pub struct Style(char, &'static str);

pub const GOOD: Style = Style('\u{fdd0}', "\u{1b}[32m");
pub const BAD: Style = Style('\u{fdd1}', "\u{1b}[31m");
pub const LABEL: Style = Style('\u{fdd2}', "\u{1b}[2m");
const PLAIN: Style = Style('\u{fdd3}', "\u{1b}[0m");

/// Text in a style. The printing functions remove styles that the stream or the user does not want.
pub fn styled(style: Style, text: impl fmt::Display) -> String {
    format!("{}{text}{}", style.0, PLAIN.0)
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
    let mut text = format!("{} {}\n", styled(BAD, "error:"), failure.error);
    let mut cause = failure.error.source();
    while let Some(error) = cause {
        let _ = writeln!(text, "  caused by: {error}");
        cause = error.source();
    }
    if let Some(hint) = failure.hint {
        let _ = writeln!(text, "\nhint: {hint}");
    }
    print_error(&text);
    failure.code
}

/// Prints an error in the arguments, or the requested help, and returns the exit status. `variables` has the options
/// whose values come from the environment, and the variables to name instead.
pub fn usage(error: &clap::Error, variables: &[(String, String)]) -> u8 {
    if error.use_stderr() && error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let mut text = error.render().to_string();
        for (option, variable) in variables {
            if text.contains(option) {
                // The usage has the options of the variables as if they were typed.
                let parts = text.split("\n\n").filter(|part| !part.starts_with("Usage:"));
                text = parts.collect::<Vec<_>>().join("\n\n").replace(option, variable);
            }
        }
        let rest = text.strip_prefix("error:").unwrap_or(&text);
        print_error(&format!("{}{rest}", styled(BAD, "error:")));
    } else {
        let _ = error.print();
    }
    u8::try_from(error.exit_code()).unwrap_or(2)
}

pub fn warning(text: &str) {
    print_error(&format!("resource-tracker: warning: {text}\n"));
}

/// Warns about runs of the history that cannot be read.
pub fn unreadable_runs(ids: &[String]) {
    if let Some(first) = ids.first() {
        let count = ids.len();
        let runs = if count == 1 { "run" } else { "runs" };
        let (ids, example) = (one_line(&ids.join(" "), 60), one_line(first, 60));
        warning(&format!(
            "cannot read {count} {runs} of the history: {ids}; `resource-tracker rm {example}` removes it"
        ));
    }
}

/// Prints the current step of long work, on a terminal only.
pub fn progress(text: &str) {
    if io::stderr().is_terminal() {
        print_error(&format!("{text}…\n"));
    }
}

/// Shows how much of long work is done, on a terminal only. `progress_done` removes it.
pub fn progress_bar(doing: &str, done: usize, of: usize) {
    let started = STARTED.get_or_init(Instant::now);
    if started.elapsed() > PROGRESS_AFTER && io::stderr().is_terminal() {
        progress_line(&bar(doing, done, of));
    }
}

pub fn progress_done() {
    if STARTED.get().is_some_and(|started| started.elapsed() > PROGRESS_AFTER) && io::stderr().is_terminal() {
        progress_line("");
    }
}

static STARTED: OnceLock<Instant> = OnceLock::new();
const PROGRESS_AFTER: Duration = Duration::from_millis(300);
const BAR_WIDTH: usize = 20;

fn bar(doing: &str, done: usize, of: usize) -> String {
    let full = (done.min(of) * BAR_WIDTH).checked_div(of).unwrap_or(0);
    format!("{doing} [{}{}] {done} of {of}", "#".repeat(full), "-".repeat(BAR_WIDTH - full))
}

/// Replaces the text of the current terminal line; an empty text clears the line.
pub fn progress_line(text: &str) {
    let _ = write!(io::stderr(), "\r\u{1b}[K{}", human::printable(text));
}

/// Prints the summary of a run to standard error; standard output belongs to the job.
pub fn summary(text: &str) {
    print_error(text);
}

/// Prints a result, which may have styles.
pub fn text(text: &str) -> Result<u8, Failure> {
    let mut out = AutoStream::always(io::stdout().lock());
    match out.write_all(rendered(&io::stdout(), text).as_bytes()).and_then(|()| out.flush()) {
        // `resource-tracker list | head` is not an error.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new(error, None)),
        _ => Ok(0),
    }
}

/// Prints an object as JSON.
pub fn json(value: &impl serde::Serialize) -> Result<u8, Failure> {
    text(&json_text(&serde_json::to_value(value).map_err(|error| Failure::new(error, None))?))
}

/// The text of a JSON object, with the version as its first key.
pub fn json_text(value: &Value) -> String {
    let mut versioned = Map::from_iter([("schema_version".to_owned(), Value::from(SCHEMA_VERSION))]);
    if let Value::Object(object) = value {
        versioned.extend(object.clone());
    }
    escaped(&format!("{:#}\n", Value::Object(versioned)))
}

/// JSON text with unprintable characters as escape sequences. JSON has such characters in strings only.
fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for letter in json.chars() {
        if human::printable(letter.encode_utf8(&mut [0; 4])).starts_with('\u{fffd}') && letter != '\u{fffd}' {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                let _ = write!(text, "\\u{unit:04x}");
            }
        } else {
            text.push(letter);
        }
    }
    text
}

/// Prints the path of a file that was written. Other programs get the bytes of a name that is not UTF-8.
pub fn path(path: &Path) {
    let mut out = io::stdout().lock();
    let mut bytes = Vec::new();
    for chunk in path.as_os_str().as_encoded_bytes().utf8_chunks() {
        bytes.extend_from_slice(human::printable(chunk.valid()).as_bytes());
        bytes.extend_from_slice(if out.is_terminal() {
            &b"?"[..chunk.invalid().len().min(1)]
        } else {
            chunk.invalid()
        });
    }
    bytes.push(b'\n');
    let _ = out.write_all(&bytes);
}

/// Width of the terminal that standard output is.
pub fn columns() -> Option<usize> {
    terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0))
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
        self.rows.push(cells.into().iter().map(|cell| one_line(cell, usize::MAX)).collect());
    }

    /// Cuts the cells of the `flexible` columns, the first of them first, until the table is at most `width` wide. If
    /// that is not enough, the last column is left out.
    pub fn fit(&mut self, width: usize, flexible: &[usize]) {
        for &column in flexible {
            let widths = self.widths();
            let Some(&wide) = widths.get(column) else { continue };
            let excess = total(&widths).saturating_sub(width);
            let narrow = wide.saturating_sub(excess).max(wide.min(LEAST_WIDTH));
            for cell in self.rows.iter_mut().filter_map(|row| row.get_mut(column)) {
                *cell = one_line(cell, narrow);
            }
        }
        if total(&self.widths()) > width {
            self.remove(self.heads.len() - 1);
        }
    }

    /// Leaves out these columns one after the other, the first of them first, while the table is wider than `width`. Columns
    /// come with their number at the start.
    pub fn fit_columns(&mut self, width: usize, columns: &[usize]) {
        for (number, column) in columns.iter().enumerate() {
            if total(&self.widths()) > width {
                let removed_before = columns[..number].iter().filter(|removed| *removed < column).count();
                self.remove(column - removed_before);
            }
        }
    }

    fn remove(&mut self, column: usize) {
        self.heads.remove(column);
        for row in self.rows.iter_mut().filter(|row| column < row.len()) {
            row.remove(column);
        }
    }

    fn widths(&self) -> Vec<usize> {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.width());
            cells.chain([self.heads[column].trim_start_matches('>').width()]).max().unwrap_or(0)
        };
        (0..self.heads.len()).map(width).collect()
    }
}

/// Width to which a flexible column of a table can be cut.
const LEAST_WIDTH: usize = 8;

fn total(widths: &[usize]) -> usize {
    widths.iter().map(|width| width + 2).sum::<usize>().saturating_sub(2)
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let heads: Vec<String> =
            self.heads.iter().map(|head| head.trim_start_matches('>').to_owned()).collect();
        let widths = self.widths();
        for row in std::iter::once(&heads).chain(&self.rows) {
            let mut line = String::new();
            for ((cell, head), width) in row.iter().zip(&self.heads).zip(&widths) {
                let padding = " ".repeat(width.saturating_sub(cell.width()));
                let (left, right) =
                    if head.starts_with('>') { (padding, String::new()) } else { (String::new(), padding) };
                let _ = write!(line, "{left}{cell}{right}  ");
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Text on one line, at most `width` columns of the terminal wide.
pub fn one_line(text: &str, width: usize) -> String {
    let clean = human::printable(text).replace(['\n', '\t'], "\u{fffd}");
    if clean.width() <= width {
        return clean;
    }
    let mut used = 1;
    let fits = |letter: &char| {
        used += letter.width().unwrap_or(0);
        used <= width
    };
    clean.chars().take_while(fits).chain(['…']).collect()
}

/// Local date and time, to the minute.
pub fn local_time(unix_s: f64) -> String {
    let civil = Zone::local_at(unix_s).at(unix_s);
    civil.map(|civil| civil.date_time().chars().take("2025-03-12 14:21".len()).collect()).unwrap_or_default()
}

/// A number of CPUs, such as `1 CPU` or `1.50 CPUs`.
pub fn cpus(count: f64) -> String {
    let number = if count.fract() == 0.0 { format!("{count:.0}") } else { format!("{count:.2}") };
    format!("{number} CPU{}", if count == 1.0 { "" } else { "s" })
}

/// Vendor, name, price and region of a server.
pub fn server(server: &Server) -> String {
    let price = server.ondemand_usd().map_or_else(String::new, |usd| format!(" at {}/h", human::usd(usd)));
    let region =
        server.price_region().map_or_else(|| "its cheapest region".to_owned(), |region| one_line(region, 40));
    let name = format!("{} {}", one_line(server.vendor_id(), 24), one_line(server.name(), 60));
    format!("{name}{price} in {region}")
}

/// CPU class of a server, and date and source of its price.
pub fn about_server((answer, server): (&Answer, &Server)) -> String {
    one_line(&answer.about(server), 120)
}

/// Reason why no server can be shown.
pub fn no_server(context: &ReportContext) -> Option<String> {
    context.servers.problem().map(|reason| format!("none: {}", one_line(reason, 200)))
}

/// The cost of a run on its own machine, and the possible saving on the recommended server.
pub fn cost_here(context: &ReportContext) -> Option<String> {
    let cost = context.cost(context.server());
    let (here, price) = (cost.current?, context.price.as_ref()?);
    let region =
        if price.in_asked_region { String::new() } else { format!(" in {}", one_line(&price.region, 40)) };
    let saved = cost.savings.filter(|savings| savings.percent >= 1.0).map(|savings| {
        let place = if savings.same_region { "" } else { " in another region" };
        format!("; possible saving {:.0} %{place}", savings.percent)
    });
    let (usd, per_hour) = (human::usd(here.usd), human::usd(here.usd_per_hour));
    Some(format!("{usd} at {per_hour}/h{region}{}", saved.unwrap_or_default()))
}

/// Text that is safe to print, with its styles as escape sequences. Streams that are no terminal get no styles, and
/// neither do terminals for which `NO_COLOR`, `CLICOLOR` or `TERM` forbid them.
fn rendered<S: RawStream>(stream: &S, text: &str) -> String {
    let has_styles = AutoStream::choice(stream) != ColorChoice::Never;
    let mut text = human::printable(text);
    for Style(mark, sequence) in [GOOD, BAD, LABEL, PLAIN] {
        text = text.replace(mark, if has_styles { sequence } else { "" });
    }
    text
}

fn print_error(styled: &str) {
    let text = rendered(&io::stderr(), styled);
    // A single write, so that lines of several trackers do not mix. A failed write cannot be reported.
    let _ = AutoStream::always(io::stderr()).write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_has_the_share_that_is_done() {
        assert_eq!(bar("reading", 3, 4), "reading [###############-----] 3 of 4");
        assert_eq!(bar("reading", 0, 0), "reading [--------------------] 0 of 0");
    }

    #[test]
    fn narrow_table_has_no_columns_of_less_weight() {
        let mut table = Table::new(&["a", ">b", ">c", ">d"]);
        table.row(["one".to_owned(), "22".to_owned(), "333".to_owned(), "4444".to_owned()]);
        table.fit_columns(13, &[2, 1]);
        assert_eq!(table.to_string(), "a     b     d\none  22  4444\n");
        table.fit_columns(9, &[0]);
        assert_eq!(table.to_string(), " b     d\n22  4444\n");
    }

    #[test]
    fn stream_that_is_no_terminal_gets_plain_text() {
        let file = tempfile::tempfile().unwrap();
        assert!(!can_draw_bars(&file));
        assert_eq!(rendered(&file, &styled(BAD, "x\n")), "x\n");
    }
}
