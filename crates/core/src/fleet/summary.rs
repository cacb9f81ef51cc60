//! The summary of a fleet: what the runs of a job, user, node, tag or day requested, used and wasted.
//!
//! In:  a [`Dataset`]. Out: a [`Line`] for each group, the most savings first.
//! Not here: the text (the command), the same sums in SQL (`sql`).
//!
//! Reads day by day, so that memory follows the largest day and the number of groups, not the number of runs.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::dataset::{Dataset, DatasetError};
use super::table::Table;

/// What the runs are grouped by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    Job,
    User,
    Node,
    Day,
    /// The value of the tag with this key.
    Tag(String),
}

/// Columns that are added up.
pub const SUMS: [&str; 8] = [
    "cpu_hours_asked",
    "cpu_hours_used",
    "cpu_hours_wasted",
    "gib_hours_asked",
    "gib_hours_used",
    "gib_hours_wasted",
    "cost_usd",
    "savings_usd",
];

/// A group of runs. Sums are over the runs whose figure is known; `None` if it is known of none.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Line {
    /// Job, user, node, value of the tag, or day; `None` for runs that have none.
    pub key: Option<String>,
    /// Runs; a distributed program is one run.
    pub runs: u64,
    /// Recordings: each rank of a distributed program has one.
    pub recordings: u64,
    pub failed: u64,
    pub out_of_memory: u64,
    pub cpu_hours_asked: Option<f64>,
    pub cpu_hours_used: Option<f64>,
    pub cpu_hours_wasted: Option<f64>,
    pub gib_hours_asked: Option<f64>,
    pub gib_hours_used: Option<f64>,
    pub gib_hours_wasted: Option<f64>,
    pub cost_usd: Option<f64>,
    pub savings_usd: Option<f64>,
    /// CPU time of the busiest rank by the mean of all ranks; the mean of all distributed programs.
    pub imbalance: Option<f64>,
}

#[derive(Default)]
struct Group {
    runs: u64,
    recordings: u64,
    failed: u64,
    out_of_memory: u64,
    sums: [Option<f64>; SUMS.len()],
    imbalances: u64,
    imbalance: f64,
}

/// The ranks of one distributed program that have been seen.
#[derive(Default)]
struct Program {
    day: usize,
    is_failed: bool,
    out_of_memory: bool,
    ranks: u64,
    cpu_s: f64,
    highest_cpu_s: f64,
}

#[derive(Default)]
struct Groups {
    groups: BTreeMap<Option<String>, Group>,
    programs: HashMap<(String, Option<String>), Program>,
}

impl Dataset {
    /// Names of the figures of [`Self::summary`], for a store without runs.
    pub fn summary_columns() -> Vec<String> {
        let line = serde_json::to_value(Line::default()).unwrap_or_default();
        line.as_object().map(|line| line.keys().cloned().collect()).unwrap_or_default()
    }

    /// Adds up all runs that started at `since_s` or later, in Unix seconds.
    pub fn summary(&self, by: &By, since_s: Option<f64>) -> Result<Vec<Line>, DatasetError> {
        let mut columns =
            vec!["parent", "distributed", "is_failed", "out_of_memory", "cpu_seconds", "start_time"];
        columns.extend(by.column());
        columns.extend(SUMS);
        let mut groups = Groups::default();
        let first_day = since_s.map(super::dataset::day_of);
        let days = self.days()?;
        for (number, day) in
            days.iter().filter(|day| first_day.as_ref().is_none_or(|first| *day >= first)).enumerate()
        {
            let table = self.runs(day, &columns)?;
            for row in 0..table.len() {
                let is_since = since_s.is_none_or(|since_s| {
                    table.number("start_time", row).is_some_and(|start| start >= since_s)
                });
                // A run inside of a tracked run has measured the same work again.
                if is_since && table.text("parent", row).is_none() {
                    groups.add(&table, row, by.key(&table, row, day), number);
                }
            }
            // Ranks of a program start within a day.
            groups.finish_programs(|program| program.day + 1 < number);
        }
        groups.finish_programs(|_| true);
        Ok(groups.lines())
    }
}

