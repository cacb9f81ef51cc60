//! Runs side by side, and which differences mean something.
//!
//! In:  the runs, what the history keeps of others, and a catalogue for prices. Out: [`Comparison`].
//! Not here: how it is shown (the command).
//!
//! Each run is held against the first. A difference is marked where it is beyond what runs of the same job differ by
//! anyway: twice the standard deviation of the earlier ones, where there are three at least. Where the two are of
//! different jobs, it must be beyond the spread of either: what lies between jobs is no spread of any of them.

use serde::Serialize;

use crate::catalog::{Catalog, RunCost};
use crate::history::Entry;
use crate::human::{self, Scale};
use crate::metric::Metric;
use crate::recording::{Recording, Status};
use crate::report::price_of;
use crate::summary::Summary;

/// Runs of a job that say something about its spread.
const ENOUGH_RUNS: usize = 3;
/// Standard deviations that runs of one job rarely go beyond.
const BEYOND: f64 = 2.0;

/// A figure that runs are compared by.
#[derive(Debug)]
pub struct Figure {
    /// For people.
    pub name: &'static str,
    /// For programs; says the unit.
    pub key: &'static str,
    /// A value with its unit, for people.
    pub show: fn(f64) -> String,
    what: What,
}

/// What a figure counts.
#[derive(Clone, Copy, Debug)]
enum What {
    WallTime,
    CpuTime,
    MemoryPeak,
    Mean(Metric),
    Sum(Metric),
    /// Where it ran.
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
    /// Of a run that is compared.
    fn of(self, run: &Recording, summary: &Summary, catalog: &mut Catalog) -> Option<f64> {
        match self {
            Self::WallTime => summary.duration_s(),
            Self::CpuTime => summary.cpu_seconds(),
            Self::MemoryPeak => Some(summary.memory_peak_kib()? * 1024.0),
            Self::Mean(metric) => summary.of(metric).mean(),
            Self::Sum(metric) => summary.of(metric).sum(),
            Self::Cost => {
                let price = price_of(&run.head, catalog)?;
                let duration_s = summary.duration_s().unwrap_or(f64::NAN);
                Some(RunCost::new(duration_s, Some(&price), None).current?.usd)
            }
        }
    }

    /// Of a run in the history, which keeps the usual statistics only.
    fn kept(self, run: &Entry) -> Option<f64> {
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

/// A run's value, and how it differs from the first run's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// `None` where it was not measured.
    pub value: Option<f64>,
    /// `None` for the first run, and where the first has nothing to compare with.
    pub change_percent: Option<f64>,
    /// Beyond the spread of the job's runs; `None` where that is not known.
    pub is_beyond_spread: Option<bool>,
}

/// The job of a run, and what is known of it from others.
#[derive(Debug)]
pub struct Job<'a> {
    /// `None` for a run of no job, which no other run is held against.
    pub name: Option<&'a str>,
    /// Its runs that ended well, but for those that are compared.
    pub earlier: Vec<&'a Entry>,
}

impl<'a> Job<'a> {
    fn of(run: &'a Recording, others: &[&'a Entry]) -> Self {
        let name = run.head.run.as_ref().and_then(|run| run.job.as_deref());
        let is_same = |entry: &&Entry| name.is_some() && entry.job.as_deref() == name;
        Self { name, earlier: others.iter().copied().filter(is_same).collect() }
    }

    /// Whether there are enough runs of it to know its spread.
    #[must_use]
    pub fn has_enough_runs(&self) -> bool {
        self.earlier.len() >= ENOUGH_RUNS
    }

    fn spread(&self, what: What) -> Option<f64> {
        spread(&self.earlier.iter().filter_map(|run| what.kept(run)).collect::<Vec<_>>())
    }
}

/// Runs side by side.
#[derive(Debug)]
pub struct Comparison<'a> {
    /// The job of each run.
    pub jobs: Vec<Job<'a>>,
    /// Each figure, with a cell for each run.
    pub figures: Vec<(&'static Figure, Vec<Cell>)>,
}

impl<'a> Comparison<'a> {
    /// Of these runs, the first being what the others are held against; `history` has all runs that are kept.
    #[must_use]
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
            // Where no price is known, there is nothing to say about cost.
            if !matches!(figure.what, What::Cost) || values.iter().any(Option::is_some) {
                figures.push((figure, cells(&values, &spreads)));
            }
        }
        Self { jobs, figures }
    }

    /// Whether a difference would be marked: the spread of the first job is known, and of another run's.
    #[must_use]
    pub fn can_mark(&self) -> bool {
        let mut jobs = self.jobs.iter();
        jobs.next().is_some_and(Job::has_enough_runs) && jobs.any(Job::has_enough_runs)
    }
}

/// The values of a figure against the first of them, each with the spread of its job.
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

/// How far apart runs of one job lie; `None` where there are too few to tell.
fn spread(values: &[f64]) -> Option<f64> {
    if values.len() < ENOUGH_RUNS {
        return None;
    }
    #[expect(clippy::cast_precision_loss, reason = "a few runs")]
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    Some(variance.sqrt() * BEYOND)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Settings;
    use crate::config::Config;
    use crate::record;
    use crate::recording::{Head, Run};

    #[test]
    fn runs_of_the_job_count_that_ended_well_and_are_not_compared() {
        let head = |id: &str, job: Option<&str>, status| -> Head {
            let job = job.map(ToOwned::to_owned);
            let run = Run { id: Some(id.to_owned()), job, status: Some(status), ..Run::default() };
            record::head(&Config::default(), 1, 0.0, run)
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
        assert!(comparison.figures.iter().all(|(figure, _)| figure.key != "cost_usd"), "no price is known");
    }

    #[test]
    fn a_difference_is_marked_only_beyond_the_spread_of_enough_runs() {
        let spread = spread(&[10.0, 11.0, 12.0]);
        assert_eq!(spread, Some(2.0));
        let cells = cells(&[Some(10.0), Some(12.0), Some(12.1), None], &[spread; 4]);
        let marks: Vec<_> = cells.iter().map(|cell| cell.is_beyond_spread).collect();
        assert_eq!(marks, [None, Some(false), Some(true), None]);
        assert_eq!(super::spread(&[1.0, 2.0]), None);
    }

    #[test]
    fn a_difference_between_jobs_is_marked_only_beyond_the_spread_of_either() {
        let mark = |first: Option<f64>, other: Option<f64>| {
            cells(&[Some(10.0), Some(13.0)], &[first, other])[1].is_beyond_spread
        };
        assert_eq!(mark(Some(2.0), Some(2.5)), Some(true));
        assert_eq!(mark(Some(2.0), Some(4.0)), Some(false));
        assert_eq!(mark(Some(4.0), Some(2.0)), Some(false));
        assert_eq!((mark(Some(2.0), None), mark(None, Some(2.0))), (None, None), "the other is not known");
    }

    #[test]
    fn per_cent_of_nothing_is_not_said() {
        let cells = cells(&[Some(0.0), Some(5.0)], &[None; 2]);
        assert_eq!((cells[1].change_percent, cells[1].is_beyond_spread), (None, None));
    }
}
