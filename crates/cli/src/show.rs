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

fn print_error(text: &str) {
    use std::io::Write as _;
    // Nobody can be told when standard error is gone.
    let _ = std::io::stderr().write_all(text.as_bytes());
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
fn bytes(bytes: f64) -> String {
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
