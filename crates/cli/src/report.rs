//! `report`, and the report that `run --report` writes when the job ends.
//!
//! `report` may query the Keeper for servers and prices; `run --report` uses the built-in catalogue only.

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use resource_tracker::{CatalogSettings, Head, Output, Recording, Rows};

use crate::args::ReportArgs;
use crate::failure::Failure;
use crate::load::{self, embedded_only, load};
use crate::show;

pub fn report(args: &ReportArgs) -> Result<u8, Failure> {
    let recording = load(&args.which.recording)?;
    let path = args
        .output
        .clone()
        .unwrap_or_else(|| PathBuf::from(file_name(&recording.head, &args.which.recording)));
    let failed = |error| Failure::unwritable(&path, error);
    let open = if args.output.is_some() { Output::open_argument } else { Output::open_default };
    let mut output = open(&path, args.force).map_err(failed)?;
    let html = page(&recording, args.context.network.catalog(), args.context.history);
    output.write_all(html.as_bytes()).and_then(|()| output.commit()).map_err(failed)?;
    if path != Path::new("-") && args.format.json {
        show::json(&serde_json::json!({ "report": path.display().to_string() }))?;
    } else if path != Path::new("-") {
        show::path(&path);
    }
    if args.open
        && let Err(error) = open_in_browser(&path)
    {
        // The text of an error that is not of the system is for developers of the launcher.
        let why = error.raw_os_error().map_or_else(String::new, |_| format!(": {error}"));
        show::warning(&format!("cannot open the report in a browser{why}; open the file, or set `BROWSER`"));
    }
    Ok(0)
}

/// Writes the report of a run that has just ended.
pub fn write(mut output: Output, rows: &Rows, head: &Head, earlier_runs: usize) -> io::Result<()> {
    let recording = rows.recording(head.clone())?;
    output.write_all(page(&recording, embedded_only(), earlier_runs).as_bytes())?;
    output.commit()
}

fn page(recording: &Recording, settings: CatalogSettings, earlier_runs: usize) -> String {
    load::context(&recording.head, recording.summary(), earlier_runs, settings).render(recording)
}

/// The job's name, else the run's id, else the name of the recording, without characters special to shells and file systems.
fn file_name(head: &Head, recording: &OsStr) -> String {
    let run = head.run.as_ref();
    let stem = || {
        let name = Path::new(recording).file_name()?.to_string_lossy();
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

/// Starts `$BROWSER`, else the default browser of the system, and does not wait for it.
fn open_in_browser(path: &Path) -> io::Result<()> {
    match std::env::var("BROWSER") {
        Ok(browser) if !browser.is_empty() => open::with_detached(path, browser),
        _ => open::that_detached(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use resource_tracker::Config;
    use resource_tracker::{Head, Run};

    #[test]
    fn report_is_named_after_the_job_and_stays_in_the_current_directory() {
        let name = |job: Option<&str>, id: Option<&str>, recording: &str| {
            let run = Run { job: job.map(Into::into), id: id.map(Into::into), ..Run::default() };
            file_name(&Head::new(&Config::default(), 1, 0.0, run), recording.as_ref())
        };
        assert_eq!(name(Some("train"), Some("3f9c"), "last"), "train-report.html");
        assert_eq!(name(Some("../a b/<x>"), None, "last"), "a-b--x-report.html");
        assert_eq!(name(None, Some("3f9c"), "last"), "3f9c-report.html");
        assert_eq!(name(None, None, "/tmp/day.json.gz"), "day-report.html");
        assert_eq!(name(Some("///"), None, "/"), "report.html");
    }
}
