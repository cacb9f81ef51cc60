//! GPUs through the real NVML loading code, on a machine without a GPU.
//!
//! The stub library is built from `nvml_stub/nvml.c` with the machine's `cc`; the loader finds it through
//! `LD_LIBRARY_PATH`. The driver's device files are in a `/dev` of a separate mount namespace, which needs root.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use resource_tracker::Recording;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::Value;
use support::{BIN, open_folder, text};

/// The folder of the stub library.
fn library() -> &'static Path {
    static BUILT: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = BUILT.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let output = Command::new("cc")
            .args(["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(folder.path().join("libnvidia-ml.so.1"))
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvml_stub/nvml.c"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output));
        folder
    });
    folder.path()
}

/// A `/dev` with the usual devices and the files named in `$1`.
const WITH_DEVICES: &str = "
mount -t tmpfs none /dev && mkdir /dev/shm
mknod -m 666 /dev/null c 1 3; mknod -m 666 /dev/zero c 1 5; mknod -m 666 /dev/urandom c 1 9
ln -s /proc/self/fd /dev/fd
for file in $1; do mkdir -p $(dirname $file); : > $file; done
shift
exec \"$@\"";

const NVIDIA: &str = "/dev/nvidiactl /dev/nvidia-uvm /dev/nvidia0 /dev/nvidia1";

/// The machine that a job runs on.
struct Host<'a> {
    devices: &'a str,
    library: Option<&'a Path>,
    /// Environment of the stub library; `nvml.c` lists the variables.
    stub: &'a [(&'a str, &'a str)],
    /// The job has its own PID namespace.
    is_container: bool,
}

impl Default for Host<'_> {
    fn default() -> Self {
        let library = Some(library());
        Self { devices: NVIDIA, library, stub: &[], is_container: false }
    }
}

/// A finished run.
struct Run {
    output: Output,
    recording: Recording,
    took: Duration,
    /// Delay of [`Watcher`] in the same time: scheduling and disk delays that are not the tracker's.
    machine_late: Duration,
}

/// Wakes up on each CPU and writes to the disk as a tracker does, and sums up its own delays.
struct Watcher {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Duration>>,
}

impl Watcher {
    fn start(folder: &Path) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let cpus = thread::available_parallelism().unwrap().get();
        let watch = |cpu: usize| {
            let stop = Arc::clone(&stop);
            let mut file = fs::File::create(folder.join(format!("watcher{cpu}"))).unwrap();
            thread::spawn(move || {
                let mut only = CpuSet::new();
                only.set(cpu);
                // If the machine has no CPU of this number, the thread stays unpinned.
                let _ = sched_setaffinity(None, &only);
                let (nap, mut late) = (Duration::from_millis(20), Duration::ZERO);
                while !stop.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    thread::sleep(nap);
                    file.write_all(b"a row\n").unwrap();
                    late += began.elapsed().saturating_sub(2 * nap);
                }
                late
            })
        };
        Self { threads: (0..cpus).map(watch).collect(), stop }
    }

    fn stop(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().map(|watcher| watcher.join().unwrap()).max().unwrap_or_default()
    }
}

impl Host<'_> {
    fn command(&self, home: &Path) -> Command {
        let mut command = Command::new("unshare");
        command.arg("--mount");
        if self.is_container {
            command.args(["--pid", "--fork", "--mount-proc"]);
        }
        command.args(["sh", "-c", WITH_DEVICES, "sh", self.devices, BIN]);
        command
            .env("HOME", home)
            .env("XDG_DATA_HOME", home.join("data"))
            .env("RESOURCE_TRACKER_OFFLINE", "1");
        for name in ["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "LD_LIBRARY_PATH"] {
            command.env_remove(name);
        }
        command.env("STUB_PROCESSES", home.join("processes")).envs(self.stub.iter().copied());
        if let Some(library) = self.library {
            command.env("LD_LIBRARY_PATH", library);
        }
        command
    }

    /// Runs a shell line at this interval. `$PROCESSES` is the file from which the stub reads the GPU processes.
    fn run(&self, interval: &str, line: &str) -> Run {
        let home = open_folder();
        let file = home.path().join("run.json.gz");
        let mut command = self.command(home.path());
        command.args(["run", "-i", interval, "-q", "-o"]).arg(&file).args(["--", "sh", "-c", line]);
        command.env("PROCESSES", home.path().join("processes"));
        let (watcher, began) = (Watcher::start(home.path()), Instant::now());
        let output = command.output().unwrap();
        let (took, machine_late) = (began.elapsed(), watcher.stop());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        Run { recording: Recording::load(&file).unwrap(), output, took, machine_late }
    }
}

