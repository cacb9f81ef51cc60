//! THE table of metrics: every column of a recording, defined once.
//!
//! Out: CSV headers, human names, byte factors, the docs page, the report's axes and the columns of
//! every front are loops over this table. A row of a recording is [`Row`], one cell a metric, and one a GPU for those
//! that every GPU has.
//! Not here: how a value comes about (`diff`), how a table is stored (`journal`, `recording`).

mod row;

pub use row::{GpuCells, Row};

/// Which table of a recording a metric belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// First column of all three tables.
    Every,
    /// The tracked process and its descendants.
    Process,
    /// The whole machine.
    System,
    /// What goes beyond the two tables above.
    Extra,
    /// What the extra table has once for every GPU, as `gpu0_usage`.
    Gpu,
}

impl Table {
    /// The tables a recording has, in file order.
    pub const ALL: [Self; 3] = [Self::Process, Self::System, Self::Extra];

    /// The key of this table in a snapshot.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Every => "timestamp",
            Self::Process => "process_metrics",
            Self::System => "system_metrics",
            Self::Extra | Self::Gpu => "extra_metrics",
        }
    }

    /// The table of a snapshot's key.
    #[must_use]
    pub fn from_key(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|table| table.key() == key)
    }

    /// What the combined table and statistics put before its columns.
    #[must_use]
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Process => "process_",
            Self::System => "system_",
            Self::Every | Self::Extra | Self::Gpu => "",
        }
    }

    /// The columns of this table, `timestamp` first. The extra table goes on with [`Metric::PER_GPU`] for each GPU.
    pub fn metrics(self) -> impl Iterator<Item = Metric> {
        Metric::ALL
            .iter()
            .copied()
            .filter(move |metric| matches!(metric.table(), t if t == self || t == Self::Every))
    }
}

/// What a number counts. The unit decides the byte factor and how a value is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Seconds since 1970.
    UnixTime,
    /// Seconds of time.
    Seconds,
    /// A plain number of things.
    Count,
    /// CPUs or GPUs kept busy.
    Cores,
    /// Bytes.
    Bytes,
    /// 1024 bytes; the kernel and the column descriptions say kB.
    KiB,
    /// 1024² bytes.
    MiB,
    /// 1024³ bytes.
    GiB,
    /// Power.
    Watts,
    /// Temperature.
    Celsius,
    /// Clock.
    Megahertz,
}

impl Unit {
    /// How many bytes one unit is, for the units that `bytes = true` converts.
    #[must_use]
    pub const fn byte_factor(self) -> Option<f64> {
        match self {
            Self::KiB => Some(1024.0),
            Self::MiB => Some(1_048_576.0),
            Self::GiB => Some(1_073_741_824.0),
            Self::UnixTime
            | Self::Seconds
            | Self::Count
            | Self::Cores
            | Self::Bytes
            | Self::Watts
            | Self::Celsius
            | Self::Megahertz => None,
        }
    }

    /// As the docs page and axes show it.
    #[must_use]
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::UnixTime => "Unix s",
            Self::Seconds => "s",
            Self::Count => "",
            Self::Cores => "cores",
            Self::Bytes => "B",
            Self::KiB => "kB",
            Self::MiB => "MiB",
            Self::GiB => "GiB",
            Self::Watts => "W",
            Self::Celsius => "°C",
            Self::Megahertz => "MHz",
        }
    }
}

/// How a column behaves over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A level at the moment of reading.
    Gauge,
    /// What was added since the row before.
    Delta,
}

