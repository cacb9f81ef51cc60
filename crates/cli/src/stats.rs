//! `stats`: prints statistics of a recording's columns.

use resource_tracker::human::{self, Scale};
use resource_tracker::{HistoryEntry, Metric, Unit};
use serde_json::json;

use crate::args::StatsArgs;
use crate::failure::Failure;
use crate::load::load;
use crate::show::{self, Table};

pub fn stats(args: &StatsArgs) -> Result<u8, Failure> {
    let recording = load(&args.which.recording)?;
    let stats = if args.specs.is_empty() { recording.stats() } else { recording.stats_of(&args.specs) };
    let stats = stats?;
    if args.format.json {
        let run = HistoryEntry::object_of(&recording.head, &recording.summary());
        return show::json(&json!({ "stats": stats, "run": run }));
    }
    let mut table = Table::new(&["column", "statistic", ">value"]);
    for (column, aggregate, value) in stats.iter() {
        let value = value.map(|value| with_unit(column, aggregate, value)).unwrap_or_default();
        table.row([show::one_line(column, 60), aggregate.to_owned(), value]);
    }
    show::text(&table.to_string())
}

/// A statistic of a column of the combined table, in the column's unit.
fn with_unit(column: &str, aggregate: &str, value: f64) -> String {
    if column == "timestamp" {
        return if aggregate == "duration" { human::duration(value) } else { show::local_time(value) };
    }
    match Metric::find_combined(column).map(Metric::unit) {
        Some(unit @ (Unit::Bytes | Unit::KiB | Unit::MiB | Unit::GiB)) => {
            Scale::Bytes.show(value * unit.byte_factor().unwrap_or(1.0))
        }
        Some(Unit::Seconds) => human::duration(value),
        Some(Unit::Count) if value.fract() == 0.0 => format!("{value:.0}"),
        Some(unit @ (Unit::Watts | Unit::Celsius | Unit::Megahertz)) => {
            format!("{value:.0} {}", unit.symbol())
        }
        Some(Unit::Count | Unit::Cores | Unit::UnixTime) | None => format!("{value:.2}"),
    }
}
