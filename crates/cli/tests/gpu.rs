//! GPUs through the real loading code, on a machine that has none: a library and a command that the tests make.
//!
//! The stub library is built from `nvml_stub/nvml.c` with the machine's `cc`; the loader finds it by
//! `LD_LIBRARY_PATH`. The driver's device files lie in a `/dev` of the test's own (a mount namespace), so nothing of
//! this machine changes; that takes root, as other tests of the command do.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use resource_tracker::recording::Recording;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::Value;
use support::{BIN, open_folder, text, write_program};

/// The library, new and old, each in a folder of its own.
fn library(is_old: bool) -> &'static Path {
    static BUILT: OnceLock<(tempfile::TempDir, PathBuf, PathBuf)> = OnceLock::new();
    let (_, new, old) = BUILT.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvml_stub/nvml.c");
        let build = |name: &str, options: &[&str]| {
            let place = folder.path().join(name);
            fs::create_dir(&place).unwrap();
            let output = Command::new("cc")
                .args(["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o"])
                .arg(place.join("libnvidia-ml.so.1"))
                .args(options)
                .arg(&source)
                .output()
                .unwrap();
            assert!(output.status.success(), "{}", text(&output));
            place
        };
        let (new, old) = (build("new", &[]), build("old", &["-DOLD"]));
        (folder, new, old)
    });
    if is_old { old } else { new }
}

/// A `/dev` with what programs need, and the files that `$1` names.
const WITH_DEVICES: &str = "
mount -t tmpfs none /dev && mkdir /dev/shm
mknod -m 666 /dev/null c 1 3; mknod -m 666 /dev/zero c 1 5; mknod -m 666 /dev/urandom c 1 9
ln -s /proc/self/fd /dev/fd
for file in $1; do mkdir -p $(dirname $file); : > $file; done
shift
exec \"$@\"";

const NVIDIA: &str = "/dev/nvidiactl /dev/nvidia-uvm /dev/nvidia0 /dev/nvidia1";

/// What a job is run with.
struct Host<'a> {
    devices: &'a str,
    library: Option<&'a Path>,
    /// The library's behaviour.
    stub: &'a [(&'a str, &'a str)],
    /// Process numbers of its own.
    is_container: bool,
    path: Option<&'a Path>,
}

impl Default for Host<'_> {
    fn default() -> Self {
        let library = Some(library(false));
        Self { devices: NVIDIA, library, stub: &[], is_container: false, path: None }
    }
}

/// A finished run.
struct Run {
    output: Output,
    recording: Recording,
    took: Duration,
    /// How long the machine itself held somebody up who wanted nothing but to wake up and write in time.
    machine_late: Duration,
}

/// Wakes up on each CPU and writes to the disk as a tracker does, and adds up by how much that was too late.
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
                // On a machine whose CPUs are numbered otherwise it watches wherever it is.
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
        if let Some(path) = self.path {
            let rest = std::env::var("PATH").unwrap();
            command.env("PATH", format!("{}:{rest}", path.display()));
        }
        command
    }

    /// Runs a shell line at this interval; `$PROCESSES` is the file that tells the library of processes.
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

    /// The row in the middle of those for which the driver answered, or of all where it never did.
    fn middle_row(&self) -> usize {
        let extra = self.recording.extra.as_ref().unwrap();
        let clock = extra.column("gpu0_clock").ok();
        let answered = |row: &usize| clock.is_none_or(|clock| clock.get(*row).is_some());
        let rows: Vec<usize> = (0..extra.len()).filter(answered).collect();
        rows[rows.len() / 2]
    }

    /// The three GPU cells of that row.
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

    /// Ticks of 0.25 s that the machine itself may have cost; none where it was on time.
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

/// Puts the shell on GPU 0 with 500 MiB and 30 %, its child on the last GPU, and a stranger on both.
const BUSY: &str = "sleep 2 & { echo 0 $$ 500 30; echo 0 1 200 5; echo $LAST $! 250 20; echo $LAST 1 99 1; } \
                    > $PROCESSES; wait";

