//! `fleet`: the runs of many machines in one store.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use resource_tracker::human;
use resource_tracker::{Fleet, HistoryEntry};
use serde_json::json;

use crate::args::{FleetCommand, PullArgs, PushArgs, SqlArgs, StoreArgs, SummaryArgs};
use crate::failure::Failure;
use crate::load::recovered_history;
use crate::show::{self, Table};

/// `run` waits this long for its run to be stored.
const MOST_WAIT: Duration = Duration::from_secs(1);

pub fn fleet(command: &FleetCommand) -> Result<u8, Failure> {
    match command {
        FleetCommand::Push(args) => push(args),
        FleetCommand::Summary(args) => summary(args),
        FleetCommand::Pull(args) => pull(args),
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
    let entries: Vec<HistoryEntry> = if args.runs.is_empty() {
        let listing = history.list()?;
        show::unreadable_runs(&listing.damaged);
        listing.entries
    } else {
        args.runs.iter().map(|name| history.find(name)).collect::<Result<_, _>>()?
    };
    let stored = store
        .push_all(
            &history,
            &entries,
            |number, of| show::progress(&format!("storing run {number} of {of}")),
            |error| show::warning(&resource_tracker::with_causes(&error)),
        )
        .map_err(failure)?;
    show::progress("");
    show::text(&format!("stored {stored} of {} runs in {}\n", entries.len(), store.url()))
}

fn pull(args: &PullArgs) -> Result<u8, Failure> {
    let store = allowed(&args.of)?;
    args.to.check_network(args.of.network.offline).map_err(failure)?;
    let done = store.pull(&args.to, args.since, |day| show::progress(&format!("copying {day}")));
    show::progress("");
    let done = done.map_err(failure)?;
    show::text(&format!(
        "copied {} files from {} to {}, removed {} that are merged\n",
        done.copied_files,
        store.url(),
        args.to.url(),
        done.removed_files
    ))
}

fn compact(args: &StoreArgs) -> Result<u8, Failure> {
    let done = allowed(args)?.compact().map_err(failure)?;
    show::text(&format!(
        "merged {} files of {} days into {}\n",
        done.merged_files, done.days, done.written_files
    ))
}

fn sql(args: &SqlArgs) -> Result<u8, Failure> {
    // The parser allows no other engine.
    show::text(&args.of.store.sql(&args.engine, &args.group.by).unwrap_or_default())
}

fn summary(args: &SummaryArgs) -> Result<u8, Failure> {
    let lines = allowed(&args.of)?.summary(&args.group.by, args.since).map_err(failure)?;
    if args.format.json {
        return show::json(&json!({ "store": args.of.store.url(), "groups": lines }));
    }
    if lines.is_empty() {
        return show::text("no runs: `resource-tracker run --store URL -- COMMAND` stores one\n");
    }
    let mut table = Table::new(&[
        "",
        ">runs",
        ">failed",
        ">OOM",
        ">CPU h asked",
        ">used",
        ">wasted",
        ">GiB h asked",
        ">used",
        ">wasted",
        ">cost",
        ">savings",
        ">imbalance",
    ]);
    let number = |value: Option<f64>| value.map(|value| format!("{value:.2}")).unwrap_or_default();
    let usd = |value: Option<f64>| value.map(human::usd).unwrap_or_default();
    for line in lines {
        table.row([
            show::one_line(&line.key.unwrap_or_else(|| "(none)".to_owned()), 40),
            line.runs.to_string(),
            line.failed.to_string(),
            line.out_of_memory.to_string(),
            number(line.cpu_hours_asked),
            number(line.cpu_hours_used),
            number(line.cpu_hours_wasted),
            number(line.gib_hours_asked),
            number(line.gib_hours_used),
            number(line.gib_hours_wasted),
            usd(line.cost_usd),
            usd(line.savings_usd),
            number(line.imbalance),
        ]);
    }
    show::text(&table.to_string())
}

pub fn failure(error: resource_tracker::FleetError) -> Failure {
    let hint = error.hint();
    Failure::new(error, hint)
}

/// Stores a run of the history from a process of its own, which goes on if it takes longer than a moment. Returns a warning
/// if the run is not stored yet.
pub fn store_run(store: &Fleet, id: &str, is_offline: bool) -> Option<String> {
    let later = "`resource-tracker fleet push` stores it";
    if let Err(error) = store.check_network(is_offline) {
        return Some(format!("{error}; {later}"));
    }
    let pushed = std::env::current_exe().and_then(|program| {
        let mut command = Command::new(program);
        command.args(["fleet", "push", "--store", &store.url(), id]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // Ctrl-C and the end of the terminal are not for this process.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn()?;
        let started = Instant::now();
        loop {
            let ended = child.try_wait()?;
            if ended.is_some() || started.elapsed() > MOST_WAIT {
                return Ok(ended.is_some_and(|status| status.success()));
            }
            thread::sleep(Duration::from_millis(2));
        }
    });
    match pushed {
        Ok(true) => None,
        Ok(false) => Some(format!("the run is not in the store `{}` yet: {later}", store.url())),
        Err(error) => Some(format!("the run is not in the store `{}`: {error}; {later}", store.url())),
    }
}
