//! Comparison of runs and jobs with a baseline, with the significant differences marked.
//!
//! In:  runs and names of jobs, the history, a catalogue for prices. Out: [`Comparison`].
//! Not here: its display (the command), the intervals (`interval`).
//!
//! The first side is the baseline. A difference is marked if 0 is outside of an interval with a confidence of 95 %:
//! between two groups of runs Welch's interval for the difference of their means; between one run and a group the
//! prediction interval of the group. Two single runs are compared by the prediction interval of the baseline's job, or
//! else of the other run's job. A group has at least three runs.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::analysis::figures::{FIGURES, Figure, Values, values_of};
use crate::analysis::interval::{ENOUGH_RUNS, Interval};
use crate::market::catalog::Catalog;
use crate::store::history::{Entry, History};
use crate::store::recording::{Recording, Status};

/// A smaller change is shown as 0.0 %.
const VISIBLE_PERCENT: f64 = 0.05;

/// What to compare.
#[derive(Debug)]
pub enum Selection {
    /// All finished runs of a job in the history.
    Job(String),
    Run {
        /// Name of the run, for people.
        name: String,
        recording: Box<Recording>,
    },
}

/// The JSON object of a run.
type Object = Map<String, Value>;

/// The runs of a selection.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Side {
    pub name: String,
    pub job: Option<String>,
    /// The object of each run.
    pub runs: Vec<Object>,
    /// Number of other finished runs of the job of a single run.
    pub earlier_runs: usize,
    #[serde(skip)]
    pub(super) values: Vec<Values>,
    /// Other finished runs of the job of a single run, and the run itself if it is finished.
    #[serde(skip)]
    pub(super) job_values: Vec<Values>,
}

impl Side {
    /// Number of runs.
    pub fn count(&self) -> usize {
        self.values.len()
    }

    pub(super) fn mean(&self, figure: usize) -> Option<f64> {
        let known = measured(&self.values, figure);
        #[expect(clippy::cast_precision_loss, reason = "a few runs")]
        let count = known.len() as f64;
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / count)
    }
}

/// Values of a figure, without those of runs in which it was not measured.
fn measured(runs: &[Values], figure: usize) -> Vec<f64> {
    runs.iter().filter_map(|values| values[figure]).collect()
}

/// Reads the figures of runs of the history, each job once.
pub(super) struct Reader<'a> {
    pub history: Option<&'a History>,
    /// Maximum number of runs of a job, the latest first.
    pub latest: usize,
    /// Ids of runs that are compared on their own and do not count as runs of their jobs.
    pub without: Vec<String>,
    pub catalog: &'a mut Catalog,
    jobs: BTreeMap<String, Vec<(Object, Values)>>,
    pub unreadable: Vec<String>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        history: Option<&'a History>,
        latest: usize,
        catalog: &'a mut Catalog,
        selections: &[&Selection],
    ) -> Self {
        let id = |selection: &&Selection| match selection {
            Selection::Run { recording, .. } => recording.head.run.as_ref()?.id.clone(),
            Selection::Job(_) => None,
        };
        let without = selections.iter().filter_map(id).collect();
        Self { history, latest, without, catalog, jobs: BTreeMap::new(), unreadable: Vec::new() }
    }

    pub(super) fn side(&mut self, selection: &Selection) -> Side {
        match selection {
            Selection::Job(job) => {
                let (runs, values) = self.job(job).iter().cloned().unzip();
                Side { name: job.clone(), job: Some(job.clone()), runs, values, ..Side::default() }
            }
            Selection::Run { name, recording } => {
                let (object, values) = figures_of(recording, self.catalog);
                let run = recording.head.run.clone().unwrap_or_default();
                let earlier = run.job.as_ref().map(|job| self.job(job)).unwrap_or_default();
                let mut job_values: Vec<Values> = earlier.iter().map(|(_, values)| *values).collect();
                let earlier_runs = job_values.len();
                if earlier_runs < ENOUGH_RUNS {
                    job_values.clear();
                } else if run.status == Some(Status::Finished) {
                    job_values.push(values);
                }
                let (name, runs, values) = (name.clone(), vec![object], vec![values]);
                Side { name, job: run.job, runs, earlier_runs, values, job_values }
            }
        }
    }

    fn job(&mut self, job: &str) -> &[(Object, Values)] {
        if !self.jobs.contains_key(job) {
            let entries = self.history.and_then(|history| history.of_job(job).ok()).unwrap_or_default();
            let counts = |id: &String| !self.without.contains(id);
            let finished = entries.into_iter().filter(|entry| entry.status == Some(Status::Finished));
            let ids: Vec<String> = finished.map(|entry| entry.id).filter(counts).take(self.latest).collect();
            let mut runs = Vec::new();
            for id in ids {
                match self.history.and_then(|history| history.load(&id).ok()) {
                    Some(recording) => runs.push(figures_of(&recording, self.catalog)),
                    None => self.unreadable.push(id),
                }
            }
            self.jobs.insert(job.to_owned(), runs);
        }
        self.jobs.get(job).map(Vec::as_slice).unwrap_or_default()
    }
}

