//! `check`: compares a run with budgets and other runs, for CI. The exit status is 1 if a budget is broken.

use std::fmt::Write as _;
use std::io::Write as _;

use resource_tracker::human::printable;
use resource_tracker::{Catalog, Check, Output};

use crate::args::CheckArgs;
use crate::failure::Failure;
use crate::load::{NoFinishedRun, embedded_only, recovered_history, select, select_run};
use crate::show::{self, Table};

pub fn check(args: &CheckArgs) -> Result<u8, Failure> {
    let run = select_run(&args.which.recording)?;
    let other = args.against.as_ref().map(|name| select(name)).transpose()?;
    let against = other.as_ref().map(|other| (other, args.tolerance));
    let history = recovered_history().ok();
    let mut catalog = Catalog::new(embedded_only());
    let check = Check::of(&run, &args.max, against, history.as_ref(), args.past.latest(), &mut catalog);
    show::unreadable_runs(&check.unreadable);
    if let Some(warning) = check.warning() {
        show::warning(&warning);
    }
    if let Some(side) = check.against.as_ref().filter(|side| side.count() == 0) {
        return Err(NoFinishedRun::failure(&side.name));
    }
    if let Some(path) = &args.junit {
        let failed = |error| Failure::unwritable(path, error);
        let mut output = Output::open_argument(path, args.force).map_err(failed)?;
        output.write_all(junit(&check).as_bytes()).and_then(|()| output.commit()).map_err(failed)?;
    }
    if args.format.json {
        show::json(&check.json())?;
    } else {
        show::text(&table(&check).to_string())?;
        show::text(&broken(&check, args.github))?;
    }
    Ok(u8::from(!check.is_passed()))
}

fn table(check: &Check) -> Table {
    let mut table =
        Table::new(&["figure", &format!(">{}", show::one_line(&check.run.name, 24)), ">limit", "", ""]);
    for outcome in &check.outcomes {
        let value = outcome.value.map_or_else(|| "unknown".to_owned(), |value| outcome.figure.show(value));
        let result = if outcome.is_kept() { "ok" } else { "broken" };
        let origin = outcome.origin();
        table.row([
            outcome.figure.name.to_owned(),
            value,
            outcome.figure.show(outcome.limit),
            result.to_owned(),
            origin,
        ]);
    }
    table
}

/// A line for each broken budget; for GitHub as workflow commands, which it shows as annotations.
fn broken(check: &Check, is_github: bool) -> String {
    let mut text = String::new();
    for outcome in check.outcomes.iter().filter(|outcome| !outcome.is_kept()) {
        let message = show::one_line(&outcome.message(), 400);
        if is_github {
            let title = show::one_line(&format!("{} of {}", outcome.figure.name, check.run.name), 100);
            let title = escaped_for_github(&title).replace(':', "%3A").replace(',', "%2C");
            let _ = writeln!(text, "::error title={title}::{}", escaped_for_github(&message));
        } else {
            let _ = writeln!(text, "{} {message}", show::styled(show::BAD, "broken:"));
        }
    }
    text
}

/// The text of a workflow command, escaped as `@actions/core` does it.
fn escaped_for_github(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// `JUnit` XML with a test case for each budget.
fn junit(check: &Check) -> String {
    let broken = check.outcomes.iter().filter(|outcome| !outcome.is_kept()).count();
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n\
         <testsuite name=\"resource-tracker\" tests=\"{}\" failures=\"{broken}\" errors=\"0\" skipped=\"0\">\n",
        check.outcomes.len()
    );
    for outcome in &check.outcomes {
        let class = escaped_for_xml(&check.run.name);
        let name = escaped_for_xml(&format!("{} {}", outcome.figure.name, outcome.origin()));
        let _ = write!(xml, "<testcase classname=\"{class}\" name=\"{}\"", name.trim_end());
        if outcome.is_kept() {
            xml += "/>\n";
        } else {
            let message = escaped_for_xml(&outcome.message());
            let _ = writeln!(xml, "><failure message=\"{message}\"/></testcase>");
        }
    }
    xml + "</testsuite>\n</testsuites>\n"
}

/// Text of an attribute. XML has no way to write most control characters.
fn escaped_for_xml(text: &str) -> String {
    let mut escaped = printable(text).replace(['\n', '\t', '\u{fffe}', '\u{ffff}'], "\u{fffd}");
    for (letter, entity) in [("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("\"", "&quot;")] {
        escaped = escaped.replace(letter, entity);
    }
    escaped
}