impl Run {
    fn column(&self, table: &str, name: &str) -> Vec<Option<f64>> {
        let frame = match table {
            "process" => &self.recording.process,
            "system" => &self.recording.system,
            _ => &self.recording.extra,
        };
        frame.as_ref().unwrap().column(name).unwrap().iter().collect()
    }

    /// The middle of the rows that have an answer of the driver; the middle of all rows if no row has.
    fn middle_row(&self) -> usize {
        let extra = self.recording.extra.as_ref().unwrap();
        let clock = extra.column("gpu0_clock").ok();
        let answered = |row: &usize| clock.is_none_or(|clock| clock.get(*row).is_some());
        let rows: Vec<usize> = (0..extra.len()).filter(answered).collect();
        rows[rows.len() / 2]
    }

    /// The GPU usage, VRAM and number of utilised GPUs in the middle row.
    fn middle(&self, table: &str) -> [Option<f64>; 3] {
        ["gpu_usage", "gpu_vram", "gpu_utilized"].map(|name| self.column(table, name)[self.middle_row()])
    }

    fn notes(&self) -> Vec<String> {
        self.recording.head.run.as_ref().unwrap().notes.clone()
    }

    fn server(&self, key: &str) -> Value {
        self.recording.head.server_info.as_ref().unwrap()[key].clone()
    }

    fn missed(&self) -> f64 {
        self.column("extra", "missed_ticks").into_iter().flatten().sum()
    }

    /// Number of ticks of 0.25 s that may be missed because of delays of the machine.
    fn forgiven_ticks(&self) -> usize {
        usize::try_from(self.machine_late.as_millis().div_ceil(250)).unwrap()
    }

    #[expect(clippy::cast_precision_loss, reason = "a handful")]
    fn assert_ticks_on_time(&self) {
        let forgiven = self.forgiven_ticks();
        assert!(self.missed() <= forgiven as f64, "{} ticks missed, {forgiven} forgiven", self.missed());
    }

    fn assert_noted(&self, part: &str) {
        assert!(self.notes().iter().any(|note| note.contains(part)), "{part}: {:?}", self.notes());
    }
}

const SOME: fn(f64) -> Option<f64> = Some;

/// Puts the shell on GPU 0 with 500 MiB and 30 %, its child on the last GPU, and a process outside the job on both.
const BUSY: &str = "sleep 2 & { echo 0 $$ 500 30; echo 0 1 200 5; echo $LAST $! 250 20; echo $LAST 1 99 1; } \
                    > $PROCESSES; wait";

#[test]
fn one_four_and_eight_gpus_are_recorded_for_machine_and_job() {
    for count in [1_u32, 4, 8] {
        let (gpus, last) = (count.to_string(), (count - 1).to_string());
        let host = Host { stub: &[("STUB_GPUS", &gpus), ("LAST", &last)], ..Host::default() };
        let run = host.run("0.25", BUSY);
        let sum = f64::from(count * (count + 1) / 2);
        let system = run.middle("system");
        assert!((system[0].unwrap() - sum / 10.0).abs() < 1e-9, "{count}: {system:?}");
        assert_eq!(&system[1..], [SOME(sum * 1000.0), SOME(f64::from(count))], "{count}");
        let process = run.middle("process");
        let on = if count == 1 { 1.0 } else { 2.0 };
        assert_eq!(process, [SOME(0.5), SOME(750.0), SOME(on)], "{count}: {:?}", run.notes());
        assert_eq!(run.server("gpu_count"), count);
        assert_eq!(run.server("gpu_name"), "Stub T4");
        assert_eq!(run.server("gpu_memory_mb"), f64::from(count) * 16384.0);
        let figures = &run.recording.head.run.as_ref().unwrap().gpus;
        assert_eq!(figures.len(), count as usize);
        let first = &figures[0];
        assert_eq!((first.power_mean_w, first.temperature_max_c), (Some(100.5), Some(40.0)));
        assert_eq!((first.clock_mean_mhz, first.vram_total_mib), (Some(1500.0), Some(16384.0)));
        assert!(first.job_usage_max.unwrap() >= 0.3 && first.allowed && !first.estimated);
        let of_gpu =
            |gpu: u32, name: &str| run.column("extra", &format!("gpu{gpu}_{name}"))[run.middle_row()];
        for gpu in 0..count {
            let n = f64::from(gpu + 1);
            let expected = [SOME(n / 10.0), SOME(n * 1000.0), SOME(1500.0), SOME(99.5 + n), SOME(39.0 + n)];
            let found = ["usage", "vram", "clock", "power", "temperature"].map(|name| of_gpu(gpu, name));
            assert_eq!(found, expected, "GPU {gpu} of {count}");
        }
        if count > 1 {
            let job = |gpu| (of_gpu(gpu, "job_usage"), of_gpu(gpu, "job_vram"));
            assert_eq!((job(0), job(count - 1)), ((SOME(0.3), SOME(500.0)), (SOME(0.2), SOME(250.0))));
        }
        run.assert_ticks_on_time();
        assert_eq!(run.notes().iter().filter(|note| note.starts_with("GPU")).count(), 0);
    }
}

