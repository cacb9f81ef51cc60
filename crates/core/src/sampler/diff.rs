//! The difference of two samples: counters become growth, levels are copied, and units are converted for the columns.
//!
//! In:  two [`Sample`]s, and the two CPU rates, which need more than two points. Out: a [`Row`], rounded for
//! recordings. No state and no system calls. A counter that went back or was not read gives an empty cell.

use std::collections::VecDeque;

use crate::job::usage::{Counter, JobUsage, ReadWindow};
use crate::metric::{Kind, Metric, Row};
use crate::probe::gpu::GpuState;
use crate::probe::snapshot::{Device, MachineCpu};
use crate::sampler::sample::Sample;
use crate::sampler::waits;

/// Minimum time span of a rate whose counter has steps of 10 ms: ten steps.
const STEADY_NS: u64 = 100_000_000;

/// The same for CPU clocks of processes: the clock of a process on another CPU is up to one scheduler tick behind.
const STEADY_CLOCKS_NS: u64 = 20_000_000;

/// CPU usage as a rate. If a row is too short for the resolution of the counter, the rate includes earlier rows.
#[derive(Debug, Default)]
pub struct Usage {
    /// Time and counter of earlier reads, both in ns.
    points: VecDeque<(u64, u64)>,
}

impl Usage {
    /// Adds a read of the counter, and returns the CPUs in use since an earlier read; `None` if that is too recent.
    ///
    /// The time span is from the begin of the earlier read to the end of this read, so that a delay between reading the
    /// clock and reading the counter cannot make the rate too high.
    ///
    /// The first row has no earlier rows to include. For it, half of the minimum time span is enough, less 5 % for the
    /// time that the baseline took.
    pub fn add(&mut self, within: ReadWindow, cpu_ns: u64, counter: Counter) -> Option<f64> {
        let at_ns = within.end_ns;
        // Keep the newest point that is old enough for a stepping counter, and all newer points. Twice the minimum time
        // span, if there are earlier rows: user and system time of reaped children may step at the same time.
        while self.points.get(1).is_some_and(|(then_ns, _)| at_ns.saturating_sub(*then_ns) >= 2 * STEADY_NS) {
            self.points.pop_front();
        }
        let (oldest, last) = (self.points.front().copied(), self.points.back().copied());
        let is_first_row = self.points.len() == 1;
        let steady_ns = match counter {
            Counter::Exact | Counter::ExactNow => 1,
            Counter::Clocks | Counter::ClocksNow => STEADY_CLOCKS_NS,
            Counter::Stepping => STEADY_NS,
        };
        let is_steady = |(then_ns, _): &&(u64, u64)| at_ns.saturating_sub(*then_ns) >= steady_ns;
        let from = match counter {
            Counter::Exact => last,
            // The end of the job adds the parts of clock ticks that earlier rows lack. For `ExactNow`, the oldest point
            // is exact too if it is the start of the job.
            Counter::ExactNow | Counter::ClocksNow | Counter::Stepping => oldest,
            Counter::Clocks => self.points.iter().rev().find(is_steady).copied().or(oldest),
        };
        self.points.push_back((within.begin_ns, cpu_ns));
        let (then_ns, before_ns) = from?;
        let enough_ns = match counter {
            Counter::Clocks | Counter::Stepping if is_first_row => steady_ns / 20 * 9,
            Counter::Clocks | Counter::Stepping => steady_ns,
            Counter::Exact | Counter::ExactNow | Counter::ClocksNow => 1,
        };
        let elapsed_ns = at_ns.checked_sub(then_ns).filter(|elapsed| *elapsed >= enough_ns)?;
        Some(ratio(cpu_ns.checked_sub(before_ns)?, elapsed_ns))
    }

    /// Drops all reads but the last, which becomes the baseline: the next row counts as a first row.
    pub fn start_anew(&mut self) {
        self.points.drain(..self.points.len().saturating_sub(1));
    }
}

/// Values of a row that cannot be computed from two samples.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    pub process_cores: Option<f64>,
    pub system_cores: Option<f64>,
    /// Grid points that passed without a row.
    pub missed_ticks: u64,
}