macro_rules! metrics {
    ($( $id:ident, $table:ident, $column:literal, $unit:ident, $kind:ident, $decimals:literal, $human:literal, $doc:literal; )*) => {
        /// Every column of a recording, in file order.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Metric { $( #[doc = $doc] $id, )* }

        impl Metric {
            /// All metrics, in file order.
            pub const ALL: &'static [Self] = &[ $( Self::$id, )* ];

            /// The table this metric is a column of.
            #[must_use]
            pub const fn table(self) -> Table { match self { $( Self::$id => Table::$table, )* } }
            /// The column's name in files and frames.
            #[must_use]
            pub const fn column(self) -> &'static str { match self { $( Self::$id => $column, )* } }
            /// The unit of the column.
            #[must_use]
            pub const fn unit(self) -> Unit { match self { $( Self::$id => Unit::$unit, )* } }
            /// Level or growth.
            #[must_use]
            pub const fn kind(self) -> Kind { match self { $( Self::$id => Kind::$kind, )* } }
            /// Decimals that a recording keeps; 0 means whole numbers.
            #[must_use]
            pub const fn decimals(self) -> u32 { match self { $( Self::$id => $decimals, )* } }
            /// The name people read, without the table's prefix.
            #[must_use]
            pub const fn human_name(self) -> &'static str { match self { $( Self::$id => $human, )* } }
            /// One sentence of help.
            #[must_use]
            pub const fn doc(self) -> &'static str { match self { $( Self::$id => $doc, )* } }
        }
    };
}

