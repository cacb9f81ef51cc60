//! Comparison of runs against a baseline, with the significant differences marked.
//!
//! In:  the runs, the history of other runs, a catalogue for prices. Out: [`Comparison`].
//! Not here: its display (the command).
//!
//! The first run is the baseline. A difference is marked if it exceeds the usual spread between runs of the same job:
//! twice the standard deviation of at least three earlier runs. Between runs of different jobs, the difference must
//! exceed the spread of both jobs.

use serde::Serialize;

use crate::analysis::cost::price_of;
use crate::human::{self, Scale};
use crate::market::catalog::{Catalog, RunCost};
use crate::metric::Metric;
use crate::store::history::Entry;
use crate::store::recording::{Recording, Status};
use crate::store::summary::Summary;

/// Number of earlier runs needed to estimate the spread of a job.
const ENOUGH_RUNS: usize = 3;
/// The spread of a job as a multiple of the standard deviation of its earlier runs.
const SPREAD_DEVIATIONS: f64 = 2.0;

/// A compared figure.
#[derive(Debug)]
pub struct Figure {
    /// Label of the figure.
    pub name: &'static str,
    /// JSON key, with the unit.
    pub key: &'static str,
    /// Formats a value with its unit.
    pub show: fn(f64) -> String,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    WallTime,
    CpuTime,
    MemoryPeak,
    Mean(Metric),
    Sum(Metric),
    /// Cost of the run on the machine that it used.
    Cost,
}

const FIGURES: [Figure; 9] = [
    figure("time", "wall_seconds", human::duration, What::WallTime),
    figure("CPU time", "cpu_seconds", human::duration, What::CpuTime),
    figure("CPU mean", "cpu_mean_cores", cores, What::Mean(Metric::ProcessCpu)),
    figure("memory peak", "memory_peak_bytes", bytes, What::MemoryPeak),
    figure("disk read", "disk_read_bytes", bytes, What::Sum(Metric::ProcessRead)),
    figure("disk written", "disk_written_bytes", bytes, What::Sum(Metric::ProcessWrite)),
    figure("net received", "system_net_received_bytes", bytes, What::Sum(Metric::NetRecv)),
    figure("net sent", "system_net_sent_bytes", bytes, What::Sum(Metric::NetSent)),
    figure("cost", "cost_usd", human::usd, What::Cost),
];

const fn figure(name: &'static str, key: &'static str, show: fn(f64) -> String, what: What) -> Figure {
    Figure { name, key, show, what }
}

fn bytes(value: f64) -> String {
    Scale::Bytes.show(value)
}

fn cores(value: f64) -> String {
    format!("{value:.2}")
}

impl What {
    /// The value of a compared run.
    fn of(self, run: &Recording, summary: &Summary, catalog: &mut Catalog) -> Option<f64> {
        match self {
            Self::WallTime => summary.duration_s(),
            Self::CpuTime => summary.cpu_seconds(),
            Self::MemoryPeak => Some(summary.memory_peak_kib()? * 1024.0),
            Self::Mean(metric) => summary.of(metric).mean(),
            Self::Sum(metric) => summary.sum_without_tracker(metric),
            Self::Cost => {
                let price = price_of(&run.head, catalog)?;
                let duration_s = summary.duration_s().unwrap_or(f64::NAN);
                Some(RunCost::new(duration_s, Some(&price), None).current?.usd)
            }
        }
    }

    /// The value of a run in the history, which has only the default statistics.
    fn in_history(self, run: &Entry) -> Option<f64> {
        let stat =
            |metric: Metric, aggregate: &str| run.stats.as_ref()?.get(&metric.combined_column(), aggregate);
        match self {
            Self::WallTime => run.duration_s,
            Self::CpuTime => Some(stat(Metric::ProcessCpu, "mean")? * run.duration_s?),
            Self::MemoryPeak => Some(stat(Metric::ProcessMemory, "max")? * 1024.0),
            Self::Mean(metric) => stat(metric, "mean"),
            Self::Sum(metric) => stat(metric, "sum"),
            Self::Cost => None,
        }
    }
}

