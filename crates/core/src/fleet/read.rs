//! The dataset as tables for programs, and the earlier runs of a job for its advice.
//!
//! In:  a [`Dataset`], a job, a time. Out: columns of values, Parquet, or entries as those of the history.
//! Not here: sums (`summary`), engines that read the files by themselves (`sql`).

use std::collections::HashSet;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::columns::{VERSION, run_columns};
use super::dataset::{Dataset, DatasetError, SAMPLES, day_of, samples_once};
use super::nested::Seen;
use super::table::{Cells, Kind, Table};
use crate::store::history::{Entry, without_repetition};
use crate::store::plausible;
use crate::store::recording::Head;

/// Columns from which [`Dataset::earlier`] makes entries.
const FOR_ADVICE: [&str; 9] = [
    "job",
    "parent",
    "host",
    "status",
    "start_time",
    "duration_seconds",
    "input_bytes",
    "statistics",
    "sizing",
];

/// Which runs to read.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Only runs that started at this time or later, in Unix seconds.
    pub since_s: Option<f64>,
    /// Only runs of this job.
    pub job: Option<String>,
}

impl Wanted {
    /// Whether each run of a day is wanted.
    fn rows(&self, runs: &Table, seen: &mut Seen) -> Vec<bool> {
        let counted = seen.counted(runs, |row| {
            self.since_s
                .is_none_or(|since_s| runs.number("start_time", row).is_some_and(|start| start >= since_s))
        });
        let is_of_job = |row| self.job.is_none() || runs.text("job", row) == self.job.as_deref();
        counted.into_iter().enumerate().map(|(row, counted)| counted && is_of_job(row)).collect()
    }
}

impl Dataset {
    /// Rows of the view `runs`: each run once, without runs inside of others of them, and the day of each.
    fn runs_of(&self, wanted: &Wanted) -> Result<Table, DatasetError> {
        let mut all = Table::of_rows(run_columns().chain([("date", Kind::Text)]), &[]);
        let columns: Vec<&str> = run_columns().map(|(name, _)| name).collect();
        let mut seen = Seen::default();
        for day in self.days_since(wanted.since_s)? {
            let mut runs = self.runs(&day, &columns)?;
            runs.keep(&wanted.rows(&runs, &mut seen));
            let date = day.strip_prefix("date=").unwrap_or_default();
            runs.add_column("date", Cells::texts(&vec![date; runs.len()]));
            all.append(runs);
        }
        Ok(all)
    }

    /// Samples of these runs.
    fn samples_of(&self, wanted: &Wanted) -> Result<Table, DatasetError> {
        let mut all = Table::of_rows([("run_id", Kind::Text), ("timestamp", Kind::Time)], &[]);
        let mut seen = Seen::default();
        for day in self.days_since(wanted.since_s)? {
            let runs = self.runs(&day, &["job", "parent", "start_time"])?;
            let wanted = wanted.rows(&runs, &mut seen);
            let ids: HashSet<&str> =
                (0..runs.len()).filter(|row| wanted[*row]).filter_map(|row| runs.text("id", row)).collect();
            let tables = self.tables(&format!("{SAMPLES}/{day}"), &[])?;
            all.append(samples_once(tables, |id| ids.contains(id)));
        }
        Ok(all)
    }

    fn table(&self, name: &str, wanted: &Wanted) -> Result<Table, DatasetError> {
        if name == SAMPLES { self.samples_of(wanted) } else { self.runs_of(wanted) }
    }

    /// The columns of `runs` or `samples` by name; times are Unix seconds.
    pub fn rows(
        &self,
        name: &str,
        since_s: Option<f64>,
        job: Option<String>,
    ) -> Result<Vec<(String, Vec<Value>)>, DatasetError> {
        Ok(self.table(name, &Wanted { since_s, job })?.into_values())
    }

    /// The table `runs` or `samples` as one Parquet file.
    pub fn parquet(
        &self,
        name: &str,
        since_s: Option<f64>,
        job: Option<String>,
    ) -> Result<Vec<u8>, DatasetError> {
        let mut content = Vec::new();
        let table = self.table(name, &Wanted { since_s, job })?;
        table.write(&mut content, VERSION).map_err(DatasetError::Encode)?;
        Ok(content)
    }

    /// Earlier runs of the same job, however they ended, newest first, as those of the history.
    pub fn earlier(&self, head: &Head, at_most: usize) -> Result<Vec<Entry>, DatasetError> {
        let job = head.run.as_ref().and_then(|run| run.job.as_deref());
        let (Some(job), Some(this)) = (job, head.metadata.start_time) else { return Ok(Vec::new()) };
        // The time of a row is rounded, so the run itself is told by its id.
        let id = head.run.as_ref().and_then(|run| run.id.as_deref());
        let last_day = day_of(this);
        let mut found = Vec::new();
        for day in self.days()?.into_iter().rev().filter(|day| *day <= last_day) {
            if found.len() >= at_most {
                break;
            }
            let runs = self.runs(&day, &FOR_ADVICE)?;
            let is_earlier = |row: &usize| {
                runs.text("job", *row) == Some(job)
                    && runs.text("id", *row) != id
                    && runs.number("start_time", *row).is_some_and(|start| start < this)
            };
            found.extend((0..runs.len()).filter(is_earlier).map(|row| entry(&runs, row)));
        }
        let mut found = without_repetition(found);
        found.truncate(at_most);
        Ok(found)
    }
}

/// The entry of a row, with what the advice needs of it.
fn entry(runs: &Table, row: usize) -> Entry {
    let text = |name| runs.text(name, row).map(str::to_owned);
    Entry {
        id: text("id").unwrap_or_default(),
        job: text("job"),
        parent: text("parent"),
        host: text("host"),
        status: text("status").and_then(|status| serde_json::from_value(Value::String(status)).ok()),
        start_time: runs.number("start_time", row),
        duration_s: runs.number("duration_seconds", row),
        stats: object(runs.text("statistics", row)),
        sizing: object(runs.text("sizing", row)),
        ..Entry::default()
    }
}

/// An object that was stored as text; `None` if it is damaged or of another version.
fn object<T: DeserializeOwned>(text: Option<&str>) -> Option<T> {
    let object = Value::Object(serde_json::from_str::<Map<String, Value>>(text?).ok()?);
    plausible::check("", &object).ok()?;
    serde_json::from_value(object).ok()
}
