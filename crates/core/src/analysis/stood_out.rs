//! What stood out in a run: at most five sentences, the most important first.
//!
//! In:  a recording, its summary and advice. Out: [`Observation`]s, each with its figure and the chart that shows it.
//! Not here: what the run waited for (`waits`), the size to request (`recommend`).

use crate::analysis::recommend::Advice;
use crate::analysis::waits::{Cause, Waits};
use crate::human::{self, Scale};
use crate::job::programs::{NOT_SEEN, OTHER_PROGRAMS};
use crate::metric::{MIB, Metric};
use crate::store::recording::Recording;
use crate::store::summary::Summary;

const MOST: usize = 5;

/// Memory above half of its peak for less than this share of the run is a short peak.
const SHORT_PEAK: f64 = 0.1;
/// A run in which fewer of the allowed CPUs were busy has idle CPUs.
const FEW_CPUS: f64 = 0.5;
/// A leak: memory lies on a rising line this well (r²), rises by this share of the peak, for at least this time.
const STEADY: f64 = 0.9;
const LARGE_RISE: f64 = 0.5;
const LONG_S: f64 = 60.0;
/// Swapped memory above both is worth a sentence.
const MUCH_SWAP_MIB: f64 = 64.0;
const MUCH_SWAP_SHARE: f64 = 0.1;
/// A program with this share of the CPU time dominates the others.
const DOMINANT: f64 = 0.6;

#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// From 0 to 1.
    pub weight: f64,
    pub sentence: String,
    /// Id of the chart or section that shows it.
    pub link: &'static str,
}

fn observation(weight: f64, link: &'static str, sentence: String) -> Observation {
    Observation { weight, sentence, link }
}

pub fn stood_out(
    recording: &Recording,
    summary: &Summary,
    advice: Option<&Advice>,
    waits: Option<&Waits>,
) -> Vec<Observation> {
    let course = Course::of(recording);
    let mut found: Vec<Observation> = [
        waits.and_then(bottleneck),
        course.as_ref().and_then(Course::short_peak),
        course.as_ref().and_then(Course::leak),
        idle_cpus(recording, summary),
        swap(summary),
        dominant(recording),
    ]
    .into_iter()
    .flatten()
    .collect();
    let findings = advice.map(|advice| advice.findings.as_slice()).unwrap_or_default();
    found.extend(
        findings.iter().map(|finding| observation(0.7, "chart-gpu", sentence_of(&finding.to_string()))),
    );
    found.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    found.truncate(MOST);
    found
}

/// With a capital letter and a full stop.
fn sentence_of(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), letters.as_str()))
}

fn bottleneck(waits: &Waits) -> Option<Observation> {
    let weight = match waits.cause {
        Cause::Paging => 1.0,
        Cause::Throttled | Cause::ShortOfCpus => 0.9,
        Cause::Disk | Cause::Stolen | Cause::WaitingForCpu => 0.8,
        Cause::Computing | Cause::Idle | Cause::Unclear => return None,
    };
    Some(observation(weight, "waits", waits.sentence.clone()))
}

fn idle_cpus(recording: &Recording, summary: &Summary) -> Option<Observation> {
    let (mean, limit) = (summary.of(Metric::ProcessCpu).mean()?, recording.head.cpu_limit_cores()?);
    let is_low = limit >= 2.0 && mean < limit * FEW_CPUS;
    is_low.then(|| {
        let sentence = format!("The job used {mean:.1} of {limit:.0} CPUs on average.");
        observation(0.5 * (1.0 - mean / limit), "chart-cpu", sentence)
    })
}

fn swap(summary: &Summary) -> Option<Observation> {
    let swap_mib = summary.of(Metric::Swap).max()? / 1024.0;
    let peak_mib = summary.memory_peak_kib()? / 1024.0;
    let is_much = swap_mib >= MUCH_SWAP_MIB && swap_mib >= peak_mib * MUCH_SWAP_SHARE;
    let shown = Scale::Bytes.show(swap_mib * MIB);
    is_much.then(|| observation(0.75, "chart-memory", format!("Up to {shown} of the job were in swap.")))
}

fn dominant(recording: &Recording) -> Option<Observation> {
    let programs = &recording.head.run.as_ref()?.programs;
    let total_s: f64 = programs.iter().map(|program| program.cpu_seconds).sum();
    let named = |name: &str| name != NOT_SEEN && name != OTHER_PROGRAMS;
    let others = programs.iter().skip(1).filter(|program| program.cpu_seconds > 0.05 * total_s).count();
    let first = programs.first().filter(|first| named(&first.name) && others > 0)?;
    let share = first.cpu_seconds / total_s;
    (share >= DOMINANT).then(|| {
        let sentence = format!("{} used {} of the CPU time.", first.name, human::percent(share));
        observation(0.4 * share, "programs", sentence)
    })
}

