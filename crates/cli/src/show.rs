//! All that is printed: the only place that writes to the terminal.

use std::fmt::Write as _;
use std::path::Path;

use resource_tracker::metric::Metric;
use resource_tracker::recommend::recommend_resources;
use resource_tracker::sys::Ending;
use resource_tracker::tracker::{State, Tracker};

use crate::failure::Failure;

/// Prints a failure; its exit status.
pub fn failure(failure: &Failure) -> u8 {
    let mut text = format!("error: {}\n", failure.error);
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
    if rustix::termios::isatty(rustix::stdio::stderr()) {
        print_error(&format!("{text}…\n"));
    }
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

/// Prints a result as JSON.
pub fn json(value: &impl serde::Serialize) -> Result<u8, Failure> {
    let mut line = serde_json::to_string_pretty(value).map_err(|error| Failure::new(error, None))?;
    line.push('\n');
    text(&line)
}

/// Labels and values, the values below each other.
pub fn aligned(lines: &[(&str, String)]) -> String {
    let width = lines.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
    lines.iter().map(|(label, value)| format!("{label:<width$}  {value}")).collect::<Vec<_>>().join("\n")
        + "\n"
}

/// Columns as wide as their widest cell; a head that starts with `>` is set to the right.
pub struct Table {
    heads: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(heads: &[&'static str]) -> Self {
        Self { heads: heads.to_vec(), rows: Vec::new() }
    }

    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(Vec::from(cells));
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

/// Text of a run on one line, cut to a width and without anything that could steer a terminal.
pub fn one_line(text: &str, width: usize) -> String {
    let clean: String = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if clean.chars().count() <= width {
        clean
    } else {
        clean.chars().take(width - 1).chain(['…']).collect()
    }
}

/// A length of time.
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 60.0 => format!("{s:.2} s"),
        s if s < 3600.0 => format!("{:.1} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// A date in UTC, to the minute.
pub fn time(unix_s: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "seconds of a date")]
    let seconds = unix_s as i64;
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days since 1970 to a date of the Gregorian calendar, in years that start with March.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {:02}:{:02}Z", of_day / 3600, of_day / 60 % 60)
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

/// How a run went, in a few lines on standard error.
pub fn summary(ending: Option<Ending>, tracker: &Tracker, warnings: &[String], recording: Option<&Path>) {
    let (summary, cpu_source) = (tracker.summary(), tracker.cpu_source());
    let mut text = String::new();
    let ended = match ending {
        Some(Ending::Code(0)) => "finished".to_owned(),
        Some(Ending::Code(code)) => format!("failed with exit code {code}"),
        Some(Ending::Signal(signal)) => format!("ended by signal {signal}"),
        None if tracker.state() == State::Exited => "the process ended".to_owned(),
        None => "stopped following".to_owned(),
    };
    let wall_s = summary.of(Metric::Elapsed).sum().unwrap_or(0.0);
    let _ = writeln!(text, "resource-tracker: {ended} after {wall_s:.2} s");
    let mut line = |label: &str, value: String| {
        let _ = writeln!(text, "  {label:<10}{value}");
    };
    let cpu = summary.of(Metric::ProcessCpu);
    if let (Some(mean), Some(max), Some(total_s)) = (cpu.mean(), cpu.max(), summary.cpu_seconds()) {
        line("CPU", format!("{mean:.2} cores on average, {max:.2} at most, {total_s:.2} s in all"));
    }
    let memory = summary.of(Metric::ProcessMemory).mean();
    if let (Some(mean_kib), Some(peak_kib)) = (memory, summary.memory_peak_kib()) {
        line(
            "memory",
            format!("{} on average, {} at most", bytes(mean_kib * 1024.0), bytes(peak_kib * 1024.0)),
        );
    }
    if let (Some(read), Some(written)) =
        (summary.of(Metric::ProcessRead).sum(), summary.of(Metric::ProcessWrite).sum())
    {
        line("storage", format!("{} read, {} written", bytes(read), bytes(written)));
    }
    let coverage = match summary.coverage() {
        Some(coverage) => {
            format!("{:.1} % of the CPU time seen in processes, counted by {cpu_source}", coverage * 100.0)
        }
        None => format!("unknown, counted by {cpu_source}"),
    };
    line("coverage", coverage);
    if let Some(own_s) = summary.of(Metric::TrackerCpu).sum() {
        let own_kib = summary.of(Metric::TrackerMemory).max().unwrap_or(0.0);
        line("tracker", format!("{:.1} ms of CPU, {}", own_s * 1e3, bytes(own_kib * 1024.0)));
    }
    if let Some(resources) = summary.stats().ok().and_then(|stats| recommend_resources(&stats, &[]).ok()) {
        line("next time", format!("ask for {} CPU and {} MB of memory", resources.cpu, resources.memory_mb));
    }
    if let Some(path) = recording {
        line("recording", path.display().to_string());
    }
    for note in warnings {
        let _ = writeln!(text, "resource-tracker: warning: {note}");
    }
    print_error(&text);
}

/// A size with a unit that fits.
pub fn bytes(bytes: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = usize::from(unit > 0);
    format!("{value:.decimals$} {}", units.get(unit).unwrap_or(&"B"))
}
