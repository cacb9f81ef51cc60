//! Budgets for recordings of all three tables, with one row per second and 50 cells per row:
//!
//! * load a day (86,400 rows) of gzipped JSON with default statistics and combined table: 0.5 s and 100 MB of resident
//!   memory; a week (604,800 rows): 4 s
//! * default statistics of a running summary, for any number of rows: 1 ms
//! * memory for writing a week: 1 MiB besides the gzip encoder
//! * memory until a small file that decompresses to 10 GB of rows is rejected: 450 MB
//!
//! Loading runs in a separate process, so that its peak memory can be measured. Time spent waiting for a CPU is printed
//! but not counted. The exit status is 1 if a budget is exceeded.
//! `cargo bench -p resource-tracker --bench recording`

use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use resource_tracker::metric::{Metric, Row, Table, Unit};
use resource_tracker::store::csv;
use resource_tracker::store::frame::CombinedOptions;
use resource_tracker::store::recording::head::Software;
use resource_tracker::store::recording::{Head, Metadata, Recording, Run, gzip, write_snapshot};
use resource_tracker::store::summary::{Scope, Summary};

const DAY_ROWS: u32 = 86_400;
const WEEK_ROWS: u32 = 7 * DAY_ROWS;
const START: f64 = 1_741_785_600.25;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [_, "load", path, rows] => load(Path::new(path), rows.parse().expect("a number of rows")),
        [_, "reject", path, _] => reject(Path::new(path)),
        [_, "write", path, rows] => write(Path::new(path), rows.parse().expect("a number of rows")),
        _ => all(),
    }
}

