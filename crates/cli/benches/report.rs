//! Budgets of `resource-tracker report`, from the `.json.gz` to the HTML file, for one row per second with noise in
//! every column:
//!
//! * a day (86,400 rows): 0.4 s, and a page of 1.2 MB
//! * a week (604,800 rows): 3 s, and a page of 1.5 MB
//!
//! The best of five runs counts. Exit status 1 if a budget is exceeded.
//! `cargo bench -p resource-tracker-cli --bench report`

use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use resource_tracker::config::Config;
use resource_tracker::metric::{Metric, Row, Unit};
use resource_tracker::store::recording::{Head, Run, gzip, write_snapshot};

const START: f64 = 1_741_785_600.25;

struct Budget {
    name: &'static str,
    rows: u32,
    seconds: f64,
    bytes: u64,
}

const BUDGETS: [Budget; 2] = [
    Budget { name: "day", rows: 86_400, seconds: 0.4, bytes: 1_200_000 },
    Budget { name: "week", rows: 604_800, seconds: 3.0, bytes: 1_500_000 },
];

fn main() -> ExitCode {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let mut passed = true;
    for budget in BUDGETS {
        let recording = folder.path().join(budget.name).with_extension("json.gz");
        write_recording(&recording, budget.rows).expect("a recording");
        passed &= report(&recording, &budget);
    }
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn report(recording: &Path, budget: &Budget) -> bool {
    let page = recording.with_extension("html");
    let mut best_s = f64::INFINITY;
    for _ in 0..5 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_resource-tracker"));
        command.arg("report").arg(recording).arg("-o").arg(&page).env("RESOURCE_TRACKER_OFFLINE", "1");
        let start = Instant::now();
        let output = command.output().expect("the command");
        best_s = best_s.min(start.elapsed().as_secs_f64());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let html = fs::read_to_string(&page).expect("a page");
    assert_eq!(html.matches("<figure").count(), 5, "a page with its charts");
    let bytes = html.len() as u64;
    let _ = writeln!(
        io::stdout(),
        "report of a {}: {best_s:.3} s (budget {}), {bytes} bytes (budget {})",
        budget.name,
        budget.seconds,
        budget.bytes
    );
    best_s < budget.seconds && bytes < budget.bytes
}

fn write_recording(path: &Path, rows: u32) -> io::Result<()> {
    let mut head = Head::new(&Config::default(), 4242, START, Run::default());
    head.metadata.set_stop_time(START + f64::from(rows), 0.0);
    let mut out = gzip(BufWriter::new(File::create(path)?));
    write_snapshot(&mut out, &head, &mut |take| {
        let mut state = 1;
        (0..rows).try_for_each(|number| take(&row(&mut state, number)))
    })?;
    out.finish()?.flush()
}

/// A row with noise: constant columns would compress too well.
fn row(state: &mut u64, number: u32) -> Row {
    let mut noise = || {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from(u32::try_from(*state >> 40).unwrap_or(0)) / f64::from(1_u32 << 24)
    };
    let mut row = Row::default();
    for metric in Metric::ALL {
        let value = match (metric, metric.unit()) {
            (Metric::Timestamp, _) => START + f64::from(number) + 1.0,
            (Metric::Elapsed, _) => 1.0,
            (_, Unit::Count) => 4.0,
            (_, Unit::Bytes) => noise() * 4_000_000.0,
            (_, Unit::KiB) => 600_000.0 + noise() * 200_000.0,
            (_, Unit::GiB) => 2_560.0 + noise(),
            (_, Unit::MiB) | (Metric::ProcessGpu | Metric::SystemGpu, _) => 0.0,
            (_, _) => noise() * 2.0,
        };
        row.set(*metric, Some(metric.round(value)));
    }
    for gpus in [Metric::ProcessGpus, Metric::SystemGpus] {
        row.set(gpus, Some(0.0));
    }
    row
}