impl By {
    /// What a word means: `job`, `user`, `node`, `day`, or `tag:KEY`.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "job" => Self::Job,
            "user" => Self::User,
            "node" => Self::Node,
            "day" => Self::Day,
            _ => Self::Tag(name.strip_prefix("tag:").filter(|key| !key.is_empty())?.to_owned()),
        })
    }

    const fn column(&self) -> Option<&'static str> {
        match self {
            Self::Job => Some("job"),
            Self::User => Some("user"),
            Self::Node => Some("node"),
            Self::Tag(_) => Some("tags"),
            Self::Day => None,
        }
    }

    fn key(&self, table: &Table, row: usize, day: &str) -> Option<String> {
        match self {
            Self::Day => day.strip_prefix("date=").map(str::to_owned),
            Self::Tag(key) => {
                let tags: BTreeMap<String, String> = serde_json::from_str(table.text("tags", row)?).ok()?;
                tags.get(key).cloned()
            }
            _ => table.text(self.column()?, row).map(str::to_owned),
        }
    }
}

impl Groups {
    fn add(&mut self, table: &Table, row: usize, key: Option<String>, day: usize) {
        let group = self.groups.entry(key.clone()).or_default();
        group.recordings += 1;
        for (sum, column) in group.sums.iter_mut().zip(SUMS) {
            if let Some(value) = table.number(column, row) {
                *sum = Some(sum.unwrap_or(0.0) + value);
            }
        }
        let is_failed = table.flag("is_failed", row) == Some(true);
        let out_of_memory = table.flag("out_of_memory", row) == Some(true);
        let Some(distributed) = table.text("distributed", row) else {
            group.runs += 1;
            group.failed += u64::from(is_failed);
            group.out_of_memory += u64::from(out_of_memory);
            return;
        };
        let program = self.programs.entry((distributed.to_owned(), key)).or_default();
        program.day = day;
        program.is_failed |= is_failed;
        program.out_of_memory |= out_of_memory;
        if let Some(cpu_s) = table.number("cpu_seconds", row) {
            program.ranks += 1;
            program.cpu_s += cpu_s;
            program.highest_cpu_s = program.highest_cpu_s.max(cpu_s);
        }
    }

    /// Counts programs that are complete.
    fn finish_programs(&mut self, is_complete: impl Fn(&Program) -> bool) {
        for ((_, key), program) in self.programs.extract_if(|_, program| is_complete(program)) {
            let group = self.groups.entry(key).or_default();
            group.runs += 1;
            group.failed += u64::from(program.is_failed);
            group.out_of_memory += u64::from(program.out_of_memory);
            if program.ranks > 1 && program.cpu_s > 0.0 {
                #[expect(clippy::cast_precision_loss, reason = "a number of ranks")]
                let mean_s = program.cpu_s / program.ranks as f64;
                group.imbalances += 1;
                group.imbalance += program.highest_cpu_s / mean_s;
            }
        }
    }

    fn lines(self) -> Vec<Line> {
        let line = |(key, group): (Option<String>, Group)| {
            let [asked, used, wasted, gib_asked, gib_used, gib_wasted, cost_usd, savings_usd] = group.sums;
            #[expect(clippy::cast_precision_loss, reason = "a number of programs")]
            let imbalance = (group.imbalances > 0).then(|| group.imbalance / group.imbalances as f64);
            Line {
                key,
                runs: group.runs,
                recordings: group.recordings,
                failed: group.failed,
                out_of_memory: group.out_of_memory,
                cpu_hours_asked: asked,
                cpu_hours_used: used,
                cpu_hours_wasted: wasted,
                gib_hours_asked: gib_asked,
                gib_hours_used: gib_used,
                gib_hours_wasted: gib_wasted,
                cost_usd,
                savings_usd,
                imbalance,
            }
        };
        let mut lines: Vec<Line> = self.groups.into_iter().map(line).collect();
        let worst = |line: &Line| (line.savings_usd.unwrap_or(0.0), line.cpu_hours_wasted.unwrap_or(0.0));
        lines.sort_by(|one, other| {
            let ((one_usd, one_hours), (other_usd, other_hours)) = (worst(one), worst(other));
            other_usd
                .total_cmp(&one_usd)
                .then(other_hours.total_cmp(&one_hours))
                .then(one.key.cmp(&other.key))
        });
        lines
    }
}
