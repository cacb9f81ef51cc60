//! The columns of the dataset: one row a run in `runs`, the rows of its recording in `samples`.
//!
//! In:  the entry of a run, its head, and the context of its report. Out: a [`Table`] of one row, and of its samples.
//! Not here: the file (`table`), where it is stored (`dataset`).
//!
//! [`RUNS`] is the only list of the columns of `runs`; those of `samples` come from the metric table. Columns are only
//! ever added. `docs/dataset.md` is made from this list.

use serde_json::{Map, Value, json};

use super::table::{Cells, Kind, Table};
use crate::metric::Metric;
use crate::report::Context;
use crate::store::frame::{CombinedOptions, FrameError};
use crate::store::history::Entry;
use crate::store::recording::{Head, Recording, Status};

/// Version of the dataset. A change that readers have to know raises it; a new column does not.
pub const VERSION: u32 = 1;

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

/// Name, type and meaning of each column of `runs`.
pub const RUNS: [(&str, Kind, &str); 79] = [
    ("id", Kind::Text, "Id of the run."),
    ("stored_time", Kind::Time, "When the row was stored. Of several rows of one run, the newest counts."),
    ("job", Kind::Text, "Name of the job."),
    (
        "parent",
        Kind::Text,
        "Id of the tracked run that this run is a part of. If that run is in the dataset, this one does not count in sums.",
    ),
    ("command", Kind::Text, "Command line without secrets."),
    ("tags", Kind::Text, "Tags as a JSON object."),
    ("user", Kind::Text, "Name of the user."),
    ("host", Kind::Text, "Host name."),
    ("node", Kind::Text, "Name of the node by the scheduler, else the host name."),
    ("cluster", Kind::Text, "Name of the cluster."),
    ("pod", Kind::Text, "Name of the pod."),
    ("image", Kind::Text, "Container image."),
    (
        "scheduler",
        Kind::Text,
        "slurm, aws_batch, metaflow, airflow, nextflow, snakemake, ray, torchrun or kubernetes.",
    ),
    ("scheduler_job", Kind::Text, "Id of the job by the scheduler; of an array, the id of the array."),
    ("step", Kind::Text, "Step of the job."),
    ("array_index", Kind::Integer, "Index in the array."),
    ("rank", Kind::Integer, "Rank in a distributed program."),
    ("local_rank", Kind::Integer, "Rank on its node."),
    ("local_ranks", Kind::Integer, "Number of ranks on the node."),
    ("ranks", Kind::Integer, "Number of ranks of the distributed program."),
    ("distributed", Kind::Text, "The same for all ranks of one distributed program."),
    ("status", Kind::Text, "finished, failed, killed, ended, detached or tracker_died."),
    ("exit_code", Kind::Integer, "Exit code."),
    ("signal", Kind::Integer, "Signal that ended the job."),
    ("error", Kind::Text, "Type and text of the error that ended a block of Python or R."),
    ("cause", Kind::Text, "Why the run did not end with status 0."),
    ("is_failed", Kind::Flag, "Whether the run failed or was killed."),
    (
        "out_of_memory",
        Kind::Flag,
        "Whether the kernel killed the job for lack of memory, or a process of it and the job failed.",
    ),
    ("start_time", Kind::Time, "Start of the run."),
    ("duration_seconds", Kind::Double, "Duration."),
    ("input_bytes", Kind::Double, "Total size of the inputs that were named."),
    (
        "asked_cpus",
        Kind::Double,
        "CPUs that were requested: from the scheduler, else the limit of the container. A rank has its part of both.",
    ),
    (
        "asked_memory_bytes",
        Kind::Double,
        "Memory that was requested: from the scheduler, else the limit of the container. A rank has its part of both.",
    ),
    ("asked_gpus", Kind::Double, "GPUs that were requested."),
    ("cpu_limit_cores", Kind::Double, "CPUs that the job could use."),
    ("memory_limit_bytes", Kind::Double, "Memory that the job could use."),
    ("cpu_seconds", Kind::Double, "CPU time of the job."),
    ("cpu_mean_cores", Kind::Double, "CPUs in use, mean."),
    ("cpu_peak_cores", Kind::Double, "CPUs in use, highest mean of a row."),
    ("memory_mean_bytes", Kind::Double, "Memory, mean."),
    ("memory_peak_bytes", Kind::Double, "Memory, peak."),
    ("disk_read_bytes", Kind::Double, "Read from storage."),
    ("disk_written_bytes", Kind::Double, "Written to storage."),
    ("system_net_received_bytes", Kind::Double, "Received by the whole machine."),
    ("system_net_sent_bytes", Kind::Double, "Sent by the whole machine."),
    ("gpu_mean_gpus", Kind::Double, "GPUs in use, mean."),
    ("gpu_peak_gpus", Kind::Double, "GPUs in use, peak."),
    ("vram_mean_bytes", Kind::Double, "GPU memory, mean."),
    ("vram_peak_bytes", Kind::Double, "GPU memory, peak."),
    ("cpu_hours_asked", Kind::Double, "CPUs requested, or that the job could use, times hours."),
    ("cpu_hours_used", Kind::Double, "CPU time in hours."),
    ("cpu_hours_wasted", Kind::Double, "Requested and not used."),
    ("gib_hours_asked", Kind::Double, "GiB of memory requested, or that the job could use, times hours."),
    ("gib_hours_used", Kind::Double, "GiB of peak memory times hours."),
    ("gib_hours_wasted", Kind::Double, "Requested and not used."),
    ("gpu_hours_asked", Kind::Double, "GPUs requested, or of the machine, times hours."),
    ("gpu_hours_used", Kind::Double, "GPUs in use times hours."),
    ("gpu_hours_wasted", Kind::Double, "Requested and not used."),
    ("waiting_cause", Kind::Text, "What the run mostly did or waited for, as in `show --json`."),
    ("on_cpu_seconds", Kind::Double, "Part of the duration with a thread on a CPU."),
    ("wait_cpu_seconds", Kind::Double, "Part of the duration that the job waited for a CPU."),
    ("wait_quota_seconds", Kind::Double, "Part of the duration that a CPU limit stopped the job."),
    ("wait_disk_seconds", Kind::Double, "Part of the duration that the job waited for disk."),
    ("wait_paging_seconds", Kind::Double, "Part of the duration that the job waited for memory."),
    ("stolen_seconds", Kind::Double, "Part of the duration that the hypervisor gave to other machines."),
    ("idle_seconds", Kind::Double, "Part of the duration that the job waited for something else."),
    ("advice_cpus", Kind::Double, "CPUs to request for the next run."),
    ("advice_memory_bytes", Kind::Double, "Memory to request for the next run."),
    ("advice_gpus", Kind::Double, "GPUs to request for the next run."),
    (
        "cost_usd",
        Kind::Double,
        "Cost of the run on its machine, divided by the ranks on it; an estimate by list prices.",
    ),
    (
        "advice_cost_usd",
        Kind::Double,
        "Cost of the run on the cheapest server that has the advised size; an estimate.",
    ),
    ("savings_usd", Kind::Double, "What the advice saves; 0 if it saves nothing."),
    ("cloud", Kind::Text, "Vendor of the cloud."),
    ("region", Kind::Text, "Region of the cloud."),
    ("instance_type", Kind::Text, "Type of the server."),
    ("cpu_source", Kind::Text, "Source of the CPU time."),
    ("tracker_version", Kind::Text, "Version of resource-tracker."),
    ("statistics", Kind::Text, "Means, maxima and sums of the samples, as a JSON object."),
    (
        "sizing",
        Kind::Text,
        "What the advice for later runs of the job needs, as a JSON object; `cpu_profile` has pairs of busy CPUs and seconds.",
    ),
];

