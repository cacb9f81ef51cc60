//! The JSON object of a run: the same keys in every output of the command, in Python and in R.
//!
//! In:  an [`Entry`]. Out: [`Entry::run_object`]; `docs/schema/run.schema.json` describes it.
//! Not here: the advice, servers and costs that some outputs add (`report`).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Entry;
use crate::metric::{MIB, Metric};
use crate::store::recording::Head;
use crate::store::summary::Summary;

const KIB: f64 = 1024.0;

/// What a run used; `None` where unknown. Names are those of the figures of `compare`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UsageFigures {
    pub cpu_seconds: Option<f64>,
    pub cpu_mean_cores: Option<f64>,
    /// Of a row.
    pub cpu_peak_cores: Option<f64>,
    pub cpu_limit_cores: Option<f64>,
    pub memory_mean_bytes: Option<f64>,
    /// Between rows too.
    pub memory_peak_bytes: Option<f64>,
    pub memory_limit_bytes: Option<f64>,
    pub disk_read_bytes: Option<f64>,
    pub disk_written_bytes: Option<f64>,
    /// Of the whole machine, without the tracker.
    pub system_net_received_bytes: Option<f64>,
    pub system_net_sent_bytes: Option<f64>,
    pub gpu_mean_gpus: Option<f64>,
    pub gpu_peak_gpus: Option<f64>,
    pub vram_mean_bytes: Option<f64>,
    pub vram_peak_bytes: Option<f64>,
    pub tracker: TrackerFigures,
}

/// What the tracker used, and how well it saw the job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TrackerFigures {
    pub cpu_seconds: Option<f64>,
    pub memory_bytes: Option<f64>,
    pub net_received_bytes: Option<f64>,
    pub net_sent_bytes: Option<f64>,
    /// Source of the job's CPU time.
    pub cpu_source: Option<String>,
    /// Share of the job's CPU time that was seen in its processes.
    pub coverage: Option<f64>,
}

impl UsageFigures {
    pub fn of(head: &Head, summary: &Summary) -> Self {
        let run = head.run.as_ref();
        let of = |metric| summary.of(metric);
        Self {
            cpu_seconds: summary.cpu_seconds(),
            cpu_mean_cores: of(Metric::ProcessCpu).mean(),
            cpu_peak_cores: of(Metric::ProcessCpu).max(),
            cpu_limit_cores: head.cpu_limit_cores(),
            memory_mean_bytes: summary.memory_mean_kib().map(|kib| kib * KIB),
            memory_peak_bytes: summary.memory_peak_kib().map(|kib| kib * KIB),
            memory_limit_bytes: head.memory_limit_mib().map(|mib| mib * MIB),
            disk_read_bytes: of(Metric::ProcessRead).sum(),
            disk_written_bytes: of(Metric::ProcessWrite).sum(),
            system_net_received_bytes: summary.sum_without_tracker(Metric::NetRecv),
            system_net_sent_bytes: summary.sum_without_tracker(Metric::NetSent),
            gpu_mean_gpus: of(Metric::ProcessGpu).mean(),
            gpu_peak_gpus: of(Metric::ProcessGpu).max(),
            vram_mean_bytes: of(Metric::ProcessVram).mean().map(|mib| mib * MIB),
            vram_peak_bytes: of(Metric::ProcessVram).max().map(|mib| mib * MIB),
            tracker: TrackerFigures {
                cpu_seconds: of(Metric::TrackerCpu).sum(),
                memory_bytes: of(Metric::TrackerMemory).max().map(|kib| kib * KIB),
                net_received_bytes: of(Metric::TrackerRecv).sum(),
                net_sent_bytes: of(Metric::TrackerSent).sum(),
                cpu_source: run.and_then(|run| run.cpu_source.clone()),
                coverage: summary.coverage().or_else(|| run?.coverage),
            },
        }
    }

    /// What an entry of an earlier version has of it.
    fn of_earlier_version(entry: &Entry) -> Self {
        let sizing = entry.sizing.clone().unwrap_or_default();
        let stat =
            |metric: Metric, aggregate| entry.stats.as_ref()?.get(&metric.combined_column(), aggregate);
        let memory = |aggregate| stat(Metric::ProcessMemory, aggregate).map(|kib| kib * KIB);
        Self {
            cpu_mean_cores: stat(Metric::ProcessCpu, "mean"),
            cpu_peak_cores: stat(Metric::ProcessCpu, "max"),
            cpu_limit_cores: sizing.cpu_limit_cores,
            memory_mean_bytes: sizing.mean_memory_bytes.or_else(|| memory("mean")),
            memory_peak_bytes: sizing.peak_memory_bytes.or_else(|| memory("max")),
            memory_limit_bytes: sizing.memory_limit_bytes,
            gpu_mean_gpus: stat(Metric::ProcessGpu, "mean"),
            gpu_peak_gpus: stat(Metric::ProcessGpu, "max"),
            vram_mean_bytes: stat(Metric::ProcessVram, "mean").map(|mib| mib * MIB),
            vram_peak_bytes: stat(Metric::ProcessVram, "max").map(|mib| mib * MIB),
            ..Self::default()
        }
    }
}

impl Entry {
    /// The run as JSON.
    pub fn run_object(&self) -> Map<String, Value> {
        let sizing = self.sizing.as_ref();
        let facts = json!({
            // Recordings of the original package have no id.
            "id": Some(&self.id).filter(|id| !id.is_empty()),
            "job": self.job,
            "parent": self.parent,
            "tags": self.tags,
            "command": self.command,
            "host": self.host,
            "status": self.status,
            "error": self.error,
            "exit_code": self.exit_code,
            "signal": self.signal,
            "out_of_memory": sizing.is_some_and(|sizing| sizing.out_of_memory),
            "oom_kills": self.oom_kills,
            "cause": self.cause,
            "input_bytes": sizing.and_then(|sizing| sizing.input_bytes),
            "start_time": self.start_time,
            "duration_seconds": self.duration_s,
        });
        let usage = json!(self.usage.clone().unwrap_or_else(|| UsageFigures::of_earlier_version(self)));
        let objects = [facts, usage, json!({ "notes": self.notes })];
        objects
            .into_iter()
            .filter_map(|object| if let Value::Object(object) = object { Some(object) } else { None })
            .flatten()
            .collect()
    }
}
