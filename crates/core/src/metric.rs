//! The table of metrics: the only definition of the columns of a recording.
//!
//! Out: CSV headers, human-readable names, byte factors, `docs/metrics.md`, the axes of the report and the columns of all
//!      fronts are generated from this table. A [`Row`] has one cell per metric, and one per GPU for GPU metrics.
//! Not here: computation of the values (`sampler::diff`), storage (`store`).

use std::ops::RangeInclusive;

/// A table of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// Pseudo-table for `timestamp`, the first column of all tables.
    Every,
    /// The tracked process and its descendants.
    Process,
    /// The whole machine.
    System,
    /// Metrics that the original tracker does not have.
    Extra,
    /// Metrics of each GPU, in the extra table as `gpu0_usage`.
    Gpu,
}

impl Table {
    /// The tables of a recording, in file order.
    pub const ALL: [Self; 3] = [Self::Process, Self::System, Self::Extra];

    /// The key of this table in a snapshot.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Every => "timestamp",
            Self::Process => "process_metrics",
            Self::System => "system_metrics",
            Self::Extra | Self::Gpu => "extra_metrics",
        }
    }

    /// The table with this key in a snapshot.
    pub fn from_key(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|table| table.key() == key)
    }

    /// Prefix of the table's columns in the combined table and in statistics.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Process => "process_",
            Self::System => "system_",
            Self::Every | Self::Extra | Self::Gpu => "",
        }
    }

    /// The columns of this table, `timestamp` first. The extra table continues with [`Metric::PER_GPU`] for each GPU.
    pub fn metrics(self) -> impl Iterator<Item = Metric> {
        Metric::ALL
            .iter()
            .copied()
            .filter(move |metric| matches!(metric.table(), t if t == self || t == Self::Every))
    }
}

/// Bytes of a MiB.
pub(crate) const MIB: f64 = 1_048_576.0;

/// The unit of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Seconds since 1970.
    UnixTime,
    Seconds,
    Count,
    /// Busy CPUs or GPUs.
    Cores,
    Bytes,
    /// 1024 bytes, called kB as in the kernel.
    KiB,
    /// 1024² bytes.
    MiB,
    /// 1024³ bytes.
    GiB,
    Watts,
    Celsius,
    Megahertz,
}

impl Unit {
    /// Bytes per unit; `None` for units that `bytes = true` does not convert.
    pub const fn byte_factor(self) -> Option<f64> {
        match self {
            Self::KiB => Some(1024.0),
            Self::MiB => Some(MIB),
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

    /// Values that a recording may hold. Far wider than any machine: only damaged and forged files are outside.
    pub const fn range(self) -> RangeInclusive<f64> {
        match self {
            // To the end of the year 9999.
            Self::UnixTime => 0.0..=253_402_300_799.0,
            Self::Seconds | Self::GiB => 0.0..=1e12,
            Self::Count | Self::MiB => 0.0..=1e15,
            Self::Cores | Self::Megahertz | Self::Watts => 0.0..=1e6,
            Self::KiB => 0.0..=1e18,
            Self::Bytes => 0.0..=1e21,
            Self::Celsius => -1e3..=1e6,
        }
    }

    /// Symbol in documentation and on axes.
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

/// Whether a value is a level or a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A level at the time of the sample.
    Gauge,
    /// The growth since the previous row.
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

            pub const fn table(self) -> Table { match self { $( Self::$id => Table::$table, )* } }
            /// Name of the column in files and frames.
            pub const fn column(self) -> &'static str { match self { $( Self::$id => $column, )* } }
            pub const fn unit(self) -> Unit { match self { $( Self::$id => Unit::$unit, )* } }
            pub const fn kind(self) -> Kind { match self { $( Self::$id => Kind::$kind, )* } }
            /// Decimals in a recording.
            pub const fn decimals(self) -> u32 { match self { $( Self::$id => $decimals, )* } }
            /// Human-readable name, without the prefix of the table.
            pub const fn human_name(self) -> &'static str { match self { $( Self::$id => $human, )* } }
            /// One sentence of help.
            pub const fn doc(self) -> &'static str { match self { $( Self::$id => $doc, )* } }
        }
    };
}

