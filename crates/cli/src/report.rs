//! `report`, and the report that `run --report` writes when the job ends.
//!
//! `report` may query the Keeper for servers and prices; `run --report` uses the built-in catalogue only.

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use resource_tracker::{AdviceOptions, CatalogSettings, Head, Output, Recording, ReportContext, Rows};

use crate::args::ReportArgs;
use crate::failure::Failure;
use crate::load::{embedded_only, load};
use crate::show;

/// How long a browser is watched. Most hand the page to a running one and end.
const FAILS_WITHIN: Duration = Duration::from_secs(2);

pub fn report(args: &ReportArgs) -> Result<u8, Failure> {
    let options = args.context.options()?;
    let recording = load(&args.which.recording)?;
    let path = args
        .output
        .clone()
        .unwrap_or_else(|| PathBuf::from(file_name(&recording.head, &args.which.recording)));
    let failed = |error| Failure::unwritable(&path, error);
    let open = if args.output.is_some() { Output::open_argument } else { Output::open_default };
    let mut output = open(&path, args.force).map_err(failed)?;
    let html = page(&recording, args.context.network.catalog(), &options);
    output.write_all(html.as_bytes()).and_then(|()| output.commit()).map_err(failed)?;
    if path != Path::new("-") && args.format.json {
        show::json(&serde_json::json!({ "report": path.display().to_string() }))?;
    } else if path != Path::new("-") {
        show::path(&path);
    }
    if args.open
        && let Err(error) = open_in_browser(&path)
    {
        let page = show::one_line(&path.display().to_string(), 500);
        let why = show::one_line(&error.to_string(), 200);
        show::warning(&format!("cannot open `{page}` in a browser: {why}; open the file, or set `BROWSER`"));
    }
    Ok(0)
}

/// Writes the report of a run that has just ended.
pub fn write(mut output: Output, rows: &Rows, head: &Head, options: &AdviceOptions) -> io::Result<()> {
    let recording = rows.recording(head.clone())?;
    output.write_all(page(&recording, embedded_only(), options).as_bytes())?;
    output.commit()
}

fn page(recording: &Recording, settings: CatalogSettings, options: &AdviceOptions) -> String {
    ReportContext::with_servers(&recording.head, recording.summary(), options, settings).render(recording)
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

/// Starts `$BROWSER`, else the default browser of the system. A browser that fails within [`FAILS_WITHIN`] is an error; one
/// that still runs is left alone.
fn open_in_browser(path: &Path) -> io::Result<()> {
    // A path that starts with `-` must not be an option of the browser.
    let path = std::path::absolute(path)?;
    let Some(browser) = std::env::var_os("BROWSER").filter(|name| !name.is_empty()) else {
        // The text of an error that is not of the system is for developers of the launcher.
        let plain = |error: io::Error| match error.raw_os_error() {
            Some(_) => error,
            None => io::Error::other("no program for web pages works"),
        };
        return open::that_detached_with_timeout(&path, FAILS_WITHIN).map_err(plain);
    };
    let mut command = Command::new(&browser);
    command.arg(&path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let name = browser.display();
    let mut child =
        command.spawn().map_err(|error| io::Error::new(error.kind(), format!("`{name}`: {error}")))?;
    let started = Instant::now();
    while started.elapsed() < FAILS_WITHIN {
        match child.try_wait()? {
            Some(status) if status.success() => break,
            Some(status) => return Err(io::Error::other(format!("`{name}` failed ({status})"))),
            None => thread::sleep(Duration::from_millis(10)),
        }
    }
    Ok(())
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
