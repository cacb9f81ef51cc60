//! The summary of a fleet: what the runs of a job, user, node, tag or day requested, used and wasted.
//!
//! In:  a [`Dataset`]. Out: a [`Line`] for each group, the most savings first.
//! Not here: the text (the command), the same sums in SQL (`sql`).
//!
//! Reads day by day: memory follows the largest day, and the numbers of groups and of distributed programs. A run takes a few
//! bytes for the hash of its id.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;

use super::dataset::{Dataset, DatasetError};
use super::nested::Seen;
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
    /// CPU time of the busiest rank by the mean of all ranks, also of those in other groups; the mean of the distributed
    /// programs.
    pub imbalance: Option<f64>,
}

#[derive(Default)]
struct Group {
    key: Option<String>,
    runs: u64,
    recordings: u64,
    failed: u64,
    out_of_memory: u64,
    sums: [Option<f64>; SUMS.len()],
    imbalances: u64,
    imbalance: f64,
}

/// A distributed program.
#[derive(Default)]
struct Program {
    ranks: HashSet<Option<u64>>,
    parts: Vec<Part>,
    timed_ranks: u64,
    cpu_s: f64,
    highest_cpu_s: f64,
}

/// The ranks of a program in one group.
struct Part {
    group: usize,
    is_failed: bool,
    out_of_memory: bool,
}

/// Runs added up by group.
pub struct Groups<'b> {
    by: &'b By,
    groups: Vec<Group>,
    places: HashMap<Option<String>, usize>,
    /// By the name that the ranks of a program share, and their number. A rank that starts again starts the program again.
    programs: HashMap<(String, Option<u64>), Vec<Program>>,
}

/// Columns that [`Groups::add`] reads.
const COLUMNS: [&str; 7] =
    ["distributed", "rank", "ranks", "is_failed", "out_of_memory", "cpu_seconds", "start_time"];

impl Dataset {
    /// Names of the figures of [`Self::summary`], for a store without runs.
    pub fn summary_columns() -> Vec<String> {
        let line = serde_json::to_value(Line::default()).unwrap_or_default();
        line.as_object().map(|line| line.keys().cloned().collect()).unwrap_or_default()
    }

    /// Adds up all runs that started at `since_s` or later, in Unix seconds.
    pub fn summary(&self, by: &By, since_s: Option<f64>) -> Result<Vec<Line>, DatasetError> {
        let mut groups = Groups::new(by);
        self.each_run(&groups.columns(), since_s, |table, row, day| groups.add(table, row, day))?;
        Ok(groups.lines())
    }

    /// Calls `add` for each run that counts, in order of time, with a table that has these columns, the run's row in it and its
    /// day.
    pub(super) fn each_run(
        &self,
        columns: &[&str],
        since_s: Option<f64>,
        mut add: impl FnMut(&Table, usize, &str),
    ) -> Result<(), DatasetError> {
        let columns = [&["parent"], columns].concat();
        let days = self.days_since(since_s)?;
        let mut seen = Seen::default();
        for (number, day) in days.iter().enumerate() {
            let table = self.runs(day, &columns)?;
            let start = |row: &usize| table.number("start_time", *row);
            let counted = seen.counted(&table, |row| {
                since_s.is_none_or(|since_s| start(&row).is_some_and(|start| start >= since_s))
            });
            let mut rows: Vec<usize> = (0..table.len()).filter(|row| counted[*row]).collect();
            let place = |row: &usize| (start(row).unwrap_or(0.0), table.text("id", *row));
            rows.sort_by(|one, other| {
                let ((one_s, one), (other_s, other)) = (place(one), place(other));
                one_s.total_cmp(&other_s).then(one.cmp(&other))
            });
            let day = day.strip_prefix("date=").unwrap_or(day);
            for row in rows {
                add(&table, row, day);
            }
            self.report_progress(number + 1, days.len());
        }
        Ok(())
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
            Self::Day => Some(day.to_owned()),
            Self::Tag(key) => {
                let tags: BTreeMap<String, String> = serde_json::from_str(table.text("tags", row)?).ok()?;
                tags.get(key).cloned()
            }
            _ => table.text(self.column()?, row).map(str::to_owned),
        }
    }
}

