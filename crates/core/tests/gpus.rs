//! GPUs of AMD and Intel on recorded hosts: what sysfs and DRM fdinfo make of the columns.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::{Path, PathBuf};

use resource_tracker::config::Config;
use resource_tracker::host;
use resource_tracker::metric::{Metric, Row};
use resource_tracker::root::Root;
use resource_tracker::snapshot::Moment;
use resource_tracker::source::gpu::{Figures, GpuReading, Question, Reader, Vendor};
use resource_tracker::source::replay;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

fn rows(name: &str, pid: u32) -> Vec<Row> {
    let rows = replay::rows(&fixture(name), pid, &Config::default()).unwrap();
    assert_eq!(rows.len(), 2);
    rows
}

const PROCESS: [Metric; 3] = [Metric::ProcessGpu, Metric::ProcessVram, Metric::ProcessGpus];
const SYSTEM: [Metric; 3] = [Metric::SystemGpu, Metric::SystemVram, Metric::SystemGpus];

fn cells(row: &Row, metrics: [Metric; 3]) -> [Option<f64>; 3] {
    metrics.map(|metric| row.get(metric))
}

/// The three looks of a host, one reader for all.
fn looks(name: &str, members: &[u32]) -> Vec<GpuReading> {
    let root = |tick: u64| Root::recorded(&fixture(name).join(format!("{tick:03}"))).unwrap();
    let mut reader = Reader::open(&root(0), true).unwrap();
    let at = |tick: u64| Moment { wall_ns: 0, monotonic_ns: (tick + 1) * 1_000_000_000 };
    let mut look = |tick: u64| {
        let question = Question {
            members: members.to_vec(),
            root_pid: members.first().copied(),
            since_ns: Some(tick * 1_000_000_000),
        };
        reader.read(&root(tick), &question, at(tick))
    };
    (0..3).map(&mut look).collect()
}

#[test]
fn amdgpu_has_the_machines_figures_and_a_client_that_two_processes_share_counts_once() {
    let [first, second] = rows("gpu-amdgpu", 100).try_into().unwrap();
    assert_eq!(cells(&first, SYSTEM), [Some(1.2), Some(10_240.0), Some(2.0)]);
    assert_eq!(cells(&second, SYSTEM), [Some(1.4), Some(10_240.0), Some(2.0)]);
    // Client 7 once (512 MiB, 0.25 then 0.5 s of gfx), client 9 (128 MiB), and ROCm on the other GPU (4 GiB, 0.8).
    assert_eq!(cells(&first, PROCESS), [Some(1.05), Some(4_736.0), Some(2.0)]);
    assert_eq!(cells(&second, PROCESS), [Some(1.3), Some(4_736.0), Some(2.0)]);
    // Each has its own columns, the one that has the memory that the job holds among them.
    let of = |metric: Metric| [first.get_of_gpu(metric, 0), first.get_of_gpu(metric, 1)];
    assert_eq!(of(Metric::GpuJobVram), [Some(640.0), Some(4_096.0)]);
    assert_eq!(of(Metric::GpuJobUsage), [Some(0.25), Some(0.8)]);
    assert_eq!(of(Metric::GpuPower), [Some(85.0), Some(200.5)]);
    assert_eq!(of(Metric::GpuUsage), [Some(0.4), Some(0.8)]);
    // A stranger has its own client, and nothing of the job's.
    assert_eq!(cells(&rows("gpu-amdgpu", 102)[0], PROCESS), [Some(0.9), Some(1_024.0), Some(1.0)]);
}

#[test]
fn amdgpu_names_its_gpus_and_their_sensors() {
    let host = host::look(&Root::recorded(&fixture("gpu-amdgpu").join("000")).unwrap(), "self");
    let info = host.server_info();
    assert_eq!(info["gpu_count"], 2);
    assert_eq!(info["gpu_names"], serde_json::json!(["AMD GPU 1002:73BF", "AMD Instinct MI210"]));
    assert_eq!(info["gpu_memory_mb"], 81_920.0);
    let mut figures = Figures::default();
    for look in looks("gpu-amdgpu", &[100, 101]) {
        figures.add(&look, 1.0);
    }
    let all = figures.all();
    assert_eq!((all[0].power_mean_w, all[0].temperature_max_c), (Some(85.0), Some(55.0)));
    assert_eq!((all[0].clock_mean_mhz, all[1].power_max_w), (Some(1800.0), Some(200.5)));
    assert_eq!((all[0].job_vram_max_mib, all[1].job_vram_max_mib), (Some(640.0), Some(4096.0)));
}

#[test]
fn i915_counts_time_on_engines_and_is_busy_while_it_is_awake() {
    let [first, second] = rows("gpu-i915", 200).try_into().unwrap();
    // Render for 0.5 s; video for 0.6 s on two engines. It has no memory of its own.
    assert_eq!(cells(&first, PROCESS), [Some(0.5), Some(0.0), Some(1.0)]);
    assert_eq!(cells(&second, PROCESS), [Some(0.0), Some(0.0), Some(0.0)]);
    // Asleep for 400 ms of the first second, and for all of the other.
    assert_eq!(cells(&first, SYSTEM), [Some(0.6), Some(0.0), Some(1.0)]);
    assert_eq!(cells(&second, SYSTEM), [Some(0.0), Some(0.0), Some(0.0)]);
    let gpu = &looks("gpu-i915", &[200])[1].gpus[0];
    assert_eq!((gpu.vendor, gpu.clock_mhz, gpu.vram_total_bytes), (Vendor::Intel, Some(1100.0), Some(0)));
}

#[test]
fn xe_counts_cycles_and_has_no_figure_of_all_memory_in_use() {
    let [first, second] = rows("gpu-xe", 300).try_into().unwrap();
    assert_eq!(cells(&first, PROCESS), [Some(0.5), Some(1_024.0), Some(1.0)]);
    assert_eq!(cells(&second, PROCESS), [Some(0.25), Some(1_024.0), Some(1.0)]);
    assert_eq!(cells(&first, SYSTEM), [Some(0.75), None, Some(1.0)]);
    assert_eq!(cells(&second, SYSTEM), [Some(0.3), None, Some(1.0)]);
    let looks = looks("gpu-xe", &[300]);
    let gpu = &looks[1].gpus[0];
    assert_eq!((gpu.power_w, gpu.temperature_c), (Some(40.0), Some(48.0)));
    assert_eq!((gpu.name.as_str(), gpu.vram_total_bytes), ("Intel GPU 8086:56A0", Some(16 << 30)));
    // Before the second look there is no rate, and that is not idle.
    assert_eq!((looks[0].gpus[0].usage, looks[0].gpus[0].job.usage), (None, None));
}