fn figures_of(recording: &Recording, catalog: &mut Catalog) -> (Object, Values) {
    let summary = recording.summary();
    (Entry::object_of(&recording.head, &summary), values_of(&recording.head, &summary, catalog))
}

/// The value of a side, and its difference from the baseline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// The mean of the runs; `None` if the figure was not measured.
    pub value: Option<f64>,
    /// `None` for the baseline, and if the baseline is 0 or not measured.
    pub change_percent: Option<f64>,
    /// Interval of the difference; `None` with too few runs.
    pub interval: Option<Interval>,
    /// Whether the difference is real: 0 is outside of the interval. `None` with too few runs.
    pub is_significant: Option<bool>,
}

/// Runs and jobs side by side, each figure compared with the first side.
#[derive(Debug)]
pub struct Comparison {
    pub sides: Vec<Side>,
    /// Each figure with a cell per side.
    pub figures: Vec<(&'static Figure, Vec<Cell>)>,
    /// Ids of runs of the history that cannot be read.
    pub unreadable: Vec<String>,
}

impl Comparison {
    /// Compares each selection with the first one. Of a job, the `latest` runs count.
    pub fn of(
        selections: &[Selection],
        history: Option<&History>,
        latest: usize,
        catalog: &mut Catalog,
    ) -> Self {
        let mut reader = Reader::new(history, latest, catalog, &selections.iter().collect::<Vec<_>>());
        let sides = selections.iter().map(|selection| reader.side(selection)).collect();
        Self { unreadable: reader.unreadable, ..Self::of_sides(sides) }
    }

    fn of_sides(sides: Vec<Side>) -> Self {
        let mut figures = Vec::new();
        for (number, figure) in FIGURES.iter().enumerate() {
            let cells = cells(&sides, number);
            let is_known = |cell: &Cell| cell.value.is_some_and(|value| value != 0.0);
            if !figure.is_optional() || cells.iter().any(is_known) {
                figures.push((figure, cells));
            }
        }
        Self { sides, figures, unreadable: Vec::new() }
    }
}

/// The cells of a figure.
fn cells(sides: &[Side], figure: usize) -> Vec<Cell> {
    let cell = |(number, side): (usize, &Side)| {
        let value = side.mean(figure);
        let first = sides.first().filter(|_| number > 0);
        let both = first.and_then(|first| first.mean(figure)).zip(value);
        let change_percent =
            both.filter(|(first, _)| *first != 0.0).map(|(first, value)| (value / first - 1.0) * 100.0);
        let interval = first.and_then(|first| interval(first, side, figure));
        let is_visible = change_percent.is_none_or(|percent| percent.abs() >= VISIBLE_PERCENT);
        let is_significant = both.zip(interval).map(|((first, value), interval)| {
            // The change of a single run is that from the baseline, and not from the mean of its job.
            is_visible && (interval.low > 0.0 && value > first || interval.high < 0.0 && value < first)
        });
        Cell { value, change_percent, interval, is_significant }
    };
    sides.iter().enumerate().map(cell).collect()
}

fn interval(first: &Side, other: &Side, figure: usize) -> Option<Interval> {
    let of = |runs: &[Values]| measured(runs, figure);
    let (base, others) = (of(&first.values), of(&other.values));
    match (base.as_slice(), others.as_slice()) {
        ([a], [b]) => {
            let backwards = || Interval::of_run(&of(&other.job_values), *a).map(Interval::reversed);
            Interval::of_run(&of(&first.job_values), *b).or_else(backwards)
        }
        (group, [run]) => Interval::of_run(group, *run),
        ([run], group) => Interval::of_run(group, *run).map(Interval::reversed),
        (base, others) => Interval::of_means(base, others),
    }
}

#[cfg(test)]
mod tests;