pub fn row(before: &Sample, after: &Sample, rates: Rates) -> Row {
    let mut row = Row::default();
    let mut set = |metric: Metric, value: Option<f64>| row.set(metric, rounded(metric, value));
    set(Metric::Timestamp, Some(seconds(after.machine.at.wall_ns)));
    let elapsed_ns = after.machine.at.monotonic_ns.checked_sub(before.machine.at.monotonic_ns);
    set(Metric::Elapsed, elapsed_ns.map(seconds));
    set(Metric::MissedTicks, Some(count(rates.missed_ticks)));
    set_gpu(&mut set, &after.gpu);
    if let (Some(then), Some(now)) = (before.job.as_ref(), after.job.as_ref()) {
        set_job(&mut set, then, now, rates);
    }
    set_machine(&mut set, before, after, rates);
    set_pressure(&mut set, before, after);
    waits::set(&mut row, before, after);
    row.gpus.clone_from(&after.each_gpu);
    for cells in &mut row.gpus {
        for (metric, cell) in Metric::PER_GPU.iter().zip(cells) {
            *cell = rounded(*metric, *cell);
        }
    }
    row
}

/// An absurd reading of a driver or the kernel is unknown: with it, the recording could not be loaded.
fn rounded(metric: Metric, value: Option<f64>) -> Option<f64> {
    value.filter(|value| metric.unit().range().contains(value)).map(|value| metric.round(value))
}

fn set_job(set: &mut impl FnMut(Metric, Option<f64>), then: &JobUsage, now: &JobUsage, rates: Rates) {
    let spent_ns = now.cpu.spent_ns.checked_sub(then.cpu.spent_ns);
    let seen_ns = now.cpu.seen_ns.checked_sub(then.cpu.seen_ns);
    let user_share = user_share(then, now);
    set(Metric::Pid, Some(f64::from(now.pid)));
    set(Metric::Children, now.children.map(count));
    set(Metric::ProcessUtime, spent_ns.map(|ns| seconds(ns) * user_share));
    set(Metric::ProcessStime, spent_ns.map(|ns| seconds(ns) * (1.0 - user_share)));
    set(Metric::ProcessCpu, rates.process_cores);
    set(Metric::ProcessMemory, now.memory_kib.map(count));
    set(Metric::ProcessRead, growth(then.read_bytes.or(Some(0)), now.read_bytes));
    set(Metric::ProcessWrite, growth(then.write_bytes.or(Some(0)), now.write_bytes));
    set(Metric::MemoryPeak, now.memory_peak_kib.map(count));
    set(Metric::MemoryMean, now.memory_mean_kib.map(count));
    set(Metric::Rss, now.rss_kib.map(count));
    set(Metric::Swap, now.swap_kib.map(count));
    set(Metric::Threads, now.threads.map(count));
    set(Metric::MajorFaults, growth(Some(then.major_faults), Some(now.major_faults)));
    // Without a CPU counter over the whole tree, the coverage is unknown.
    set(Metric::CpuSeen, seen_ns.filter(|_| now.cpu.is_counted).map(seconds));
}

/// The share of user time in the CPU time of the interval. CPU counters do not separate user and system time, so it is
/// estimated from the clock ticks of the interval, or from all clock ticks of the job if the interval has none.
fn user_share(then: &JobUsage, now: &JobUsage) -> f64 {
    let share = |user: u64, system: u64| (user + system > 0).then(|| ratio(user, user + system));
    let grown = |then: u64, now: u64| now.saturating_sub(then);
    share(grown(then.user_ticks, now.user_ticks), grown(then.system_ticks, now.system_ticks))
        .or_else(|| share(now.user_ticks, now.system_ticks))
        .unwrap_or(1.0)
}

