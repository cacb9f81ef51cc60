//! Names of the metrics in OpenTelemetry and Prometheus. `docs/telemetry.md` has them as a table.
//!
//! In:  the metric table. Out: a name, a unit and an instrument for each column; a new column needs no line here.
//!
//! [`CONVENTIONS`] holds what the semantic conventions of OpenTelemetry name (version 1.44, pages "process", "system" and
//! "hardware"). A column that only resembles one of theirs keeps its own name: `process.cpu.utilization`, for instance, is a
//! share of the CPUs, and our `cpu_usage` counts CPUs.

use crate::metric::{Kind, Metric, Table, Unit};

/// Version of the semantic conventions.
pub const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.44.0";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instrument {
    Counter,
    UpDownCounter,
    Gauge,
}

/// A metric of OpenTelemetry.
#[derive(Clone, Debug, PartialEq)]
pub struct OtelName {
    pub name: String,
    pub unit: &'static str,
    pub instrument: Instrument,
    pub attribute: Option<(&'static str, &'static str)>,
}

type Convention = (Metric, &'static str, Instrument, &'static str, Option<(&'static str, &'static str)>);

const MODE: &str = "cpu.mode";
const DISK: &str = "disk.io.direction";
const NETWORK: &str = "network.io.direction";
const MEMORY: &str = "system.memory.state";
const FILES: &str = "system.filesystem.state";
const FAULT: &str = "system.paging.fault.type";

const CONVENTIONS: [Convention; 26] = {
    use Instrument::{Counter, Gauge, UpDownCounter};
    use Metric as M;
    [
        (M::ProcessUtime, "process.cpu.time", Counter, "s", Some((MODE, "user"))),
        (M::ProcessStime, "process.cpu.time", Counter, "s", Some((MODE, "system"))),
        (M::ProcessMemory, "process.memory.usage", UpDownCounter, "By", None),
        (M::ProcessRead, "process.disk.io", Counter, "By", Some((DISK, "read"))),
        (M::ProcessWrite, "process.disk.io", Counter, "By", Some((DISK, "write"))),
        (M::Threads, "process.thread.count", UpDownCounter, "{thread}", None),
        (M::MajorFaults, "process.paging.faults", Counter, "{fault}", Some((FAULT, "major"))),
        (M::Processes, "system.process.count", UpDownCounter, "{process}", None),
        (M::SystemUtime, "system.cpu.time", Counter, "s", Some((MODE, "user"))),
        (M::SystemStime, "system.cpu.time", Counter, "s", Some((MODE, "system"))),
        (M::Steal, "system.cpu.time", Counter, "s", Some((MODE, "steal"))),
        (M::MemoryFree, "system.memory.usage", UpDownCounter, "By", Some((MEMORY, "free"))),
        (M::MemoryUsed, "system.memory.usage", UpDownCounter, "By", Some((MEMORY, "used"))),
        (M::MemoryBuffers, "system.memory.usage", UpDownCounter, "By", Some((MEMORY, "buffers"))),
        (M::MemoryCached, "system.memory.usage", UpDownCounter, "By", Some((MEMORY, "cached"))),
        (M::DiskRead, "system.disk.io", Counter, "By", Some((DISK, "read"))),
        (M::DiskWrite, "system.disk.io", Counter, "By", Some((DISK, "write"))),
        (M::DiskTotal, "system.filesystem.limit", UpDownCounter, "By", None),
        (M::DiskUsed, "system.filesystem.usage", UpDownCounter, "By", Some((FILES, "used"))),
        (M::DiskFree, "system.filesystem.usage", UpDownCounter, "By", Some((FILES, "free"))),
        (M::NetRecv, "system.network.io", Counter, "By", Some((NETWORK, "receive"))),
        (M::NetSent, "system.network.io", Counter, "By", Some((NETWORK, "transmit"))),
        (M::GpuUsage, "hw.gpu.utilization", Gauge, "1", None),
        (M::GpuVram, "hw.gpu.memory.usage", UpDownCounter, "By", None),
        (M::GpuPower, "hw.power", Gauge, "W", None),
        (M::GpuTemperature, "hw.temperature", Gauge, "Cel", None),
    ]
};

/// The name in OpenTelemetry; `None` for the time and the process, which each point and the resource have.
pub fn otel(metric: Metric) -> Option<OtelName> {
    if matches!(metric, Metric::Timestamp | Metric::Pid) {
        return None;
    }
    let convention = CONVENTIONS.iter().find(|(of, ..)| *of == metric);
    if let Some((_, name, instrument, unit, attribute)) = convention {
        let name = (*name).to_owned();
        return Some(OtelName { name, unit, instrument: *instrument, attribute: *attribute });
    }
    let unit = match metric.unit() {
        Unit::UnixTime | Unit::Seconds => "s",
        Unit::Count | Unit::Cores => "1",
        Unit::Bytes | Unit::KiB | Unit::MiB | Unit::GiB => "By",
        Unit::Watts => "W",
        Unit::Celsius => "Cel",
        Unit::Megahertz => "Hz",
    };
    let instrument = if metric.kind() == Kind::Delta { Instrument::Counter } else { Instrument::Gauge };
    let name = format!("resource_tracker.{}", stem(metric, '.'));
    Some(OtelName { name, unit, instrument, attribute: None })
}

