//! Earlier runs of a job, as advice uses them.
//!
//! In:  entries of the history, or only statistics (Metaflow). Out: [`EarlierRuns`].

use super::past_run::{Ending, PastRun};
use crate::store::cpu_profile::CpuProfile;
use crate::store::history::Entry;
use crate::store::recording::Status;
use crate::store::stats::Stats;

/// Earlier runs of the same job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EarlierRuns {
    /// Statistics of the successful runs.
    pub stats: Vec<Stats>,
    /// The runs with a measured peak, however they ended.
    pub(crate) runs: Vec<PastRun>,
    /// CPU profiles of the successful runs, with the CPUs that they could use.
    pub(crate) cpu_profiles: Vec<(CpuProfile, Option<f64>)>,
}

impl From<Vec<Entry>> for EarlierRuns {
    fn from(entries: Vec<Entry>) -> Self {
        let runs = entries.iter().filter_map(PastRun::of).collect();
        let (mut stats, mut cpu_profiles) = (Vec::new(), Vec::new());
        for entry in entries.into_iter().filter(|entry| entry.status == Some(Status::Finished)) {
            stats.extend(entry.stats);
            cpu_profiles.extend(entry.sizing.map(|sizing| (sizing.cpu_profile, sizing.cpu_limit_cores)));
        }
        Self { stats, runs, cpu_profiles }
    }
}

impl From<Vec<Stats>> for EarlierRuns {
    /// Statistics have no start time. The newest are first, so each run gets its start at the end of the run before it.
    fn from(stats: Vec<Stats>) -> Self {
        let mut start_s = 0.0;
        let run = |stats: &Stats| {
            let duration_s = stats.get("timestamp", "duration").unwrap_or(0.0);
            let peak_bytes = stats.get("process_memory", "max")? * 1024.0;
            let run =
                PastRun { start_s, duration_s, peak_bytes, input_bytes: None, ending: Ending::Finished };
            start_s = run.end_s();
            Some(run)
        };
        let runs = stats.iter().rev().filter_map(run).collect();
        Self { runs, stats, cpu_profiles: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::history::SizingFigures;

    #[test]
    fn failed_runs_count_for_memory_only() {
        let entry = |status, peak| Entry {
            status: Some(status),
            start_time: Some(1.0),
            duration_s: Some(2.0),
            stats: Some(Stats::default()),
            sizing: Some(SizingFigures { peak_memory_bytes: Some(peak), ..SizingFigures::default() }),
            ..Entry::default()
        };
        let earlier = EarlierRuns::from(vec![
            entry(Status::Finished, 1e9),
            entry(Status::Failed, 2e9),
            Entry { sizing: None, ..entry(Status::Finished, 3e9) },
        ]);
        assert_eq!((earlier.stats.len(), earlier.cpu_profiles.len()), (2, 1));
        let peaks: Vec<f64> = earlier.runs.iter().map(|run| run.peak_bytes).collect();
        assert_eq!(peaks, [1e9, 2e9], "the last entry has no peak");
    }

    #[test]
    fn statistics_become_runs_one_after_the_other() {
        let stats = |peak_kib| {
            let mut stats = Stats::default();
            stats.set("process_memory", "max", Some(peak_kib));
            stats.set("timestamp", "duration", Some(10.0));
            stats
        };
        let earlier = EarlierRuns::from(vec![stats(2.0), stats(1.0), Stats::default()]);
        let runs: Vec<_> = earlier.runs.iter().map(|run| (run.start_s, run.peak_bytes)).collect();
        assert_eq!(runs, [(0.0, 1024.0), (10.0, 2048.0)], "the newest statistics are first");
        assert_eq!(earlier.stats.len(), 3);
    }
}