impl<'b> Groups<'b> {
    pub fn new(by: &'b By) -> Self {
        Self { by, groups: Vec::new(), places: HashMap::new(), programs: HashMap::new() }
    }

    /// Columns of the runs to add.
    pub fn columns(&self) -> Vec<&'static str> {
        COLUMNS.into_iter().chain(self.by.column()).chain(SUMS).collect()
    }

    /// Adds the run in a row. Runs come in order of time.
    pub fn add(&mut self, table: &Table, row: usize, day: &str) {
        let program = table.text("distributed", row).map(|name| {
            let whole = |column| table.number(column, row).map(f64::to_bits);
            let rank = whole("rank");
            let programs = self.programs.entry((name.to_owned(), whole("ranks"))).or_default();
            // A rank joins the first program that lacks it, so the programs that have it come first.
            let at = programs.partition_point(|program| program.ranks.contains(&rank));
            if at == programs.len() {
                programs.push(Program::default());
            }
            programs[at].ranks.insert(rank);
            &mut programs[at]
        });
        let first_part = program.as_ref().and_then(|program| program.parts.first());
        let place = match first_part {
            // Ranks that start after midnight belong to the day of their program.
            Some(part) if *self.by == By::Day => part.group,
            _ => {
                let key = self.by.key(table, row, day);
                *self.places.entry(key).or_insert_with_key(|key| {
                    self.groups.push(Group { key: key.clone(), ..Group::default() });
                    self.groups.len() - 1
                })
            }
        };
        let group = &mut self.groups[place];
        group.recordings += 1;
        for (sum, column) in group.sums.iter_mut().zip(SUMS) {
            if let Some(value) = table.number(column, row) {
                *sum = Some(sum.unwrap_or(0.0) + value);
            }
        }
        let is_failed = table.flag("is_failed", row) == Some(true);
        let out_of_memory = table.flag("out_of_memory", row) == Some(true);
        let Some(program) = program else {
            group.count(is_failed, out_of_memory);
            return;
        };
        match program.parts.iter_mut().find(|part| part.group == place) {
            Some(part) => {
                part.is_failed |= is_failed;
                part.out_of_memory |= out_of_memory;
            }
            None => program.parts.push(Part { group: place, is_failed, out_of_memory }),
        }
        if let Some(cpu_s) = table.number("cpu_seconds", row) {
            program.timed_ranks += 1;
            program.cpu_s += cpu_s;
            program.highest_cpu_s = program.highest_cpu_s.max(cpu_s);
        }
    }

    /// The groups, the most savings first.
    pub fn lines(mut self) -> Vec<Line> {
        for program in self.programs.into_values().flatten() {
            #[expect(clippy::cast_precision_loss, reason = "a number of ranks")]
            let mean_s = program.cpu_s / program.timed_ranks as f64;
            for part in program.parts {
                let group = &mut self.groups[part.group];
                group.count(part.is_failed, part.out_of_memory);
                if program.timed_ranks > 1 && program.cpu_s > 0.0 {
                    group.imbalances += 1;
                    group.imbalance += program.highest_cpu_s / mean_s;
                }
            }
        }
        let mut lines: Vec<Line> = self.groups.into_iter().map(Group::line).collect();
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

impl Group {
    fn count(&mut self, is_failed: bool, out_of_memory: bool) {
        self.runs += 1;
        self.failed += u64::from(is_failed);
        self.out_of_memory += u64::from(out_of_memory);
    }

    fn line(self) -> Line {
        let [asked, used, wasted, gib_asked, gib_used, gib_wasted, cost_usd, savings_usd] = self.sums;
        #[expect(clippy::cast_precision_loss, reason = "a number of programs")]
        let imbalance = (self.imbalances > 0).then(|| self.imbalance / self.imbalances as f64);
        Line {
            key: self.key,
            runs: self.runs,
            recordings: self.recordings,
            failed: self.failed,
            out_of_memory: self.out_of_memory,
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
    }
}
