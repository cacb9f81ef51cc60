//! Synthetic runs of a fleet: 300 jobs of skewed sizes, 40 users, 50 nodes, 30 days, 7 % failures, 2 % of them out of
//! memory, and distributed programs of 4 to 16 ranks. The same seed gives the same runs.

#![expect(clippy::unwrap_used, clippy::cast_precision_loss, reason = "a tool for tests")]

use std::sync::Mutex;
use std::sync::mpsc::sync_channel;
use std::thread;

use resource_tracker::fleet::columns::run_columns;
use resource_tracker::fleet::dataset::Dataset;
use resource_tracker::fleet::table::{Cells, Table};
use serde_json::{Map, Value, json};

/// Runs that have samples too.
const SAMPLED: u64 = 100;

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
    let job = (random.share().powi(3) * 300.0).floor();
    let (hours, cpus) = (random.skewed() / 3.0, 2_u64.pow(u32::try_from(random.below(6)).unwrap()) as f64);
    let (busy, gib) = (random.share(), 4.0 * cpus);
    let (peak, is_failed) = (random.share(), random.below(100) < 7);
    let cost = hours * cpus * 0.05;
    let start = 1_772_323_200.0 + random.share() * 30.0 * 86_400.0;
    let row = json!({
        "id": format!("{:012x}", random.next() >> 16),
        "stored_time": start + hours * 3600.0,
        "job": if random.below(50) == 0 { Value::Null } else { json!(format!("job-{job:03}")) },
        "user": format!("user-{:02}", random.below(40)),
        "node": format!("node-{:02}", random.below(50)),
        "host": "host",
        "tags": if number.is_multiple_of(3) { json!(json!({"team": format!("team {}", number % 7)}).to_string()) } else { Value::Null },
        "parent": if random.below(100) == 0 { json!("feed") } else { Value::Null },
        "status": if is_failed { "failed" } else { "finished" },
        "is_failed": is_failed,
        "out_of_memory": is_failed && random.below(50) == 0,
        "start_time": start,
        "duration_seconds": hours * 3600.0,
        "asked_cpus": cpus,
        "asked_memory_bytes": gib * 1024.0 * 1024.0 * 1024.0,
        "cpu_seconds": hours * 3600.0 * cpus * busy,
        "cpu_hours_asked": hours * cpus,
        "cpu_hours_used": hours * cpus * busy,
        "cpu_hours_wasted": hours * cpus * (1.0 - busy),
        "gib_hours_asked": hours * gib,
        "gib_hours_used": hours * gib * peak,
        "gib_hours_wasted": hours * gib * (1.0 - peak),
        // The price is known of most runs.
        "cost_usd": if random.below(10) == 0 { Value::Null } else { json!(cost) },
        "savings_usd": if random.below(10) == 0 { Value::Null } else { json!(cost * (1.0 - busy).max(0.0) / 2.0) },
    });
    row.as_object().unwrap().clone()
}

/// Writes the runs with several threads, since an object store takes a while for each.
pub fn write(dataset: &Dataset, runs: u64, seed: u64, threads: usize) {
    let (sender, receiver) = sync_channel::<(Map<String, Value>, bool)>(threads);
    let receiver = Mutex::new(receiver);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let next = receiver.lock().unwrap().recv();
                    let Ok((row, is_sampled)) = next else { break };
                    put(dataset, row, is_sampled);
                }
            });
        }
        each_run(runs, seed, |row, is_sampled| sender.send((row, is_sampled)).unwrap());
        drop(sender);
    });
}

fn put(dataset: &Dataset, row: Map<String, Value>, is_sampled: bool) {
    let start = row["start_time"].as_f64().unwrap();
    let id = row["id"].as_str().unwrap().to_owned();
    let row = Table::of_rows(run_columns(), &[row]);
    if is_sampled {
        let mut samples = Table::of_rows([], &[Map::new()]);
        samples.add_column("run_id", Cells::texts(&[&id]));
        dataset.put(&id, start, &row, &samples).unwrap();
    } else {
        dataset.put_run(&id, start, &row).unwrap();
    }
}

fn each_run(runs: u64, seed: u64, mut next: impl FnMut(Map<String, Value>, bool)) {
    let mut random = Random(seed * 2 + 1);
    let mut number = 0;
    while number < runs {
        let first = run(&mut random, number);
        let ranks = if random.below(30) == 0 { 4 + random.below(13) } else { 1 };
        for rank in 0..ranks.min(runs - number) {
            let mut row = first.clone();
            if ranks > 1 {
                let cpu_s = row["cpu_seconds"].as_f64().unwrap() * (0.5 + random.share());
                row.extend([
                    ("id".to_owned(), json!(format!("{:012x}", random.next() >> 16))),
                    ("rank".to_owned(), json!(rank)),
                    ("ranks".to_owned(), json!(ranks)),
                    ("distributed".to_owned(), json!(format!("{seed}-{number}"))),
                    ("cpu_seconds".to_owned(), json!(cpu_s)),
                ]);
            }
            next(row, number < SAMPLED);
        }
        number += ranks;
    }
}
