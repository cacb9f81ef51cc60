//! Compares memory sizing rules on recorded workflow tasks.
//!
//! ```text
//! cargo run --release -p resource-tracker --example sizing -- [--json] traces.csv
//! ```
//!
//! In:  a CSV file with the columns `workflow`, `process`, `start_ms`, `complete_ms`, `realtime_ms`, `requested_bytes`,
//!      `peak_rss_bytes` and `read_chars`.
//! Out: waste, used share and failed tasks of each rule, per workflow and in total; `--json`: in total. The rule `advice`
//!      is the memory advice of this crate.
//!
//! Tasks are replayed in order of time. A rule sees the tasks of the same workflow and process that had completed when
//! the task starts. The first task of a process gets the user's request. A failed attempt costs its allocation for the
//! full run time, and is repeated with more memory.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

use resource_tracker::analysis::rounding::round_memory;
use resource_tracker::analysis::sizing::past_run::{Ending, PastRun};
use resource_tracker::analysis::sizing::replay::after_kill_bytes;
use resource_tracker::analysis::sizing::{LAST_RUNS, MemorySizing};
use resource_tracker::store::csv::{AnyColumn, Other};
use serde_json::json;

const MIB: f64 = 1_048_576.0;
const GB: f64 = 1e9;
const HOUR_MS: f64 = 3_600_000.0;

/// The attempt after this many failed ones is counted as the last one, whatever it lacks. Only the ladder of VPA, which
/// grows by a fifth, gets so far; the published figures were made with this limit.
const MAX_FAILED_ATTEMPTS: usize = 12;

struct Task {
    workflow: String,
    process: String,
    start_ms: f64,
    complete_ms: f64,
    realtime_ms: f64,
    requested_bytes: f64,
    peak_bytes: f64,
    read_bytes: Option<f64>,
}

impl Task {
    fn gb_hours(&self, bytes: f64) -> f64 {
        bytes / GB * self.realtime_ms / HOUR_MS
    }
}

/// Memory requests for the tasks of one process.
trait Rule {
    /// Adds a completed task.
    fn learn(&mut self, task: &Task);
    /// The request for a task; called after at least one completed task.
    fn request_bytes(&mut self, task: &Task) -> f64;
    /// The request after a number of failed attempts; `failed_bytes` is the last one.
    fn retry_bytes(&self, failed_bytes: f64, _attempts: usize) -> f64 {
        2.0 * failed_bytes
    }
}

/// Rules that use peaks only.
struct Peaks {
    sorted_bytes: Vec<f64>,
    request: fn(&[f64]) -> f64,
    retry: fn(f64) -> f64,
}

impl Rule for Peaks {
    fn learn(&mut self, task: &Task) {
        let place = self.sorted_bytes.partition_point(|peak| *peak < task.peak_bytes);
        self.sorted_bytes.insert(place, task.peak_bytes);
    }

    fn request_bytes(&mut self, _task: &Task) -> f64 {
        (self.request)(&self.sorted_bytes)
    }

    fn retry_bytes(&self, failed_bytes: f64, _attempts: usize) -> f64 {
        (self.retry)(failed_bytes)
    }
}

/// The request of the user for every task.
struct User;

impl Rule for User {
    fn learn(&mut self, _task: &Task) {}

    fn request_bytes(&mut self, task: &Task) -> f64 {
        task.requested_bytes
    }
}

/// The memory advice of this crate.
#[derive(Default)]
struct Advice {
    history: Vec<PastRun>,
    highest_bytes: f64,
    /// For the present history.
    sizing: Option<MemorySizing>,
}

impl Rule for Advice {
    fn learn(&mut self, task: &Task) {
        self.history.push(PastRun {
            start_s: task.start_ms / 1000.0,
            duration_s: task.realtime_ms / 1000.0,
            peak_bytes: task.peak_bytes,
            input_bytes: task.read_bytes,
            ending: Ending::Finished,
        });
        self.highest_bytes = self.highest_bytes.max(task.peak_bytes);
        self.sizing = None;
    }

    fn request_bytes(&mut self, task: &Task) -> f64 {
        if self.sizing.is_none() {
            self.sizing = MemorySizing::of(&self.history, LAST_RUNS);
        }
        let advice = self.sizing.as_ref().map(|sizing| sizing.advise(task.read_bytes));
        advice.map_or(task.requested_bytes, |advice| advice.memory_bytes)
    }