/// The name in Prometheus, with the base unit.
pub fn prometheus(metric: Metric) -> String {
    let unit = match metric.unit() {
        Unit::UnixTime | Unit::Seconds => "_seconds",
        Unit::Bytes | Unit::KiB | Unit::MiB | Unit::GiB => "_bytes",
        Unit::Watts => "_watts",
        Unit::Celsius => "_celsius",
        Unit::Megahertz => "_hertz",
        Unit::Count | Unit::Cores => "",
    };
    let total = if metric.kind() == Kind::Delta { "_total" } else { "" };
    format!("resource_tracker_{}{unit}{total}", stem(metric, '_'))
}

/// Table and column without a unit.
fn stem(metric: Metric, separator: char) -> String {
    let table = if metric.table() == Table::Gpu { "gpu_" } else { metric.table().prefix() };
    let column = metric.column();
    let column = ["_bytes", "_gb"].iter().find_map(|unit| column.strip_suffix(unit)).unwrap_or(column);
    format!("{}{column}", table.replace('_', &separator.to_string()))
}

/// The help of a column as a metric: deltas are summed up.
pub fn help(metric: Metric) -> String {
    metric.doc().replace(" in this interval", " since the start of the run")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Write as _;

    use super::*;

    const MARKER: &str = "## Names\n";

    /// The table at the end of `docs/telemetry.md`.
    fn docs_table() -> String {
        let mut page = format!(
            "{MARKER}\nGenerated from `crates/core/src/metric.rs` and `fleet/telemetry/names.rs`. [Metrics](metrics.md) has the \
             meaning of each\ncolumn. Names that do not start with `resource_tracker` are those of the semantic conventions of \
             OpenTelemetry. Metrics\nof GPUs have the attribute `hw.id` and the label `gpu`.\n\n\
             | column | OpenTelemetry | unit | instrument | Prometheus |\n|---|---|---|---|---|\n"
        );
        for metric in Metric::ALL.iter().copied() {
            let column = match metric.table() {
                Table::Gpu => format!("gpuN_{}", metric.column()),
                _ => metric.combined_column(),
            };
            let of_otel = match otel(metric) {
                Some(OtelName { name, unit, instrument, attribute }) => {
                    let attribute = attribute.map(|(key, value)| format!(", `{key}={value}`"));
                    let attribute = attribute.unwrap_or_default();
                    format!("`{name}`{attribute} | `{unit}` | {instrument:?}")
                }
                None if metric == Metric::Pid => "resource attribute `process.pid` | |".to_owned(),
                None => "time of the points | |".to_owned(),
            };
            let _ = writeln!(page, "| `{column}` | {of_otel} | `{}` |", prometheus(metric));
        }
        page
    }

    #[test]
    fn docs_page_has_the_names_of_all_metrics() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/telemetry.md");
        let committed = std::fs::read_to_string(path).unwrap();
        let (text, table) = committed.split_at(committed.find(MARKER).unwrap());
        if std::env::var_os("UPDATE_GENERATED").is_some() {
            std::fs::write(path, format!("{text}{}", docs_table())).unwrap();
        } else {
            assert_eq!(table, docs_table(), "run `make generate`");
        }
    }

    #[test]
    fn names_differ_and_one_metric_has_one_unit_and_instrument() {
        let mut series = BTreeSet::new();
        let mut names = BTreeSet::new();
        for metric in Metric::ALL.iter().copied() {
            assert!(names.insert(prometheus(metric)), "{}", prometheus(metric));
            let Some(of_otel) = otel(metric) else { continue };
            assert!(series.insert((of_otel.name.clone(), of_otel.attribute)), "{}", of_otel.name);
            for other in Metric::ALL.iter().filter_map(|other| otel(*other)) {
                let is_same = (other.unit, other.instrument) == (of_otel.unit, of_otel.instrument);
                assert!(other.name != of_otel.name || is_same, "{}", other.name);
            }
            // A counter of the conventions has a column that grows, and only such a column.
            assert_eq!(of_otel.instrument == Instrument::Counter, metric.kind() == Kind::Delta, "{metric:?}");
        }
        assert!(series.len() > 60, "{}", series.len());
    }

    #[test]
    fn units_are_named_once() {
        assert_eq!(prometheus(Metric::ProcessRead), "resource_tracker_process_read_bytes_total");
        assert_eq!(prometheus(Metric::DiskFree), "resource_tracker_system_disk_space_free_bytes");
        assert_eq!(prometheus(Metric::GpuClock), "resource_tracker_gpu_clock_hertz");
        assert_eq!(otel(Metric::TrackerSent).unwrap().name, "resource_tracker.tracker_sent");
        assert_eq!(otel(Metric::GpuJobVram).unwrap().name, "resource_tracker.gpu.job_vram");
    }
}