#[test]
fn mig_device_has_memory_by_instance_and_no_utilisation() {
    let host = Host { stub: &[("STUB_GPUS", "1"), ("STUB_MIG", "1")], ..Host::default() };
    let run = host.run("0.25", "{ echo 0 $$ 300 0; echo 0 $$ 40 0; echo 0 1 77 0; } > $PROCESSES; sleep 2");
    assert_eq!(run.middle("system"), [None, SOME(1000.0), None]);
    assert_eq!(run.middle("process"), [None, SOME(340.0), None]);
    run.assert_noted("it is divided into MIG instances");
    let idle = host.run("0.25", "echo 0 1 77 0 > $PROCESSES; sleep 2");
    // The usage is unknown from the start: zeros before the job uses the GPU would mean that the GPU was idle.
    assert_eq!(idle.middle("process"), [None, SOME(0.0), None], "the job does not use it");
}

#[test]
fn driver_that_samples_once_a_second_fills_every_row() {
    let stub = [("STUB_GPUS", "1"), ("STUB_PERIOD_MS", "1000")];
    let host = Host { stub: &stub, ..Host::default() };
    let run = host.run("0.1", "echo 0 $$ 300 40 > $PROCESSES; sleep 5");
    let usage = run.column("process", "gpu_usage");
    // A driver sample from before the start of the process does not belong to it.
    let known: Vec<_> = usage.iter().skip_while(|cell| **cell != SOME(0.4)).collect();
    assert!(known.len() >= 14, "{usage:?}");
    // A delay of the machine may leave a cell empty.
    let others: Vec<_> = known.into_iter().filter(|cell| **cell != SOME(0.4)).collect();
    assert!(others.iter().all(|cell| cell.is_none()) && others.len() <= run.forgiven_ticks(), "{usage:?}");
}

#[test]
fn failing_call_leaves_only_its_own_cells_empty() {
    let run = |fail: &str| {
        let stub = [("STUB_GPUS", "2"), ("LAST", "1"), ("STUB_FAIL", fail)];
        Host { stub: &stub, ..Host::default() }.run("0.25", BUSY)
    };
    let failed = run("utilization");
    assert_eq!(failed.middle("system"), [None, SOME(3000.0), None]);
    assert_eq!(failed.middle("process"), [SOME(0.5), SOME(750.0), SOME(2.0)]);
    failed.assert_noted("reports no utilisation of `Stub T4`");
    let failed = run("memory");
    assert_eq!(failed.middle("system"), [SOME(0.3), None, SOME(2.0)]);
    assert_eq!(failed.middle("process"), [SOME(0.5), SOME(750.0), SOME(2.0)]);
    let failed = run("processes");
    assert_eq!(failed.middle("system"), [SOME(0.3), SOME(3000.0), SOME(2.0)]);
    assert_eq!(failed.middle("process"), [None, None, None]);
    failed.assert_noted("does not list the processes");
    let failed = run("usages");
    assert_eq!(failed.middle("process"), [None, SOME(750.0), None]);
    let failed = run("handle");
    assert_eq!(failed.middle("system"), [SOME(0.1), SOME(1000.0), SOME(1.0)]);
    failed.assert_noted("1 of 2 GPUs cannot be read");
    assert_eq!(failed.recording.head.run.as_ref().unwrap().gpus.len(), 1);
    let failed = run("init");
    assert_eq!((failed.middle("system"), failed.middle("process")), ([None; 3], [None; 3]));
    failed.assert_noted("NVML does not start: NVIDIA driver is not loaded");
}