metrics! {
    Timestamp, Every, "timestamp", UnixTime, Gauge, 3, "Timestamp", "Time of the sample, in Unix seconds.";

    Pid, Process, "pid", Count, Gauge, 0, "PID", "Process id of the tracked process.";
    Children, Process, "children", Count, Gauge, 0, "children", "Number of live descendants of the tracked process; empty if children are not tracked.";
    ProcessUtime, Process, "utime", Seconds, Delta, 6, "CPU time (user)", "User CPU time of the job in this interval, nice time included.";
    ProcessStime, Process, "stime", Seconds, Delta, 6, "CPU time (system)", "System CPU time of the job in this interval.";
    ProcessCpu, Process, "cpu_usage", Cores, Gauge, 4, "CPU usage", "CPU usage of the job: CPU time divided by elapsed time, from 0 to the number of CPUs.";
    ProcessMemory, Process, "memory", KiB, Gauge, 0, "memory usage", "Memory of the job: proportional set size (PSS), which counts shared pages once; USS or RSS on systems without PSS.";
    ProcessRead, Process, "read_bytes", Bytes, Delta, 0, "disk read", "Bytes that the job read from storage in this interval.";
    ProcessWrite, Process, "write_bytes", Bytes, Delta, 0, "disk write", "Bytes that the job wrote to storage in this interval, including data that was deleted before it reached the disk.";
    ProcessGpu, Process, "gpu_usage", Cores, Gauge, 4, "GPU usage", "GPU usage of the job, summed over GPUs, from 0 to the number of GPUs.";
    ProcessVram, Process, "gpu_vram", MiB, Gauge, 2, "VRAM used", "GPU memory of the job, summed over GPUs.";
    ProcessGpus, Process, "gpu_utilized", Count, Gauge, 0, "GPUs in use", "Number of GPUs that the job used.";

    Processes, System, "processes", Count, Gauge, 0, "processes", "Number of processes on the machine.";
    SystemUtime, System, "utime", Seconds, Delta, 6, "CPU time (user)", "User CPU time of the machine in this interval, nice time included.";
    SystemStime, System, "stime", Seconds, Delta, 6, "CPU time (system)", "System CPU time of the machine in this interval.";
    SystemCpu, System, "cpu_usage", Cores, Gauge, 4, "CPU usage", "CPU usage of the machine: CPU time divided by elapsed time, from 0 to the number of CPUs.";
    MemoryFree, System, "memory_free", KiB, Gauge, 0, "free memory", "Free memory of the machine.";
    MemoryUsed, System, "memory_used", KiB, Gauge, 0, "used memory", "Used memory of the machine: total minus free, buffers and cached.";
    MemoryBuffers, System, "memory_buffers", KiB, Gauge, 0, "memory buffers", "Memory of the machine in buffers for file system metadata.";
    MemoryCached, System, "memory_cached", KiB, Gauge, 0, "memory page/file cached", "Memory of the machine in the page cache and in reclaimable kernel slabs.";
    MemoryActive, System, "memory_active", KiB, Gauge, 0, "active memory", "Memory that the kernel classifies as recently used.";
    MemoryInactive, System, "memory_inactive", KiB, Gauge, 0, "inactive memory", "Memory that the kernel classifies as not recently used.";
    DiskRead, System, "disk_read_bytes", Bytes, Delta, 0, "disk read", "Bytes read from all disks of the machine in this interval; partitions are not counted twice.";
    DiskWrite, System, "disk_write_bytes", Bytes, Delta, 0, "disk write", "Bytes written to all disks of the machine in this interval; partitions are not counted twice.";
    DiskTotal, System, "disk_space_total_gb", GiB, Gauge, 2, "disk space total", "Size of all physical file systems, each counted once.";
    DiskUsed, System, "disk_space_used_gb", GiB, Gauge, 2, "disk space used", "Used space of all physical file systems, as in `df`.";
    DiskFree, System, "disk_space_free_gb", GiB, Gauge, 2, "disk space free", "Free space of all physical file systems for users without root privileges.";
    NetRecv, System, "net_recv_bytes", Bytes, Delta, 0, "inbound network traffic", "Bytes received on the physical network interfaces of the machine in this interval.";
    NetSent, System, "net_sent_bytes", Bytes, Delta, 0, "outbound network traffic", "Bytes sent on the physical network interfaces of the machine in this interval.";
    SystemGpu, System, "gpu_usage", Cores, Gauge, 4, "GPU usage", "GPU usage of the machine, summed over GPUs, from 0 to the number of GPUs.";
    SystemVram, System, "gpu_vram", MiB, Gauge, 2, "VRAM used", "Used GPU memory of the machine, summed over GPUs.";
    SystemGpus, System, "gpu_utilized", Count, Gauge, 0, "GPUs in use", "Number of GPUs in use on the machine.";

    Elapsed, Extra, "elapsed", Seconds, Delta, 6, "elapsed time", "Length of the interval by the monotonic clock.";
    MissedTicks, Extra, "missed_ticks", Count, Delta, 0, "missed ticks", "Number of samples that were skipped before this row.";
    MemoryPeak, Extra, "memory_peak", KiB, Gauge, 0, "peak memory", "Highest memory of the job in this interval, including measured peaks between samples.";
    MemoryMean, Extra, "memory_mean", KiB, Gauge, 0, "mean memory", "Mean memory of the job in this interval, weighted by time.";
    Rss, Extra, "rss", KiB, Gauge, 0, "resident memory", "Resident set size (RSS), summed over the processes of the job; shared pages count once per process.";
    Swap, Extra, "swap", KiB, Gauge, 0, "swapped memory", "Memory of the job in swap.";
    Threads, Extra, "threads", Count, Gauge, 0, "threads", "Number of threads of the job.";
    MajorFaults, Extra, "major_faults", Count, Delta, 0, "major page faults", "Page faults of the job in this interval that required a read from storage.";
    CpuSeen, Extra, "cpu_seen", Seconds, Delta, 6, "CPU time seen", "CPU time in this interval that /proc attributes to processes of the job; divided by utime + stime it is the coverage.";
    Irq, Extra, "irq", Seconds, Delta, 6, "CPU time (interrupts)", "CPU time of the machine in interrupt handlers in this interval; not included in its system CPU time.";
    SoftIrq, Extra, "softirq", Seconds, Delta, 6, "CPU time (soft interrupts)", "CPU time of the machine in deferred interrupt work, such as network packets, in this interval; not included in its system CPU time.";
    Steal, Extra, "steal", Seconds, Delta, 6, "stolen CPU time", "CPU time in this interval that the hypervisor gave to other virtual machines (steal time).";
    Throttled, Extra, "throttled", Seconds, Delta, 6, "throttled time", "Time in this interval for which the CPU limit of the cgroup throttled its tasks.";
    OnCpu, Extra, "on_cpu", Seconds, Delta, 6, "time on a CPU", "Time in this interval in which at least one thread of the job ran; an estimate for several threads. It and the six times of waiting below add up to the interval.";
    WaitCpu, Extra, "wait_cpu", Seconds, Delta, 6, "time waiting for a CPU", "Time in this interval in which no thread of the job ran and at least one was ready to run.";
    WaitQuota, Extra, "wait_quota", Seconds, Delta, 6, "time stopped by a CPU quota", "Time in this interval in which no thread of the job ran because its CPU limit throttled it.";
    WaitDisk, Extra, "wait_disk", Seconds, Delta, 6, "time waiting for disk", "Time in this interval in which the job, which used storage, could not run and a task of the machine waited for I/O; an estimate.";
    WaitPaging, Extra, "wait_paging", Seconds, Delta, 6, "time waiting for memory", "The part of the time waiting for disk in which pages were read again for lack of memory; an estimate.";
    WaitStolen, Extra, "wait_stolen", Seconds, Delta, 6, "time stolen", "Time in this interval that the hypervisor took from the job; an estimate.";
    Idle, Extra, "idle", Seconds, Delta, 6, "idle time", "Time in this interval in which the job slept or waited for the network, locks or input.";
    CpuQueue, Extra, "cpu_queue", Seconds, Delta, 6, "threads waiting for a CPU", "Time in this interval that threads of the job were ready to run, summed over its threads.";
    CpuInThreads, Extra, "cpu_in_threads", Seconds, Delta, 6, "CPU time in threads", "CPU time in this interval of threads that were alive at its end; divided by utime + stime it is the coverage of the times above.";
    PressureCpu, Extra, "pressure_cpu", Seconds, Delta, 6, "CPU pressure", "Time in this interval in which at least one task of the machine waited for a CPU (PSI).";
    PressureMemory, Extra, "pressure_memory", Seconds, Delta, 6, "memory pressure", "Time in this interval in which at least one task of the machine waited for memory (PSI).";
    PressureIo, Extra, "pressure_io", Seconds, Delta, 6, "I/O pressure", "Time in this interval in which at least one task of the machine waited for I/O (PSI).";
    CgroupMemory, Extra, "cgroup_memory", KiB, Gauge, 0, "container memory", "Memory charged to the cgroup of the job, page cache included.";
    CgroupShmem, Extra, "cgroup_shmem", KiB, Gauge, 0, "tmpfs files", "Files in tmpfs, such as /dev/shm, and shared memory that no process has mapped, charged to the cgroup of the job; a lower bound, empty if the cgroup has processes outside the job.";
    TrackerCpu, Extra, "tracker_cpu", Seconds, Delta, 6, "tracker CPU time", "CPU time of the tracker in this interval; not included in the figures of the job.";
    TrackerMemory, Extra, "tracker_memory", KiB, Gauge, 0, "tracker memory", "Resident memory of the tracker; empty if it runs in the host process.";
    TrackerRecv, Extra, "tracker_recv_bytes", Bytes, Delta, 0, "tracker inbound traffic", "Bytes that the tracker received in this interval, for instance to detect the cloud; an estimate, included in the traffic of the machine.";
    TrackerSent, Extra, "tracker_sent_bytes", Bytes, Delta, 0, "tracker outbound traffic", "Bytes that the tracker sent in this interval, for instance to detect the cloud; an estimate, included in the traffic of the machine.";

    GpuUsage, Gpu, "usage", Cores, Gauge, 4, "usage", "Usage of the GPU, from 0 to 1.";
    GpuJobUsage, Gpu, "job_usage", Cores, Gauge, 4, "usage by the job", "Usage of the GPU by the job, from 0 to 1; an estimate if `run.gpus` marks it as estimated.";
    GpuVram, Gpu, "vram", MiB, Gauge, 2, "VRAM used", "Used memory of the GPU.";
    GpuJobVram, Gpu, "job_vram", MiB, Gauge, 2, "VRAM used by the job", "Memory of the GPU that the job uses.";
    GpuPower, Gpu, "power", Watts, Gauge, 2, "power", "Power draw of the GPU.";
    GpuTemperature, Gpu, "temperature", Celsius, Gauge, 1, "temperature", "Temperature of the GPU.";
    GpuClock, Gpu, "clock", Megahertz, Gauge, 0, "clock", "Clock rate of the GPU cores.";
}

