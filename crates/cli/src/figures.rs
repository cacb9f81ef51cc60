//! `stats` and `recommend`: what a recording's figures come to.

use std::fmt::Write as _;

use resource_tracker::frame::CombinedOptions;
use resource_tracker::human::{self, Scale};
use resource_tracker::metric::{Metric, Unit};
use resource_tracker::recommend::Advice;
use resource_tracker::report::{Context, Servers, limits};
use resource_tracker::stats::compute;
use serde_json::json;

use crate::args::{RecommendArgs, StatsArgs};
use crate::failure::Failure;
use crate::past;
use crate::show::{self, Table};

/// Shows statistics.
pub fn stats(args: &StatsArgs) -> Result<u8, Failure> {
    let recording = past::load(&args.which.recording)?;
    let stats = if args.specs.is_empty() {
        recording.stats()
    } else {
        let combined = recording.combined(&CombinedOptions::default());
        compute(&combined.map_err(|error| Failure::new(error, None))?, &args.specs)
    };
    let stats = stats?;
    if args.format.json {
        return show::json(&json!({ "stats": stats }));
    }
    let mut table = Table::new(&["column", "statistic", ">value"]);
    for (column, aggregate, value) in stats.iter() {
        let value = value.map(|value| figure(column, aggregate, value)).unwrap_or_default();
        table.row([show::one_line(column, 60), aggregate.to_owned(), value]);
    }
    show::text(&table.to_string())
}

/// A value of a column of the combined table, in its unit.
fn figure(column: &str, aggregate: &str, value: f64) -> String {
    if column == "timestamp" {
        return if aggregate == "duration" { human::duration(value) } else { show::moment(value) };
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

/// Says what to ask for.
pub fn recommend(args: &RecommendArgs) -> Result<u8, Failure> {
    let recording = past::load(&args.which.recording)?;
    let context = past::context(
        &recording.head,
        recording.summary(),
        args.context.history,
        args.context.network.catalog(),
    );
    let advice = context.advice.clone()?;
    let cost = context.cost(context.server());
    if args.format.json {
        return show::json(&json!({
            "resources": advice.resources,
            "ask": advice.to_ask(),
            "basis": advice.basis,
            "warnings": advice.warnings,
            "findings": advice.findings,
            "server": context.server(),
            "cost": cost,
        }));
    }
    let had = limits(&recording.head);
    let of = |had: Option<String>| had.map_or_else(String::new, |had| format!(" of {had}"));
    let (resources, basis) = (advice.to_ask(), &advice.basis);
    let mut lines = vec![("runs", format!("{}, this one included", basis.runs))];
    let cpu = basis.cpu_mean_cores.map_or_else(String::new, |mean| {
        format!("  (mean {mean:.2}{})", of(had.cpu_cores.map(|cores| format!("{cores} CPUs"))))
    });
    lines.push(("CPU", format!("{}{cpu}", resources.cpu)));
    let is_estimate = resources != advice.resources;
    let on_top = if is_estimate { ": an estimate" } else { ", 20 % on top" };
    let memory = basis.memory_peak_kib.map_or_else(String::new, |kib| {
        format!(
            "  (peak {}{}{on_top})",
            human::megabytes(kib / 1024.0),
            of(had.memory_mb.map(human::megabytes))
        )
    });
    lines.push(("memory", format!("{} MB{memory}", resources.memory_mb)));
    lines.push(("GPU", resources.gpu.to_string()));
    if resources.vram_mb > 0 {
        lines.push(("VRAM", format!("{} MB", resources.vram_mb)));
    }
    lines.push(("server", server(&context)));
    if let Some(cost) = cost.recommended {
        lines.push(("such a run", human::usd(cost.usd)));
    }
    if let Some(here) = cost.current {
        lines.push((
            "cost here",
            format!("{} at {} an hour", human::usd(here.usd), human::usd(here.usd_per_hour)),
        ));
    }
    show::text(&(show::aligned(&lines) + &warnings(&advice)))
}

fn server(context: &Context) -> String {
    match (&context.servers, context.server()) {
        (_, Some(server)) => {
            let price = server
                .ondemand_usd()
                .map_or_else(String::new, |usd| format!(" at {} an hour", human::usd(usd)));
            format!("{} {}{price}", show::one_line(server.vendor_id(), 24), show::one_line(server.name(), 60))
        }
        (Servers::Unanswered { reason }, _) => format!("none: {reason}"),
        _ => "none fits".to_owned(),
    }
}

fn warnings(advice: &Advice) -> String {
    let mut text = String::new();
    for warning in &advice.warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    for finding in &advice.findings {
        let _ = writeln!(text, "{finding}");
    }
    text
}
