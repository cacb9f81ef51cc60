//! What a job waited for in a row: its duration, divided.
//!
//! In:  how long any thread ran or was ready, and the growth of the machine's counters. Out: cells of the row, which add
//! up to its duration.
//! Not here: threads (`job/threads`), the sentence about a run (`analysis/waits`).
//!
//! While any thread runs, the job is on a CPU. Otherwise it is in its most severe wait. A CPU quota and the hypervisor say
//! themselves how long they stopped the job. The kernel counts the time in which any task of the machine waited for
//! storage or memory (PSI): it is the job's if the job itself used storage in the row, and as long as no thread of it was
//! running or ready. What is left is idle: sleep, network, locks, input.

use std::time::Duration;

use crate::job::usage::ThreadTimes;
use crate::metric::{Metric, Row};
use crate::sampler::sample::Sample;

/// The figures of one row, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Growth {
    elapsed_s: f64,
    running_s: f64,
    ready_s: f64,
    throttled_s: f64,
    /// Time in which a task of the machine waited for storage, and for memory.
    pressure_io_s: f64,
    pressure_memory_s: f64,
    /// Time that the hypervisor took from all CPUs, and the job's share of the machine's CPU time.
    steal_s: f64,
    job_share: f64,
    /// CPU time of the job.
    cpu_s: f64,
    /// Whether the job read or wrote storage, and whether it had a major page fault.
    uses_storage: bool,
    faults: bool,
}

/// The duration of a row, divided.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Waits {
    on_cpu_s: f64,
    ready_s: f64,
    throttled_s: f64,
    disk_s: f64,
    paging_s: f64,
    stolen_s: f64,
    idle_s: f64,
}

fn divide(row: Growth) -> Waits {
    let elapsed_s = row.elapsed_s.max(0.0);
    let running_s = row.running_s.clamp(0.0, elapsed_s);
    let throttled_s = row.throttled_s.clamp(0.0, elapsed_s - running_s);
    // A throttled thread is ready too.
    let ready_s = (row.ready_s - throttled_s).clamp(0.0, elapsed_s - running_s - throttled_s);
    let blocked_s = elapsed_s - running_s - throttled_s - ready_s;
    let waits_for_storage = row.uses_storage || row.faults;
    let storage_s = if waits_for_storage { row.pressure_io_s.clamp(0.0, blocked_s) } else { 0.0 };
    let for_memory = if row.faults && row.pressure_io_s > 0.0 {
        (row.pressure_memory_s / row.pressure_io_s).clamp(0.0, 1.0)
    } else {
        0.0
    };
    let paging_s = storage_s * for_memory;
    // Time that the hypervisor took while the job was on several CPUs delayed it only once.
    let cores = if elapsed_s > 0.0 { (row.cpu_s / elapsed_s).max(1.0) } else { 1.0 };
    let stolen_s = (row.steal_s * row.job_share.clamp(0.0, 1.0) / cores).clamp(0.0, running_s);
    Waits {
        on_cpu_s: running_s - stolen_s,
        ready_s,
        throttled_s,
        disk_s: storage_s - paging_s,
        paging_s,
        stolen_s,
        idle_s: blocked_s - storage_s,
    }
}

