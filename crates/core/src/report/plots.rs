//! The charts of a recording, and the series in each.
//!
//! In:  a recording and its summary. Out: [`Plot`]s with values per row in base units, and the limits of the resource.
//! Not here: drawing (`chart`). Names come from the metric table.

use serde_json::{Map, Value};

use super::timeline::{Clock, Series, Timeline};
use crate::human::Scale;
use crate::metric::{Kind, Metric, Table, Unit};
use crate::store::frame::{Column, Frame};
use crate::store::recording::Recording;
use crate::store::recording::head::server_number;
use crate::store::summary::Summary;

/// Shortest time for a rate. 1 MB in a last row of 2 ms is not 500 MB/s.
const SHORTEST_RATE_S: f64 = 0.1;

/// Number of colours in `page.css`.
const TONES: usize = 4;

/// Highest number of GPUs in the chart; the table has every GPU.
const MOST_CHARTED: usize = 16;

pub(super) struct Plot {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) scale: Scale,
    pub(super) lines: Vec<Line>,
    pub(super) limits: Vec<Limit>,
}

pub(super) struct Line {
    pub(super) name: String,
    /// Colour: 0 and 1 for the job, 2 and 3 for the machine.
    pub(super) tone: usize,
    pub(super) series: Series,
    pub(super) mean: Option<f64>,
    pub(super) max: Option<f64>,
    /// Sum over all rows; `None` for gauges.
    pub(super) total: Option<f64>,
    /// Row of the maximum in the statistics; `None` if the statistics have no maximum of this series.
    pub(super) peak_row: Option<usize>,
}

/// The size or limit of a resource.
pub(super) struct Limit {
    pub(super) value: f64,
    pub(super) label: String,
}

struct Definition {
    id: &'static str,
    title: &'static str,
    scale: Scale,
    lines: &'static [(Metric, usize)],
}

/// The job has the strong tones 0 and 1, the machine the quiet tones 2 and 3, unless the chart has only the machine.
const PLOTS: [Definition; 8] = [
    Definition {
        id: "cpu",
        title: "CPU usage",
        scale: Scale::Cores,
        lines: &[(Metric::ProcessCpu, 0), (Metric::SystemCpu, 2)],
    },
    Definition {
        id: "memory",
        title: "Memory",
        scale: Scale::Bytes,
        lines: &[(Metric::ProcessMemory, 0), (Metric::MemoryUsed, 2)],
    },
    Definition {
        id: "disk-io",
        title: "Disk I/O",
        scale: Scale::Rate,
        lines: &[
            (Metric::ProcessRead, 0),
            (Metric::ProcessWrite, 1),
            (Metric::DiskRead, 2),
            (Metric::DiskWrite, 3),
        ],
    },
    Definition {
        id: "network",
        title: "Network",
        scale: Scale::Rate,
        lines: &[(Metric::NetRecv, 0), (Metric::NetSent, 1)],
    },
    Definition {
        id: "gpu",
        title: "GPU usage",
        scale: Scale::Cores,
        lines: &[(Metric::ProcessGpu, 0), (Metric::SystemGpu, 2)],
    },
    Definition {
        id: "vram",
        title: "VRAM",
        scale: Scale::Bytes,
        lines: &[(Metric::ProcessVram, 0), (Metric::SystemVram, 2)],
    },
    Definition {
        id: "gpus",
        title: "GPUs in use",
        scale: Scale::Count,
        lines: &[(Metric::ProcessGpus, 0), (Metric::SystemGpus, 2)],
    },
    Definition {
        id: "disk-space",
        title: "Disk space",
        scale: Scale::Bytes,
        lines: &[(Metric::DiskUsed, 0)],
    },
];

/// Whether the machine has a GPU, or GPU usage was measured.
pub(super) fn has_gpu(server_info: Option<&Map<String, Value>>, summary: &Summary) -> bool {
    server_number(server_info, "gpu_count").is_some()
        || Metric::OF_ALL_GPUS.iter().any(|metric| summary.of(*metric).max().is_some_and(|max| max > 0.0))
}