    fn retry_bytes(&self, failed_bytes: f64, attempts: usize) -> f64 {
        after_kill_bytes(self.highest_bytes, failed_bytes, attempts)
    }
}

/// Creates a rule for one process.
type Start = fn() -> Box<dyn Rule>;

/// Name and description of each rule.
const RULES: [(&str, &str, Start); 6] = [
    ("user", "user's request", || Box::new(User)),
    ("original", "original: 1.2 x max, steps", || {
        peaks(|sorted| f64::from(round_memory(1.2 * last(sorted) / MIB)) * MIB, |failed| 2.0 * failed)
    }),
    ("krr", "KRR: 1.15 x max", || {
        peaks(|sorted| (1.15 * last(sorted)).max(100.0 * MIB), |failed| 2.0 * failed)
    }),
    ("vpa", "Kubernetes VPA: 1.15 x p90", || {
        peaks(
            |sorted| (1.15 * percentile(sorted, 0.9)).max(250.0 * MIB),
            |failed| (1.2 * failed).max(failed + 100.0 * MIB),
        )
    }),
    ("witt", "Witt: p95", || peaks(|sorted| percentile(sorted, 0.95), |failed| 2.0 * failed)),
    ("advice", "advice of resource-tracker", || Box::new(Advice::default())),
];

fn peaks(request: fn(&[f64]) -> f64, retry: fn(f64) -> f64) -> Box<dyn Rule> {
    Box::new(Peaks { sorted_bytes: Vec::new(), request, retry })
}

fn last(sorted: &[f64]) -> f64 {
    sorted.last().copied().unwrap_or_default()
}

/// Percentile of sorted values by linear interpolation.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rank of the slice"
)]
fn percentile(sorted: &[f64], share: f64) -> f64 {
    let rank = sorted.len().saturating_sub(1) as f64 * share;
    let at = |rank: f64| sorted.get(rank as usize).copied().unwrap_or_default();
    at(rank.floor()) + (at(rank.ceil()) - at(rank.floor())) * rank.fract()
}

#[derive(Clone, Copy, Default)]
struct Outcome {
    tasks: f64,
    failed: f64,
    waste_gb_hours: f64,
    used_gb_hours: f64,
}

impl Outcome {
    fn used_share(&self) -> f64 {
        self.used_gb_hours / (self.used_gb_hours + self.waste_gb_hours)
    }

    fn failed_share(&self) -> f64 {
        self.failed / self.tasks
    }

    fn add(&mut self, other: &Self) {
        self.tasks += other.tasks;
        self.failed += other.failed;
        self.waste_gb_hours += other.waste_gb_hours;
        self.used_gb_hours += other.used_gb_hours;
    }
}

/// Replays the tasks of one process, which are in the order of their start.
fn replay(tasks: &[&Task], rule: &mut dyn Rule) -> Outcome {
    let mut outcome = Outcome::default();
    let mut by_end = tasks.to_vec();
    by_end.sort_by(|a, b| a.complete_ms.total_cmp(&b.complete_ms));
    let mut to_learn = by_end.iter().peekable();
    let mut is_first = true;
    for task in tasks {
        while let Some(completed) = to_learn.next_if(|other| other.complete_ms <= task.start_ms) {
            rule.learn(completed);
            is_first = false;
        }
        let mut bytes = if is_first { task.requested_bytes } else { rule.request_bytes(task) };
        let mut attempts = 0;
        while bytes < task.peak_bytes && attempts < MAX_FAILED_ATTEMPTS {
            outcome.waste_gb_hours += task.gb_hours(bytes);
            attempts += 1;
            bytes =
                if is_first { task.peak_bytes.max(2.0 * bytes) } else { rule.retry_bytes(bytes, attempts) };
        }
        outcome.tasks += 1.0;
        outcome.failed += f64::from(u8::from(attempts > 0));
        outcome.waste_gb_hours += task.gb_hours(bytes - task.peak_bytes);
        outcome.used_gb_hours += task.gb_hours(task.peak_bytes);
    }
    outcome
}

/// The outcome of a rule for each workflow.
fn by_workflow(tasks: &[Task], start: Start) -> BTreeMap<&str, Outcome> {
    let mut processes: BTreeMap<(&str, &str), Vec<&Task>> = BTreeMap::new();
    for task in tasks {
        processes.entry((&task.workflow, &task.process)).or_default().push(task);
    }
    let mut outcomes: BTreeMap<&str, Outcome> = BTreeMap::new();
    for ((workflow, _), tasks) in processes {
        outcomes.entry(workflow).or_default().add(&replay(&tasks, start().as_mut()));
    }
    outcomes
}

