//! What a run waited for: its duration divided, and one sentence about the cause.
//!
//! In:  a [`Summary`]. Out: [`Waits`]. The rules are listed in `docs/waiting.md`.
//! Not here: the division of a row (`sampler/waits`), the size to request (`sizing`).

use serde::Serialize;

use crate::human;
use crate::metric::Metric;
use crate::store::summary::Summary;

/// Shares of the duration from which a part is the cause.
const PAGING: f64 = 0.1;
const STOPPED: f64 = 0.25;
const MOSTLY: f64 = 0.5;
/// Major page faults a second of a job that is short of memory.
const FAULTS_PER_S: f64 = 20.0;
/// Mean number of threads that waited for a CPU, from which more CPUs would help.
const QUEUED_THREADS: f64 = 0.5;
/// CPUs in use, as a share of the allowed ones, from which the job itself is why its threads wait.
const FULL: f64 = 0.8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    Computing,
    ShortOfCpus,
    WaitingForCpu,
    Throttled,
    Disk,
    Paging,
    Stolen,
    Idle,
    Unclear,
}

/// One part of the duration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Part {
    pub name: &'static str,
    pub seconds: f64,
    /// Share of the duration, 0 to 1.
    pub share: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Waits {
    pub cause: Cause,
    pub sentence: String,
    /// Share of the CPU time that was seen in threads at rows, 0 to 1; the rest are threads that came and went.
    pub coverage: Option<f64>,
    pub parts: Vec<Part>,
}

const PARTS: [(&str, Metric); 7] = [
    ("on CPU", Metric::OnCpu),
    ("waiting for a CPU", Metric::WaitCpu),
    ("stopped by a CPU limit", Metric::WaitQuota),
    ("waiting for disk", Metric::WaitDisk),
    ("waiting for memory", Metric::WaitPaging),
    ("stolen", Metric::WaitStolen),
    ("idle", Metric::Idle),
];

impl Waits {
    /// `None` if the times were not measured. `cpus` is the number of CPUs that the job may use.
    pub fn of(summary: &Summary, cpus: Option<f64>) -> Option<Self> {
        let sum = |metric| summary.of(metric).sum();
        let seconds: Vec<(&str, f64)> =
            PARTS.iter().map(|(name, metric)| Some((*name, sum(*metric)?))).collect::<Option<_>>()?;
        let total_s: f64 = seconds.iter().map(|(_, seconds)| seconds).sum();
        if total_s <= 0.0 {
            return None;
        }
        let share = |metric| sum(metric).unwrap_or(0.0) / total_s;
        let cores = summary.cpu_seconds().unwrap_or(0.0) / total_s;
        let facts = Facts { share: &share, cores, cpus };
        let cause = facts.cause();
        let parts: Vec<Part> = seconds
            .iter()
            .map(|(name, seconds)| Part { name, seconds: *seconds, share: seconds / total_s })
            .collect();
        let spent_s = summary.cpu_seconds().filter(|seconds| *seconds > 0.0);
        let coverage = sum(Metric::CpuInThreads).zip(spent_s).map(|(seen, spent)| (seen / spent).min(1.0));
        Some(Self { cause, sentence: facts.sentence(cause, &parts), coverage, parts })
    }
}

struct Facts<'s> {
    /// A sum as a share of the duration.
    share: &'s dyn Fn(Metric) -> f64,
    cores: f64,
    cpus: Option<f64>,
}

