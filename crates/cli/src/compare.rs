//! `compare`: prints runs and jobs side by side; the first is the baseline.

use resource_tracker::{Catalog, Comparison};
use serde_json::json;

use crate::args::CompareArgs;
use crate::failure::Failure;
use crate::load::{NoFinishedRun, embedded_only, recovered_history, select};
use crate::show::{self, Table};

pub fn compare(args: &CompareArgs) -> Result<u8, Failure> {
    let selections = args.recordings.iter().map(|name| select(name)).collect::<Result<Vec<_>, _>>()?;
    let history = recovered_history().ok();
    let mut catalog = Catalog::new(embedded_only());
    let comparison = Comparison::of(&selections, history.as_ref(), args.past.latest(), &mut catalog);
    show::unreadable_runs(&comparison.unreadable);
    if let Some(side) = comparison.sides.iter().find(|side| side.count() == 0) {
        return Err(NoFinishedRun::failure(&side.name));
    }
    if args.format.json {
        let figures: serde_json::Map<String, serde_json::Value> =
            comparison.figures.iter().map(|(figure, cells)| (figure.key.to_owned(), json!(cells))).collect();
        return show::json(&json!({ "sides": comparison.sides, "figures": figures }));
    }
    show::text(&format!("{}\n{}", table(&comparison), legend(&comparison)))
}

fn table(comparison: &Comparison) -> Table {
    let heads = comparison.sides.iter().enumerate().flat_map(|(number, side)| {
        let count = if side.count() == 1 { String::new() } else { format!(" ({} runs)", side.count()) };
        let value = format!(">{}{count}", show::one_line(&side.name, 24));
        if number == 0 { vec![value] } else { vec![value, ">change".to_owned()] }
    });
    let heads: Vec<String> = std::iter::once(String::new()).chain(heads).collect();
    let mut table = Table::new(&heads.iter().map(String::as_str).collect::<Vec<_>>());
    for (figure, cells) in &comparison.figures {
        let mut row = vec![figure.name.to_owned()];
        for (number, cell) in cells.iter().enumerate() {
            row.push(cell.value.map(|value| figure.show(value)).unwrap_or_default());
            if number > 0 {
                let change = cell.change_percent.map(|percent| format!("{percent:+.1} %"));
                let mark = (cell.is_significant == Some(true)).then(|| "*".to_owned());
                row.push(change.into_iter().chain(mark).collect::<Vec<_>>().join(" "));
            }
        }
        table.row(row);
    }
    table
}

/// The meaning of `*`, and which changes cannot be marked.
fn legend(comparison: &Comparison) -> String {
    let others = comparison.sides.iter().enumerate().skip(1);
    let (known, unknown): (Vec<_>, Vec<_>) = others.partition(|(number, _)| {
        comparison.figures.iter().any(|(_, cells)| cells[*number].interval.is_some())
    });
    let why = "this takes at least 3 runs of both jobs, or one run and a job with 3 other runs\n";
    if known.is_empty() {
        return format!("no change is marked: {why}");
    }
    let marked = "* real: the 95 % interval of the difference does not include 0\n";
    let names: Vec<_> = unknown.iter().map(|(_, side)| show::one_line(&side.name, 24)).collect();
    if names.is_empty() {
        marked.to_owned()
    } else {
        format!("{marked}{} not marked: {why}", names.join(", "))
    }
}