/// The value of a run, and its difference from the baseline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// `None` if the figure was not measured.
    pub value: Option<f64>,
    /// `None` for the baseline, and if the baseline is 0 or not measured.
    pub change_percent: Option<f64>,
    /// The difference exceeds the spread; `None` if the spread is unknown.
    pub is_beyond_spread: Option<bool>,
}

/// The job of a run, and its earlier runs.
#[derive(Debug)]
pub struct Job<'a> {
    /// `None` for a run without a job name, which has no earlier runs.
    pub name: Option<&'a str>,
    /// Successful runs of the job, without the compared runs.
    pub earlier: Vec<&'a Entry>,
}

impl<'a> Job<'a> {
    fn of(run: &'a Recording, others: &[&'a Entry]) -> Self {
        let name = run.head.run.as_ref().and_then(|run| run.job.as_deref());
        let is_same = |entry: &&Entry| name.is_some() && entry.job.as_deref() == name;
        Self { name, earlier: others.iter().copied().filter(is_same).collect() }
    }

    /// Whether the spread of the job is known.
    pub fn has_enough_runs(&self) -> bool {
        self.earlier.len() >= ENOUGH_RUNS
    }

    fn spread(&self, what: What) -> Option<f64> {
        spread(&self.earlier.iter().filter_map(|run| what.in_history(run)).collect::<Vec<_>>())
    }
}

/// Runs side by side, each figure compared with the first run.
#[derive(Debug)]
pub struct Comparison<'a> {
    /// The job of each run.
    pub jobs: Vec<Job<'a>>,
    /// Each figure with a cell per run.
    pub figures: Vec<(&'static Figure, Vec<Cell>)>,
}

impl<'a> Comparison<'a> {
    /// Compares each run with the first run; `history` has all saved runs.
    pub fn of(runs: &'a [Recording], history: &'a [Entry], catalog: &mut Catalog) -> Self {
        let is_compared = |entry: &Entry| {
            let mut ids = runs.iter().filter_map(|recording| recording.head.run.as_ref()?.id.as_ref());
            ids.any(|id| *id == entry.id)
        };
        let counts = |entry: &&Entry| entry.status == Some(Status::Finished) && !is_compared(entry);
        let others: Vec<_> = history.iter().filter(counts).collect();
        let jobs: Vec<_> = runs.iter().map(|run| Job::of(run, &others)).collect();
        let summaries: Vec<_> = runs.iter().map(Recording::summary).collect();
        let mut figures = Vec::new();
        for figure in &FIGURES {
            let measured = runs.iter().zip(&summaries);
            let values: Vec<_> =
                measured.map(|(run, summary)| figure.what.of(run, summary, catalog)).collect();
            let spreads: Vec<_> = jobs.iter().map(|job| job.spread(figure.what)).collect();
            // The cost is left out if it is unknown for all runs.
            if !matches!(figure.what, What::Cost) || values.iter().any(Option::is_some) {
                figures.push((figure, cells(&values, &spreads)));
            }
        }
        Self { jobs, figures }
    }

    /// Whether a difference can be marked: the spread is known for the baseline's job and for the job of another run.
    pub fn can_mark(&self) -> bool {
        let mut jobs = self.jobs.iter();
        jobs.next().is_some_and(Job::has_enough_runs) && jobs.any(Job::has_enough_runs)
    }
}