/// The time axis of all charts; `None` without a row.
pub(super) fn timeline(recording: &Recording) -> Option<Timeline> {
    let frame = recording.process.as_ref().or(recording.system.as_ref())?;
    let timestamps = frame.metric(Metric::Timestamp)?.as_slice();
    let elapsed = recording.extra.as_ref().and_then(|extra| extra.metric(Metric::Elapsed));
    Timeline::new(&Clock {
        timestamps: timestamps.get(..recording.rows())?,
        elapsed_s: elapsed.map(Column::as_slice),
        start_time: recording.head.metadata.start_time,
        interval_s: recording.head.metadata.interval,
    })
}

/// The charts with at least one measured series.
pub(super) fn plots(recording: &Recording, summary: &Summary, timeline: &Timeline) -> Vec<Plot> {
    let gpu = has_gpu(recording.head.server_info.as_ref(), summary);
    let wanted = PLOTS
        .iter()
        .filter(|plot| gpu || !plot.lines.iter().any(|(metric, _)| Metric::OF_ALL_GPUS.contains(metric)));
    let mut plots = Vec::new();
    for Definition { id, title, scale, lines } in wanted {
        let lines =
            lines.iter().filter_map(|(metric, tone)| line(recording, summary, timeline, *metric, *tone));
        plots.push(Plot {
            id,
            title,
            scale: *scale,
            lines: lines.collect(),
            limits: limits(id, recording, summary),
        });
        if *id == "gpu" {
            plots.extend(each_gpu(recording, timeline));
        }
    }
    plots.retain(|plot| !plot.lines.is_empty());
    plots
}

/// The job's usage of each GPU; `None` with a single GPU, which has its own chart.
fn each_gpu(recording: &Recording, timeline: &Timeline) -> Option<Plot> {
    let extra = recording.extra.as_ref().filter(|_| recording.process.is_some())?;
    let column = |gpu: usize| extra.metric_of_gpu(Metric::GpuJobUsage, gpu);
    let gpus = (0..).map_while(column).take(MOST_CHARTED);
    let lines: Vec<Line> = gpus
        .enumerate()
        .filter_map(|(gpu, column)| {
            let values = column.as_slice().get(..timeline.row_s.len())?.to_vec();
            let (mean, max) = mean_and_max(&values, &timeline.row_s);
            Some(Line {
                name: format!("GPU {gpu} {}", Metric::GpuJobUsage.human_name()),
                tone: gpu % TONES,
                mean: Some(mean?),
                max,
                total: None,
                peak_row: None,
                series: Series { by_row: values, highs: Vec::new(), is_level: false },
            })
        })
        .collect();
    let plot =
        Plot { id: "each-gpu", title: "Job usage per GPU", scale: Scale::Cores, lines, limits: Vec::new() };
    Some(plot).filter(|plot| plot.lines.len() > 1)
}

fn line(
    recording: &Recording,
    summary: &Summary,
    timeline: &Timeline,
    metric: Metric,
    tone: usize,
) -> Option<Line> {
    let (frame, prefix) = match metric.table() {
        Table::System => (recording.system.as_ref()?, "System"),
        _ => (recording.process.as_ref()?, "Process"),
    };
    let is_rate = metric.kind() == Kind::Delta;
    let values = values(frame, metric, timeline)?;
    let factor = metric.unit().byte_factor().unwrap_or(1.0);
    let moments = summary.of(metric);
    let (mut mean, mut max) =
        (moments.mean().map(|mean| mean * factor), moments.max().map(|max| max * factor));
    let mut highs = Vec::new();
    if is_rate {
        (mean, max) = mean_and_max(&values, &timeline.row_s);
    }
    if metric == Metric::ProcessMemory {
        max = summary.memory_peak_kib().map(|peak_kib| peak_kib * factor);
        let peaks = recording.extra.as_ref().and_then(|extra| extra.metric(Metric::MemoryPeak));
        let peaks = peaks.map(|peaks| peaks.as_slice().iter().take(values.len()));
        highs = peaks.into_iter().flatten().map(|peak_kib| peak_kib * factor).collect();
    }
    // Only the first series of a chart has a maximum in the statistics.
    let peak_row = if is_rate || tone != 0 { None } else { highest(&values, &highs) };
    Some(Line {
        name: format!("{prefix} {}", metric.human_name()),
        tone,
        mean: Some(mean?),
        max,
        total: if is_rate { moments.sum() } else { None },
        peak_row,
        // CPU and GPU usage are means over a row; other gauges are read at the end of a row.
        series: Series { by_row: values, highs, is_level: !is_rate && metric.unit() != Unit::Cores },
    })
}