fn set_machine(set: &mut impl FnMut(Metric, Option<f64>), before: &Sample, after: &Sample, rates: Rates) {
    let cpu = |get: fn(&MachineCpu) -> Option<u64>| {
        growth(before.machine.cpu.as_ref().and_then(get), after.machine.cpu.as_ref().and_then(get))
            .map(|ns| ns / 1e9)
    };
    set(Metric::Processes, after.machine.processes.map(count));
    set(Metric::SystemUtime, cpu(|cpu| Some(cpu.user_ns)));
    set(Metric::SystemStime, cpu(|cpu| Some(cpu.system_ns)));
    set(Metric::Irq, cpu(|cpu| cpu.irq_ns));
    set(Metric::SoftIrq, cpu(|cpu| cpu.softirq_ns));
    set(Metric::Steal, cpu(|cpu| cpu.steal_ns));
    set(Metric::SystemCpu, rates.system_cores);
    if let Some(memory) = after.machine.memory {
        set(Metric::MemoryFree, memory.free_kib.map(count));
        set(Metric::MemoryUsed, memory.used_kib.map(count));
        set(Metric::MemoryBuffers, memory.buffers_kib.map(count));
        set(Metric::MemoryCached, memory.cached_kib.map(count));
        set(Metric::MemoryActive, memory.active_kib.map(count));
        set(Metric::MemoryInactive, memory.inactive_kib.map(count));
    }
    let disks = devices_growth(before.machine.disks.as_deref(), after.machine.disks.as_deref());
    set(Metric::DiskRead, disks.map(|(read, _)| count(read)));
    set(Metric::DiskWrite, disks.map(|(_, written)| count(written)));
    let network = devices_growth(before.machine.network.as_deref(), after.machine.network.as_deref());
    set(Metric::NetRecv, network.map(|(received, _)| count(received)));
    set(Metric::NetSent, network.map(|(_, sent)| count(sent)));
    let gib = |bytes: u64| count(bytes) / 1_073_741_824.0;
    set(Metric::DiskTotal, after.machine.space.map(|space| gib(space.total_bytes)));
    set(Metric::DiskUsed, after.machine.space.map(|space| gib(space.used_bytes)));
    set(Metric::DiskFree, after.machine.space.map(|space| gib(space.free_bytes)));
}

fn set_gpu(set: &mut impl FnMut(Metric, Option<f64>), gpu: &GpuState) {
    let (job, system) = (gpu.job(), gpu.system());
    set(Metric::ProcessGpu, job.usage);
    set(Metric::ProcessVram, job.vram_mib());
    set(Metric::ProcessGpus, job.utilized.map(count));
    set(Metric::SystemGpu, system.usage);
    set(Metric::SystemVram, system.vram_mib());
    set(Metric::SystemGpus, system.utilized.map(count));
}

fn set_pressure(set: &mut impl FnMut(Metric, Option<f64>), before: &Sample, after: &Sample) {
    let micros = |then, now| growth(then, now).map(|us| us / 1e6);
    set(Metric::PressureCpu, micros(before.machine.pressure.cpu_us, after.machine.pressure.cpu_us));
    set(Metric::PressureMemory, micros(before.machine.pressure.memory_us, after.machine.pressure.memory_us));
    set(Metric::PressureIo, micros(before.machine.pressure.io_us, after.machine.pressure.io_us));
    set(
        Metric::Throttled,
        growth(before.machine.throttled_ns, after.machine.throttled_ns).map(|ns| ns / 1e9),
    );
    set(Metric::CgroupMemory, after.machine.cgroup_memory_bytes.map(|bytes| count(bytes / 1024)));
    let shmem_bytes = after.machine.cgroup_unmapped_shmem_bytes;
    set(Metric::CgroupShmem, shmem_bytes.map(|bytes| count(bytes / 1024)));
    set(Metric::TrackerCpu, growth(before.tracker.cpu_ns, after.tracker.cpu_ns).map(|ns| ns / 1e9));
    set(Metric::TrackerMemory, after.tracker.rss_kib.map(count));
    let traffic =
        |of: fn((u64, u64)) -> u64| growth(before.tracker.traffic.map(of), after.tracker.traffic.map(of));
    set(Metric::TrackerRecv, traffic(|(received, _)| received));
    set(Metric::TrackerSent, traffic(|(_, sent)| sent));
}