/// The row of a run. `now_s` is the time of storing.
pub fn run_row(entry: &Entry, head: &Head, context: &Context, now_s: f64) -> Map<String, Value> {
    let run = head.run.clone().unwrap_or_default();
    let identity = run.identity.unwrap_or_default();
    let mut row = entry.run_object();
    let hours = entry.duration_s.filter(|seconds| *seconds >= 0.0).map(|seconds| seconds / 3600.0);
    let number = |row: &Map<String, Value>, key: &str| row.get(key).and_then(Value::as_f64);
    let (limit_cores, limit_bytes) = (number(&row, "cpu_limit_cores"), number(&row, "memory_limit_bytes"));
    let machine = |key: &str| head.server_info.as_ref()?.get(key)?.as_f64().filter(|limit| *limit > 0.0);
    // What all ranks on the node share: machine, cost, limits of the container.
    let share = identity.share_of_node();
    let of_node = |amount: Option<f64>| Some(amount? * share?);
    let limit_mib = || of_node(machine("memory_limit_mb"));
    let asked_cpus = identity.asked_cpus.or_else(|| of_node(machine("cpu_limit")));
    let asked_bytes = identity.asked_memory_bytes.or_else(|| limit_mib().map(|mib| mib * 1024.0 * 1024.0));
    let times = |amount: Option<f64>| Some(amount? * hours?);
    let wasted = |asked: Option<f64>, used: Option<f64>| Some((asked? - used?).max(0.0));
    let cpu_asked = times(asked_cpus.or_else(|| of_node(limit_cores)));
    let cpu_used = number(&row, "cpu_seconds").map(|seconds| seconds / 3600.0);
    let gib_asked = times(asked_bytes.or_else(|| of_node(limit_bytes)).map(|bytes| bytes / GIB));
    let gib_used = times(number(&row, "memory_peak_bytes").map(|bytes| bytes / GIB));
    let gpu_asked = times(identity.asked_gpus.or_else(|| of_node(machine("gpu_count"))));
    let gpu_used = times(number(&row, "gpu_mean_gpus"));
    let waits = context.waits(head);
    let waited = |metric| waits.as_ref().and_then(|_| context.summary.of(metric).sum());
    let cost = context.cost(context.server());
    let cost_usd = of_node(cost.current.map(|cost| cost.usd));
    let advice_cost_usd = cost.recommended.map(|cost| cost.usd);
    let cloud = |key: &str| {
        head.cloud_info.as_ref()?.get(key)?.as_str().filter(|text| *text != "unknown").map(str::to_owned)
    };
    // One object of all would exceed the recursion limit of the macro.
    let facts = json!({
        "stored_time": now_s,
        "command": run.command.map(|words| words.join(" ")),
        "tags": if run.tags.is_empty() { Value::Null } else { json!(json!(run.tags).to_string()) },
        "user": identity.user,
        "node": identity.node.or(run.host),
        "cluster": identity.cluster,
        "pod": identity.pod,
        "image": identity.image,
        "scheduler": identity.scheduler,
        "scheduler_job": identity.scheduler_job,
        "step": identity.step,
        "array_index": identity.array_index,
        "rank": identity.rank,
        "local_rank": identity.local_rank,
        "local_ranks": identity.local_ranks,
        "ranks": identity.ranks,
        "distributed": identity.distributed,
        "is_failed": matches!(run.status, Some(Status::Failed | Status::Killed)),
        "cloud": cloud("vendor"),
        "region": cloud("region"),
        "instance_type": cloud("instance_type"),
        "cpu_source": run.cpu_source,
        "tracker_version": head.metadata.resource_tracker.version,
        "statistics": entry.stats.as_ref().map(|stats| json!(stats).to_string()),
        "sizing": entry.sizing.as_ref().map(|sizing| json!(sizing).to_string()),
    });
    let figures = json!({
        "asked_cpus": asked_cpus,
        "asked_memory_bytes": asked_bytes,
        "asked_gpus": identity.asked_gpus,
        "cpu_hours_asked": cpu_asked,
        "cpu_hours_used": cpu_used,
        "cpu_hours_wasted": wasted(cpu_asked, cpu_used),
        "gib_hours_asked": gib_asked,
        "gib_hours_used": gib_used,
        "gib_hours_wasted": wasted(gib_asked, gib_used),
        "gpu_hours_asked": gpu_asked,
        "gpu_hours_used": gpu_used,
        "gpu_hours_wasted": wasted(gpu_asked, gpu_used),
        "waiting_cause": waits.as_ref().map(|waits| waits.cause),
        "on_cpu_seconds": waited(Metric::OnCpu),
        "wait_cpu_seconds": waited(Metric::WaitCpu),
        "wait_quota_seconds": waited(Metric::WaitQuota),
        "wait_disk_seconds": waited(Metric::WaitDisk),
        "wait_paging_seconds": waited(Metric::WaitPaging),
        "stolen_seconds": waited(Metric::WaitStolen),
        "idle_seconds": waited(Metric::Idle),
        "advice_cpus": context.advice.as_ref().ok().map(|advice| advice.request.cpu),
        "advice_memory_bytes": context.advice.as_ref().ok().map(|advice| f64::from(advice.request.memory_mb) * 1024.0 * 1024.0),
        "advice_gpus": context.advice.as_ref().ok().map(|advice| advice.request.gpu),
        "cost_usd": cost_usd,
        "advice_cost_usd": advice_cost_usd,
        "savings_usd": cost_usd.zip(advice_cost_usd).map(|(cost, advised)| (cost - advised).max(0.0)),
    });
    for more in [facts, figures] {
        if let Value::Object(more) = more {
            row.extend(more);
        }
    }
    row
}