/// Index of the first metric per GPU. The metrics per GPU are the last in the table.
const FIRST_OF_GPU: usize = Metric::GpuUsage as usize;

/// Highest number of GPUs in a recording. Bounds the memory if a driver reports new GPUs in every sample.
pub const MOST_GPUS: usize = 64;

impl Metric {
    /// Metrics with one cell per row.
    pub const ONCE: &'static [Self] = Self::ALL.split_at(FIRST_OF_GPU).0;
    /// Metrics with one cell per GPU and row.
    pub const PER_GPU: &'static [Self] = Self::ALL.split_at(FIRST_OF_GPU).1;

    /// GPU metrics that are summed over all GPUs.
    pub const OF_ALL_GPUS: [Self; 6] = [
        Self::ProcessGpu,
        Self::ProcessVram,
        Self::ProcessGpus,
        Self::SystemGpu,
        Self::SystemVram,
        Self::SystemGpus,
    ];

    /// Finds a column by table and name.
    pub fn find(table: Table, column: &str) -> Option<Self> {
        table.metrics().find(|metric| metric.column() == column)
    }

    /// Name in the combined table and in statistics.
    pub fn combined_column(self) -> String {
        format!("{}{}", self.table().prefix(), self.column())
    }

    /// Finds a column of the combined table, for example `process_memory`, or of the extra table.
    pub fn find_combined(column: &str) -> Option<Self> {
        let found =
            Table::ALL.into_iter().find_map(|table| Self::find(table, column.strip_prefix(table.prefix())?));
        found.or_else(|| Some(Self::find_of_gpu(column)?.0))
    }

