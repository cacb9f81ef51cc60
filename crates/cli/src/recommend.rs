//! `recommend`: prints the resources to request for the next run, and the cheapest server that has them.

use std::fmt::Write as _;

use resource_tracker::human;
use resource_tracker::{Advice, ReportContext, Servers};
use serde_json::json;

use crate::args::RecommendArgs;
use crate::failure::Failure;
use crate::load::{self, load};
use crate::show;

pub fn recommend(args: &RecommendArgs) -> Result<u8, Failure> {
    let recording = load(&args.which.recording)?;
    let context = load::context(
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
    // Earlier runs may have had other machines.
    let limits = (advice.basis.runs == 1).then(|| recording.head.limits());
    let of = |limit: Option<String>| limit.map_or_else(String::new, |limit| format!(" of {limit}"));
    let (request, basis) = (advice.to_ask(), &advice.basis);
    let mut lines = vec![("runs", format!("{}, including this one", basis.runs))];
    let cpu = basis.cpu_mean_cores.map_or_else(String::new, |mean| {
        format!("  (mean {mean:.2}{})", of(limits.and_then(|limits| limits.cpu_cores).map(show::cpus)))
    });
    lines.push(("CPU", format!("{}{cpu}", request.cpu)));
    let margin = if request == advice.resources { ", plus 20 %" } else { "; estimated" };
    let memory = basis.memory_peak_kib.map_or_else(String::new, |kib| {
        let limit = of(limits.and_then(|limits| limits.memory_mb).map(human::megabytes));
        format!("  (peak {}{limit}{margin})", human::megabytes(kib / 1024.0))
    });
    lines.push(("memory", format!("{} MiB{memory}", request.memory_mb)));
    lines.push(("GPU", request.gpu.to_string()));
    if request.vram_mb > 0 {
        lines.push(("VRAM", format!("{} MiB", request.vram_mb)));
    }
    lines.push(("server", server(&context)));
    if let Some(cost) = cost.recommended {
        lines.push(("expected cost", format!("{} per run", human::usd(cost.usd))));
    }
    if let Some(here) = cost.current {
        let (usd, per_hour) = (human::usd(here.usd), human::usd(here.usd_per_hour));
        lines.push(("cost here", format!("{usd} at {per_hour}/h")));
    }
    show::text(&(show::aligned(&lines) + &warnings(&advice)))
}

fn server(context: &ReportContext) -> String {
    match (&context.servers, context.server()) {
        (_, Some(server)) => show::server(server),
        (Servers::Unanswered { reason }, _) => format!("none: {reason}"),
        _ => "no server fits".to_owned(),
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