/// Columns of `runs` with their types.
pub fn run_columns() -> impl Iterator<Item = (&'static str, Kind)> {
    RUNS.iter().map(|(name, kind, _)| (*name, *kind))
}

/// The columns of `samples` with their types; of GPUs, those of the first eight.
pub fn sample_columns() -> Vec<(String, Kind)> {
    const GPUS: usize = 8;
    let once = Metric::ONCE.iter().map(|metric| (metric.combined_column(), kind_of(Some(*metric))));
    let of_gpu =
        |gpu| Metric::PER_GPU.iter().map(move |metric| (metric.column_of_gpu(gpu), kind_of(Some(*metric))));
    let text = |name: &str| [(name.to_owned(), Kind::Text)];
    text("run_id").into_iter().chain(once).chain((0..GPUS).flat_map(of_gpu)).chain(text("phase")).collect()
}

/// The samples of a run: the combined and extra columns, `run_id`, and the phase of each row.
pub fn samples(recording: &Recording, id: &str) -> Result<Table, FrameError> {
    let options = CombinedOptions { extra: true, ..CombinedOptions::default() };
    let frame = recording.combined(&options)?;
    let rows = frame.len();
    let mut table = Table::of_rows([], &vec![Map::new(); rows]);
    table.add_column("run_id", Cells::texts(&vec![id; rows]));
    for column in frame.columns() {
        let cells: Vec<Option<f64>> = column.iter().collect();
        table.add_column(column.name(), Cells::numbers(&cells, kind_of(column.metric())));
    }
    if let Some(phases) = recording.phase_of_rows() {
        table.add_column("phase", Cells::texts(&phases));
    }
    Ok(table)
}

