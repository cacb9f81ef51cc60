//! The size to request for the next run: what every front shows to people.
//!
//! In:  the head and summary of a run, earlier runs of its job. Out: [`Advice`]: CPUs, memory and GPUs with the reasons,
//!      a [`Warning`] for each unreliable figure and a [`Finding`] for each possible improvement.

use serde::{Serialize, Serializer};
use serde_json::json;

use super::findings::{Finding, findings};
use super::warnings::{Warning, warnings};
use super::{RecommendError, Resources, recommend_resources};
use crate::analysis::sizing::{
    CpuAdvice, EarlierRuns, LAST_RUNS, MemoryAdvice, MemorySizing, PastRun, SLOWDOWN, advise_cpu,
};
use crate::human;
use crate::market::catalog::Filters;
use crate::metric::MIB;
use crate::store::history::Entry;
use crate::store::recording::Head;
use crate::store::stats::Stats;
use crate::store::summary::Summary;

/// What users can choose about advice.
#[derive(Clone, Debug, PartialEq)]
pub struct AdviceOptions {
    /// Number of earlier runs of the job that the advice is based on.
    pub earlier_runs: usize,
    /// How much longer a run may take with fewer CPUs; 0.05 is 5 %.
    pub slowdown: f64,
    /// Total size of the inputs of the next run; `None` if unknown.
    pub input_bytes: Option<f64>,
    /// Which servers are offered.
    pub filters: Filters,
    /// Earlier runs of the job beside those of the history.
    pub other_runs: Vec<Entry>,
}

impl Default for AdviceOptions {
    fn default() -> Self {
        Self {
            earlier_runs: LAST_RUNS,
            slowdown: SLOWDOWN,
            input_bytes: None,
            filters: Filters::default(),
            other_runs: Vec::new(),
        }
    }
}

/// GPUs to request, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GpuAdvice {
    /// Mean over all runs.
    pub mean_gpus: Option<f64>,
    /// Highest peak of all runs.
    pub vram_peak_bytes: Option<f64>,
    /// One plain sentence for the user.
    pub why: String,
}

/// The size to request for the next run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    #[serde(serialize_with = "with_units")]
    pub request: Resources,
    /// Number of successful runs and this run.
    pub runs: usize,
    /// `None` if the recording has no CPU time; then the request is the mean usage.
    pub cpu: Option<CpuAdvice>,
    /// `None` if the peak is 0; then the request is the smallest size.
    pub memory: Option<MemoryAdvice>,
    /// `None` if no GPU was used.
    pub gpu: Option<GpuAdvice>,
    #[serde(serialize_with = "with_messages")]
    pub warnings: Vec<Warning>,
    #[serde(serialize_with = "with_messages")]
    pub findings: Vec<Finding>,
}

impl Advice {
    /// The advice after a run.
    pub fn of(
        head: &Head,
        summary: &Summary,
        earlier: &EarlierRuns,
        options: &AdviceOptions,
    ) -> Result<Self, RecommendError> {
        let stats = summary.stats()?;
        let mut request = recommend_resources(&stats, &earlier.stats)?;
        let limits = head.limits();
        let cpu =
            advise_cpu(summary.cpu_profile(), &earlier.cpu_profiles, limits.cpu_cores, options.slowdown);
        let this_run = PastRun::of(&Entry::new("", head, summary));
        let runs: Vec<PastRun> = earlier.runs.iter().copied().chain(this_run).collect();
        let memory = MemorySizing::of(&runs, options.earlier_runs + 1)
            .map(|sizing| sizing.advise(options.input_bytes));
        request.cpu = cpu.as_ref().map_or(request.cpu, |cpu| cpu.cpus);
        request.memory_mb = memory.as_ref().map_or(request.memory_mb, MemoryAdvice::request_mib);
        let risk = memory.as_ref().and_then(|memory| memory.risk.clone());
        let mut warnings = warnings(head, summary, &stats, limits);
        warnings.extend(risk.map(|why| Warning::MemoryAtRisk { why }));
        let all_runs = Stats::combine(std::iter::once(&stats).chain(&earlier.stats))?;
        Ok(Self {
            request,
            runs: 1 + earlier.stats.len(),
            cpu,
            memory,
            gpu: gpu(&all_runs, request),
            warnings,
            findings: findings(summary, &limits),
        })
    }
}