/// The cells of a figure, from the values of all runs and the spreads of their jobs.
fn cells(values: &[Option<f64>], spreads: &[Option<f64>]) -> Vec<Cell> {
    let first = values.first().copied().flatten();
    let first_spread = spreads.first().copied().flatten();
    let cell = |(number, (value, spread)): (usize, (&Option<f64>, &Option<f64>))| {
        let both = first.zip(*value).filter(|_| number > 0);
        let spread = first_spread.zip(*spread).map(|(first, spread)| first.max(spread));
        Cell {
            value: *value,
            change_percent: both
                .filter(|(first, _)| *first != 0.0)
                .map(|(first, value)| (value / first - 1.0) * 100.0),
            is_beyond_spread: both.zip(spread).map(|((first, value), spread)| (value - first).abs() > spread),
        }
    };
    values.iter().zip(spreads).enumerate().map(cell).collect()
}

/// The spread between runs of a job; `None` with too few runs.
fn spread(values: &[f64]) -> Option<f64> {
    if values.len() < ENOUGH_RUNS {
        return None;
    }
    #[expect(clippy::cast_precision_loss, reason = "a few runs")]
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    Some(variance.sqrt() * SPREAD_DEVIATIONS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::market::catalog::Settings;
    use crate::store::recording::{Head, Run};

    #[test]
    fn earlier_runs_are_successful_runs_of_the_job() {
        let head = |id: &str, job: Option<&str>, status| -> Head {
            let job = job.map(ToOwned::to_owned);
            let run = Run { id: Some(id.to_owned()), job, status: Some(status), ..Run::default() };
            Head::new(&Config::default(), 1, 0.0, run)
        };
        let sort = |id: &str, status| head(id, Some("sort"), status);
        let runs = [sort("a", Status::Finished), head("b", None, Status::Finished)].map(Recording::new);
        let heads = [
            ("a", sort("a", Status::Finished)),
            ("c", sort("c", Status::Finished)),
            ("d", sort("d", Status::Failed)),
            ("e", head("e", Some("other"), Status::Finished)),
            ("f", head("f", None, Status::Finished)),
        ];
        let history = heads.map(|(id, head)| Entry::new(id, &head, None));
        let mut catalog = Catalog::new(Settings { cache_dir: None, ..Settings::offline() });
        let comparison = Comparison::of(&runs, &history, &mut catalog);
        let earlier: Vec<Vec<&str>> = comparison
            .jobs
            .iter()
            .map(|job| job.earlier.iter().map(|entry| entry.id.as_str()).collect())
            .collect();
        assert_eq!(earlier, [vec!["c"], vec![]]);
        assert!(!comparison.can_mark());
        assert!(
            comparison.figures.iter().all(|(figure, _)| figure.key != "cost_usd"),
            "the price is unknown"
        );
    }

    #[test]
    fn difference_is_marked_above_the_spread_of_enough_runs() {
        let spread = spread(&[10.0, 11.0, 12.0]);
        assert_eq!(spread, Some(2.0));
        let cells = cells(&[Some(10.0), Some(12.0), Some(12.1), None], &[spread; 4]);
        let marks: Vec<_> = cells.iter().map(|cell| cell.is_beyond_spread).collect();
        assert_eq!(marks, [None, Some(false), Some(true), None]);
        assert_eq!(super::spread(&[1.0, 2.0]), None);
    }

    #[test]
    fn difference_between_jobs_is_marked_above_both_spreads() {
        let mark = |first: Option<f64>, other: Option<f64>| {
            cells(&[Some(10.0), Some(13.0)], &[first, other])[1].is_beyond_spread
        };
        assert_eq!(mark(Some(2.0), Some(2.5)), Some(true));
        assert_eq!(mark(Some(2.0), Some(4.0)), Some(false));
        assert_eq!(mark(Some(4.0), Some(2.0)), Some(false));
        assert_eq!((mark(Some(2.0), None), mark(None, Some(2.0))), (None, None), "one spread is unknown");
    }

    #[test]
    fn change_from_zero_has_no_percentage() {
        let cells = cells(&[Some(0.0), Some(5.0)], &[None; 2]);
        assert_eq!((cells[1].change_percent, cells[1].is_beyond_spread), (None, None));
    }
}
