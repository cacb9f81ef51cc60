//! Synthetic runs of a fleet: 300 jobs of skewed sizes, 40 users, 50 nodes, 30 days, 7 % failures, and distributed programs of
//! 4 to 16 ranks on several nodes, some of which start before midnight or have the name of an earlier program. Runs of a job
//! resemble each other; the memory of some jobs grows. The first runs have samples. The same seed gives the same runs.

#![expect(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a tool for tests"
)]

use std::sync::Mutex;
use std::sync::mpsc::sync_channel;
use std::thread;

use resource_tracker::fleet::columns::{run_columns, samples};
use resource_tracker::fleet::dataset::Dataset;
use resource_tracker::fleet::table::Table;
use resource_tracker::{Config, Head, Metric, Recording, Row, Run};
use serde_json::{Map, Value, json};

const THREADS: usize = 32;
/// Runs that have samples too.
const SAMPLED: u64 = 100;

const START_S: f64 = 1_772_323_200.0;
const DAY_S: f64 = 86_400.0;
const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

/// xorshift64*
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Most are small, some are a hundred times larger.
    fn skewed(&mut self) -> f64 {
        (self.share() * 6.0 - 3.0).exp()
    }
}

fn run(random: &mut Random, number: u64) -> Map<String, Value> {
    // Job 0 has the most runs.
    let job = (random.share().powi(3) * 300.0).floor() as u64;
    let mut of_job = Random(job * 2 + 0x9e37_79b9);
    of_job.next();
    let cpus = 2_u64.pow(u32::try_from(of_job.below(6)).unwrap()) as f64;
    let gpus = if job.is_multiple_of(10) { 1 + of_job.below(4) } else { 0 } as f64;
    let (busy, peak, gib) = (of_job.share(), of_job.share() * 0.8, 4.0 * cpus);
    let start = START_S + random.share() * 30.0 * DAY_S;
    let grown = if job.is_multiple_of(7) { 0.5 + 0.5 * (start - START_S) / DAY_S / 30.0 } else { 1.0 };
    let hours = random.skewed() / 3.0;
    let busy = busy * (0.8 + 0.2 * random.share());
    let peak = peak * grown * (0.9 + 0.1 * random.share());
    let (advice_cpus, advice_gib) = ((cpus * busy * 1.2).ceil(), (gib * peak * 1.2).max(0.25));
    let is_failed = random.below(100) < 7;
    let out_of_memory = is_failed && random.below(8) == 0;
    let cost = hours * (cpus * 0.05 + gpus * 0.9);
    // The price is known of most runs.
    let (cost, saved) = if random.below(10) == 0 {
        (Value::Null, Value::Null)
    } else {
        (json!(cost), json!(cost * (1.0 - advice_cpus.max(advice_gib / 4.0) / cpus).max(0.0)))
    };
    let waits = random.share();
    let disk = if job % 4 == 1 { waits } else { waits / 20.0 };
    let idle = (1.0 - disk) * (1.0 - busy);
    let seconds = hours * 3600.0;
    let usage = json!({
        "id": format!("{:012x}", random.next() >> 16),
        "stored_time": start + seconds,
        "job": if random.below(50) == 0 { Value::Null } else { json!(format!("job-{job:03}")) },
        "user": format!("user-{:02}", random.below(40)),
        "node": format!("node-{:02}", random.below(50)),
        "host": "host",
        "tags": if number.is_multiple_of(3) { json!(json!({"team": format!("team {}", job % 7)}).to_string()) } else { Value::Null },
        "parent": Value::Null,
        "status": if is_failed { "failed" } else { "finished" },
        "cause": if out_of_memory { json!("out_of_memory") } else { Value::Null },
        "is_failed": is_failed,
        "out_of_memory": out_of_memory,
        "start_time": start,
        "duration_seconds": seconds,
        "asked_cpus": cpus,
        "asked_memory_bytes": gib * GIB,
        "asked_gpus": if gpus > 0.0 { json!(gpus) } else { Value::Null },
        "cpu_seconds": seconds * cpus * busy,
        "cpu_mean_cores": cpus * busy,
        "memory_peak_bytes": gib * peak * GIB,
        "memory_mean_bytes": gib * peak * 0.8 * GIB,
    });
    let sums = json!({
        "cpu_hours_asked": hours * cpus,
        "cpu_hours_used": hours * cpus * busy,
        "cpu_hours_wasted": hours * cpus * (1.0 - busy),
        "gib_hours_asked": hours * gib,
        "gib_hours_used": hours * gib * peak,
        "gib_hours_wasted": hours * gib * (1.0 - peak),
        "gpu_mean_gpus": gpus * busy,
        "gpu_hours_asked": hours * gpus,
        "gpu_hours_used": hours * gpus * busy,
        "gpu_hours_wasted": hours * gpus * (1.0 - busy),
        "waiting_cause": if disk > 0.5 { "disk" } else if idle > 0.5 { "idle" } else { "computing" },
        "on_cpu_seconds": seconds * (1.0 - disk - idle),
        "wait_cpu_seconds": 0.0,
        "wait_quota_seconds": 0.0,
        "wait_disk_seconds": seconds * disk,
        "wait_paging_seconds": 0.0,
        "stolen_seconds": 0.0,
        "idle_seconds": seconds * idle,
        "advice_cpus": advice_cpus,
        "advice_memory_bytes": advice_gib * GIB,
        "advice_gpus": if gpus > 0.0 { json!((gpus * busy * 1.2).ceil()) } else { Value::Null },
        "cost_usd": cost,
        "savings_usd": saved,
    });
    let mut row = usage.as_object().unwrap().clone();
    row.extend(sums.as_object().unwrap().clone());
    row
}