metrics! {
    Timestamp, Every, "timestamp", UnixTime, Gauge, 3, "Timestamp", "When the row was read.";

    Pid, Process, "pid", Count, Gauge, 0, "PID", "The tracked process, root of the job's tree.";
    Children, Process, "children", Count, Gauge, 0, "children", "Descendants alive at the sample; empty when children are not tracked.";
    ProcessUtime, Process, "utime", Seconds, Delta, 6, "CPU time (user)", "User CPU time (nice included) that the job spent in this interval.";
    ProcessStime, Process, "stime", Seconds, Delta, 6, "CPU time (system)", "System CPU time that the job spent in this interval.";
    ProcessCpu, Process, "cpu_usage", Cores, Gauge, 4, "CPU usage", "CPU time of the job per second of wall time, from 0 to the number of CPUs.";
    ProcessMemory, Process, "memory", KiB, Gauge, 0, "memory usage", "Memory of the job, pages shared by several processes counted once (PSS; USS or RSS where an OS has no PSS).";
    ProcessRead, Process, "read_bytes", Bytes, Delta, 0, "disk read", "What the job fetched from storage in this interval.";
    ProcessWrite, Process, "write_bytes", Bytes, Delta, 0, "disk write", "What the job sent to storage in this interval.";
    ProcessGpu, Process, "gpu_usage", Cores, Gauge, 4, "GPU usage", "The job's share of the GPUs, from 0 to the number of GPUs.";
    ProcessVram, Process, "gpu_vram", MiB, Gauge, 2, "VRAM used", "GPU memory that the job holds.";
    ProcessGpus, Process, "gpu_utilized", Count, Gauge, 0, "GPUs in use", "GPUs that the job kept busy.";

    Processes, System, "processes", Count, Gauge, 0, "processes", "Processes that exist on the machine.";
    SystemUtime, System, "utime", Seconds, Delta, 6, "CPU time (user)", "User CPU time (nice included) of the whole machine in this interval.";
    SystemStime, System, "stime", Seconds, Delta, 6, "CPU time (system)", "System CPU time of the whole machine in this interval.";
    SystemCpu, System, "cpu_usage", Cores, Gauge, 4, "CPU usage", "CPU time of the machine per second of wall time, from 0 to the number of CPUs.";
    MemoryFree, System, "memory_free", KiB, Gauge, 0, "free memory", "Memory that nothing uses.";
    MemoryUsed, System, "memory_used", KiB, Gauge, 0, "used memory", "Total memory less free, buffers and cached.";
    MemoryBuffers, System, "memory_buffers", KiB, Gauge, 0, "memory buffers", "Memory used for file system metadata.";
    MemoryCached, System, "memory_cached", KiB, Gauge, 0, "memory page/file cached", "Page cache and reclaimable kernel memory.";
    MemoryActive, System, "memory_active", KiB, Gauge, 0, "active memory", "Memory used recently, as the kernel sorts it.";
    MemoryInactive, System, "memory_inactive", KiB, Gauge, 0, "inactive memory", "Memory not used for a while, as the kernel sorts it.";
    DiskRead, System, "disk_read_bytes", Bytes, Delta, 0, "disk read", "Read from whole disks in this interval.";
    DiskWrite, System, "disk_write_bytes", Bytes, Delta, 0, "disk write", "Written to whole disks in this interval.";
    DiskTotal, System, "disk_space_total_gb", GiB, Gauge, 2, "disk space total", "Size of the real file systems, each counted once.";
    DiskUsed, System, "disk_space_used_gb", GiB, Gauge, 2, "disk space used", "Space taken on them, as `df` counts it.";
    DiskFree, System, "disk_space_free_gb", GiB, Gauge, 2, "disk space free", "Space a plain user can still write.";
    NetRecv, System, "net_recv_bytes", Bytes, Delta, 0, "inbound network traffic", "Received on real network interfaces in this interval.";
    NetSent, System, "net_sent_bytes", Bytes, Delta, 0, "outbound network traffic", "Sent on real network interfaces in this interval.";
    SystemGpu, System, "gpu_usage", Cores, Gauge, 4, "GPU usage", "Use of all GPUs, from 0 to their number.";
    SystemVram, System, "gpu_vram", MiB, Gauge, 2, "VRAM used", "GPU memory in use on all GPUs.";
    SystemGpus, System, "gpu_utilized", Count, Gauge, 0, "GPUs in use", "GPUs that were busy.";

    Elapsed, Extra, "elapsed", Seconds, Delta, 6, "elapsed time", "Length of the interval by the monotonic clock.";
    MissedTicks, Extra, "missed_ticks", Count, Delta, 0, "missed ticks", "Grid lines that passed unsampled before this row.";
    MemoryPeak, Extra, "memory_peak", KiB, Gauge, 0, "peak memory", "Most memory of the job at any moment of this interval that can be proved.";
    Rss, Extra, "rss", KiB, Gauge, 0, "resident memory", "Resident memory summed over the job's processes, shared pages counted again for each.";
    Swap, Extra, "swap", KiB, Gauge, 0, "swapped memory", "Memory of the job that was moved to swap.";
    Threads, Extra, "threads", Count, Gauge, 0, "threads", "Threads of the job.";
    MajorFaults, Extra, "major_faults", Count, Delta, 0, "major page faults", "Page faults of the job that had to read from storage.";
    CpuSeen, Extra, "cpu_seen", Seconds, Delta, 6, "CPU time seen", "CPU time of the interval that /proc attributes to processes of the job; against utime + stime it gives the coverage.";
    Steal, Extra, "steal", Seconds, Delta, 6, "stolen CPU time", "CPU time that the hypervisor gave to other machines.";
    Throttled, Extra, "throttled", Seconds, Delta, 6, "throttled time", "Time for which the CPU limit of our cgroup held tasks back.";
    PressureCpu, Extra, "pressure_cpu", Seconds, Delta, 6, "CPU pressure", "Time in which some task of the machine waited for a CPU.";
    PressureMemory, Extra, "pressure_memory", Seconds, Delta, 6, "memory pressure", "Time in which some task of the machine waited for memory.";
    PressureIo, Extra, "pressure_io", Seconds, Delta, 6, "I/O pressure", "Time in which some task of the machine waited for storage.";
    CgroupMemory, Extra, "cgroup_memory", KiB, Gauge, 0, "container memory", "Memory charged to the cgroup we run in, page cache included.";
    TrackerCpu, Extra, "tracker_cpu", Seconds, Delta, 6, "tracker CPU time", "What the tracker itself spent; not part of the job's figures.";
    TrackerMemory, Extra, "tracker_memory", KiB, Gauge, 0, "tracker memory", "Resident memory of the tracker where it is a process of its own.";

    GpuUsage, Gpu, "usage", Cores, Gauge, 4, "usage", "How busy the GPU was, from 0 to 1.";
    GpuJobUsage, Gpu, "job_usage", Cores, Gauge, 4, "usage by the job", "The job's part of the GPU's use; an estimate where `run.gpus` says so.";
    GpuVram, Gpu, "vram", MiB, Gauge, 2, "VRAM used", "Memory of the GPU that is in use.";
    GpuJobVram, Gpu, "job_vram", MiB, Gauge, 2, "VRAM used by the job", "Memory of the GPU that the job holds.";
    GpuPower, Gpu, "power", Watts, Gauge, 2, "power", "Power that the GPU draws.";
    GpuTemperature, Gpu, "temperature", Celsius, Gauge, 1, "temperature", "Temperature of the GPU.";
    GpuClock, Gpu, "clock", Megahertz, Gauge, 0, "clock", "Clock of the GPU's processors.";
}