fn print(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

fn all() -> ExitCode {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = std::env::current_exe().expect("the path of this program");
    let mut passed = summary_in_constant_time();
    for (name, rows) in [("day", DAY_ROWS), ("week", WEEK_ROWS)] {
        let path = directory.path().join(name);
        for mode in ["write", "load"] {
            let status = Command::new(&program).arg(mode).arg(&path).arg(rows.to_string()).status();
            passed &= status.is_ok_and(|status| status.success());
        }
    }
    let path = directory.path().join("bomb");
    write_bomb(&path).expect("a file");
    let status = Command::new(&program).arg("reject").arg(&path).arg("").status();
    passed &= status.is_ok_and(|status| status.success());
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Compresses only 100 MB and repeats the result, since a gzip file may have several members.
fn write_bomb(path: &Path) -> io::Result<()> {
    let row = b"{\"timestamp\":1,\"memory\":2,\"cpu_usage\":3},";
    let part = |text: &[u8], repeats: usize| {
        let mut out = GzEncoder::new(Vec::new(), Compression::best());
        for _ in 0..repeats {
            out.write_all(text)?;
        }
        out.finish()
    };
    let rows = part(row, 100_000_000 / row.len())?;
    let mut file = File::create(path)?;
    file.write_all(&part(b"{\"process_metrics\":[", 1)?)?;
    (0..100).try_for_each(|_| file.write_all(&rows))
}

fn reject(path: &Path) -> ExitCode {
    let start = Instant::now();
    let error = Recording::load(path).expect_err("10 GB of rows in a small file");
    let (took, peak_mb) = (start.elapsed(), peak_kib() * 1024 / 1_000_000);
    let reason = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    let size = fs::metadata(path).expect("a file").len();
    print(&format!(
        "reject {} kB that decompress to 10 GB: {took:?}, peak {peak_mb} MB (budget 450): {reason}",
        size / 1000
    ));
    if peak_mb < 450 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Generates synthetic rows that vary like those of a real job.
struct Job {
    state: u64,
}

impl Job {
    fn noise(&mut self) -> f64 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from(u32::try_from(self.state >> 40).unwrap_or(0)) / f64::from(1_u32 << 24)
    }

    fn row(&mut self, number: u32) -> Row {
        let mut row = Row::default();
        for metric in Metric::ALL {
            let value = match (metric, metric.unit()) {
                (Metric::Pid, _) => 941_247.0,
                (Metric::Timestamp, _) => START + f64::from(number) + 1.0 + self.noise() / 100.0,
                (Metric::ProcessGpu | Metric::ProcessVram | Metric::ProcessGpus | Metric::Swap, _) => 0.0,
                (Metric::DiskTotal, _) => 3_700.25,
                (Metric::Elapsed, _) => 1.0 + self.noise() / 10_000.0,
                (_, Unit::Count) => 4.0,
                (_, Unit::Bytes) => (self.noise() * 4_000_000.0).round() * self.noise().round(),
                (_, Unit::KiB) => 600_000.0 + self.noise() * 200_000.0,
                (_, Unit::GiB) => 2_560.0 + self.noise(),
                (_, _) => self.noise() * 2.0,
            };
            row.set(*metric, Some(metric.round(value)));
        }
        row
    }
}

fn head() -> Head {
    let software = Software { version: "0".into(), implementation: "procfs".into(), ..Software::default() };
    let mut metadata = Metadata {
        version: 1,
        resource_tracker: software,
        pid: 941_247,
        children: true,
        interval: 1.0,
        method: None,
        autostart: true,
        track_processes: true,
        track_system: true,
        discover_server: false,
        discover_cloud: false,
        start_time: Some(START),
        stop_time: None,
        duration: None,
        other: serde_json::Map::new(),
    };
    metadata.set_stop_time(START + 86_400.0, 0.0);
    Head {
        metadata,
        server_info: None,
        cloud_info: None,
        run: Some(Run::default()),
        other: serde_json::Map::new(),
    }
}

fn summary_in_constant_time() -> bool {
    let scope = Scope { process: true, system: true, start_time: Some(START), interval_s: 1.0 };
    let (mut summary, mut job) = (Summary::new(scope), Job { state: 1 });
    let mut passed = true;
    for rows in [1, DAY_ROWS] {
        let rows_before = u32::try_from(summary.rows()).expect("few rows");
        (rows_before..rows).for_each(|number| summary.add(&job.row(number)));
        let start = Instant::now();
        let stats = summary.stats().expect("there are rows");
        let took = start.elapsed();
        assert!(stats.get("process_memory", "max").is_some_and(|peak_kib| peak_kib > 600_000.0));
        print(&format!("default statistics of a summary of {rows} rows: {took:?} (budget 1 ms)"));
        passed &= took.as_secs_f64() < 0.001;
    }
    let (row, start) = (job.row(0), Instant::now());
    (0..DAY_ROWS).for_each(|_| summary.add(&row));
    print(&format!("adding a row to a summary: {:?}", start.elapsed() / DAY_ROWS));
    let (mut text, start) = (Vec::new(), Instant::now());
    for _ in 0..DAY_ROWS {
        text.clear();
        for table in Table::ALL {
            csv::write_row(&mut text, table, &row);
        }
    }
    assert_eq!(text.split(|byte| *byte == b'\n').count(), 4);
    print(&format!("a CSV row of all tables: {:?}", start.elapsed() / DAY_ROWS));
    passed
}

/// Generates the rows again for each table, as a journal is read again for each table.
fn write(path: &Path, rows: u32) -> ExitCode {
    let file = BufWriter::new(File::create(path).expect("a file"));
    let before_kib = peak_kib();
    let start = Instant::now();
    let mut out = gzip(file);
    let mut making = Duration::ZERO;
    let mut replay = |visit: &mut dyn FnMut(&Row) -> io::Result<()>| {
        let mut job = Job { state: 1 };
        for number in 0..rows {
            let start = Instant::now();
            let row = job.row(number);
            making += start.elapsed();
            visit(&row)?;
        }
        Ok(())
    };
    write_snapshot(&mut out, &head(), &mut replay).expect("rows written");
    out.finish().and_then(|mut file| file.flush()).expect("the end written");
    let took = start.elapsed().saturating_sub(making);
    let grown_kib = peak_kib() - before_kib;
    let size = fs::metadata(path).expect("a file").len();
    print(&format!(
        "write {rows} rows: {took:?}, {} kB in the file, {grown_kib} KiB of memory (budget 1024, and 512 for the encoder)",
        size / 1000
    ));
    if grown_kib < 1024 + 512 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn load(path: &Path, rows: u32) -> ExitCode {
    let start = Instant::now();
    let recording = Recording::load(path).expect("a recording");
    let loaded = start.elapsed();
    let stats = recording.stats().expect("there are rows");
    let summarised = start.elapsed();
    let table = recording.combined(&CombinedOptions::default()).expect("two tables");
    let took = start.elapsed();
    let (peak_mb, waited) = (peak_kib() * 1024 / 1_000_000, waited_for_cpu());

    assert_eq!((recording.rows(), table.len(), table.columns().len()), (rows as usize, rows as usize, 32));
    assert!(stats.get("timestamp", "duration").is_some_and(|duration| duration > f64::from(rows) - 2.0));
    let (budget_s, budget_mb) = if rows == DAY_ROWS { (0.5, 100) } else { (4.0, u64::MAX) };
    print(&format!(
        "load {rows} rows: {loaded:?}, statistics {:?}, combined table {:?}: {took:?} in all (budget {budget_s} s), \
         {waited:?} of it waiting for a CPU, peak {peak_mb} MB",
        summarised.saturating_sub(loaded),
        took.saturating_sub(summarised),
    ));
    if took.saturating_sub(waited).as_secs_f64() < budget_s && peak_mb < budget_mb {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Time on the run queue: the second number of `/proc/self/schedstat`, in ns.
fn waited_for_cpu() -> Duration {
    let text = fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or(0))
}

/// `VmHWM` of this process.
fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}