/// Joins two consecutive rows: growth is added, levels are those of the second row, rates are over both rows.
pub fn join(first: &Row, second: &Row) -> Row {
    let mut joined = second.clone();
    for metric in Metric::ONCE.iter().copied() {
        let both = (first.get(metric), second.get(metric));
        let cell = match (metric.kind(), both) {
            (Kind::Delta, (one, other)) => rounded(metric, one.zip(other).map(|(one, other)| one + other)),
            (Kind::Gauge, (one, other)) if metric == Metric::MemoryPeak => match (one, other) {
                (Some(one), Some(other)) => Some(one.max(other)),
                (one, other) => one.or(other),
            },
            (Kind::Gauge, (Some(one), Some(other))) if metric == Metric::MemoryMean => {
                let length = |row: &Row| row.get(Metric::Elapsed).unwrap_or(0.0);
                let (first_s, second_s) = (length(first), length(second));
                let weighted = one * first_s + other * second_s;
                Some(if first_s + second_s > 0.0 {
                    metric.round(weighted / (first_s + second_s))
                } else {
                    other
                })
            }
            (Kind::Gauge, (one, other)) if metric == Metric::MemoryMean => other.or(one),
            // During a short second row, the GPU driver may not have answered.
            (Kind::Gauge, (one, other)) if Metric::OF_ALL_GPUS.contains(&metric) => other.or(one),
            (Kind::Gauge, (_, other)) => other,
        };
        joined.set(metric, cell);
    }
    for (cells, earlier) in joined.gpus.iter_mut().zip(&first.gpus) {
        for (cell, earlier) in cells.iter_mut().zip(earlier) {
            *cell = cell.or(*earlier);
        }
    }
    let cell = |metric: Metric| joined.get(metric);
    let rate = |user: Metric, system: Metric| {
        let elapsed_s = cell(Metric::Elapsed).filter(|elapsed_s| *elapsed_s > 0.0)?;
        Some((cell(user)? + cell(system)?) / elapsed_s)
    };
    let process = rate(Metric::ProcessUtime, Metric::ProcessStime);
    let system = rate(Metric::SystemUtime, Metric::SystemStime);
    // The CPU counter of the machine has steps of 10 ms.
    let is_steady = cell(Metric::Elapsed).is_some_and(|elapsed_s| elapsed_s >= seconds(STEADY_NS));
    joined.set(Metric::ProcessCpu, process.map(|cores| Metric::ProcessCpu.round(cores)));
    joined.set(Metric::SystemCpu, system.filter(|_| is_steady).map(|cores| Metric::SystemCpu.round(cores)));
    joined
}

/// Growth of a counter; `None` if it was not read, or if it went back.
///
/// A counter that went back was reset (reused pid, driver reload, overflow): the growth is unknown, not zero.
pub fn growth(before: Option<u64>, after: Option<u64>) -> Option<f64> {
    Some(count(after?.checked_sub(before?)?))
}

/// Growth over the devices that are in both lists.
fn devices_growth(before: Option<&[Device]>, after: Option<&[Device]>) -> Option<(u64, u64)> {
    let (before, after) = (before?, after?);
    after.iter().try_fold((0_u64, 0_u64), |(inbound, outbound), device| {
        let Some(then) = before.iter().find(|then| then.name == device.name) else {
            return Some((inbound, outbound));
        };
        Some((
            inbound.checked_add(device.inbound.checked_sub(then.inbound)?)?,
            outbound.checked_add(device.outbound.checked_sub(then.outbound)?)?,
        ))
    })
}

#[expect(
    clippy::cast_precision_loss,
    reason = "exact below 2^53; above, the last bits of a byte count do not matter"
)]
fn count(number: u64) -> f64 {
    number as f64
}

fn seconds(ns: u64) -> f64 {
    count(ns) / 1e9
}