/// Divides the duration of the row by what the job did and waited for.
pub(super) fn set(row: &mut Row, before: &Sample, after: &Sample) {
    let (Some(then), Some(now)) = (before.job.as_ref(), after.job.as_ref()) else { return };
    let Some(now_times) = now.thread_times else { return };
    let then_times = then.thread_times.unwrap_or_default();
    let growth = |get: fn(&ThreadTimes) -> u64| {
        Duration::from_nanos(get(&now_times).saturating_sub(get(&then_times))).as_secs_f64()
    };
    let cell = |metric: Metric| row.get(metric).unwrap_or(0.0);
    let cpu_s = cell(Metric::ProcessUtime) + cell(Metric::ProcessStime);
    let machine_s = cell(Metric::SystemUtime) + cell(Metric::SystemStime);
    let waits = divide(Growth {
        elapsed_s: cell(Metric::Elapsed),
        running_s: growth(|times| times.running_ns),
        ready_s: growth(|times| times.ready_ns),
        throttled_s: cell(Metric::Throttled),
        pressure_io_s: cell(Metric::PressureIo),
        pressure_memory_s: cell(Metric::PressureMemory),
        steal_s: cell(Metric::Steal),
        job_share: if machine_s > 0.0 { cpu_s / machine_s } else { 0.0 },
        cpu_s,
        uses_storage: cell(Metric::ProcessRead) + cell(Metric::ProcessWrite) > 0.0,
        faults: cell(Metric::MajorFaults) > 0.0,
    });
    for (metric, value) in [
        (Metric::OnCpu, waits.on_cpu_s),
        (Metric::WaitCpu, waits.ready_s),
        (Metric::WaitQuota, waits.throttled_s),
        (Metric::WaitDisk, waits.disk_s),
        (Metric::WaitPaging, waits.paging_s),
        (Metric::WaitStolen, waits.stolen_s),
        (Metric::Idle, waits.idle_s),
        (Metric::CpuQueue, growth(|times| times.queued_ns)),
        (Metric::CpuInThreads, growth(|times| times.seen_ns)),
    ] {
        row.set(metric, Some(metric.round(value)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Growth = Growth {
        elapsed_s: 1.0,
        running_s: 0.0,
        ready_s: 0.0,
        throttled_s: 0.0,
        pressure_io_s: 0.0,
        pressure_memory_s: 0.0,
        steal_s: 0.0,
        job_share: 1.0,
        cpu_s: 0.0,
        uses_storage: false,
        faults: false,
    };

    fn sum(waits: Waits) -> f64 {
        let Waits { on_cpu_s, ready_s, throttled_s, disk_s, paging_s, stolen_s, idle_s } = waits;
        on_cpu_s + ready_s + throttled_s + disk_s + paging_s + stolen_s + idle_s
    }

    #[test]
    fn pressure_of_the_machine_counts_only_for_a_job_that_uses_storage() {
        let row = Growth { running_s: 0.1, pressure_io_s: 0.7, ..SECOND };
        assert!((divide(row).idle_s - 0.9).abs() < 1e-9);
        let own = divide(Growth { uses_storage: true, ..row });
        assert!((own.disk_s - 0.7).abs() < 1e-9 && (own.idle_s - 0.2).abs() < 1e-9, "{own:?}");
        let paging = divide(Growth { faults: true, pressure_memory_s: 0.7, ..row });
        assert!((paging.paging_s - 0.7).abs() < 1e-9, "{paging:?}");
    }

    #[test]
    fn throttled_time_is_not_counted_as_ready_again() {
        let waits = divide(Growth { running_s: 0.5, ready_s: 0.5, throttled_s: 0.48, ..SECOND });
        assert!((waits.throttled_s - 0.48).abs() < 1e-9 && (waits.ready_s - 0.02).abs() < 1e-9, "{waits:?}");
        let not_queued = divide(Growth { running_s: 0.5, throttled_s: 0.48, ..SECOND });
        assert!((not_queued.throttled_s - 0.48).abs() < 1e-9, "{not_queued:?}");
    }

    proptest! {
        #[test]
        fn parts_add_up_and_are_not_negative(
            numbers in proptest::array::uniform9(0.0_f64..3.0), flags in any::<(bool, bool)>(),
        ) {
            let [elapsed_s, running_s, ready_s, throttled_s, io, memory, steal_s, job_share, cpu_s] = numbers;
            let waits = divide(Growth {
                elapsed_s, running_s, ready_s, throttled_s, pressure_io_s: io, pressure_memory_s: memory,
                steal_s, job_share, cpu_s, uses_storage: flags.0, faults: flags.1,
            });
            prop_assert!((sum(waits) - elapsed_s).abs() < 1e-9, "{waits:?}");
            let Waits { on_cpu_s, ready_s, throttled_s, disk_s, paging_s, stolen_s, idle_s } = waits;
            for part in [on_cpu_s, ready_s, throttled_s, disk_s, paging_s, stolen_s, idle_s] {
                prop_assert!(part > -1e-9, "{waits:?}");
            }
        }
    }
}