/// Tasks in the order of their start, and the number of lines without a needed figure.
fn read(text: &[u8]) -> Result<(Vec<Task>, usize), Box<dyn std::error::Error>> {
    let columns = AnyColumn::read_csv(text)?;
    let column = |name: &str| {
        let found = columns.iter().find(|column| column.numbers.name() == name);
        found.ok_or_else(|| format!("no column `{name}`"))
    };
    let numbers = |name| Ok::<_, String>(column(name)?.numbers.as_slice());
    let names = |name: &str| {
        let column = column(name)?;
        let mut names: Vec<String> = column.numbers.as_slice().iter().map(ToString::to_string).collect();
        for (row, other) in &column.others {
            if let (Some(name), Other::Text(text)) = (names.get_mut(*row), other) {
                name.clone_from(text);
            }
        }
        Ok::<_, String>(names)
    };
    let (workflows, processes) = (names("workflow")?, names("process")?);
    let (starts, ends, times) = (numbers("start_ms")?, numbers("complete_ms")?, numbers("realtime_ms")?);
    let (requests, peaks, reads) =
        (numbers("requested_bytes")?, numbers("peak_rss_bytes")?, numbers("read_chars")?);
    let mut tasks = Vec::new();
    for row in 0..starts.len() {
        let task = Task {
            workflow: workflows[row].clone(),
            process: processes[row].clone(),
            start_ms: starts[row],
            complete_ms: ends[row],
            realtime_ms: times[row],
            requested_bytes: requests[row],
            peak_bytes: peaks[row],
            read_bytes: Some(reads[row]).filter(|bytes| !bytes.is_nan()),
        };
        let needed =
            [task.start_ms, task.complete_ms, task.realtime_ms, task.requested_bytes, task.peak_bytes];
        if needed.iter().all(|figure| !figure.is_nan()) {
            tasks.push(task);
        }
    }
    tasks.sort_by(|a, b| a.start_ms.total_cmp(&b.start_ms));
    let skipped = starts.len() - tasks.len();
    Ok((tasks, skipped))
}

fn line(name: &str, outcome: &Outcome) -> String {
    format!(
        "{name:<28} {:>10.0} {:>8.1} % {:>8.2} %\n",
        outcome.waste_gb_hours,
        100.0 * outcome.used_share(),
        100.0 * outcome.failed_share()
    )
}

fn run(path: &str, as_json: bool) -> Result<String, Box<dyn std::error::Error>> {
    let (tasks, skipped) =
        read(&std::fs::read(path).map_err(|error| format!("cannot read `{path}`: {error}"))?)?;
    let mut totals = Vec::new();
    let mut of_workflows: BTreeMap<&str, Vec<(&str, Outcome)>> = BTreeMap::new();
    for (name, text, start) in RULES {
        let mut total = Outcome::default();
        for (workflow, outcome) in by_workflow(&tasks, start) {
            total.add(&outcome);
            of_workflows.entry(workflow).or_default().push((text, outcome));
        }
        totals.push((name, text, total));
    }
    if as_json {
        let rules = totals.iter().map(|(name, _, total)| {
            json!({
                "rule": name,
                "waste_gb_hours": total.waste_gb_hours,
                "used_share": total.used_share(),
                "failed_share": total.failed_share(),
            })
        });
        return Ok(format!("{:#}\n", rules.collect::<serde_json::Value>()));
    }
    let mut text = String::new();
    let header = |title: &str| format!("{title:<28} waste, GB h       used     failed\n");
    for (workflow, outcomes) in &of_workflows {
        let tasks = outcomes.first().map_or(0.0, |(_, outcome)| outcome.tasks);
        text += &header(&format!("{workflow}, {tasks} tasks"));
        text.extend(outcomes.iter().map(|(rule, outcome)| line(rule, outcome)));
        text.push('\n');
    }
    text += &header(&format!("total, {} tasks", tasks.len()));
    text.extend(totals.iter().map(|(_, rule, total)| line(rule, total)));
    if skipped > 0 {
        writeln!(text, "\n{skipped} tasks lack a figure and were left out")?;
    }
    Ok(text)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [path] if path != "--json" => run(path, false),
        ["--json", path] | [path, "--json"] => run(path, true),
        _ => Err("usage: sizing [--json] traces.csv".into()),
    };
    match outcome.and_then(|text| Ok(io::stdout().write_all(text.as_bytes())?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}
