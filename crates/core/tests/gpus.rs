//! Tests the columns of AMD and Intel GPUs on recorded hosts, from sysfs and DRM fdinfo.
#![expect(clippy::unwrap_used, reason = "tests fail by panic")]

mod replay;

use std::path::{Path, PathBuf};

use resource_tracker::config::Config;
use resource_tracker::metric::{Metric, Row};
use resource_tracker::os::Moment;
use resource_tracker::os::root::Root;
use resource_tracker::probe::gpu::{Figures, GpuReading, Question, Reader, Vendor};
use resource_tracker::probe::host;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

fn rows(name: &str, pid: u32) -> Vec<Row> {
    let rows = replay::rows(&fixture(name), pid, &Config::default());
    assert_eq!(rows.len(), 2);
    rows
}

const PROCESS: [Metric; 3] = [Metric::ProcessGpu, Metric::ProcessVram, Metric::ProcessGpus];
const SYSTEM: [Metric; 3] = [Metric::SystemGpu, Metric::SystemVram, Metric::SystemGpus];

fn cells(row: &Row, metrics: [Metric; 3]) -> [Option<f64>; 3] {
    metrics.map(|metric| row.get(metric))
}

/// The readings of three ticks, made by the same reader.
fn readings(name: &str, members: &[u32]) -> Vec<GpuReading> {
    let root = |tick: u64| Root::recorded(&fixture(name).join(format!("{tick:03}"))).unwrap();
    let mut reader = Reader::open(&root(0)).unwrap();
    let at = |tick: u64| Moment { wall_ns: 0, monotonic_ns: (tick + 1) * 1_000_000_000 };
    let mut read = |tick: u64| {
        let question = Question {
            members: members.to_vec(),
            root_pid: members.first().copied(),
            since_ns: Some(tick * 1_000_000_000),
        };
        reader.read(&root(tick), &question, at(tick))
    };
    (0..3).map(&mut read).collect()
}

#[test]
fn amdgpu_client_of_two_processes_counts_once() {
    let [first, second] = rows("gpu-amdgpu", 100).try_into().unwrap();
    assert_eq!(cells(&first, SYSTEM), [Some(1.2), Some(10_240.0), Some(2.0)]);
    assert_eq!(cells(&second, SYSTEM), [Some(1.4), Some(10_240.0), Some(2.0)]);
    // First GPU: client 7, counted once (512 MiB, 0.25 s and 0.5 s of gfx), and client 9 (128 MiB). Second GPU: ROCm
    // (4 GiB, usage 0.8).
    assert_eq!(cells(&first, PROCESS), [Some(1.05), Some(4_736.0), Some(2.0)]);
    assert_eq!(cells(&second, PROCESS), [Some(1.3), Some(4_736.0), Some(2.0)]);
    // Columns of each single GPU.
    let of = |metric: Metric| [first.get_of_gpu(metric, 0), first.get_of_gpu(metric, 1)];
    assert_eq!(of(Metric::GpuJobVram), [Some(640.0), Some(4_096.0)]);
    assert_eq!(of(Metric::GpuJobUsage), [Some(0.25), Some(0.8)]);
    assert_eq!(of(Metric::GpuPower), [Some(85.0), Some(200.5)]);
    assert_eq!(of(Metric::GpuUsage), [Some(0.4), Some(0.8)]);
    // Process 102 is another job with its own client.
    assert_eq!(cells(&rows("gpu-amdgpu", 102)[0], PROCESS), [Some(0.9), Some(1_024.0), Some(1.0)]);
}

#[test]
fn amdgpu_has_names_and_sensors() {
    let host = host::read(&Root::recorded(&fixture("gpu-amdgpu").join("000")).unwrap(), "self");
    let info = host.server_info();
    assert_eq!(info["gpu_count"], 2);
    assert_eq!(info["gpu_names"], serde_json::json!(["AMD GPU 1002:73BF", "AMD Instinct MI210"]));
    assert_eq!(info["gpu_memory_mb"], 81_920.0);
    let mut figures = Figures::default();
    for reading in readings("gpu-amdgpu", &[100, 101]) {
        figures.add(&reading, 1.0);
    }
    let all = figures.all();
    assert_eq!((all[0].power_mean_w, all[0].temperature_max_c), (Some(85.0), Some(55.0)));
    assert_eq!((all[0].clock_mean_mhz, all[1].power_max_w), (Some(1800.0), Some(200.5)));
    assert_eq!((all[0].job_vram_max_mib, all[1].job_vram_max_mib), (Some(640.0), Some(4096.0)));
}

#[test]
fn i915_has_engine_time_and_is_busy_while_awake() {
    let [first, second] = rows("gpu-i915", 200).try_into().unwrap();
    // The render engine was busy for 0.5 s, the two video engines for 0.6 s together. The GPU has no VRAM.
    assert_eq!(cells(&first, PROCESS), [Some(0.5), Some(0.0), Some(1.0)]);
    assert_eq!(cells(&second, PROCESS), [Some(0.0), Some(0.0), Some(0.0)]);
    // The GPU was idle for 400 ms of the first second and for the whole second one.
    assert_eq!(cells(&first, SYSTEM), [Some(0.6), Some(0.0), Some(1.0)]);
    assert_eq!(cells(&second, SYSTEM), [Some(0.0), Some(0.0), Some(0.0)]);
    let gpu = &readings("gpu-i915", &[200])[1].gpus[0];
    assert_eq!((gpu.vendor, gpu.clock_mhz, gpu.vram_total_bytes), (Vendor::Intel, Some(1100.0), Some(0)));
}

#[test]
fn xe_has_cycles_and_no_total_of_used_memory() {
    let [first, second] = rows("gpu-xe", 300).try_into().unwrap();
    assert_eq!(cells(&first, PROCESS), [Some(0.5), Some(1_024.0), Some(1.0)]);
    assert_eq!(cells(&second, PROCESS), [Some(0.25), Some(1_024.0), Some(1.0)]);
    assert_eq!(cells(&first, SYSTEM), [Some(0.75), None, Some(1.0)]);
    assert_eq!(cells(&second, SYSTEM), [Some(0.3), None, Some(1.0)]);
    let readings = readings("gpu-xe", &[300]);
    let gpu = &readings[1].gpus[0];
    assert_eq!((gpu.power_w, gpu.temperature_c), (Some(40.0), Some(48.0)));
    assert_eq!((gpu.name.as_str(), gpu.vram_total_bytes), ("Intel GPU 8086:56A0", Some(16 << 30)));
    // The usage of the first reading is unknown, and not 0.
    assert_eq!((readings[0].gpus[0].usage, readings[0].gpus[0].job.usage), (None, None));
}
