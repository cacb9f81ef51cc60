//! `report`, and the report that `run` writes at its end.
//!
//! `report` may ask the Keeper for servers and prices; `run` asks nobody, and uses the built-in catalogue.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use resource_tracker::catalog::{Catalog, Settings};
use resource_tracker::history::{self, History};
use resource_tracker::output::Output;
use resource_tracker::record::Rows;
use resource_tracker::recording::{Head, Recording};
use resource_tracker::report::{Context, Zone, render};
use resource_tracker::stats::Stats;

use crate::args::ReportArgs;
use crate::failure::Failure;
use crate::past;
use crate::show;

/// Earlier runs of the job that a report counts in.
const EARLIER_RUNS: usize = 5;

/// Writes a recording as a page.
pub fn report(args: &ReportArgs) -> Result<u8, Failure> {
    let recording = past::load(&args.recording)?;
    let path =
        args.output.clone().unwrap_or_else(|| PathBuf::from(file_name(&recording.head, &args.recording)));
    let failed = |error| Failure { code: 1, hint: None, ..Failure::output(&path, error) };
    let mut output = Output::open(&path).map_err(failed)?;
    let html = page(&recording, Settings::from_env());
    output.write_all(html.as_bytes()).and_then(|()| output.commit()).map_err(failed)?;
    if path != Path::new("-") {
        show::path(&path);
    }
    if args.open && !open(&path) {
        show::warning("no program was found to open the page with");
    }
    Ok(0)
}

/// Writes the report of a run that has just ended.
pub fn write(mut output: Output, rows: &Rows, head: &Head) -> io::Result<()> {
    let recording = rows.recording(head.clone())?;
    let nobody = Settings { cache_dir: None, ..Settings::offline() };
    output.write_all(page(&recording, nobody).as_bytes())?;
    output.commit()
}

fn page(recording: &Recording, settings: Settings) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    let zone = Zone::local_at(recording.head.metadata.start_time.unwrap_or(now));
    let mut context = Context::new(recording, earlier(&recording.head), now, zone);
    context.ask(&recording.head, &mut Catalog::new(settings));
    render(recording, &context)
}

/// Statistics of the job's last runs that ended well, but for this one and those after it.
fn earlier(head: &Head) -> Vec<Stats> {
    let history = history::default_directory(|name| std::env::var_os(name)).map(History::at);
    let run = head.run.as_ref();
    let Some((history, job)) = history.zip(run.and_then(|run| run.job.as_deref())) else { return Vec::new() };
    let entries = history.successful(job, usize::MAX).unwrap_or_default();
    let before =
        |start_time: Option<f64>| start_time.zip(head.metadata.start_time).is_some_and(|(a, b)| a < b);
    let earlier = entries.into_iter().filter(|entry| before(entry.start_time));
    earlier.filter_map(|entry| entry.stats).take(EARLIER_RUNS).collect()
}

/// By the job's name, else the run's id, else the file's own name, with nothing that a shell or a file system minds.
fn file_name(head: &Head, recording: &str) -> String {
    let run = head.run.as_ref();
    let stem = || {
        let name = Path::new(recording).file_name()?.to_str()?;
        Some(name.trim_end_matches(".gz").trim_end_matches(".json").to_owned())
    };
    let job = run.and_then(|run| run.job.clone()).filter(|job| job.contains(char::is_alphanumeric));
    let name = job.or_else(|| run?.id.clone()).or_else(stem).unwrap_or_default();
    let safe: String = name
        .chars()
        .map(
            |letter| if letter.is_alphanumeric() || matches!(letter, '-' | '_' | '.') { letter } else { '-' },
        )
        .take(80)
        .collect();
    match safe.trim_matches(['-', '.']) {
        "" => "report.html".to_owned(),
        name => format!("{name}-report.html"),
    }
}

/// Starts what shows pages on this machine, and does not wait for it.
fn open(path: &Path) -> bool {
    let from_user = std::env::var("BROWSER").ok().filter(|browser| !browser.is_empty());
    let programs = from_user.as_deref().into_iter().chain(["xdg-open", "open"]);
    programs.into_iter().any(|program| {
        let quiet = || Stdio::null();
        Command::new(program).arg(path).stdin(quiet()).stdout(quiet()).stderr(quiet()).spawn().is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use resource_tracker::config::Config;
    use resource_tracker::record;
    use resource_tracker::recording::Run;

    #[test]
    fn files_are_named_after_the_job_and_stay_in_this_folder() {
        let name = |job: Option<&str>, id: Option<&str>, recording: &str| {
            let run = Run { job: job.map(Into::into), id: id.map(Into::into), ..Run::default() };
            file_name(&record::head(&Config::default(), 1, 0.0, run), recording)
        };
        assert_eq!(name(Some("train"), Some("3f9c"), "last"), "train-report.html");
        assert_eq!(name(Some("../a b/<x>"), None, "last"), "a-b--x-report.html");
        assert_eq!(name(None, Some("3f9c"), "last"), "3f9c-report.html");
        assert_eq!(name(None, None, "/tmp/day.json.gz"), "day-report.html");
        assert_eq!(name(Some("///"), None, "/"), "report.html");
    }
}