/// The type of a column is the same in every file, whatever its cells.
fn kind_of(metric: Option<Metric>) -> Kind {
    match metric {
        Some(Metric::Timestamp) => Kind::Time,
        Some(metric) if metric.decimals() == 0 => Kind::Integer,
        _ => Kind::Double,
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::analysis::recommend::AdviceOptions;
    use crate::config::Config;
    use crate::market::catalog::{InstancePrice, Source};
    use crate::metric::Row;
    use crate::report::Zone;
    use crate::store::recording::{Identity, Run};

    /// The text of `docs/dataset.md`.
    fn docs_page() -> String {
        let mut page = format!(
            "# Dataset\n\nGenerated from `crates/core/src/fleet/columns.rs`. Version {VERSION} of the dataset, which each file has \
             as\n`resource_tracker.schema_version` among its key-value metadata. Columns are only added; a file without a column \
             has\nnulls there. An empty cell was not measured or does not apply. Times are UTC.\n\n\
             ```text title=\"Layout\"\nruns/date=2026-03-12/3f9c1a7b2d40.parquet       one row for a run\n\
             runs/date=2026-03-12/merged-….parquet           the rows of many runs, after `fleet compact`\n\
             samples/date=2026-03-12/3f9c1a7b2d40.parquet    the rows of its recording\n```\n\n\
             The date is the day on which the run started, in UTC. A run may be in two files for a moment: of rows with the \
             same\n`id`, the one with the latest `stored_time` counts, and of its samples those of one file, a merged file last. \
             Views that do\nthis are printed by `resource-tracker fleet sql`.\n\n## `runs`\n\n| column | type | meaning |\n|---|---|---|\n"
        );
        for (name, kind, help) in RUNS {
            let kind = match kind {
                Kind::Text => "string",
                Kind::Flag => "boolean",
                Kind::Integer => "int64",
                Kind::Double => "double",
                Kind::Time => "timestamp",
            };
            let _ = writeln!(page, "| `{name}` | {kind} | {help} |");
        }
        page.push_str(
            "\n## `samples`\n\n`run_id`, the columns of the [process, system and extra tables](metrics.md) as in `export`, and \
             `phase` if\nthe job made marks. The columns of GPUs are there if the machine has any.\n",
        );
        page
    }

    #[test]
    fn docs_page_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/dataset.md");
        if std::env::var_os("UPDATE_GENERATED").is_some() {
            std::fs::write(path, docs_page()).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(committed, docs_page(), "run `make generate`");
    }

    #[test]
    fn ranks_on_a_node_share_its_machine_and_cost() {
        let identity = |local_ranks, asked_cpus| Identity {
            ranks: Some(8),
            local_ranks,
            asked_cpus,
            ..Identity::default()
        };
        let row = |identity| {
            let mut head = Head::new(&Config::default(), 1, 0.0, Run { identity, ..Run::default() });
            head.metadata.set_stop_time(3600.0, 0.0);
            let server = json!({"vcpus": 64, "memory_mb": 65536.0, "gpu_count": 4});
            head.server_info = server.as_object().cloned();
            let mut recording = Recording::new(head);
            let mut cells = Row::default();
            for metric in [Metric::Timestamp, Metric::Elapsed] {
                cells.set(metric, Some(3600.0));
            }
            recording.push(&cells);
            let (head, summary) = (&recording.head, recording.summary());
            let entry = Entry::new("feed", head, &summary);
            let mut context = Context::of(
                head,
                summary,
                Vec::<Entry>::new().into(),
                &AdviceOptions::default(),
                0.0,
                Zone::utc(),
            );
            context.price = Some(InstancePrice {
                vendor_id: String::new(),
                instance_type: String::new(),
                usd_per_hour: 2.0,
                spot_usd_per_hour: None,
                region: String::new(),
                in_asked_region: true,
                source: Source::Embedded,
                as_of: String::new(),
            });
            let row = run_row(&entry, head, &context, 0.0);
            ["cpu_hours_asked", "gib_hours_asked", "gpu_hours_asked", "cost_usd"].map(|key| row[key].as_f64())
        };
        assert_eq!(row(None), [64.0, 64.0, 4.0, 2.0].map(Some));
        assert_eq!(row(Some(identity(Some(4), None))), [16.0, 16.0, 1.0, 0.5].map(Some));
        assert_eq!(row(Some(identity(Some(4), Some(3.0)))), [3.0, 16.0, 1.0, 0.5].map(Some));
        assert_eq!(row(Some(identity(None, None))), [None; 4], "the number of ranks on the node is unknown");
    }

    #[test]
    fn names_of_columns_differ() {
        let mut names: Vec<&str> = run_columns().map(|(name, _)| name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), RUNS.len());
    }
}
