//! `compare`: prints runs side by side; the first is the baseline.

use std::ffi::OsStr;

use resource_tracker::{Catalog, ComparedFigure, ComparedJob, Comparison, ComparisonCell, Recording};
use serde_json::json;

use crate::args::CompareArgs;
use crate::failure::Failure;
use crate::load::{embedded_only, load, recovered_history};
use crate::show::{self, Table};

pub fn compare(args: &CompareArgs) -> Result<u8, Failure> {
    let runs = args.recordings.iter().map(|name| load(name)).collect::<Result<Vec<_>, _>>()?;
    let history =
        recovered_history().ok().and_then(|history| history.list().ok()).unwrap_or_default().entries;
    let comparison = Comparison::of(&runs, &history, &mut Catalog::new(embedded_only()));
    let names: Vec<String> =
        runs.iter().zip(&args.recordings).map(|(run, asked)| name_of(run, asked)).collect();
    if args.format.json {
        let figures: serde_json::Map<String, serde_json::Value> =
            comparison.figures.iter().map(|(figure, cells)| (figure.key.to_owned(), json!(cells))).collect();
        let earlier = comparison.jobs.iter().map(|job| job.earlier.len()).min();
        return show::json(&json!({ "runs": names, "earlier_runs": earlier, "figures": figures }));
    }
    show::text(&format!("{}\n{}\n", table(&names, &comparison.figures), legend(&comparison)))
}

fn table(names: &[String], figures: &[(&ComparedFigure, Vec<ComparisonCell>)]) -> Table {
    let heads = names.iter().enumerate().flat_map(|(number, name)| {
        let value = format!(">{}", show::one_line(name, 24));
        if number == 0 { vec![value] } else { vec![value, ">change".to_owned()] }
    });
    let heads: Vec<String> = std::iter::once(String::new()).chain(heads).collect();
    let mut table = Table::new(&heads.iter().map(String::as_str).collect::<Vec<_>>());
    for (ComparedFigure { name, show, .. }, cells) in figures {
        let mut row = vec![(*name).to_owned()];
        for (number, cell) in cells.iter().enumerate() {
            row.push(cell.value.map(show).unwrap_or_default());
            if number > 0 {
                let mark = if cell.is_beyond_spread == Some(true) { " *" } else { "" };
                row.push(
                    cell.change_percent.map(|percent| format!("{percent:+.1} %{mark}")).unwrap_or_default(),
                );
            }
        }
        table.row(row);
    }
    table
}

/// The meaning of `*`, or why no change is marked.
fn legend(comparison: &Comparison<'_>) -> String {
    let mut jobs: Vec<&ComparedJob> = Vec::new();
    for job in &comparison.jobs {
        if jobs.iter().all(|other| other.name != job.name) {
            jobs.push(job);
        }
    }
    match (jobs.as_slice(), comparison.can_mark()) {
        ([_], false) => "no change is marked: fewer than 3 earlier runs of the job in the history".to_owned(),
        ([job], true) => format!("* larger than the spread of {} earlier runs of the job", job.earlier.len()),
        (_, false) => {
            "no change is marked: fewer than 3 earlier runs of one of the jobs in the history".to_owned()
        }
        (jobs, true) => {
            let counted = jobs.iter().map(|job| {
                let name = show::one_line(job.name.unwrap_or("no job"), 24);
                let too_few = if job.has_enough_runs() { "" } else { " (too few)" };
                format!("{name} {}{too_few}", job.earlier.len())
            });
            let counted = counted.collect::<Vec<_>>().join(", ");
            format!("* larger than the spread of both jobs; earlier runs: {counted}")
        }
    }
}

fn name_of(recording: &Recording, asked: &OsStr) -> String {
    let run = recording.head.run.clone().unwrap_or_default();
    match (run.job, run.id) {
        (Some(job), Some(id)) => format!("{job} {}", id.chars().take(6).collect::<String>()),
        (None, Some(id)) => id,
        _ => asked.to_string_lossy().into_owned(),
    }
}