/// Memory over time: seconds from the start of the run, length of the row in seconds, bytes.
struct Course(Vec<(f64, f64, f64)>);

impl Course {
    fn of(recording: &Recording) -> Option<Self> {
        let memory = recording.process.as_ref()?.metric(Metric::ProcessMemory)?;
        let elapsed = recording.extra.as_ref()?.metric(Metric::Elapsed)?;
        let mut at_s = 0.0;
        let mut course = Vec::new();
        for (memory_kib, elapsed_s) in memory.iter().zip(elapsed.iter()) {
            at_s += elapsed_s.unwrap_or(0.0);
            course.extend(memory_kib.zip(elapsed_s).map(|(kib, length_s)| (at_s, length_s, kib * 1024.0)));
        }
        (course.len() >= 5).then_some(Self(course))
    }

    fn peak(&self) -> f64 {
        self.0.iter().map(|(_, _, bytes)| *bytes).fold(0.0, f64::max)
    }

    fn length_s(&self) -> f64 {
        self.0.iter().map(|(_, length_s, _)| length_s).sum()
    }

    fn short_peak(&self) -> Option<Observation> {
        let peak = self.peak();
        let above: f64 = self.0.iter().filter(|(_, _, bytes)| *bytes > peak / 2.0).map(|(_, s, _)| s).sum();
        let share = above / self.length_s();
        (share < SHORT_PEAK && peak > 64.0 * MIB).then(|| {
            let sentence = format!(
                "Memory was above half of its peak of {} for only {} of the run.",
                Scale::Bytes.show(peak),
                human::percent(share)
            );
            observation(0.6, "chart-memory", sentence)
        })
    }

    /// Memory that rises along a line to the end of the run.
    fn leak(&self) -> Option<Observation> {
        let (length_s, peak) = (self.length_s(), self.peak());
        let mean = |get: fn(&(f64, f64, f64)) -> f64| {
            self.0.iter().map(|point| get(point) * point.1).sum::<f64>() / length_s
        };
        let (mean_s, mean_bytes) = (mean(|point| point.0), mean(|point| point.2));
        let (mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0);
        for (at_s, weight_s, bytes) in &self.0 {
            let (x, y) = (at_s - mean_s, bytes - mean_bytes);
            xx += weight_s * x * x;
            yy += weight_s * y * y;
            xy += weight_s * x * y;
        }
        let (slope, fit) = (xy / xx, xy * xy / (xx * yy));
        let is_leak = length_s >= LONG_S && fit >= STEADY && slope * length_s >= peak * LARGE_RISE;
        is_leak.then(|| {
            let per_minute = Scale::Bytes.show(slope * 60.0);
            let sentence =
                format!("Memory grew steadily, by {per_minute} a minute: a longer run will need more.");
            observation(0.85, "chart-memory", sentence)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(seconds: usize, memory_mib: impl Fn(f64) -> f64) -> Course {
        let at = |second: usize| f64::from(u32::try_from(second).unwrap());
        Course((1..=seconds).map(|second| (at(second), 1.0, memory_mib(at(second)) * MIB)).collect())
    }

    #[test]
    fn steady_growth_is_a_leak_and_growth_to_a_level_is_not() {
        let leak = course(300, |at| 100.0 + 2.0 * at).leak().unwrap();
        assert!(leak.sentence.contains("120 MiB a minute"), "{leak:?}");
        assert_eq!(
            course(300, |at| 700.0f64.min(100.0 + 20.0 * at)).leak(),
            None,
            "loads, then keeps its level"
        );
        assert_eq!(course(20, |at| 100.0 + 20.0 * at).leak(), None, "too short to tell");
        assert_eq!(course(300, |at| 1000.0 + 0.1 * at).leak(), None, "hardly grows");
        assert_eq!(course(300, |_| 500.0).leak(), None);
    }

    #[test]
    fn short_peak_is_named_with_its_duration() {
        let peak = course(100, |at| if at < 5.0 { 2048.0 } else { 300.0 }).short_peak().unwrap();
        assert_eq!(peak.sentence, "Memory was above half of its peak of 2.00 GiB for only 4 % of the run.");
        assert_eq!(course(100, |at| if at < 50.0 { 2048.0 } else { 300.0 }).short_peak(), None);
    }
}