#[test]
fn driver_that_hangs_for_five_seconds_delays_no_tick_and_is_noted() {
    let stub = [("STUB_GPUS", "1"), ("STUB_HANG", "utilization:12:5000")];
    let host = Host { stub: &stub, ..Host::default() };
    let run = host.run("0.25", "echo 0 $$ 500 30 > $PROCESSES; sleep 10");
    let usage = run.column("system", "gpu_usage");
    let forgiven = run.forgiven_ticks();
    run.assert_ticks_on_time();
    let rows = 39_usize.saturating_sub(forgiven)..=42 + forgiven;
    assert!(rows.contains(&usage.len()), "{} rows", usage.len());
    let elapsed = run.column("extra", "elapsed");
    let longest = elapsed[1..elapsed.len() - 1].iter().flatten().copied().fold(0.0, f64::max);
    assert!(longest < 0.4 + run.machine_late.as_secs_f64(), "a row of {longest} s");
    // Empty cells count from the first answer on. A delay of the machine may leave a few more cells empty.
    let answered = usage.iter().position(Option::is_some).unwrap();
    let empty = usage[answered..].iter().filter(|cell| cell.is_none()).count();
    assert!((17_usize.saturating_sub(forgiven)..=22 + forgiven).contains(&empty), "{usage:?}");
    let hangs = answered + usage[answered..].windows(8).position(|rows| *rows == [None; 8]).unwrap();
    let (before, after) = (&usage[..hangs], &usage[usage.len() - 6..]);
    assert!(
        before.contains(&SOME(0.1)) && after.contains(&SOME(0.1)),
        "values before and after the hang: {usage:?}"
    );
    assert_eq!(run.column("process", "gpu_vram")[hangs + 1], None);
    assert_eq!(run.column("extra", "gpu0_usage"), usage, "with one GPU both columns are equal");
    assert!(run.column("process", "memory").iter().all(Option::is_some), "other cells are not affected");
    run.assert_noted("the driver did not answer in time");
}

#[test]
fn driver_that_hangs_at_start_delays_neither_start_nor_end_of_the_job() {
    let stub = [("STUB_GPUS", "1"), ("STUB_HANG", "init:1:5000")];
    let run = Host { stub: &stub, ..Host::default() }.run("0.25", "sleep 0.6");
    assert!(run.column("system", "gpu_usage").iter().all(Option::is_none));
    assert_eq!(run.server("gpu_count"), Value::Null, "unknown, not 0");
    assert!(run.took < Duration::from_millis(1500) + run.machine_late, "{:?}", run.took);
    assert!(text(&run.output).starts_with("exit status: 0"));
}

