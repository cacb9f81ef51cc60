//! The history of runs: where it is, how a run is named, `list`.

use std::path::{Path, PathBuf};

use resource_tracker::history::{self, Entry, History};
use resource_tracker::recording::Recording;
use resource_tracker::recover::{recover, recover_temporary};

use crate::args::ListArgs;
use crate::failure::Failure;
use crate::show::{self, Table};

/// The user's history, with what dead trackers left made into recordings first.
pub fn history() -> Option<History> {
    let history = history::default_directory(|name| std::env::var_os(name)).map(History::at)?;
    // What cannot be recovered now can be the next time; the question at hand has its own answer.
    let _ = recover(&history);
    let _ = recover_temporary(&history, &std::env::temp_dir());
    Some(history)
}

/// Loads a file, or the run of the history that goes by this name.
pub fn load(name: &str) -> Result<Recording, Failure> {
    let path = if Path::new(name).exists() { PathBuf::from(name) } else { in_history(name)? };
    Recording::load(&path).map_err(|error| {
        let hint = error.hint();
        Failure::new(error, hint)
    })
}

fn in_history(name: &str) -> Result<PathBuf, Failure> {
    // What looks like a path is one, and its own error says more than the history's.
    let looks_like_a_path = name.contains('/') || Path::new(name).extension().is_some();
    match history().filter(|_| !looks_like_a_path) {
        Some(history) => Ok(history.recording_path(&history.find(name)?.id)),
        None => Ok(PathBuf::from(name)),
    }
}

/// Lists the runs.
pub fn list(args: &ListArgs) -> Result<u8, Failure> {
    let listing = history().map(|history| history.list()).transpose()?.unwrap_or_default();
    let entries: Vec<&Entry> =
        listing.entries.iter().filter(|entry| args.job.is_none() || entry.job == args.job).collect();
    if args.json {
        return show::json(&entries);
    }
    let mut table =
        Table::new(&["id", "job", "started", ">duration", "status", ">CPU", ">memory", "command"]);
    for entry in entries {
        let stat = |column, aggregate| entry.stats.as_ref().and_then(|stats| stats.get(column, aggregate));
        table.row([
            entry.id.clone(),
            entry.job.clone().unwrap_or_default(),
            entry.start_time.map(show::time).unwrap_or_default(),
            entry.duration_s.map(show::duration).unwrap_or_default(),
            entry.status.as_ref().map(|status| status.as_str().to_owned()).unwrap_or_default(),
            stat("process_cpu_usage", "mean").map(|cores| format!("{cores:.2}")).unwrap_or_default(),
            stat("process_memory", "max").map(|kib| show::bytes(kib * 1024.0)).unwrap_or_default(),
            show::one_line(&entry.command.clone().unwrap_or_default().join(" "), 40),
        ]);
    }
    if listing.damaged > 0 {
        show::warning(&format!("{} runs could not be read", listing.damaged));
    }
    show::text(&table.to_string())
}