/// Where the metrics of a GPU begin: they are the last ones.
const FIRST_OF_GPU: usize = Metric::GpuUsage as usize;

/// GPUs that a recording has columns of: whoever names others in each answer must not fill our memory.
pub const MOST_GPUS: usize = 64;

impl Metric {
    /// Those that a row has one cell of.
    pub const ONCE: &'static [Self] = Self::ALL.split_at(FIRST_OF_GPU).0;
    /// Those that a row has for every GPU.
    pub const PER_GPU: &'static [Self] = Self::ALL.split_at(FIRST_OF_GPU).1;

    /// Those that drivers give for all GPUs together.
    pub const OF_ALL_GPUS: [Self; 6] = [
        Self::ProcessGpu,
        Self::ProcessVram,
        Self::ProcessGpus,
        Self::SystemGpu,
        Self::SystemVram,
        Self::SystemGpus,
    ];

    /// Looks a column up by its table and name.
    #[must_use]
    pub fn find(table: Table, column: &str) -> Option<Self> {
        table.metrics().find(|metric| metric.column() == column)
    }

    /// What the combined table and statistics call it.
    #[must_use]
    pub fn combined_column(self) -> String {
        format!("{}{}", self.table().prefix(), self.column())
    }

    /// Looks a column of the combined table up: `process_memory` is that of the job.
    #[must_use]
    pub fn find_combined(column: &str) -> Option<Self> {
        let tables = [Table::Process, Table::System];
        tables.into_iter().find_map(|table| Self::find(table, column.strip_prefix(table.prefix())?))
    }

    /// Its place among the cells of a GPU.
    #[must_use]
    pub const fn place_of_gpu(self) -> Option<usize> {
        (self as usize).checked_sub(FIRST_OF_GPU)
    }

    /// Looks a column of the extra table up that every GPU has: `gpu3_usage` is that of GPU 3.
    #[must_use]
    pub fn find_of_gpu(column: &str) -> Option<(Self, usize)> {
        let (gpu, name) = column.strip_prefix("gpu")?.split_once('_')?;
        let metric = Self::PER_GPU.iter().copied().find(|metric| metric.column() == name)?;
        let gpu = gpu.parse().ok()?;
        (metric.column_of_gpu(gpu) == column).then_some((metric, gpu))
    }

    /// What the extra table calls it for one GPU.
    #[must_use]
    pub fn column_of_gpu(self, gpu: usize) -> String {
        format!("gpu{gpu}_{}", self.column())
    }

    /// The precision a recording keeps, so that every copy of a row is the same row.
    #[must_use]
    pub fn round(self, value: f64) -> f64 {
        let scale = 10_f64.powi(self.decimals().cast_signed());
        let scaled = value * scale;
        // Beyond 2^53 a double holds no fraction, and scaling could only overflow.
        if scaled.abs() < 9_007_199_254_740_992.0 { scaled.round() / scale } else { value }
    }
}

