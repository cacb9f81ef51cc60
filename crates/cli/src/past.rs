//! The history of runs: where it is, how a run is named; `list`, `show` and `rm`.

use std::fs::File;
use std::io::{self, BufReader, IsTerminal as _, Read};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use resource_tracker::catalog::{Catalog, Settings};
use resource_tracker::frame::Column;
use resource_tracker::history::{self, Entry, History};
use resource_tracker::human::{self, Scale, Zone};
use resource_tracker::metric::Metric;
use resource_tracker::recording::{Head, LoadError, Recording};
use resource_tracker::recover::{recover, recover_temporary};
use resource_tracker::report::Context;
use resource_tracker::summary::Summary;
use serde_json::json;

use crate::account::Account;
use crate::args::{ListArgs, RmArgs, ShowArgs};
use crate::failure::Failure;
use crate::show::{self, Table};
use crate::terminal::Style;
use crate::trend::{Trend, Trends};

/// Reading that takes longer than this says how far it is.
const LONG_S: f64 = 1.0;

/// The user's history, with what dead trackers left made into recordings first.
pub fn history() -> Option<History> {
    let history = own_history()?;
    // What cannot be recovered now can be the next time; the question at hand has its own answer.
    let _ = recover(&history);
    let _ = recover_temporary(&history, &std::env::temp_dir());
    Some(history)
}

/// The same, as it is.
pub fn own_history() -> Option<History> {
    history::default_directory(|name| std::env::var_os(name)).map(History::at)
}

/// Seconds since 1970.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// The catalogue in this program alone: nothing is asked, no file read.
pub fn nobody() -> Settings {
    Settings { cache_dir: None, ..Settings::offline() }
}

/// What is known about a run beside its rows: earlier runs of its job, servers that fit, prices.
pub fn context(head: &Head, summary: Summary, earlier_runs: usize, settings: Settings) -> Context {
    // Runs that cannot be read now are as if there were none; the run at hand has its own figures.
    let earlier =
        own_history().and_then(|history| history.earlier(head, earlier_runs).ok()).unwrap_or_default();
    let now = now();
    let zone = Zone::local_at(head.metadata.start_time.unwrap_or(now));
    let mut context = Context::of(head, summary, earlier, now, zone);
    context.ask(head, &mut Catalog::new(settings));
    context
}

/// Loads a file, or the run of the history that goes by this name.
pub fn load(name: &str) -> Result<Recording, Failure> {
    Ok(load_with_path(name)?.0)
}

fn load_with_path(name: &str) -> Result<(Recording, PathBuf), Failure> {
    let path = Path::new(name);
    let is_file = path.exists() && !path.is_dir();
    let path = if is_file { path.to_owned() } else { in_history(name)? };
    let file = File::open(&path).map_err(|source| LoadError::Open { path: path.clone(), source })?;
    let reader = BufReader::with_capacity(64 << 10, Watched::new(file, &path));
    let recording = Recording::read(reader);
    let recording = recording.map_err(|source| LoadError::Content { path: path.clone(), source })?;
    Ok((recording, path))
}

fn in_history(name: &str) -> Result<PathBuf, Failure> {
    let Some(history) = history() else { return Ok(PathBuf::from(name)) };
    match history.find(name) {
        Ok(entry) => Ok(history.recording_path(&entry.id)),
        // What looks like a path is one, and its own error says more than the history's.
        Err(_) if name.contains('/') || Path::new(name).extension().is_some() => Ok(PathBuf::from(name)),
        Err(error) => Err(error.into()),
    }
}

/// A file that says how far it was read, to somebody who has waited for a while.
struct Watched {
    file: File,
    name: String,
    size: u64,
    read: u64,
    began: Instant,
    shown_percent: Option<u64>,
    is_seen: bool,
}

impl Watched {
    fn new(file: File, path: &Path) -> Self {
        Self {
            size: file.metadata().map_or(0, |about| about.len()),
            file,
            name: show::one_line(&path.display().to_string(), 50),
            read: 0,
            began: Instant::now(),
            shown_percent: None,
            is_seen: std::io::stderr().is_terminal(),
        }
    }
}

