//! `list`, `show` and `rm`: the history of runs.

use resource_tracker::human::{self, Scale};
use resource_tracker::{Catalog, Column, Filters, HistoryEntry, Metric, Recording, Run};
use serde_json::json;

use crate::args::{ListArgs, OUT_OF_MEMORY, RmArgs, ShowArgs};
use crate::failure::Failure;
use crate::load::{context, embedded_only, load_with_path, recovered_history, unix_now_s};
use crate::show::{self, Table};
use crate::summary::RunSummary;
use crate::trend::{Trend, Trends};

pub fn list(args: &ListArgs) -> Result<u8, Failure> {
    let listing = recovered_history()?.list()?;
    let entries: Vec<&HistoryEntry> = listing.entries.iter().filter(|entry| is_listed(entry, args)).collect();
    show::unreadable_runs(&listing.damaged);
    if args.format.json {
        let runs: Vec<_> = entries.iter().map(|entry| entry.run_object()).collect();
        return show::json(&json!({ "runs": runs }));
    }
    if entries.is_empty() && !(args.tags.is_empty() && args.status.is_none() && args.since.is_none()) {
        return show::text("no matching runs\n");
    }
    if entries.is_empty() {
        let of = args
            .job
            .as_ref()
            .map_or_else(String::new, |job| format!(" of job `{}`", show::one_line(job, 60)));
        return show::text(&format!("no runs{of} yet: `resource-tracker run -- COMMAND` records one\n"));
    }
    let width = show::columns();
    // A narrow terminal shows no year.
    let skipped = if width.is_some_and(|width| width < 100) { "2025-".len() } else { 0 };
    let started = |unix_s| show::local_time(unix_s).chars().skip(skipped).collect();
    let mut table =
        Table::new(&["id", "job", "started", ">duration", "status", ">CPU", ">memory", "command"]);
    for entry in entries {
        let stat =
            |metric: Metric, aggregate| entry.stats.as_ref()?.get(&metric.combined_column(), aggregate);
        table.row([
            entry.id.clone(),
            show::one_line(&entry.job.clone().unwrap_or_default(), 24),
            entry.start_time.map(started).unwrap_or_default(),
            entry.duration_s.map(human::duration).unwrap_or_default(),
            entry.status.as_ref().map(|status| show::one_line(status.as_str(), 16)).unwrap_or_default(),
            stat(Metric::ProcessCpu, "mean").map(|cores| format!("{cores:.2}")).unwrap_or_default(),
            stat(Metric::ProcessMemory, "max").map(|kib| Scale::Bytes.show(kib * 1024.0)).unwrap_or_default(),
            show::one_line(&entry.command.clone().unwrap_or_default().join(" "), 200),
        ]);
    }
    if let Some(width) = width {
        // The command is cut first, then the job.
        table.fit(width, &[7, 1]);
    }
    show::text(&table.to_string())
}

fn is_listed(entry: &HistoryEntry, args: &ListArgs) -> bool {
    let is_out_of_memory = || entry.sizing.as_ref().is_some_and(|sizing| sizing.out_of_memory);
    let has_status = |status: &str| match status {
        OUT_OF_MEMORY => is_out_of_memory(),
        status => entry.status.as_ref().is_some_and(|own| own.as_str() == status),
    };
    (args.job.is_none() || entry.job == args.job)
        && args.tags.iter().all(|(key, value)| entry.tags.get(key) == Some(value))
        && args.status.as_deref().is_none_or(has_status)
        && args.since.is_none_or(|since| entry.start_time.is_some_and(|start| start >= since))
}

pub fn show(args: &ShowArgs, filters: &Filters) -> Result<u8, Failure> {
    let (recording, path) = load_with_path(&args.which.recording)?;
    let table = |of: fn(&Run) -> Vec<Vec<String>>| recording.head.run.as_ref().map(of).unwrap_or_default();
    if args.programs {
        return show::text(&usage_table(&table(Run::program_table), "program"));
    }
    if args.phases {
        return show::text(&usage_table(&table(Run::phase_table), "phase"));
    }
    let notes = recording.head.run.as_ref().map(|run| run.notes.clone()).unwrap_or_default();
    let summary = RunSummary {
        head: &recording.head,
        context: &context(
            &recording.head,
            recording.summary(),
            &args.advice.options(filters.clone()),
            &mut Catalog::new(embedded_only()),
        ),
        trends: &trends(&recording),
        recording: Some(&path),
        report: None,
        notes: &notes,
        shows_evidence: true,
    };
    if args.format.json {
        return show::json(&summary.json());
    }
    show::text(&summary.text(show::can_draw_bars(&std::io::stdout())))
}

/// The usage by program or phase; the first row has the headings.
fn usage_table(rows: &[Vec<String>], by: &str) -> String {
    let Some((headings, rows)) = rows.split_first() else {
        return format!("the recording has no usage by {by}\n");
    };
    let mut table = Table::new(&headings.iter().map(String::as_str).collect::<Vec<_>>());
    for row in rows {
        table.row(row.clone());
    }
    if let Some(width) = show::columns() {
        table.fit(width, &[0]);
    }
    table.to_string()
}

fn trends(recording: &Recording) -> Trends {
    let of = |metric: Metric| {
        let mut trend = Trend::default();
        let column = recording.process.as_ref().and_then(|frame| frame.column(metric.column()).ok());
        column.into_iter().flat_map(Column::present).for_each(|value| trend.add(value));
        trend
    };
    Trends { cpu: of(Metric::ProcessCpu), memory: of(Metric::ProcessMemory) }
}

pub fn rm(args: &RmArgs) -> Result<u8, Failure> {
    let history = recovered_history()?;
    // All names are looked up before the first run is deleted: an unknown name deletes nothing.
    let mut ids = Vec::new();
    if args.runs.is_empty() {
        let before = args.older_than.map(|days| unix_now_s() - days * 86_400.0);
        let matches = |entry: &HistoryEntry| {
            (args.job.is_none() || entry.job == args.job)
                && before.is_none_or(|before| entry.start_time.is_some_and(|start| start < before))
        };
        ids.extend(history.list()?.entries.into_iter().filter(matches).map(|entry| entry.id));
    }
    for name in &args.runs {
        ids.push(history.find_to_remove(name)?);
    }
    ids.sort_unstable();
    ids.dedup();
    for id in &ids {
        history.remove_with_journal(id)?;
    }
    if args.format.json {
        return show::json(&json!({ "removed": ids }));
    }
    let lines: Vec<_> = ids.iter().map(|id| format!("removed {id}\n")).collect();
    show::text(&lines.concat())
}