    /// Index in `GpuCells`; `None` for metrics that are not per GPU.
    pub const fn place_of_gpu(self) -> Option<usize> {
        (self as usize).checked_sub(FIRST_OF_GPU)
    }

    /// Finds a GPU column of the extra table: `gpu3_usage` is the usage of GPU 3.
    pub fn find_of_gpu(column: &str) -> Option<(Self, usize)> {
        let (gpu, name) = column.strip_prefix("gpu")?.split_once('_')?;
        let metric = Self::PER_GPU.iter().copied().find(|metric| metric.column() == name)?;
        let gpu = gpu.parse().ok()?;
        (metric.column_of_gpu(gpu) == column).then_some((metric, gpu))
    }

    /// Name in the extra table for one GPU.
    pub fn column_of_gpu(self, gpu: usize) -> String {
        format!("gpu{gpu}_{}", self.column())
    }

    /// The unit of a column of a recording; `None` for columns that only later versions know.
    pub fn unit_of(table: Table, column: &str) -> Option<Unit> {
        let of_gpu = || Some(Self::find_of_gpu(column).filter(|_| table == Table::Extra)?.0);
        Some(Self::find(table, column).or_else(of_gpu)?.unit())
    }

    /// Rounds to the precision of recordings, so that a row is equal in memory and in files.
    pub fn round(self, value: f64) -> f64 {
        let scale = 10_f64.powi(self.decimals().cast_signed());
        let scaled = value * scale;
        // Above 2^53 a double has no fraction, and scaling could overflow.
        if scaled.abs() < 9_007_199_254_740_992.0 { scaled.round() / scale } else { value }
    }
}