/// `docs/metrics.md`, generated.
#[must_use]
pub fn docs_page() -> String {
    use std::fmt::Write as _;
    let mut page = String::from(
        "# Metrics\n\nGenerated from `crates/core/src/metric.rs`. Every table starts with `timestamp`; an empty \
         cell was not\nmeasured. A *delta* is what was added in the row's interval, a *gauge* is a level.\n",
    );
    let tables = [
        (Table::Process, "Process", ""),
        (Table::System, "System", ""),
        (Table::Extra, "Extra", ""),
        (
            Table::Gpu,
            "Every GPU",
            "\nMore columns of the extra table, for each GPU of the machine: `gpu0_usage`, `gpu1_usage` and so on, numbered \
             as in\n`run.gpus`, which has their names. There are none where there is no GPU.\n",
        ),
    ];
    for (table, title, about) in tables {
        let _ = write!(
            page,
            "\n## {title} (`{}`)\n{about}\n| column | unit | kind | name | meaning |\n|---|---|---|---|---|\n",
            table.key()
        );
        for metric in table.metrics().filter(|metric| table != Table::Gpu || metric.table() == table) {
            let kind = if metric.kind() == Kind::Gauge { "gauge" } else { "delta" };
            let _ = writeln!(
                page,
                "| `{}{}` | {} | {kind} | {} | {} |",
                if table == Table::Gpu { "gpuN_" } else { "" },
                metric.column(),
                metric.unit().symbol(),
                metric.human_name(),
                metric.doc()
            );
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_the_contract_are_in_its_order() {
        let names = |table: Table| table.metrics().map(Metric::column).collect::<Vec<_>>().join(",");
        assert_eq!(
            names(Table::Process),
            "timestamp,pid,children,utime,stime,cpu_usage,memory,read_bytes,write_bytes,gpu_usage,gpu_vram,gpu_utilized"
        );
        assert_eq!(
            names(Table::System),
            "timestamp,processes,utime,stime,cpu_usage,memory_free,memory_used,memory_buffers,memory_cached,\
             memory_active,memory_inactive,disk_read_bytes,disk_write_bytes,disk_space_total_gb,disk_space_used_gb,\
             disk_space_free_gb,net_recv_bytes,net_sent_bytes,gpu_usage,gpu_vram,gpu_utilized"
        );
    }

    #[test]
    fn columns_of_the_combined_table_are_found_by_their_names() {
        assert_eq!(Metric::SystemCpu.combined_column(), "system_cpu_usage");
        assert_eq!(Metric::Timestamp.combined_column(), "timestamp");
        assert_eq!(Metric::find_combined("process_cpu_usage"), Some(Metric::ProcessCpu));
        assert_eq!(
            (Metric::find_combined("cpu_usage"), Metric::find_combined("process_processes")),
            (None, None)
        );
    }

    #[test]
    fn every_column_has_one_sentence_of_help_and_a_name_of_its_own() {
        assert!(Metric::ALL.len() > 40, "the table is empty, so this test checks nothing");
        for metric in Metric::ALL {
            assert!(metric.doc().ends_with('.') && !metric.human_name().is_empty(), "{metric:?}");
            assert!(
                metric.table() == Table::Every
                    || Metric::find(metric.table(), metric.column()) == Some(*metric)
            );
        }
    }

    #[test]
    fn every_gpu_has_columns_of_its_own_after_all_others() {
        assert!(Metric::PER_GPU.iter().all(|metric| metric.table() == Table::Gpu));
        assert!(Metric::ONCE.iter().all(|metric| metric.table() != Table::Gpu));
        assert_eq!(Metric::GpuJobVram.column_of_gpu(12), "gpu12_job_vram");
        assert_eq!(Metric::find_of_gpu("gpu12_job_vram"), Some((Metric::GpuJobVram, 12)));
        for other in [
            "gpu_usage",
            "gpu12_",
            "gpu012_usage",
            "gpu+1_usage",
            "gpu1_color",
            "gpu99999999999999999999_usage",
        ] {
            assert_eq!(Metric::find_of_gpu(other), None, "{other}");
        }
    }

    #[test]
    fn rounding_keeps_the_decimals_of_the_column_and_never_overflows() {
        assert_eq!(Metric::ProcessCpu.round(1.234_56), 1.2346);
        assert_eq!(Metric::ProcessMemory.round(10.6), 11.0);
        assert_eq!(Metric::ProcessUtime.round(1e300), 1e300);
    }

    #[test]
    fn the_docs_page_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        if std::env::var_os("UPDATE_GENERATED").is_some() {
            std::fs::write(path, docs_page()).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(committed, docs_page(), "run `make generate`");
    }
}