#[test]
fn share_of_the_job_in_a_container_is_estimated_from_its_open_device_files() {
    let host = Host { stub: &[("STUB_GPUS", "2")], is_container: true, ..Host::default() };
    // The driver lists process ids of the host, which are unknown in the container.
    let line = "{ echo 0 400001 600 40; echo 1 400002 900 50; } > $PROCESSES; \
                exec 8</dev/nvidia0 9</dev/nvidia-uvm; sleep 2";
    let run = host.run("0.25", line);
    assert_eq!(run.middle("system"), [SOME(0.3), SOME(3000.0), SOME(2.0)]);
    // The shell and its `sleep` have GPU 0 open, and the driver lists one process there: it belongs to the job.
    assert_eq!(run.middle("process"), [SOME(0.4), SOME(600.0), SOME(1.0)], "{:?}", run.notes());
    run.assert_noted("the job's share is an estimate");
    let figures = &run.recording.head.run.as_ref().unwrap().gpus;
    assert_eq!(figures.iter().map(|gpu| gpu.estimated).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn gpus_hidden_from_the_job_are_only_in_the_machine_columns() {
    let visible = [("STUB_GPUS", "4"), ("CUDA_VISIBLE_DEVICES", "1,2")];
    let ordered = [&visible[..], &[("CUDA_DEVICE_ORDER", "PCI_BUS_ID")]].concat();
    let run = Host { stub: &ordered, ..Host::default() }.run("0.25", "sleep 2");
    assert_eq!(run.middle("system")[2], SOME(4.0));
    let allowed = |run: &Run| {
        let figures = &run.recording.head.run.as_ref().unwrap().gpus;
        figures.iter().map(|gpu| gpu.allowed).collect::<Vec<_>>()
    };
    assert_eq!(allowed(&run), [false, true, true, false]);
    // The default order is fastest first. The models differ, and their speed is unknown.
    let run = Host { stub: &visible, ..Host::default() }.run("0.25", "sleep 1");
    assert_eq!(allowed(&run), [true; 4]);
    run.assert_noted("CUDA_DEVICE_ORDER");
}

#[test]
fn rows_shorter_than_an_answer_of_the_driver_are_filled() {
    let stub = [("STUB_GPUS", "1"), ("STUB_HANG", "usages:1:60")];
    let run = Host { stub: &stub, ..Host::default() }.run("0.02", "echo 0 $$ 10 30 > $PROCESSES; sleep 3");
    let usage = run.column("process", "gpu_usage");
    let filled = usage.iter().flatten().count();
    assert!(usage.len() > 40 && filled * 10 > usage.len() * 8, "{usage:?}");
}

#[test]
fn report_has_gpu_parts_only_if_the_machine_has_a_gpu() {
    let page = |host: &Host<'_>| {
        let home = open_folder();
        let file = home.path().join("report.html");
        let mut command = host.command(home.path());
        command
            .args(["run", "-i", "0.25", "-q", "--no-save", "--report"])
            .arg(&file)
            .args(["--", "sleep", "2"]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        fs::read_to_string(file).unwrap()
    };
    let parts = ["id=\"chart-gpu\"", "id=\"chart-vram\"", "Usage per GPU", "The job used none of its 2 GPUs"];
    let with = page(&Host { stub: &[("STUB_GPUS", "2")], ..Host::default() });
    let without = page(&Host { devices: "", ..Host::default() });
    for part in parts {
        assert!(with.contains(part) && !without.contains(part), "{part}");
    }
    let forbidden =
        page(&Host { stub: &[("STUB_GPUS", "2"), ("CUDA_VISIBLE_DEVICES", "")], ..Host::default() });
    assert!(forbidden.contains("Usage per GPU") && !forbidden.contains("used none"));
}

#[test]
fn info_shows_whether_gpus_can_be_read_and_why_not() {
    let shown = |host: &Host<'_>| {
        let home = open_folder();
        let output = host.command(home.path()).args(["info", "--json", "--offline"]).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        let info: Value = serde_json::from_slice(&output.stdout).unwrap();
        let sources = info["sources"].as_array().unwrap();
        let gpus = sources.iter().find(|source| source["name"] == "GPUs").cloned();
        (
            info["server_info"]["gpu_count"].clone(),
            gpus.map(|gpus| (gpus["works"].clone(), gpus["why_not"].clone())),
        )
    };
    let stub = [("STUB_GPUS", "2")];
    let works = shown(&Host { stub: &stub, ..Host::default() });
    assert_eq!(works, (2.into(), Some((true.into(), Value::Null))));
    let (count, source) = shown(&Host { library: None, ..Host::default() });
    let (works, why) = source.unwrap();
    assert_eq!((count, works), (Value::Null, false.into()));
    assert!(why.as_str().unwrap().contains("`libnvidia-ml.so.1` cannot be loaded"), "{why}");
    assert_eq!(shown(&Host { devices: "", ..Host::default() }), (0.into(), None));
}

#[test]
fn machine_without_gpu_device_file_has_zeros_and_loads_no_library() {
    let folder = open_folder();
    let host = Host {
        devices: "",
        stub: &[("STUB_GPUS", "1"), ("OUT", folder.path().to_str().unwrap())],
        ..Host::default()
    };
    // The tracker is the shell's parent.
    let line = "sleep 0.5; ls /proc/$PPID/task | wc -l > $OUT/threads; cat /proc/$PPID/maps > $OUT/maps; \
                cat /proc/$PPID/task/*/comm > $OUT/names";
    let run = host.run("0.25", line);
    for table in ["process", "system"] {
        for name in ["gpu_usage", "gpu_vram", "gpu_utilized"] {
            assert!(run.column(table, name).iter().all(|cell| *cell == SOME(0.0)), "{table} {name}");
        }
    }
    assert_eq!((run.server("gpu_count"), run.server("gpu_memory_mb")), (0.into(), (0.0).into()));
    let names = fs::read_to_string(folder.path().join("names")).unwrap();
    assert!(names.contains("resource-track") && !names.contains("-gpu"), "{names}");
    assert!(!fs::read_to_string(folder.path().join("maps")).unwrap().contains("nvidia"));
    assert!(run.recording.head.run.as_ref().unwrap().gpus.is_empty());
    assert!(run.recording.extra.as_ref().unwrap().names().all(|name| !name.starts_with("gpu")));
}