#[cfg(test)]
/// The text of `docs/metrics.md`.
fn docs_page() -> String {
    use std::fmt::Write as _;
    let mut page = String::from(
        "# Metrics\n\nGenerated from `crates/core/src/metric.rs`. Every table starts with `timestamp`. An empty cell was \
         not\nmeasured. A *delta* is the growth in the interval of the row, a *gauge* is the level at its end or the mean \
         over the\ninterval.\n",
    );
    let tables = [
        (Table::Process, "Process", ""),
        (Table::System, "System", ""),
        (Table::Extra, "Extra", ""),
        (
            Table::Gpu,
            "Per GPU",
            "\nAdditional columns of the extra table for each GPU: `gpu0_usage`, `gpu1_usage` and so on. The numbers and \
             names of\nthe GPUs are in `run.gpus`. Without a GPU there are no such columns.\n",
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

/// The cells of one GPU, ordered as [`Metric::PER_GPU`].
pub type GpuCells = [Option<f64>; Metric::PER_GPU.len()];

/// One row of a recording: a cell for each metric; an unmeasured cell is `None`.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    cells: [Option<f64>; FIRST_OF_GPU],
    /// One entry per GPU, numbered as in `run.gpus`.
    pub gpus: Vec<GpuCells>,
}

impl Default for Row {
    fn default() -> Self {
        Self { cells: [None; FIRST_OF_GPU], gpus: Vec::new() }
    }
}

impl Row {
    /// A row with the cell that the function gives for each metric, without GPUs.
    pub fn of(mut cell: impl FnMut(Metric) -> Option<f64>) -> Self {
        let mut row = Self::default();
        for metric in Metric::ONCE {
            row.set(*metric, cell(*metric));
        }
        row
    }

    /// Adds the cells of GPUs.
    pub fn with_gpus(self, gpus: Vec<GpuCells>) -> Self {
        Self { gpus, ..self }
    }

    /// The cell of a metric in [`Metric::ONCE`].
    pub fn get(&self, metric: Metric) -> Option<f64> {
        self.cells.get(metric as usize).copied().flatten()
    }

    /// The cell of a metric in [`Metric::PER_GPU`].
    pub fn get_of_gpu(&self, metric: Metric, gpu: usize) -> Option<f64> {
        self.gpus.get(gpu)?.get(metric.place_of_gpu()?).copied().flatten()
    }

    /// The cells, ordered as [`Metric::ONCE`].
    pub const fn cells(&self) -> &[Option<f64>] {
        &self.cells
    }

    /// All cells that have a value, and the metric of each.
    pub fn measured(&self) -> impl Iterator<Item = (Metric, f64)> {
        let once = Metric::ONCE.iter().zip(&self.cells);
        let gpus = self.gpus.iter().flat_map(|cells| Metric::PER_GPU.iter().zip(cells));
        once.chain(gpus).filter_map(|(metric, cell)| Some((*metric, (*cell)?)))
    }

    /// Sets the cell of a metric in [`Metric::ONCE`].
    pub fn set(&mut self, metric: Metric, value: Option<f64>) {
        if let Some(cell) = self.cells.get_mut(metric as usize) {
            *cell = value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_the_order_of_the_original_tracker() {
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
    fn columns_of_the_combined_table_are_found_by_name() {
        assert_eq!(Metric::SystemCpu.combined_column(), "system_cpu_usage");
        assert_eq!(Metric::Timestamp.combined_column(), "timestamp");
        assert_eq!(Metric::find_combined("process_cpu_usage"), Some(Metric::ProcessCpu));
        assert_eq!(
            (Metric::find_combined("cpu_usage"), Metric::find_combined("process_processes")),
            (None, None)
        );
    }

    #[test]
    fn every_column_has_a_help_text_and_a_unique_name() {
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
    fn gpu_columns_are_last_and_found_by_name() {
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
    fn rounding_keeps_the_decimals_of_the_column() {
        assert_eq!(Metric::ProcessCpu.round(1.234_56), 1.2346);
        assert_eq!(Metric::ProcessMemory.round(10.6), 11.0);
        assert_eq!(Metric::ProcessUtime.round(1e300), 1e300);
    }

    #[test]
    fn docs_page_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        if std::env::var_os("UPDATE_GENERATED").is_some() {
            std::fs::write(path, docs_page()).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(committed, docs_page(), "run `make generate`");
    }
}
