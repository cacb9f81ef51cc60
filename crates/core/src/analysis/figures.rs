//! The figures by which runs are compared and checked.
//!
//! In:  head and summary of a run, a catalogue for prices. Out: the value of each of [`FIGURES`].
//! Not here: the comparison (`compare`), budgets (`check`).

use crate::analysis::cost::price_of;
use crate::human::{self, Scale};
use crate::market::catalog::{Catalog, RunCost};
use crate::metric::Metric;
use crate::store::recording::Head;
use crate::store::summary::Summary;

/// A figure of a run.
#[derive(Debug)]
pub struct Figure {
    /// Label of the figure.
    pub name: &'static str,
    /// JSON key, with the unit.
    pub key: &'static str,
    /// Name of its budget.
    pub budget: &'static str,
    pub unit: Unit,
    what: What,
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Seconds,
    /// CPUs or GPUs.
    Count,
    Bytes,
    Usd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Duration,
    CpuTime,
    MemoryPeak,
    Mean(Metric),
    Sum(Metric),
    VramPeak,
    /// Cost of the run on the machine that it used.
    Cost,
}

/// The values of [`FIGURES`]; `None` if not measured.
pub(super) type Values = [Option<f64>; FIGURES.len()];

pub(super) const FIGURES: [Figure; 11] = [
    figure("time", "duration_seconds", "duration", Unit::Seconds, What::Duration),
    figure("CPU time", "cpu_seconds", "cpu-time", Unit::Seconds, What::CpuTime),
    figure("CPU mean", "cpu_mean_cores", "cpu", Unit::Count, What::Mean(Metric::ProcessCpu)),
    figure("memory peak", "memory_peak_bytes", "memory", Unit::Bytes, What::MemoryPeak),
    figure("disk read", "disk_read_bytes", "disk-read", Unit::Bytes, What::Sum(Metric::ProcessRead)),
    figure(
        "disk written",
        "disk_written_bytes",
        "disk-written",
        Unit::Bytes,
        What::Sum(Metric::ProcessWrite),
    ),
    figure(
        "net received",
        "system_net_received_bytes",
        "net-received",
        Unit::Bytes,
        What::Sum(Metric::NetRecv),
    ),
    figure("net sent", "system_net_sent_bytes", "net-sent", Unit::Bytes, What::Sum(Metric::NetSent)),
    figure("GPU mean", "gpu_mean_gpus", "gpu", Unit::Count, What::Mean(Metric::ProcessGpu)),
    figure("VRAM peak", "vram_peak_bytes", "vram", Unit::Bytes, What::VramPeak),
    figure("cost", "cost_usd", "cost", Unit::Usd, What::Cost),
];

const fn figure(
    name: &'static str,
    key: &'static str,
    budget: &'static str,
    unit: Unit,
    what: What,
) -> Figure {
    Figure { name, key, budget, unit, what }
}

impl Figure {
    /// Formats a value with its unit.
    pub fn show(&self, value: f64) -> String {
        match self.unit {
            Unit::Seconds => human::duration(value),
            Unit::Count => format!("{value:.2}"),
            Unit::Bytes => Scale::Bytes.show(value),
            Unit::Usd => human::usd(value),
        }
    }

    /// Whether a run with more of it than other runs is worse. Disk and network traffic depend on caches and on other
    /// programs, and a higher mean of CPUs may be a shorter run.
    pub(super) fn is_burden(&self) -> bool {
        matches!(self.what, What::Duration | What::CpuTime | What::MemoryPeak | What::VramPeak | What::Cost)
    }

    /// Whether the figure is left out of a comparison in which it is 0 or unknown for all runs: not every machine has a
    /// GPU or a price.
    pub(super) fn is_optional(&self) -> bool {
        matches!(self.what, What::Mean(Metric::ProcessGpu) | What::VramPeak | What::Cost)
    }

    fn of(&self, head: &Head, summary: &Summary, catalog: &mut Catalog) -> Option<f64> {
        match self.what {
            What::Duration => summary.duration_s(),
            What::CpuTime => summary.cpu_seconds(),
            What::MemoryPeak => Some(summary.memory_peak_kib()? * 1024.0),
            What::Mean(metric) => summary.of(metric).mean(),
            What::Sum(metric) => summary.sum_without_tracker(metric),
            What::VramPeak => Some(summary.of(Metric::ProcessVram).max()? * 1_048_576.0),
            What::Cost => {
                let price = price_of(head, catalog)?;
                let duration_s = summary.duration_s().unwrap_or(f64::NAN);
                Some(RunCost::new(duration_s, Some(&price), None).current?.usd)
            }
        }
    }
}

/// The figures of a run.
pub(super) fn values_of(head: &Head, summary: &Summary, catalog: &mut Catalog) -> Values {
    FIGURES.each_ref().map(|figure| figure.of(head, summary, catalog))
}
