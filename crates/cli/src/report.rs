//! `report`, and the report that `run` writes at its end.
//!
//! `report` may ask the Keeper for servers and prices; `run` asks nobody, and uses the built-in catalogue.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use resource_tracker::catalog::Settings;
use resource_tracker::output::Output;
use resource_tracker::record::Rows;
use resource_tracker::recording::{Head, Recording};
use resource_tracker::report::render;

use crate::args::ReportArgs;
use crate::failure::Failure;
use crate::past;
use crate::show;

/// Writes a recording as a page.
pub fn report(args: &ReportArgs) -> Result<u8, Failure> {
    let recording = past::load(&args.which.recording)?;
    let path = args
        .output
        .clone()
        .unwrap_or_else(|| PathBuf::from(file_name(&recording.head, &args.which.recording)));
    let failed = |error| Failure::unwritable(&path, error);
    let mut output = Output::open_argument(&path).map_err(failed)?;
    let html = page(&recording, args.context.network.catalog(), args.context.history);
    output.write_all(html.as_bytes()).and_then(|()| output.commit()).map_err(failed)?;
    if path != Path::new("-") && args.format.json {
        show::json(&serde_json::json!({ "report": path }))?;
    } else if path != Path::new("-") {
        show::path(&path);
    }
    if args.open && !open(&path) {
        show::warning("no program was found to open the page with");
    }
    Ok(0)
}

/// Writes the report of a run that has just ended.
pub fn write(mut output: Output, rows: &Rows, head: &Head, earlier_runs: usize) -> io::Result<()> {
    let recording = rows.recording(head.clone())?;
    output.write_all(page(&recording, past::nobody(), earlier_runs).as_bytes())?;
    output.commit()
}

fn page(recording: &Recording, settings: Settings, earlier_runs: usize) -> String {
    render(recording, &past::context(&recording.head, recording.summary(), earlier_runs, settings))
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