#[test]
fn one_four_and_eight_gpus_give_the_machines_columns_and_the_jobs() {
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
fn an_old_driver_without_the_newer_calls_gives_what_it_can() {
    let stub = [("STUB_GPUS", "2"), ("LAST", "1")];
    let host = Host { library: Some(library(true)), stub: &stub, ..Host::default() };
    let run = host.run("0.25", BUSY);
    assert_eq!(run.middle("system"), [SOME(0.3), SOME(3000.0), SOME(2.0)]);
    // It does not measure usage by process, and strangers are there too.
    assert_eq!(run.middle("process"), [None, SOME(750.0), None]);
    let alone = host.run("0.25", "echo 1 $$ 70 0 > $PROCESSES; sleep 2");
    assert_eq!(alone.middle("process"), [SOME(0.2), SOME(70.0), SOME(1.0)]);
}

#[test]
fn a_divided_gpu_has_memory_by_instance_and_no_utilisation() {
    let host = Host { stub: &[("STUB_GPUS", "1"), ("STUB_MIG", "1")], ..Host::default() };
    let run = host.run("0.25", "{ echo 0 $$ 300 0; echo 0 $$ 40 0; echo 0 1 77 0; } > $PROCESSES; sleep 2");
    assert_eq!(run.middle("system"), [None, SOME(1000.0), None]);
    assert_eq!(run.middle("process"), [None, SOME(340.0), None]);
    run.assert_noted("it is divided (MIG)");
    let idle = host.run("0.25", "echo 0 1 77 0 > $PROCESSES; sleep 2");
    // Unknown from the beginning: zeros before the job comes to it would make it look as if it did nothing there.
    assert_eq!(idle.middle("process"), [None, SOME(0.0), None], "the job is not on it");
}

#[test]
fn a_driver_that_samples_once_a_second_has_the_job_in_every_row() {
    let stub = [("STUB_GPUS", "1"), ("STUB_PERIOD_MS", "1000")];
    let host = Host { stub: &stub, ..Host::default() };
    let run = host.run("0.1", "echo 0 $$ 300 40 > $PROCESSES; sleep 5");
    let usage = run.column("process", "gpu_usage");
    // A sample of the time before the process was there is not its own.
    let known: Vec<_> = usage.iter().skip_while(|cell| **cell != SOME(0.4)).collect();
    assert!(known.len() >= 14, "{usage:?}");
    // A machine that stands still may empty a cell.
    let others: Vec<_> = known.into_iter().filter(|cell| **cell != SOME(0.4)).collect();
    assert!(others.iter().all(|cell| cell.is_none()) && others.len() <= run.forgiven_ticks(), "{usage:?}");
}

#[test]
fn a_call_that_fails_costs_its_own_cells() {
    let run = |fail: &str| {
        let stub = [("STUB_GPUS", "2"), ("LAST", "1"), ("STUB_FAIL", fail)];
        Host { stub: &stub, ..Host::default() }.run("0.25", BUSY)
    };
    let failed = run("utilization");
    assert_eq!(failed.middle("system"), [None, SOME(3000.0), None]);
    assert_eq!(failed.middle("process"), [SOME(0.5), SOME(750.0), SOME(2.0)]);
    failed.assert_noted("gives no utilisation of `Stub T4`");
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
fn a_driver_that_hangs_for_five_seconds_delays_no_tick_and_the_recording_says_why() {
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
    // From its first answer on, whenever that came. A machine that stands still may empty a cell too, but not so many.
    let answered = usage.iter().position(Option::is_some).unwrap();
    let empty = usage[answered..].iter().filter(|cell| cell.is_none()).count();
    assert!((17_usize.saturating_sub(forgiven)..=22 + forgiven).contains(&empty), "{usage:?}");
    let hangs = answered + usage[answered..].windows(8).position(|rows| *rows == [None; 8]).unwrap();
    let (before, after) = (&usage[..hangs], &usage[usage.len() - 6..]);
    assert!(before.contains(&SOME(0.1)) && after.contains(&SOME(0.1)), "before it and after it: {usage:?}");
    assert_eq!(run.column("process", "gpu_vram")[hangs + 1], None);
    assert_eq!(run.column("extra", "gpu0_usage"), usage, "the only GPU is all of them");
    assert!(run.column("process", "memory").iter().all(Option::is_some), "other cells are as ever");
    run.assert_noted("the driver did not answer in time");
}

#[test]
fn a_driver_that_hangs_at_its_start_holds_up_neither_the_job_nor_its_end() {
    let stub = [("STUB_GPUS", "1"), ("STUB_HANG", "init:1:5000")];
    let run = Host { stub: &stub, ..Host::default() }.run("0.25", "sleep 0.6");
    assert!(run.column("system", "gpu_usage").iter().all(Option::is_none));
    assert_eq!(run.server("gpu_count"), Value::Null, "unknown, not 0");
    assert!(run.took < Duration::from_millis(1500) + run.machine_late, "{:?}", run.took);
    assert!(text(&run.output).starts_with("exit status: 0"));
}

#[test]
fn in_a_container_the_jobs_part_is_found_by_its_open_device_files_and_called_an_estimate() {
    let host = Host { stub: &[("STUB_GPUS", "2")], is_container: true, ..Host::default() };
    // Numbers of the host, which nobody in here has.
    let line = "{ echo 0 400001 600 40; echo 1 400002 900 50; } > $PROCESSES; \
                exec 8</dev/nvidia0 9</dev/nvidia-uvm; sleep 2";
    let run = host.run("0.25", line);
    assert_eq!(run.middle("system"), [SOME(0.3), SOME(3000.0), SOME(2.0)]);
    // Two processes hold it (the shell and its `sleep`), for one that the driver lists: all of that one is the job's.
    assert_eq!(run.middle("process"), [SOME(0.4), SOME(600.0), SOME(1.0)], "{:?}", run.notes());
    run.assert_noted("the job's part is an estimate");
    let figures = &run.recording.head.run.as_ref().unwrap().gpus;
    assert_eq!(figures.iter().map(|gpu| gpu.estimated).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn gpus_that_the_job_may_not_use_are_in_the_machines_columns_only() {
    let stub = [("STUB_GPUS", "4"), ("CUDA_VISIBLE_DEVICES", "1,2")];
    let run = Host { stub: &stub, ..Host::default() }.run("0.25", "sleep 2");
    assert_eq!(run.middle("system")[2], SOME(4.0));
    let figures = &run.recording.head.run.as_ref().unwrap().gpus;
    assert_eq!(figures.iter().map(|gpu| gpu.allowed).collect::<Vec<_>>(), [false, true, true, false]);
}

/// A command `nvidia-smi` in `folder`, which writes down each start and then does what `body` says; `say` writes a
/// document in which the process that the file `pid` names is on GPU 0, and `burn` spends CPU time.
fn fake_smi(folder: &Path, body: &str) {
    let document = fs::read_to_string("../../fixtures/nvidia-smi/two-gpus.xml").unwrap();
    // The second GPU of the fixture has no utilisation.
    fs::write(folder.join("document"), document.replace("<gpu_util>N/A", "<gpu_util>5 %")).unwrap();
    let script = format!(
        "#!{python}
import os, sys, time
folder = {folder:?}
with open(folder + '/starts', 'a') as starts:
    starts.write(f'{{os.getpid()}} ' + ' '.join(sys.argv[1:]) + chr(10))
start = len(open(folder + '/starts').readlines())
def say():
    pid = open(folder + '/pid').read().strip() if os.path.exists(folder + '/pid') else '1'
    print(open(folder + '/document').read().replace('>4242<', f'>{{pid}}<'), end='', flush=True)
    time.sleep(0.2)
def burn(seconds):
    while time.process_time() < seconds:
        pass
{body}",
        python = support::python(),
        folder = folder.to_str().unwrap(),
    );
    write_program(&folder.join("nvidia-smi"), &script);
}

fn with_smi<'a>(folder: &'a Path, stub: &'a [(&'a str, &'a str)]) -> Host<'a> {
    Host { library: None, path: Some(folder), stub, ..Host::default() }
}

fn starts(folder: &Path) -> Vec<String> {
    fs::read_to_string(folder.join("starts")).unwrap_or_default().lines().map(str::to_owned).collect()
}

#[test]
fn an_nvidia_smi_that_does_not_mind_a_closed_pipe_ends_with_the_tracker() {
    let folder = open_folder();
    let mask =
        "with open(folder + '/mask', 'w') as file:\n    file.write(open('/proc/self/status').read())\n";
    let deaf = "while True:\n    try:\n        say()\n    except OSError:\n        time.sleep(0.05)";
    fake_smi(folder.path(), &format!("{mask}{deaf}"));
    let stub = [("OUT", folder.path().to_str().unwrap())];
    with_smi(folder.path(), &stub).run("0.25", "until [ -s $OUT/mask ]; do sleep 0.05; done");
    let [start] = starts(folder.path()).try_into().unwrap();
    let pid = start.split(' ').next().unwrap().to_owned();
    let is_there = || Path::new("/proc").join(&pid).join("fd").read_dir().is_ok();
    let began = Instant::now();
    while is_there() && began.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!is_there(), "{pid} is still there");
    let mask = fs::read_to_string(folder.path().join("mask")).unwrap();
    assert!(mask.contains("SigBlk:\t0000000000000000"), "{mask}");
}

#[test]
fn without_the_library_one_nvidia_smi_is_asked_which_is_no_part_of_the_job() {
    let folder = open_folder();
    fake_smi(folder.path(), "burn(0.4)\nwhile True:\n    say()");
    let stub = [("OUT", folder.path().to_str().unwrap())];
    let run = with_smi(folder.path(), &stub).run("0.25", "echo $$ > $OUT/pid; exec sleep 5");
    let (system, process) = (run.column("system", "gpu_usage"), run.column("process", "gpu_vram"));
    // Near the end, in a row that the machine has not emptied by standing still.
    let late = system[..system.len() - 1].iter().rposition(Option::is_some).unwrap();
    assert!(late + 6 > system.len(), "{system:?}");
    assert_eq!((system[late], process[late]), (SOME(0.42), SOME(1000.0)), "{system:?} {:?}", run.notes());
    assert_eq!(run.column("process", "gpu_usage")[late], SOME(0.37), "nobody else is on that GPU");
    let began = starts(folder.path());
    assert_eq!(began.len(), 1, "{began:?}");
    assert!(began[0].ends_with("-q -x -lms 1000"), "{began:?}");
    run.assert_noted("asked through `nvidia-smi`, since `libnvidia-ml.so.1` cannot be loaded");
    assert!(run.column("process", "children").iter().all(|cell| *cell == SOME(0.0)));
    let spent: f64 = ["utime", "stime"].iter().flat_map(|name| run.column("process", name)).flatten().sum();
    assert!(spent < 0.2, "{spent} s: its CPU time is not the job's");
    assert_eq!((run.server("gpu_count"), run.server("gpu_name")), (2.into(), "Tesla T4".into()));
    // It ends with us.
    let pid = began[0].split(' ').next().unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while Path::new("/proc").join(pid).exists() && Instant::now() < deadline {
        std::thread::yield_now();
    }
    assert!(!Path::new("/proc").join(pid).exists(), "nvidia-smi outlives us");
}

#[test]
fn an_nvidia_smi_that_dies_is_started_again_after_a_rest_and_never_once_a_row() {
    let folder = open_folder();
    fake_smi(folder.path(), "say()\nif start > 1:\n    while True:\n        say()");
    let run = with_smi(folder.path(), &[]).run("0.25", "sleep 10");
    let usage = run.column("system", "gpu_usage");
    let dead =
        2 + usage[2..].iter().position(Option::is_none).expect("while it was dead its cells were empty");
    assert!(usage[dead..].contains(&SOME(0.42)), "{usage:?}");
    assert_eq!(starts(folder.path()).len(), 2);
    run.assert_noted("`nvidia-smi` ended, and is started again");
    run.assert_ticks_on_time();
}

#[test]
fn garbage_of_nvidia_smi_is_not_believed_and_what_follows_it_is() {
    let folder = open_folder();
    fake_smi(
        folder.path(),
        "print('NVIDIA-SMI has failed', '<nvidia_smi_log>', '<gpu>', '</wrong>', '</nvidia_smi_log>', sep=chr(10))
sys.stdout.buffer.write(bytes(range(256)) * 600)
sys.stdout.flush()
time.sleep(2)
while True:
    say()",
    );
    let run = with_smi(folder.path(), &[]).run("0.25", "sleep 6");
    let usage = run.column("system", "gpu_usage");
    assert_eq!(usage[1], None, "{usage:?}");
    assert!(usage[usage.len() - 6..].contains(&SOME(0.42)), "{usage:?}");
    assert_eq!(starts(folder.path()).len(), 1);
}

#[test]
fn rows_that_are_shorter_than_a_drivers_answer_are_filled_too() {
    let stub = [("STUB_GPUS", "1"), ("STUB_HANG", "usages:1:60")];
    let run = Host { stub: &stub, ..Host::default() }.run("0.02", "echo 0 $$ 10 30 > $PROCESSES; sleep 3");
    let usage = run.column("process", "gpu_usage");
    let filled = usage.iter().flatten().count();
    assert!(usage.len() > 40 && filled * 10 > usage.len() * 8, "{usage:?}");
}

#[test]
fn the_report_of_a_run_has_gpu_parts_exactly_when_the_machine_has_a_gpu() {
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
    let parts = ["id=\"chart-gpu\"", "id=\"chart-vram\"", "GPU by GPU", "the job had 2 GPUs and used none"];
    let with = page(&Host { stub: &[("STUB_GPUS", "2")], ..Host::default() });
    let without = page(&Host { devices: "", ..Host::default() });
    for part in parts {
        assert!(with.contains(part) && !without.contains(part), "{part}");
    }
    let forbidden =
        page(&Host { stub: &[("STUB_GPUS", "2"), ("CUDA_VISIBLE_DEVICES", "")], ..Host::default() });
    assert!(forbidden.contains("GPU by GPU") && !forbidden.contains("used none"));
}

#[test]
fn info_says_whether_gpus_can_be_read_and_why_not() {
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
fn a_machine_without_a_device_file_has_zeros_no_thread_no_library_and_no_process() {
    let folder = open_folder();
    let marker = folder.path().join("started");
    let smi = format!("#!/bin/sh\n: > {}\n", marker.display());
    write_program(&folder.path().join("nvidia-smi"), &smi);
    let host = Host {
        devices: "",
        path: Some(folder.path()),
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
    assert!(!marker.exists(), "nvidia-smi was started");
    assert!(run.recording.head.run.as_ref().unwrap().gpus.is_empty());
    assert!(run.recording.extra.as_ref().unwrap().names().all(|name| !name.starts_with("gpu")));
}