/// Sixty rows of a recording: it loads data, computes, and writes its result.
fn recording(random: &mut Random, row: &Map<String, Value>) -> Recording {
    let number = |key: &str| row[key].as_f64().unwrap();
    let (start, seconds) = (number("start_time"), number("duration_seconds"));
    let mut head = Head::new(&Config::default(), 4242, start, Run::default());
    head.metadata.set_stop_time(start + seconds, 0.0);
    let mut recording = Recording::new(head);
    for step in 1..=60_u32 {
        let part = f64::from(step) / 60.0;
        let (is_loading, is_writing) = (part <= 0.2, part > 0.9);
        let cores = number("cpu_mean_cores") * if is_loading || is_writing { 0.4 } else { 1.25 };
        let kib = number("memory_peak_bytes") / 1024.0 * (0.2 + part.min(0.8));
        let length = seconds / 60.0;
        let cells = [
            (Metric::Timestamp, start + seconds * part),
            (Metric::Elapsed, length),
            (Metric::ProcessUtime, cores * length * 0.9),
            (Metric::ProcessStime, cores * length * 0.1),
            (Metric::ProcessCpu, cores * (0.9 + 0.2 * random.share())),
            (Metric::ProcessMemory, kib.round()),
            (Metric::MemoryPeak, kib.round()),
            (Metric::ProcessRead, if is_loading { (length * 8e7).round() } else { 0.0 }),
            (Metric::ProcessWrite, if is_writing { (length * 4e7).round() } else { 0.0 }),
        ];
        let mut cells_of_row = Row::default();
        for (metric, value) in cells {
            cells_of_row.set(metric, Some(value));
        }
        recording.push(&cells_of_row);
    }
    recording
}

/// Writes the runs with several threads, since the network and disks take a while for each.
pub fn write(dataset: &Dataset, runs: u64, seed: u64) {
    let (sender, receiver) = sync_channel::<(Map<String, Value>, bool)>(THREADS);
    let receiver = Mutex::new(receiver);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let next = receiver.lock().unwrap().recv();
                    let Ok((row, is_sampled)) = next else { break };
                    put(dataset, &row, is_sampled);
                }
            });
        }
        each_run(runs, seed, |row, is_sampled| sender.send((row, is_sampled)).unwrap());
        drop(sender);
    });
}

fn put(dataset: &Dataset, row: &Map<String, Value>, is_sampled: bool) {
    let start = row["start_time"].as_f64().unwrap();
    let id = row["id"].as_str().unwrap().to_owned();
    let table = Table::of_rows(run_columns(), std::slice::from_ref(row));
    if is_sampled {
        let mut random = Random(u64::from_str_radix(&id, 16).unwrap() | 1);
        let samples = samples(&recording(&mut random, row), &id).unwrap();
        dataset.put(&id, start, &table, &samples).unwrap();
    } else {
        dataset.put_run(&id, start, &table).unwrap();
    }
}

fn each_run(runs: u64, seed: u64, mut next: impl FnMut(Map<String, Value>, bool)) {
    let mut random = Random(seed * 2 + 1);
    let mut number = 0;
    let mut around = None;
    while number < runs {
        let mut first = run(&mut random, number);
        let start = first["start_time"].as_f64().unwrap();
        match random.below(100) {
            // The run around it has no store.
            0 => first["parent"] = json!("feed"),
            1 | 2 => {
                if let Some((id, _)) = around.take_if(|(_, before)| *before < start) {
                    first["parent"] = id;
                }
            }
            _ => around = Some((first["id"].clone(), start)),
        }
        let ranks = if random.below(30) == 0 { 4 + random.below(13) } else { 1 };
        let reused = number - random.below(40).min(number);
        for rank in 0..ranks.min(runs - number) {
            let mut row = first.clone();
            if ranks > 1 {
                let cpu_s = row["cpu_seconds"].as_f64().unwrap() * (0.5 + random.share());
                row.extend([
                    ("id".to_owned(), json!(format!("{:012x}", random.next() >> 16))),
                    ("rank".to_owned(), json!(rank)),
                    ("ranks".to_owned(), json!(ranks)),
                    ("distributed".to_owned(), json!(format!("{seed}-{}", reused / 20))),
                    ("node".to_owned(), json!(format!("node-{:02}", (number + rank / 4) % 50))),
                    (
                        "start_time".to_owned(),
                        json!(row["start_time"].as_f64().unwrap() + rank as f64 * 60.0),
                    ),
                    ("cpu_seconds".to_owned(), json!(cpu_s)),
                ]);
            }
            next(row, number < SAMPLED);
        }
        number += ranks;
    }
}