fn gpu(stats: &Stats, request: Resources) -> Option<GpuAdvice> {
    let mean_gpus = stats.get("process_gpu_usage", "mean");
    let vram_peak_mib = stats.get("process_gpu_vram", "max").filter(|peak| *peak > 0.0);
    let is_used = request.gpu > 0 || vram_peak_mib.is_some();
    let usage = mean_gpus
        .map_or_else(|| "usage unknown".to_owned(), |mean| format!("{mean:.2} busy GPUs on average"));
    let vram = vram_peak_mib.map_or_else(String::new, |mib| format!(", peak VRAM {}", human::megabytes(mib)));
    let why = format!("{usage}{vram}");
    is_used.then(|| GpuAdvice { mean_gpus, vram_peak_bytes: vram_peak_mib.map(|mib| mib * MIB), why })
}

fn with_units<S: Serializer>(request: &Resources, serializer: S) -> Result<S::Ok, S::Error> {
    let bytes = |mib: u32| u64::from(mib) << 20;
    let Resources { cpu, memory_mb, gpu, vram_mb } = *request;
    json!({"cpus": cpu, "memory_bytes": bytes(memory_mb), "gpus": gpu, "vram_bytes": bytes(vram_mb)})
        .serialize(serializer)
}

/// The parts of each item, and its text as `message`.
fn with_messages<T: Serialize + ToString, S: Serializer>(
    items: &[T],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Item<'a, T> {
        #[serde(flatten)]
        parts: &'a T,
        message: String,
    }
    serializer.collect_seq(items.iter().map(|parts| Item { parts, message: parts.to_string() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::metric::{Metric, Row};
    use crate::probe::cgroup::OomKills;
    use crate::store::recording::{Run, Status};
    use crate::store::summary::Scope;

    fn head(run: Run) -> Head {
        let mut head = Head::new(&Config::default(), 1, 0.0, run);
        head.server_info = json!({"vcpus": 4, "memory_mb": 1000.0}).as_object().cloned();
        head
    }

    /// A run with one row of 1 CPU and 1 MiB, and more cells.
    fn summary(cells: &[(Metric, f64)], duration_s: f64) -> Summary {
        let scope = Scope { process: true, system: true, start_time: Some(0.0), interval_s: 1.0 };
        let mut row = Row::default();
        let base = [
            (Metric::Timestamp, duration_s),
            (Metric::ProcessCpu, 1.0),
            (Metric::ProcessMemory, 1024.0),
            (Metric::ProcessGpu, 0.0),
            (Metric::ProcessVram, 0.0),
        ];
        for (metric, value) in base.iter().chain(cells) {
            row.set(*metric, Some(*value));
        }
        let mut summary = Summary::new(scope);
        summary.add(&row);
        summary
    }

    fn finished() -> Run {
        Run { status: Some(Status::Finished), coverage: Some(0.99), ..Run::default() }
    }

    fn advice(head: &Head, summary: &Summary) -> Advice {
        Advice::of(head, summary, &EarlierRuns::default(), &AdviceOptions::default()).unwrap()
    }

    #[test]
    fn request_has_the_fewest_cpus_and_headroom_for_memory() {
        let cells = [(Metric::ProcessCpu, 2.38), (Metric::MemoryPeak, 798.0 * 1024.0)];
        let advice = advice(&head(finished()), &summary(&cells, 100.0));
        assert_eq!(advice.request, Resources { cpu: 3, memory_mb: 1024, gpu: 0, vram_mb: 0 });
        assert_eq!((advice.runs, advice.warnings.len()), (1, 0));
        let shown = serde_json::to_value(&advice).unwrap();
        assert_eq!(
            shown["request"],
            json!({"cpus": 3, "memory_bytes": 1_u64 << 30, "gpus": 0, "vram_bytes": 0})
        );
        assert_eq!(shown["memory"]["why"], "1.2 × the peak of 798 MiB, rounded up");
        assert_eq!(
            shown["cpu"]["why"],
            "with 3 CPUs the run takes as long as it did, 1 min 40 s, at 2.38 busy CPUs on average"
        );
    }

    #[test]
    fn each_unreliable_figure_has_a_warning() {
        let weak = [
            (Metric::ProcessCpu, 3.9),
            (Metric::MemoryPeak, 990.0 * 1024.0),
            (Metric::Throttled, 2.0),
            (Metric::ProcessUtime, 8.0),
            (Metric::ProcessStime, 2.0),
            (Metric::CpuSeen, 7.0),
            (Metric::ProcessGpu, 0.004),
        ];
        let failed = Run { status: Some(Status::Failed), exit_code: Some(3), ..Run::default() };
        let weak = advice(&head(failed), &summary(&weak, 2.0));
        assert_eq!(
            weak.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [
                "the run failed: a complete run may need more",
                "the run took only 2 s and may not be representative",
                "peak memory reached the limit (990 of 1000 MiB): the job may need more memory",
                "the job kept all its CPUs busy (3.9 of 4.0): more CPUs may make it faster; the gain is unknown",
                "the CPU limit throttled the job for 2 s",
                "only 70 % of the CPU time is attributed to processes of the job: memory is a lower bound",
            ]
        );
        let shown = serde_json::to_value(&weak).unwrap();
        assert_eq!(
            shown["warnings"][1],
            json!({
                "warning": "short_run", "duration_seconds": 2.0,
                "message": "the run took only 2 s and may not be representative",
            })
        );
    }

    #[test]
    fn contended_machine_is_reported_unless_the_run_is_short() {
        let contended_with = |more: &[(Metric, f64)], duration_s| {
            let cells = [
                (Metric::SystemCpu, 3.0),
                (Metric::PressureCpu, 0.5 * duration_s),
                (Metric::Steal, 0.1 * duration_s),
            ];
            let advice = advice(&head(finished()), &summary(&[&cells, more].concat(), duration_s));
            advice.warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let contended = |duration_s| contended_with(&[], duration_s);
        assert_eq!(
            contended(20.0),
            [
                "other programs kept 2.0 CPUs busy, and tasks waited for a CPU in 50 % of the time: on a quiet machine \
                 the run may be faster",
                "the hypervisor gave 2.0 s of CPU time to other machines: elsewhere the run may be faster",
            ]
        );
        assert_eq!(contended(9.0).len(), 1, "only that the run is short");
        assert_eq!(contended_with(&[(Metric::CpuQueue, 10.0)], 20.0), contended(20.0));
        assert_eq!(contended_with(&[(Metric::CpuQueue, 1.0)], 20.0).len(), 1, "the job itself hardly waited");
    }

    #[test]
    fn gpu_use_that_rounds_to_zero_is_reported() {
        let mut job = summary(&[(Metric::ProcessGpu, 0.9)], 20.0);
        let mut idle = Row::default();
        idle.set(Metric::ProcessGpu, Some(0.0));
        for _ in 0..5000 {
            job.add(&idle);
        }
        let advice = advice(&head(finished()), &job);
        assert_eq!(advice.request.gpu, 0);
        assert!(advice.warnings.contains(&Warning::GpuBarelyUsed { max_gpus: 0.9 }));
    }

    #[test]
    fn request_after_an_oom_kill_follows_the_ladder() {
        let killed = |peak_mib: u64| {
            let kills = OomKills { processes: 1, certain: true, limit_bytes: Some(500 << 20) };
            let run = Run {
                status: Some(Status::Killed),
                signal: Some(9),
                oom_kills: Some(kills),
                ..Run::default()
            };
            #[expect(clippy::cast_precision_loss, reason = "small")]
            let summary = summary(&[(Metric::MemoryPeak, (peak_mib * 1024) as f64)], 60.0);
            (head(run), summary)
        };
        let (head, summary) = killed(480);
        let first = advice(&head, &summary);
        assert_eq!(first.request.memory_mb, 1024, "1.2 × the limit that the job exceeded, rounded up");
        assert_eq!(
            first.memory.as_ref().unwrap().why,
            "the last run was out of memory at 500 MiB, so its real need is unknown"
        );
        assert!(first.warnings[0].to_string().starts_with("the OOM killer ended the job at 480 of 500 MiB"));
        let earlier = EarlierRuns::from(vec![Entry::new("a", &head, &summary)]);
        let second = Advice::of(&head, &summary, &earlier, &AdviceOptions::default()).unwrap();
        assert_eq!(second.request.memory_mb, 1024, "doubled after the second kill");
    }
}
