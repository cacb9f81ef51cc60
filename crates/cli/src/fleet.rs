//! `fleet`: the runs of many machines in one store.

use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use resource_tracker::human::{self, Scale};
use resource_tracker::{Fleet, HistoryEntry, Output as File};
use serde_json::json;

use crate::args::{
    CompactArgs, FleetCommand, FleetReportArgs, PullArgs, PushArgs, SqlArgs, StoreArgs, SummaryArgs,
};
use crate::failure::Failure;
use crate::load::recovered_history;
use crate::show::{self, Table};

/// `run` waits this long for its run to be stored.
const MOST_WAIT: Duration = Duration::from_millis(250);

pub fn fleet(command: &FleetCommand) -> Result<u8, Failure> {
    match command {
        FleetCommand::Push(args) => push(args),
        FleetCommand::Summary(args) => summary(args),
        FleetCommand::Pull(args) => pull(args),
        FleetCommand::Report(args) => report(args),
        FleetCommand::Compact(args) => compact(args),
        FleetCommand::Sql(args) => sql(args),
    }
}

/// The store, if it may be used.
fn allowed(args: &StoreArgs) -> Result<&Fleet, Failure> {
    args.store.check_network(args.network.offline).map_err(failure)?;
    Ok(&args.store)
}

fn push(args: &PushArgs) -> Result<u8, Failure> {
    let (store, history) = (allowed(&args.to)?, recovered_history()?);
    let mut entries: Vec<HistoryEntry> = if args.runs.is_empty() {
        let listing = history.list()?;
        show::unreadable_runs(&listing.damaged);
        listing.entries
    } else {
        args.runs.iter().map(|name| history.find(name)).collect::<Result<_, _>>()?
    };
    let runs = entries.len();
    // A named run is stored again, since the store may have lost it.
    entries.retain(|entry| !args.runs.is_empty() || store.lacks(entry));
    let mut warnings = Vec::new();
    let bar = |number, of| show::progress_bar("storing runs", number - 1, of);
    let skip = |error| warnings.push(resource_tracker::with_causes(&error));
    let stored = store.push_all(&history, &entries, bar, skip).map_err(failure)?;
    show::progress_done();
    for warning in &warnings {
        show::warning(warning);
    }
    let code = u8::from(!args.runs.is_empty() && !warnings.is_empty());
    if args.format.json {
        let done = json!({ "store": store.url(), "runs": runs, "stored": stored, "warnings": warnings });
        return show::json(&done).map(|_| code);
    }
    show::text(&format!("stored {stored} of {runs} runs in {}\n", store.url())).map(|_| code)
}

/// Ends long work on stores: prints their warnings, and returns them.
pub fn warnings(stores: &[&Fleet]) -> Vec<String> {
    show::progress_done();
    let warnings: Vec<String> = stores.iter().filter_map(|store| store.take_warning()).collect();
    for warning in &warnings {
        show::warning(warning);
    }
    warnings
}

fn pull(args: &PullArgs) -> Result<u8, Failure> {
    let store = allowed(&args.of)?.with_progress(|done, of| show::progress_bar("copying days", done, of));
    args.to.check_network(args.of.network.offline).map_err(failure)?;
    let done = store.pull(&args.to, args.since).map_err(failure)?;
    let warnings = warnings(&[&store, &args.to]);
    if args.format.json {
        return show::json(&json!({
            "store": store.url(),
            "to": args.to.url(),
            "copied_files": done.copied_files,
            "removed_files": done.removed_files,
            "warnings": warnings,
        }));
    }
    show::text(&format!(
        "copied {} files from {} to {}, removed {} that are merged\n",
        done.copied_files,
        store.url(),
        args.to.url(),
        done.removed_files
    ))
}

fn compact(args: &CompactArgs) -> Result<u8, Failure> {
    let store = allowed(&args.of)?.with_progress(|done, of| show::progress_bar("merging days", done, of));
    let done = store.compact().map_err(failure)?;
    let warnings = warnings(&[&store]);
    if args.format.json {
        return show::json(&json!({
            "store": store.url(),
            "days": done.days,
            "merged_files": done.merged_files,
            "written_files": done.written_files,
            "warnings": warnings,
        }));
    }
    let days = if done.days == 1 { "day" } else { "days" };
    show::text(&format!(
        "merged {} files of {} {days} into {}\n",
        done.merged_files, done.days, done.written_files
    ))
}

fn sql(args: &SqlArgs) -> Result<u8, Failure> {
    // The parser allows no other engine.
    show::text(&args.of.store.sql(&args.engine, &args.group.by).unwrap_or_default())
}

fn reading(store: &Fleet) -> Fleet {
    store.with_progress(|done, of| show::progress_bar("reading days", done, of))
}

fn report(args: &FleetReportArgs) -> Result<u8, Failure> {
    let path = args.output.as_deref().unwrap_or(Path::new("fleet-report.html"));
    let failed = |error| Failure::unwritable(path, error);
    let open = if args.output.is_some() { File::open_argument } else { File::open_default };
    let mut output = open(path, args.force).map_err(failed)?;
    let store = reading(allowed(&args.of)?);
    let page = store.report(args.since).map_err(failure)?;
    warnings(&[&store]);
    output.write_all(page.as_bytes()).and_then(|()| output.commit()).map_err(failed)?;
    if path != Path::new("-") && args.format.json {
        return show::json(&json!({ "report": path.display().to_string() }));
    }
    if path != Path::new("-") {
        show::path(path);
    }
    Ok(0)
}