/// Values per row in base units. Bytes per row become bytes per second.
fn values(frame: &Frame, metric: Metric, timeline: &Timeline) -> Option<Vec<f64>> {
    let factor = metric.unit().byte_factor().unwrap_or(1.0);
    let shortest_s = timeline.row_s.iter().copied().fold(0.0, f64::max).min(SHORTEST_RATE_S);
    let cells = frame.metric(metric)?.as_slice().iter().zip(&timeline.row_s);
    Some(match metric.kind() {
        Kind::Gauge => cells.map(|(cell, _)| cell * factor).collect(),
        Kind::Delta => cells
            .map(|(cell, row_s)| {
                Some(row_s.max(shortest_s))
                    .filter(|row_s| *row_s > 0.0)
                    .map_or(f64::NAN, |row_s| cell / row_s)
            })
            .collect(),
    })
}

fn mean_and_max(values: &[f64], row_s: &[f64]) -> (Option<f64>, Option<f64>) {
    let measured = || values.iter().zip(row_s).filter(|(value, _)| !value.is_nan());
    let (sum, weight_s) = measured()
        .fold((0.0, 0.0), |(sum, weight_s), (value, row_s)| (sum + value * row_s, weight_s + row_s));
    let max = measured().map(|(value, _)| *value).reduce(f64::max);
    ((weight_s > 0.0).then(|| sum / weight_s), max)
}

fn highest(values: &[f64], highs: &[f64]) -> Option<usize> {
    let reached = |row: usize| {
        let cells = [values.get(row), highs.get(row)];
        cells.into_iter().flatten().copied().filter(|cell| !cell.is_nan()).reduce(f64::max)
    };
    let rows = (0..values.len()).filter_map(|row| Some((row, reached(row)?)));
    // The first row with the maximum.
    rows.reduce(|best, row| if row.1 > best.1 { row } else { best }).map(|(row, _)| row)
}

fn limits(id: &str, recording: &Recording, summary: &Summary) -> Vec<Limit> {
    let number = |key| server_number(recording.head.server_info.as_ref(), key);
    let cores =
        |value: f64, what: &str| Limit { value, label: format!("{} {what}", Scale::Count.show(value)) };
    let bytes = |mb: f64, what: &str| {
        let value = mb * 1_048_576.0;
        Limit { value, label: format!("{} {what}", Scale::Bytes.show(value)) }
    };
    let found = match id {
        "cpu" => vec![
            number("cpu_limit").map(|cpus| cores(cpus, "CPUs (limit)")),
            number("vcpus").map(|cpus| cores(cpus, if cpus == 1.0 { "CPU" } else { "CPUs" })),
        ],
        "memory" => vec![
            number("memory_limit_mb").map(|mb| bytes(mb, "(limit)")),
            number("memory_mb").map(|mb| bytes(mb, "(physical)")),
        ],
        "gpu" | "gpus" => {
            vec![number("gpu_count").map(|gpus| cores(gpus, if gpus == 1.0 { "GPU" } else { "GPUs" }))]
        }
        "vram" => vec![number("gpu_memory_mb").map(|mb| bytes(mb, "of VRAM"))],
        "disk-space" => vec![summary.of(Metric::DiskTotal).max().map(|gib| bytes(gib * 1024.0, "total"))],
        _ => Vec::new(),
    };
    found.into_iter().flatten().filter(|limit| limit.value > 0.0).collect()
}
