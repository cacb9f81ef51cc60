//! Predicts how long a recorded run takes with other numbers of CPUs.
//!
//! ```text
//! cargo run --release -p resource-tracker --example what_if -- RECORDING CPUS...
//! ```
//!
//! Out: JSON: `duration_seconds`, `mean_cores` and `max_cores` of the run, and `predicted_seconds` for each number of CPUs.
//! `benches/what_if.py` compares the predictions with measured times.

use std::error::Error;
use std::io::Write as _;
use std::path::Path;

use resource_tracker::store::recording::Recording;
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: what_if RECORDING CPUS...")?;
    let cpus = arguments.map(|number| number.parse()).collect::<Result<Vec<f64>, _>>()?;
    let summary = Recording::load(Path::new(&path))?.summary();
    let profile = summary.cpu_profile();
    let predicted_seconds: Vec<f64> = cpus.iter().map(|cpus| profile.predicted_s(*cpus)).collect();
    let result = json!({
        "duration_seconds": profile.duration_s(),
        "mean_cores": profile.mean_cores(),
        "max_cores": profile.max_cores(),
        "predicted_seconds": predicted_seconds,
    });
    Ok(writeln!(std::io::stdout(), "{result}")?)
}
