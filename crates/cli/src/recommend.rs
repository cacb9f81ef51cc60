//! `recommend`: prints the resources to request for the next run, and the cheapest server that has them.

use std::fmt::Write as _;

use resource_tracker::human;
use resource_tracker::{Advice, Answer, ReportContext, Server};

use crate::args::{RecommendArgs, SystemArg};
use crate::failure::Failure;
use crate::fleet;
use crate::load::{self, load};
use crate::show::{self, Table};

pub fn recommend(args: &RecommendArgs) -> Result<u8, Failure> {
    let mut options = args.context.options()?;
    let recording = load(&args.which.recording)?;
    if let Some(store) = &args.store {
        options.other_runs = store.earlier(&recording.head, options.earlier_runs).map_err(fleet::failure)?;
        fleet::warnings(&[store]);
        if options.other_runs.is_empty() {
            show::warning(&format!("no earlier run of this job is in the store `{}`", store.url()));
        }
    }
    // A request has neither servers nor prices.
    let settings = args.system.map_or_else(|| args.context.network.catalog(), |_| load::embedded_only());
    let context = ReportContext::with_servers(&recording.head, recording.summary(), &options, settings);
    let advice = context.advice.clone()?;
    if let Some(system) = args.system {
        show::summary(&warnings(&advice, &[]));
        let requests = advice.request.requests(recording.head.run.as_ref());
        let text = match system {
            SystemArg::Metaflow => requests.metaflow,
            SystemArg::Slurm => requests.slurm,
            SystemArg::Kubernetes => requests.kubernetes,
            SystemArg::Nextflow => requests.nextflow,
            SystemArg::Snakemake => requests.snakemake,
            SystemArg::AwsBatch => requests.aws_batch,
        };
        return show::text(&(text + "\n"));
    }
    if args.format.json {
        return show::json(&context.advice_json(&recording.head)?);
    }
    let with = |value: String, why: Option<&str>| {
        why.map_or_else(|| value.clone(), |why| format!("{value}  ({why})"))
    };
    let request = &advice.request;
    let cpu = advice.cpu.as_ref().map(|cpu| cpu.why.as_str());
    let memory = advice.memory.as_ref().map(|memory| memory.why.as_str());
    let gpu = advice.gpu.as_ref().map(|gpu| gpu.why.as_str());
    let requested = context.requested.clone().map(|text| ("requested", text));
    let mut lines: Vec<(&str, String)> = requested.into_iter().collect();
    lines.extend([
        ("CPU", with(request.cpu.to_string(), cpu)),
        ("memory", with(format!("{} MiB", request.memory_mb), memory)),
        ("GPU", with(request.gpu.to_string(), gpu)),
    ]);
    if request.vram_mb > 0 {
        lines.push(("VRAM", format!("{} MiB", request.vram_mb)));
    }
    let cost = context.cost(context.server());
    let none = || show::no_server(&context).unwrap_or_else(|| "no server fits".to_owned());
    lines.push(("server", context.servers.first().map_or_else(none, offer)));
    if let Some(cost) = cost.recommended {
        lines.push(("expected cost", format!("{} per run", human::usd(cost.usd))));
    }
    if let Some(cheaper) = context.servers.cheaper_elsewhere() {
        lines.push(("anywhere", offer(cheaper)));
    }
    lines.extend(show::cost_here(&context).map(|cost| ("cost here", cost)));
    let warnings = warnings(&advice, context.servers.notes());
    show::text(&format!("{}{warnings}\n{}", show::aligned(&lines), what_if(&context)))
}

fn offer(found: (&Answer, &Server)) -> String {
    format!("{}  ({})", show::server(found.1), show::about_server(found))
}

/// Predicted time and cost with 1, 2, 4, … CPUs.
fn what_if(context: &ReportContext) -> Table {
    let mut table = Table::new(&[">CPUs", ">predicted time", "cheapest server", ">cost of a run", ""]);
    for row in &context.what_if {
        let server = row.server.as_ref();
        let server =
            server.map(|server| show::one_line(&format!("{} {}", server.vendor_id, server.name), 60));
        table.row([
            row.cpus.to_string(),
            human::duration(row.predicted_seconds),
            server.unwrap_or_default(),
            row.cost_usd.map(human::usd).unwrap_or_default(),
            row.marks().to_owned(),
        ]);
    }
    if let Some(width) = show::columns() {
        table.fit(width, &[2]);
    }
    table
}

fn warnings(advice: &Advice, notes: &[String]) -> String {
    let mut text = String::new();
    for note in notes {
        let _ = writeln!(text, "note: {}", show::one_line(note, 200));
    }
    for warning in &advice.warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    for finding in &advice.findings {
        let _ = writeln!(text, "{finding}");
    }
    text
}
