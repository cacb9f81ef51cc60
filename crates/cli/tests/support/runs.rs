//! Runs with known numbers, written to a history.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::open_folder;

/// A run of the history.
pub struct Run {
    pub id: &'static str,
    pub status: &'static str,
    pub start_time: f64,
    /// CPUs in use and memory in KiB, one row per second.
    pub rows: &'static [(f64, f64)],
}

/// Six runs of one job. The fifth takes longer and more memory, the last was killed for lack of memory.
pub const RUNS: [Run; 6] = [
    Run {
        id: "a10000000001",
        status: "finished",
        start_time: 1.0e9,
        rows: &[(1.0, 100_000.0), (1.5, 200_000.0)],
    },
    Run {
        id: "a20000000002",
        status: "finished",
        start_time: 1.1e9,
        rows: &[(1.0, 100_000.0), (1.4, 210_000.0)],
    },
    Run {
        id: "a30000000003",
        status: "finished",
        start_time: 1.2e9,
        rows: &[(1.1, 100_000.0), (1.5, 205_000.0)],
    },
    Run {
        id: "a40000000004",
        status: "finished",
        start_time: 1.3e9,
        rows: &[(1.0, 100_000.0), (1.5, 202_000.0)],
    },
    Run {
        id: "b10000000005",
        status: "finished",
        start_time: 1.4e9,
        rows: &[(1.0, 100_000.0), (1.5, 200_000.0), (0.5, 600_000.0), (0.1, 50_000.0)],
    },
    Run {
        id: "b20000000006",
        status: "killed",
        start_time: 1.5e9,
        rows: &[(1.0, 900_000.0), (1.0, 2_000_000.0)],
    },
];

pub fn recording(job: &str, run: &Run) -> Value {
    let rows = run.rows.iter().enumerate();
    let at = |number: usize| run.start_time + f64::from(u32::try_from(number).unwrap()) + 1.0;
    let process: Vec<Value> = rows
        .clone()
        .map(|(number, (cpu, memory))| {
            json!({
                "timestamp": at(number), "pid": 4242, "children": 3, "utime": cpu * 0.75, "stime": cpu * 0.25,
                "cpu_usage": cpu, "memory": memory, "read_bytes": 4096, "write_bytes": 1_000_000,
                "gpu_usage": 0.0, "gpu_vram": 0.0, "gpu_utilized": 0,
            })
        })
        .collect();
    let system: Vec<Value> = rows
        .clone()
        .map(|(number, (cpu, _))| {
            json!({
                "timestamp": at(number), "processes": 99, "utime": cpu * 0.75, "stime": cpu * 0.25, "cpu_usage": cpu,
                "memory_free": 1_000_000, "memory_used": 1_000_000, "memory_buffers": 0, "memory_cached": 0,
                "memory_active": 0, "memory_inactive": 0, "disk_read_bytes": 0, "disk_write_bytes": 0,
                "disk_space_total_gb": 10.0, "disk_space_used_gb": 5.0, "disk_space_free_gb": 5.0,
                "net_recv_bytes": 2_000_000, "net_sent_bytes": 1000, "gpu_usage": 0.0, "gpu_vram": 0.0, "gpu_utilized": 0,
            })
        })
        .collect();
    let extra: Vec<Value> = rows
        .map(|(number, (cpu, memory))| {
            json!({
                "timestamp": at(number), "elapsed": 1.0, "missed_ticks": 0, "memory_peak": memory * 1.01,
                "cpu_seen": cpu, "tracker_cpu": 0.0002, "tracker_memory": 5000,
            })
        })
        .collect();
    let killed = run.status == "killed";
    let seconds = at(run.rows.len() - 1) - run.start_time;
    json!({
        "metadata": {
            "version": 1, "resource_tracker": { "version": "0.1.0", "implementation": "procfs" }, "pid": 4242,
            "children": true, "interval": 1.0, "method": null, "autostart": true, "track_processes": true,
            "track_system": true, "discover_server": true, "discover_cloud": true,
            "start_time": run.start_time, "stop_time": run.start_time + seconds, "duration": seconds,
        },
        "server_info": {
            "os": "linux", "vcpus": 4, "memory_mb": 8000.0, "gpu_count": 0, "gpu_names": [], "gpu_name": "",
            "gpu_memory_mb": 0.0, "cpu_limit": 2.0, "memory_limit_mb": 2000.0, "allocation": "dedicated",
        },
        "cloud_info": { "vendor": "aws", "instance_type": "m5.xlarge", "region": "eu-west-1", "discovery_time": 0.1 },
        "run": {
            "id": run.id, "job": job, "command": ["python", "train.py", "\u{1b}[31mred"], "host": "box",
            "tags": { "team": "vision" }, "status": run.status, "cpu_source": "perf", "coverage": 1.0,
            "exit_code": if killed { Value::Null } else { json!(0) }, "signal": if killed { json!(9) } else { Value::Null },
            "oom_kills": if killed { json!({ "processes": 1, "certain": true }) } else { Value::Null },
        },
        "process_metrics": process, "system_metrics": system, "extra_metrics": extra,
    })
}

/// A home folder with [`RUNS`] in its history.
pub fn home_with_runs() -> tempfile::TempDir {
    let home = open_folder();
    save(home.path(), "train", &RUNS);
    home
}

/// Saves runs of a job to the history.
pub fn save(home: &Path, job: &str, runs: &[Run]) {
    let history = home.join("data/resource-tracker");
    fs::create_dir_all(&history).unwrap();
    for run in runs {
        let recording = recording(job, run);
        fs::write(history.join(format!("{}.json.gz", run.id)), recording.to_string()).unwrap();
        let count = f64::from(u32::try_from(run.rows.len()).unwrap());
        let mean = run.rows.iter().map(|(cpu, _)| cpu).sum::<f64>() / count;
        let peak = run.rows.iter().map(|(_, memory)| memory * 1.01).fold(0.0, f64::max);
        let entry = json!({
            "id": run.id, "job": job, "tags": recording["run"]["tags"], "command": recording["run"]["command"],
            "status": run.status,
            "exit_code": recording["run"]["exit_code"], "start_time": run.start_time, "duration_s": count,
            "stats": {
                "process_cpu_usage": { "mean": mean, "max": 1.5 }, "process_memory": { "mean": peak, "max": peak },
                "process_gpu_usage": { "mean": 0.0, "max": 0.0 }, "process_gpu_vram": { "mean": 0.0, "max": 0.0 },
                "process_gpu_utilized": { "mean": 0.0, "max": 0.0 }, "system_disk_space_used_gb": { "max": 5.0 },
                "system_net_recv_bytes": { "sum": 2e6 * count }, "system_net_sent_bytes": { "sum": 1e3 * count },
                "timestamp": { "duration": count },
            },
        });
        fs::write(history.join(format!("{}.run", run.id)), entry.to_string()).unwrap();
    }
}