fn ratio(part: u64, whole: u64) -> f64 {
    count(part) / count(whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::usage::CpuTime;
    use crate::os::Moment;
    use crate::probe::snapshot::Snapshot;
    use proptest::prelude::*;

    fn cell(row: &Row, metric: Metric) -> Option<f64> {
        row.get(metric)
    }

    #[test]
    fn reset_is_unknown_and_idle_is_zero() {
        assert_eq!(growth(Some(100), Some(40)), None);
        assert_eq!(growth(Some(100), Some(100)), Some(0.0));
        assert_eq!(growth(None, Some(100)), None);
    }

    #[test]
    fn ticks_split_cpu_time_between_user_and_system() {
        let job = |spent_s: u64, user_ticks, system_ticks| JobUsage {
            pid: 7,
            user_ticks,
            system_ticks,
            cpu: CpuTime {
                spent_ns: spent_s * 1_000_000_000,
                seen_ns: spent_s * 500_000_000,
                is_counted: true,
                ..CpuTime::default()
            },
            ..JobUsage::default()
        };
        let before = Sample { job: Some(job(1, 10, 10)), ..Sample::default() };
        let machine = Snapshot { at: Moment { wall_ns: 0, monotonic_ns: 1 }, ..Snapshot::default() };
        let after = Sample { machine, job: Some(job(3, 40, 20)), ..Sample::default() };
        let row = row(&before, &after, Rates::default());
        assert_eq!(
            (cell(&row, Metric::ProcessUtime), cell(&row, Metric::ProcessStime)),
            (Some(1.5), Some(0.5))
        );
        assert_eq!(cell(&row, Metric::CpuSeen), Some(1.0));
        assert_eq!(cell(&row, Metric::MemoryFree), None, "not measured");
    }

    #[test]
    fn joined_row_has_the_sum_of_growth_the_later_levels_and_the_larger_peak() {
        let row = |elapsed_s: f64, cpu_s: f64, memory: f64, peak: f64| {
            let mut row = Row::default();
            for (metric, value) in [
                (Metric::Elapsed, elapsed_s),
                (Metric::ProcessUtime, cpu_s),
                (Metric::ProcessStime, 0.0),
                (Metric::ProcessCpu, cpu_s / elapsed_s),
                (Metric::SystemUtime, 0.01),
                (Metric::SystemStime, 0.0),
                (Metric::ProcessMemory, memory),
                (Metric::MemoryPeak, peak),
            ] {
                row.set(metric, Some(value));
            }
            row
        };
        let joined = join(&row(0.06, 0.06, 100.0, 900.0), &row(0.02, 0.0, 200.0, 200.0));
        let values = [
            Metric::Elapsed,
            Metric::ProcessUtime,
            Metric::ProcessCpu,
            Metric::ProcessMemory,
            Metric::MemoryPeak,
        ];
        assert_eq!(
            values.map(|metric| cell(&joined, metric)),
            [Some(0.08), Some(0.06), Some(0.75), Some(200.0), Some(900.0)]
        );
        assert_eq!(cell(&joined, Metric::SystemCpu), None, "80 ms are too short for steps of 10 ms");
        assert_eq!(cell(&joined, Metric::DiskRead), None, "not measured");
    }

    #[test]
    fn new_disk_is_left_out_and_a_reset_counter_makes_the_growth_unknown() {
        let disk = |name: &str, read| Device { name: name.as_bytes().into(), inbound: read, outbound: 0 };
        let before = [disk("vda", 10)];
        assert_eq!(devices_growth(Some(&before), Some(&[disk("vda", 15), disk("vdb", 99)])), Some((5, 0)));
        assert_eq!(devices_growth(Some(&before), Some(&[disk("vda", 9)])), None);
        assert_eq!(devices_growth(Some(&before), Some(&[])), Some((0, 0)));
    }

    #[test]
    fn rate_of_a_short_last_row_includes_earlier_rows_for_a_stepping_counter() {
        let ms = 1_000_000;
        let mut usage = Usage::default();
        assert_eq!(usage.add(ReadWindow::at(0), 0, Counter::Stepping), None);
        assert_eq!(usage.add(ReadWindow::at(1000 * ms), 1000 * ms, Counter::Stepping), Some(1.0));
        // One clock tick of 10 ms in a row of 2 ms would be 5 CPUs.
        let last = usage.add(ReadWindow::at(1002 * ms), 1010 * ms, Counter::Stepping).unwrap();
        assert!((1.0..1.01).contains(&last), "{last}");
        assert_eq!(Usage::default().add(ReadWindow::at(0), 0, Counter::Exact), None);
    }

    #[test]
    fn rate_of_process_clocks_spans_several_scheduler_ticks() {
        let ms = 1_000_000;
        let mut usage = Usage::default();
        usage.add(ReadWindow::at(0), 0, Counter::Clocks);
        assert_eq!(usage.add(ReadWindow::at(5 * ms), 5 * ms, Counter::Clocks), None);
        assert_eq!(usage.add(ReadWindow::at(40 * ms), 40 * ms, Counter::Clocks), Some(1.0));
        assert_eq!(usage.add(ReadWindow::at(60 * ms), 40 * ms, Counter::Clocks), Some(0.0), "only this row");
        // The clock jumps by 4 ms in a row of 1 ms.
        assert_eq!(usage.add(ReadWindow::at(61 * ms), 44 * ms, Counter::Clocks), Some(4.0 / 21.0));
        let mut usage = Usage::default();
        usage.add(ReadWindow::at(0), 0, Counter::Clocks);
        assert_eq!(usage.add(ReadWindow::at(10 * ms), 5 * ms, Counter::Clocks), Some(0.5), "first row");
        let mut usage = Usage::default();
        usage.add(ReadWindow::at(0), 0, Counter::Clocks);
        assert_eq!(usage.add(ReadWindow::at(2 * ms), ms, Counter::ClocksNow), Some(0.5), "a job of 2 ms");
    }

    #[test]
    fn first_row_needs_half_of_the_minimum_time_span() {
        let ms = 1_000_000;
        for (length_ms, rate) in [(2, None), (40, None), (50, Some(0.8)), (99, Some(40.0 / 99.0))] {
            let mut usage = Usage::default();
            usage.add(ReadWindow::at(0), 0, Counter::Stepping);
            assert_eq!(
                usage.add(ReadWindow::at(length_ms * ms), 40 * ms, Counter::Stepping),
                rate,
                "{length_ms}"
            );
        }
    }

    #[test]
    fn rate_after_a_new_baseline_excludes_earlier_rows() {
        let ms = 1_000_000;
        let mut usage = Usage::default();
        usage.start_anew();
        usage.add(ReadWindow::at(0), 0, Counter::Stepping);
        usage.add(ReadWindow::at(10 * ms), 80 * ms, Counter::Stepping);
        usage.start_anew();
        assert_eq!(usage.add(ReadWindow::at(90 * ms), 120 * ms, Counter::Stepping), Some(0.5));
    }

    proptest! {
        /// At any interval, a stepping counter of n busy CPUs shows at most 1.1 n.
        #[test]
        fn steps_do_not_show_more_cpus_than_there_are(interval_ms in 1_u64..400, cpus in 1_u64..64) {
            let mut usage = Usage::default();
            for tick in 0..500 {
                let at_ms = tick * interval_ms;
                let stepped_ms = at_ms / 10 * 10 * cpus;
                let at = ReadWindow::at(at_ms * 1_000_000);
                if let Some(cores) = usage.add(at, stepped_ms * 1_000_000, Counter::Stepping) {
                    prop_assert!(cores <= 1.1 * count(cpus) + 1e-9, "{cores} of {cpus}");
                }
            }
        }

        #[test]
        fn no_cell_is_negative_or_infinite(then in any::<[u64; 6]>(), now in any::<[u64; 6]>()) {
            let sample = |v: [u64; 6]| Sample {
                machine: Snapshot {
                    at: Moment { wall_ns: v[0], monotonic_ns: v[1] },
                    throttled_ns: Some(v[2]),
                    disks: Some(vec![Device { name: (*b"d").into(), inbound: v[4], outbound: v[5] }]),
                    ..Snapshot::default()
                },
                job: Some(JobUsage {
                    pid: 1,
                    cpu: CpuTime { spent_ns: v[3], ..CpuTime::default() },
                    user_ticks: v[4] >> 1,
                    system_ticks: v[5] >> 1,
                    read_bytes: Some(v[4]),
                    ..JobUsage::default()
                }),
                ..Sample::default()
            };
            for value in row(&sample(then), &sample(now), Rates::default()).cells().iter().flatten() {
                prop_assert!(value.is_finite() && *value >= 0.0, "{value}");
            }
        }
    }
}