impl Read for Watched {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.read += count as u64;
        let percent = (self.read * 100).checked_div(self.size);
        if self.is_seen && percent != self.shown_percent && self.began.elapsed().as_secs_f64() > LONG_S {
            self.shown_percent = percent;
            show::progress_line(&format!("reading {}: {} %", self.name, percent.unwrap_or_default()));
        }
        Ok(count)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if self.shown_percent.is_some() {
            show::progress_line("");
        }
    }
}

/// Lists the runs.
pub fn list(args: &ListArgs) -> Result<u8, Failure> {
    let listing = history().map(|history| history.list()).transpose()?.unwrap_or_default();
    let entries: Vec<&Entry> =
        listing.entries.iter().filter(|entry| args.job.is_none() || entry.job == args.job).collect();
    if listing.damaged > 0 {
        show::warning(&format!("{} runs could not be read", listing.damaged));
    }
    if args.format.json {
        return show::json(&json!({ "runs": entries }));
    }
    if entries.is_empty() {
        let of =
            args.job.as_ref().map_or_else(String::new, |job| format!(" of `{}`", show::one_line(job, 60)));
        return show::text(&format!("no runs{of} yet: `resource-tracker run -- COMMAND` makes one\n"));
    }
    let mut table =
        Table::new(&["id", "job", "started", ">duration", "status", ">CPU", ">memory", "command"]);
    for entry in entries {
        let stat =
            |metric: Metric, aggregate| entry.stats.as_ref()?.get(&metric.combined_column(), aggregate);
        table.row([
            entry.id.clone(),
            show::one_line(&entry.job.clone().unwrap_or_default(), 24),
            entry.start_time.map(show::moment).unwrap_or_default(),
            entry.duration_s.map(human::duration).unwrap_or_default(),
            entry.status.as_ref().map(|status| show::one_line(status.as_str(), 16)).unwrap_or_default(),
            stat(Metric::ProcessCpu, "mean").map(|cores| format!("{cores:.2}")).unwrap_or_default(),
            stat(Metric::ProcessMemory, "max").map(|kib| Scale::Bytes.show(kib * 1024.0)).unwrap_or_default(),
            show::one_line(&entry.command.clone().unwrap_or_default().join(" "), 40),
        ]);
    }
    show::text(&table.to_string())
}

/// Shows a run as its summary did.
pub fn show(args: &ShowArgs) -> Result<u8, Failure> {
    let (recording, path) = load_with_path(&args.which.recording)?;
    let context = context(&recording.head, recording.summary(), 5, nobody());
    let trends = trends(&recording);
    let notes = recording.head.run.as_ref().map(|run| run.notes.clone()).unwrap_or_default();
    let account = Account {
        head: &recording.head,
        context: &context,
        trends: &trends,
        recording: Some(&path),
        report: None,
        notes: &notes,
    };
    if args.format.json { show::json(&account.json()) } else { show::text(&account.text(Style::of_stdout())) }
}

fn trends(recording: &Recording) -> Trends {
    let of = |metric: Metric| {
        let mut trend = Trend::default();
        let column = recording.process.as_ref().and_then(|frame| frame.column(metric.column()).ok());
        column.into_iter().flat_map(Column::present).for_each(|value| trend.add(value));
        trend
    };
    Trends { cpu: of(Metric::ProcessCpu), memory: of(Metric::ProcessMemory) }
}

/// Removes runs.
pub fn rm(args: &RmArgs) -> Result<u8, Failure> {
    let Some(history) = history() else { return show::text("") };
    // All names are looked up before the first is removed: a wrong one removes nothing.
    let mut ids = Vec::new();
    if args.runs.is_empty() {
        let before = args.older_than.map(|days| now() - days * 86_400.0);
        let is_meant = |entry: &Entry| {
            (args.job.is_none() || entry.job == args.job)
                && before.is_none_or(|before| entry.start_time.is_some_and(|start| start < before))
        };
        ids.extend(history.list()?.entries.into_iter().filter(is_meant).map(|entry| entry.id));
    }
    for name in &args.runs {
        ids.push(history.find(name)?.id);
    }
    ids.sort_unstable();
    ids.dedup();
    for id in &ids {
        history.remove(id)?;
    }
    if args.format.json {
        return show::json(&json!({ "removed": ids }));
    }
    let lines: Vec<_> = ids.iter().map(|id| format!("removed {id}\n")).collect();
    show::text(&lines.concat())
}
