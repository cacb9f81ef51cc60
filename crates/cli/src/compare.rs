//! `compare`: runs side by side, and which differences mean something.
//!
//! Each run is held against the first. A difference is marked where it is beyond what runs of the same job differ by
//! anyway: twice the standard deviation of the earlier ones, where there are three at least. Where the two are of
//! different jobs, it must be beyond the spread of either: what lies between jobs is no spread of any of them.

use resource_tracker::history::Entry;
use resource_tracker::human::{self, Scale};
use resource_tracker::metric::Metric;
use resource_tracker::recording::{Recording, Status};
use resource_tracker::summary::Summary;
use serde::Serialize;
use serde_json::json;

use crate::args::CompareArgs;
use crate::failure::Failure;
use crate::past;
use crate::show::{self, Table};

/// Runs of a job that say something about its spread.
const ENOUGH_RUNS: usize = 3;
/// Standard deviations that runs of one job rarely go beyond.
const BEYOND: f64 = 2.0;

/// A figure that runs are compared by.
struct Figure {
    name: &'static str,
    key: &'static str,
    show: fn(f64) -> String,
    what: What,
}

/// What a figure counts.
#[derive(Clone, Copy)]
enum What {
    WallTime,
    CpuTime,
    MemoryPeak,
    Mean(Metric),
    Sum(Metric),
    /// Where it ran, by the catalogue in this program.
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
    fn of(self, run: &Recording, summary: &Summary) -> Option<f64> {
        match self {
            Self::WallTime => summary.duration_s(),
            Self::CpuTime => summary.cpu_seconds(),
            Self::MemoryPeak => Some(summary.memory_peak_kib()? * 1024.0),
            Self::Mean(metric) => summary.of(metric).mean(),
            Self::Sum(metric) => summary.of(metric).sum(),
            Self::Cost => {
                let context = past::context(&run.head, summary.clone(), 0, past::nobody());
                Some(context.cost(None).current?.usd)
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
#[derive(Serialize)]
struct Cell {
    value: Option<f64>,
    change_percent: Option<f64>,
    /// Beyond the spread of the job's runs; `None` where that is not known.
    is_beyond_spread: Option<bool>,
}

/// Compares runs.
pub fn compare(args: &CompareArgs) -> Result<u8, Failure> {
    let runs = args.recordings.iter().map(|name| past::load(name)).collect::<Result<Vec<_>, _>>()?;
    let summaries: Vec<_> = runs.iter().map(Recording::summary).collect();
    let others = other_runs(&runs);
    let jobs: Vec<_> = runs.iter().map(|run| Job::of(run, &others)).collect();
    let mut rows: Vec<(&Figure, Vec<Cell>)> = Vec::new();
    for figure in &FIGURES {
        let values: Vec<_> =
            runs.iter().zip(&summaries).map(|(run, summary)| figure.what.of(run, summary)).collect();
        let spreads: Vec<_> = jobs.iter().map(|job| job.spread(figure.what)).collect();
        // Where no price is known, there is nothing to say about cost.
        if !matches!(figure.what, What::Cost) || values.iter().any(Option::is_some) {
            rows.push((figure, cells(&values, &spreads)));
        }
    }
    let names: Vec<String> =
        runs.iter().zip(&args.recordings).map(|(run, asked)| name_of(run, asked)).collect();
    if args.format.json {
        let figures: serde_json::Map<String, serde_json::Value> =
            rows.iter().map(|(figure, cells)| (figure.key.to_owned(), json!(cells))).collect();
        let earlier = jobs.iter().map(|job| job.earlier.len()).min();
        return show::json(&json!({ "runs": names, "earlier_runs": earlier, "figures": figures }));
    }
    show::text(&format!("{}\n{}\n", table(&names, &rows), legend(&jobs)))
}

fn table(names: &[String], rows: &[(&Figure, Vec<Cell>)]) -> Table {
    let heads = names.iter().enumerate().flat_map(|(number, name)| {
        let value = format!(">{}", show::one_line(name, 24));
        if number == 0 { vec![value] } else { vec![value, ">change".to_owned()] }
    });
    let heads: Vec<String> = std::iter::once(String::new()).chain(heads).collect();
    let mut table = Table::new(&heads.iter().map(String::as_str).collect::<Vec<_>>());
    for (Figure { name, show, .. }, cells) in rows {
        let mut row = vec![(*name).to_owned()];
        for (number, cell) in cells.iter().enumerate() {
            row.push(cell.value.map(show).unwrap_or_default());
            if number > 0 {
                let mark = if cell.is_beyond_spread == Some(true) { " *" } else { "" };
                row.push(
                    cell.change_percent.map(|percent| format!("{percent:+.1} %{mark}")).unwrap_or_default(),
                );
            }
        }
        table.row(row);
    }
    table
}

/// What the mark means; `of_runs` are the jobs of the runs, in their order.
fn legend(of_runs: &[Job]) -> String {
    let is_enough = |job: &Job| job.earlier.len() >= ENOUGH_RUNS;
    let is_marked = of_runs.first().is_some_and(is_enough) && of_runs.iter().skip(1).any(is_enough);
    let mut jobs: Vec<&Job> = Vec::new();
    for job in of_runs {
        if jobs.iter().all(|other| other.name != job.name) {
            jobs.push(job);
        }
    }
    match (jobs.as_slice(), is_marked) {
        ([_], false) => {
            "no difference is marked: too few earlier runs of the job to know its spread".to_owned()
        }
        ([job], true) => format!("* beyond the spread of {} earlier runs of the job", job.earlier.len()),
        (_, false) => {
            "no difference is marked: too few earlier runs of the jobs to know the spread of both".to_owned()
        }
        (jobs, true) => {
            let counted = jobs.iter().map(|job| {
                let name = show::one_line(job.name.unwrap_or("no job"), 24);
                let too_few = if is_enough(job) { "" } else { " (too few)" };
                format!("{name} {}{too_few}", job.earlier.len())
            });
            let counted = counted.collect::<Vec<_>>().join(", ");
            format!("* beyond the spread of both jobs, each by its own earlier runs: {counted}")
        }
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

/// The job of a run, and what is known of it from others.
struct Job<'a> {
    name: Option<&'a str>,
    earlier: Vec<&'a Entry>,
}

impl<'a> Job<'a> {
    fn of(run: &'a Recording, others: &'a [Entry]) -> Self {
        let name = run.head.run.as_ref().and_then(|run| run.job.as_deref());
        let is_same = |entry: &&Entry| name.is_some() && entry.job.as_deref() == name;
        Self { name, earlier: others.iter().filter(is_same).collect() }
    }

    fn spread(&self, what: What) -> Option<f64> {
        spread(&self.earlier.iter().filter_map(|run| what.kept(run)).collect::<Vec<_>>())
    }
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

/// Runs in the history that ended well, but for those that are compared.
fn other_runs(runs: &[Recording]) -> Vec<Entry> {
    let is_compared = |entry: &Entry| {
        let mut ids = runs.iter().filter_map(|recording| recording.head.run.as_ref()?.id.as_ref());
        ids.any(|id| *id == entry.id)
    };
    let mut entries = past::history().and_then(|history| history.list().ok()).unwrap_or_default().entries;
    entries.retain(|entry| entry.status == Some(Status::Finished) && !is_compared(entry));
    entries
}

fn name_of(recording: &Recording, asked: &str) -> String {
    let run = recording.head.run.clone().unwrap_or_default();
    match (run.job, run.id) {
        (Some(job), Some(id)) => format!("{job} {}", id.chars().take(6).collect::<String>()),
        (None, Some(id)) => id,
        _ => asked.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