const HEADS: [&str; 13] = [
    "",
    ">runs",
    ">failed",
    ">OOM",
    ">CPU h",
    ">used",
    ">wasted",
    ">GiB h",
    ">used",
    ">wasted",
    ">cost",
    ">savings",
    ">imbalance",
];
/// Columns that a narrow terminal leaves out, in this order: out of memory, GiB hours used, CPU hours used, imbalance,
/// failures, GiB hours wasted and requested.
const LESS_WEIGHT: [usize; 7] = [3, 8, 5, 12, 2, 9, 7];

fn summary(args: &SummaryArgs) -> Result<u8, Failure> {
    let store = reading(allowed(&args.of)?);
    let lines = store.summary(&args.group.by, args.since).map_err(failure)?;
    let warnings = warnings(&[&store]);
    if args.format.json {
        return show::json(&json!({ "store": store.url(), "groups": lines, "warnings": warnings }));
    }
    if lines.is_empty() {
        let url = args.of.store.url();
        return show::text(&format!(
            "no runs in `{url}`: `resource-tracker run --store URL -- COMMAND` stores one\n"
        ));
    }
    let number = |value: Option<f64>| value.map(|hours| Scale::Hours.show(hours)).unwrap_or_default();
    let usd = |value: Option<f64>| value.map(human::usd).unwrap_or_default();
    let rate = |count: u64, runs: u64| {
        #[expect(clippy::cast_precision_loss, reason = "counts of runs")]
        let share = count as f64 / runs.max(1) as f64;
        if count == 0 { String::new() } else { human::percent(share) }
    };
    let width = show::columns();
    let key_width = if width.is_some_and(|width| width < 120) { 20 } else { 40 };
    let mut table = Table::new(&HEADS);
    for line in lines {
        table.row([
            show::one_line(&line.key.unwrap_or_else(|| "(none)".to_owned()), key_width),
            line.runs.to_string(),
            rate(line.failed, line.runs),
            rate(line.out_of_memory, line.runs),
            number(line.cpu_hours_asked),
            number(line.cpu_hours_used),
            number(line.cpu_hours_wasted),
            number(line.gib_hours_asked),
            number(line.gib_hours_used),
            number(line.gib_hours_wasted),
            usd(line.cost_usd),
            usd(line.savings_usd),
            line.imbalance.map(|imbalance| format!("{imbalance:.2}")).unwrap_or_default(),
        ]);
    }
    if let Some(width) = width {
        table.fit_columns(width, &LESS_WEIGHT);
        table.fit(width, &[0]);
    }
    show::text(&table.to_string())
}

pub fn failure(error: resource_tracker::FleetError) -> Failure {
    show::progress_done();
    let hint = error.hint();
    Failure::new(error, hint)
}

/// A process that stores a run of the history. It goes on if it takes longer than `run` waits.
pub struct Storing<'a> {
    store: &'a Fleet,
    /// An error if the store may not be used.
    process: Result<Child, String>,
}

impl<'a> Storing<'a> {
    pub fn start(store: &'a Fleet, id: &str, is_offline: bool) -> Self {
        let allowed = store.check_network(is_offline).map_err(|error| error.to_string());
        let process = allowed.and_then(|()| {
            let mut command = Command::new(std::env::current_exe().map_err(|error| error.to_string())?);
            command.args(["fleet", "push", "--store", &store.url(), id]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
            // Ctrl-C and the end of the terminal are not for this process.
            #[cfg(unix)]
            std::os::unix::process::CommandExt::process_group(&mut command, 0);
            command.spawn().map_err(|error| error.to_string())
        });
        Self { store, process }
    }

    /// Waits for the process for a moment. Returns a warning if the run is not stored yet.
    pub fn finish(self) -> Option<String> {
        let not_stored = |why: &str| Fleet::not_stored(&self.store.url(), why);
        match self.process.and_then(|child| wait(child).map_err(|error| error.to_string())) {
            Ok(None) => Some(not_stored("storing continues in the background") + " if that fails"),
            Ok(Some(done)) if done.status.success() => None,
            Ok(Some(done)) => Some(not_stored(&reason(&done.stderr))),
            Err(why) => Some(not_stored(&why)),
        }
    }
}

/// How a process ended; `None` if it goes on.
fn wait(mut child: Child) -> io::Result<Option<Output>> {
    let started = Instant::now();
    while child.try_wait()?.is_none() {
        if started.elapsed() > MOST_WAIT {
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output().map(Some)
}

/// The first error or warning that a process printed, with its causes.
fn reason(printed: &[u8]) -> String {
    let text = String::from_utf8_lossy(printed);
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    let first = first.trim_start_matches("resource-tracker: warning: ").trim_start_matches("error: ");
    let causes = lines.map_while(|line| line.strip_prefix("  caused by: "));
    std::iter::once(first).chain(causes).collect::<Vec<_>>().join(": ")
}