impl Facts<'_> {
    /// The first rule that applies.
    fn cause(&self) -> Cause {
        let share = self.share;
        let (on_cpu, queued) = (share(Metric::OnCpu), share(Metric::CpuQueue));
        // On a machine that others use too, the job gets fewer CPUs than it would fill alone.
        let uses_all = self
            .cpus
            .is_none_or(|cpus| self.cores >= cpus * FULL || self.cores + queued >= cpus + QUEUED_THREADS);
        if share(Metric::PressureMemory) >= PAGING && share(Metric::MajorFaults) >= FAULTS_PER_S {
            Cause::Paging
        } else if share(Metric::WaitQuota) >= STOPPED {
            Cause::Throttled
        } else if share(Metric::WaitStolen) >= STOPPED {
            Cause::Stolen
        } else if queued >= QUEUED_THREADS && uses_all {
            Cause::ShortOfCpus
        } else if share(Metric::WaitCpu) >= STOPPED {
            Cause::WaitingForCpu
        } else if share(Metric::WaitDisk) + share(Metric::WaitPaging) >= STOPPED {
            Cause::Disk
        } else if on_cpu >= MOSTLY {
            Cause::Computing
        } else if share(Metric::Idle) >= MOSTLY {
            Cause::Idle
        } else {
            Cause::Unclear
        }
    }

    fn sentence(&self, cause: Cause, parts: &[Part]) -> String {
        let percent = |metric| human::percent((self.share)(metric));
        match cause {
            Cause::Computing if self.cores <= 1.1 && self.cpus.is_none_or(|cpus| cpus > 1.5) => format!(
                "Mostly computing: {} of the time, on one CPU. More CPUs need more threads.",
                percent(Metric::OnCpu)
            ),
            Cause::Computing => format!("Mostly computing: {} of the time.", percent(Metric::OnCpu)),
            Cause::ShortOfCpus => format!(
                "Short of CPUs: {:.1} more threads were ready on average. More CPUs will help.",
                (self.share)(Metric::CpuQueue)
            ),
            Cause::WaitingForCpu => format!(
                "Waiting for a CPU {} of the time: other processes used the CPUs.",
                percent(Metric::WaitCpu)
            ),
            Cause::Throttled => format!(
                "Stopped by its CPU limit {} of the time. A higher limit will help.",
                percent(Metric::WaitQuota)
            ),
            Cause::Disk => {
                let share = (self.share)(Metric::WaitDisk) + (self.share)(Metric::WaitPaging);
                let disk = human::percent(share);
                if share >= MOSTLY {
                    format!("Mostly waiting for disk: {disk} of the time. More CPUs will not help.")
                } else {
                    format!("Waiting for disk: {disk} of the time; on CPU: {}.", percent(Metric::OnCpu))
                }
            }
            Cause::Paging => format!(
                "Short of memory: waiting for dropped pages {} of the time. More memory will help.",
                percent(Metric::PressureMemory)
            ),
            Cause::Stolen => {
                format!("The hypervisor took {} of the time for other machines.", percent(Metric::WaitStolen))
            }
            Cause::Idle => {
                format!("Mostly idle: {} of the time. More CPUs will not help.", percent(Metric::Idle))
            }
            Cause::Unclear => {
                let mut largest: Vec<&Part> = parts.iter().collect();
                largest.sort_by(|a, b| b.share.total_cmp(&a.share));
                let shown: Vec<String> = largest
                    .iter()
                    .take(3)
                    .map(|part| format!("{} {}", part.name, human::percent(part.share)))
                    .collect();
                format!("No clear cause: {}.", shown.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(shares: &[(Metric, f64)], cores: f64) -> (Cause, String) {
        let share = |metric| shares.iter().find(|(one, _)| *one == metric).map_or(0.0, |(_, share)| *share);
        let facts = Facts { share: &share, cores, cpus: Some(2.0) };
        let parts: Vec<Part> = PARTS
            .iter()
            .map(|(name, metric)| Part { name, seconds: share(*metric), share: share(*metric) })
            .collect();
        let cause = facts.cause();
        (cause, facts.sentence(cause, &parts))
    }

    #[test]
    fn rules_apply_in_order() {
        let (on_cpu, queue) = (Metric::OnCpu, Metric::CpuQueue);
        for (shares, cores, expected, words) in [
            (&[(on_cpu, 0.99)][..], 0.99, Cause::Computing, "99 % of the time, on one CPU"),
            (&[(on_cpu, 1.0), (queue, 0.1)], 1.9, Cause::Computing, "Mostly computing: 100 %"),
            (&[(on_cpu, 1.0), (queue, 2.0)], 2.0, Cause::ShortOfCpus, "2.0 more threads"),
            (&[(on_cpu, 1.0), (queue, 2.5)], 1.5, Cause::ShortOfCpus, "2.5 more threads"),
            (&[(on_cpu, 0.5), (Metric::WaitCpu, 0.5), (queue, 0.5)], 0.5, Cause::WaitingForCpu, "50 %"),
            (&[(on_cpu, 0.7), (Metric::WaitCpu, 0.3), (queue, 1.0)], 1.0, Cause::WaitingForCpu, "30 %"),
            (&[(on_cpu, 0.5), (Metric::WaitQuota, 0.5)], 0.5, Cause::Throttled, "CPU limit 50 %"),
            (&[(Metric::WaitDisk, 0.61), (Metric::Idle, 0.3)], 0.1, Cause::Disk, "disk: 61 %"),
            (&[(Metric::Idle, 0.97)], 0.01, Cause::Idle, "idle: 97 %"),
            (
                &[(on_cpu, 0.6), (Metric::PressureMemory, 0.4), (Metric::MajorFaults, 900.0)],
                0.6,
                Cause::Paging,
                "40 %",
            ),
            (
                &[(on_cpu, 0.4), (Metric::WaitDisk, 0.2), (Metric::Idle, 0.4)],
                0.4,
                Cause::Unclear,
                "No clear cause: on CPU 40 %, idle 40 %, waiting for disk 20 %.",
            ),
        ] {
            let (found, sentence) = cause(shares, cores);
            assert_eq!(found, expected, "{shares:?}");
            assert!(sentence.contains(words), "{sentence}");
        }
    }
}
