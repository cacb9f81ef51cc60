//! Writes a dataset of synthetic runs, for tests and benches of fleets.
//!
//!     cargo run --release --features parquet --example fleet_runs -- URL RUNS [SEED]

#![expect(clippy::unwrap_used, reason = "a tool for tests")]

use resource_tracker::fleet::dataset::Dataset;

#[path = "fleet_runs_generator/mod.rs"]
mod generator;

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let (url, runs) = (&words[1], words[2].parse().unwrap());
    let seed = words.get(3).map_or(7, |word| word.parse().unwrap());
    generator::write(&Dataset::open(url).unwrap(), runs, seed);
}
