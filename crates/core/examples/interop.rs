//! Writes and reads recordings for `tests/interop`, which compares them with the original Python package.
//!
//! ```text
//! interop write FILE   writes a recording of synthetic rows with all keys
//! interop read FILE    prints JSON: rows of each table, default statistics, combined table
//! ```

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::process::ExitCode;

use resource_tracker::metric::{Metric, Row, Unit};
use resource_tracker::store::export::{Format, export};
use resource_tracker::store::frame::CombinedOptions;
use resource_tracker::store::recording::head::Software;
use resource_tracker::store::recording::{Head, Metadata, Recording, Run, Status, gzip};
use serde_json::{Map, json};

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["write", path] => write(Path::new(path)),
        ["read", path] => read(Path::new(path)),
        _ => Err("usage: interop write|read FILE".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn head() -> Head {
    let mut metadata = Metadata {
        version: 1,
        resource_tracker: Software {
            version: env!("CARGO_PKG_VERSION").into(),
            implementation: "procfs".into(),
            ..Software::default()
        },
        pid: 4242,
        children: true,
        interval: 1.0,
        method: None,
        autostart: true,
        track_processes: true,
        track_system: true,
        discover_server: true,
        discover_cloud: true,
        start_time: Some(1_741_785_600.25),
        stop_time: None,
        duration: None,
        other: Map::new(),
    };
    metadata.set_stop_time(1_741_785_620.5, 0.0);
    let object = |value: serde_json::Value| value.as_object().cloned();
    Head {
        metadata,
        server_info: object(json!({"os": "linux", "vcpus": 8, "memory_mb": 16000.5, "gpu_count": 0,
            "gpu_names": [], "gpu_name": null, "gpu_memory_mb": 0.0, "cpu_limit": null, "allocation": "dedicated"})),
        cloud_info: object(json!({"vendor": "aws", "instance_type": "m5.large", "region": "eu-west-1",
            "discovery_time": 0.1})),
        run: Some(Run {
            job: Some("interop".into()),
            command: Some(vec!["sleep".into(), "20".into()]),
            status: Some(Status::Finished),
            exit_code: Some(0),
            ..Run::default()
        }),
        other: Map::new(),
    }
}

fn row(number: u32) -> Row {
    let step = f64::from(number);
    let mut row = Row::default();
    for (place, metric) in (0_u32..).zip(Metric::ALL) {
        let seed = f64::from(place) + 1.0;
        let value = match (metric, metric.unit()) {
            (Metric::Timestamp, _) => 1_741_785_601.0 + step,
            (Metric::Pid, _) => 4242.0,
            // Rows of equal length have equal weights. `MemoryPeak` is low, so that the maximum of the memory is that
            // of the samples, as in the original package.
            (Metric::Elapsed | Metric::MemoryPeak, _) => 1.0,
            (_, Unit::Count | Unit::Bytes | Unit::KiB) => seed * 1000.0 + step * 37.0,
            (_, _) => seed / 8.0 + step / 3.0,
        };
        row.set(*metric, Some(metric.round(value)));
    }
    // The mean of the original package is that of the samples.
    row.set(Metric::MemoryMean, row.get(Metric::ProcessMemory));
    row
}

fn write(path: &Path) -> Outcome {
    let mut recording = Recording::new(head());
    for number in 0..20 {
        recording.push(&row(number));
    }
    let mut out = gzip(BufWriter::new(File::create(path)?));
    recording.write(&mut out)?;
    Ok(out.finish()?.flush()?)
}

fn read(path: &Path) -> Outcome {
    let recording = Recording::load(path)?;
    let mut plain = Vec::new();
    recording.write(&mut plain)?;
    let snapshot: serde_json::Value = serde_json::from_slice(&plain)?;
    let mut lines = Vec::new();
    let options = CombinedOptions { bytes: true, ..CombinedOptions::default() };
    export(&mut lines, &recording, Format::Jsonl, &options)?;
    let combined: Result<Vec<serde_json::Value>, _> =
        String::from_utf8(lines)?.lines().map(serde_json::from_str).collect();
    let answer = json!({"snapshot": snapshot, "stats": recording.stats()?, "combined_bytes": combined?});
    Ok(serde_json::to_writer(io::stdout(), &answer)?)
}
