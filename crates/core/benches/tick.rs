//! Cost of one tick for job trees of 1, 10, 100 and 1,000 processes.
//!
//! Budgets: CPU time per tick, as a multiple of one open, read and close of `/proc/self/stat`; CPU time per tick of a
//! job of one process, in µs; no file may be read twice in a tick. Ticks and readings of `/proc/self/stat` are measured
//! in turns, so that a busy machine slows both.
//!
//! `cargo bench -p resource-tracker --bench tick` prints one line per tree size and fails over budget.
//! `… --bench tick -- --cost` prints the lines and checks no budget, to compare two builds. With `--in-process` no
//! descriptors stay open between ticks.
//! The bench runs itself under strace as `tick --trace PROCESSES` to list the files that one tick reads.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench prints its results and panics on a failed precondition"
)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use resource_tracker::config::Config;
use resource_tracker::metric::Metric;
use resource_tracker::os::root::Root;
use resource_tracker::os::{self, Moment};
use resource_tracker::sampler::{Engine, Target};
use rustix::fs::{Mode, OFlags};

/// Number of processes, number of measured ticks, and the budget as a multiple of one reading of `/proc/self/stat`.
const SIZES: [(usize, usize, f64); 4] =
    [(1, 2_000, 15.0), (10, 1_000, 130.0), (100, 300, 1_300.0), (1_000, 60, 6_000.0)];
const MAX_US_OF_ONE_PROCESS: f64 = 150.0;
const SECOND_NS: u64 = 1_000_000_000;
/// A path that does not exist. Failed calls to open it mark the start and the end of the traced tick for strace.
const MARKER: &str = "/traced-tick";

/// A parent with `processes - 1` children that sleep until the parent is killed.
struct Tree {
    parent: Child,
    processes: usize,
}

impl Tree {
    fn start(processes: usize) -> Self {
        let script = "i=1; while [ $i -lt $1 ]; do sleep 600 & i=$((i+1)); done; echo ready; exec sleep 600";
        let mut parent = Command::new("setsid")
            .args(["sh", "-c", script, "sh", &processes.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 6];
        std::io::Read::read_exact(parent.stdout.as_mut().unwrap(), &mut ready).unwrap();
        Self { parent, processes }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // `setsid` made the parent the leader of its own process group.
        let group = rustix::process::Pid::from_child(&self.parent);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.parent.wait();
    }
}

/// Returns a function that runs one tick of a warm engine over the tree. The clock of the engine advances by one second
/// per tick.
fn warm_ticks(tree: &Tree) -> impl FnMut() {
    let root = if has_argument("--in-process") { Root::host_in_process() } else { Root::host() };
    let root = Arc::new(root.unwrap());
    let mut engine = Engine::start(root, Config::default(), Target::Running(tree.parent.id())).unwrap();
    let mut at = Moment::now();
    let mut tick = move || {
        at.wall_ns += SECOND_NS;
        at.monotonic_ns += SECOND_NS;
        engine.tick(at, 0, false)
    };
    // The first ticks of a job read smaps_rollup more often. After 30 ticks these extra reads are over.
    for _ in 0..30 {
        let row = tick();
        #[expect(clippy::cast_precision_loss, reason = "at most a thousand")]
        let children = (tree.processes - 1) as f64;
        assert_eq!(row.get(Metric::Children), Some(children));
        assert!(row.get(Metric::ProcessMemory).is_some() && row.get(Metric::MemoryFree).is_some());
    }
    move || {
        black_box(tick());
    }
}

fn has_argument(name: &str) -> bool {
    std::env::args().any(|argument| argument == name)
}

fn read_own_stat() {
    let fd = rustix::fs::open("/proc/self/stat", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    black_box(rustix::io::read(fd, &mut [0; 4096]).unwrap());
}

fn cpu_ns(work: impl FnOnce()) -> u64 {
    let before = os::thread_cpu_ns().unwrap();
    work();
    os::thread_cpu_ns().unwrap() - before
}

#[expect(clippy::cast_precision_loss, reason = "nanoseconds of a tick")]
fn median_us(mut times_ns: Vec<u64>) -> f64 {
    times_ns.sort_unstable();
    times_ns[times_ns.len() / 2] as f64 / 1e3
}

/// CPU time of a tick in µs, and as a multiple of one reading of `/proc/self/stat`.
fn measure(processes: usize, rounds: usize) -> (f64, f64) {
    let tree = Tree::start(processes);
    let mut tick = warm_ticks(&tree);
    let (mut ticks, mut readings) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        readings.push(cpu_ns(|| (0..10).for_each(|_| read_own_stat())));
        ticks.push(cpu_ns(&mut tick));
    }
    let tick_us = median_us(ticks);
    let multiple = 10.0 * tick_us / median_us(readings);
    println!(
        "{processes:>4} processes: {tick_us:8.1} µs per tick, {multiple:6.1} × one reading of /proc/self/stat"
    );
    (tick_us, multiple)
}

/// Runs one tick between two markers, for strace.
fn tick_between_markers(processes: usize) {
    let tree = Tree::start(processes);
    let mut tick = warm_ticks(&tree);
    assert!(std::fs::File::open(MARKER).is_err());
    tick();
    assert!(std::fs::File::open(MARKER).is_err());
}

/// Number of times that one tick reads each file, counted with strace.
fn files_read(processes: usize) -> BTreeMap<String, usize> {
    let trace = tempfile::NamedTempFile::new().unwrap();
    let done = Command::new("strace")
        .args(["-y", "-e", "trace=openat,pread64", "-o"])
        .arg(trace.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--trace", &processes.to_string()])
        .status();
    assert!(done.expect("strace is installed").success());
    let text = std::fs::read_to_string(trace.path()).unwrap();
    let [_, tick, _] = text.split(MARKER).collect::<Vec<_>>()[..] else { panic!("no traced tick: {text}") };
    let mut files = BTreeMap::new();
    for call in tick.lines() {
        // openat(3</proc>, "7/stat", …) = 5</proc/7/stat> and pread64(4</proc/stat>, "…", 4096, 0) = 812
        let is_first_read = call.starts_with("pread64") && call.contains(", 0) = ");
        let fd = if is_first_read { call } else { call.split_once(") = ").map_or("", |(_, result)| result) };
        if let Some((path, _)) = fd.split_once('<').and_then(|(_, path)| path.split_once('>')) {
            *files.entry(path.to_owned()).or_default() += 1;
        }
    }
    files
}

fn main() {
    let limit = rustix::process::Rlimit { current: Some(1024), maximum: Some(1024) };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    if has_argument("--trace") {
        return tick_between_markers(std::env::args().next_back().unwrap().parse().unwrap());
    }
    let mut is_over = false;
    for (processes, rounds, budget) in SIZES {
        let (tick_us, multiple) = measure(processes, rounds);
        if has_argument("--cost") {
            continue;
        }
        if multiple > budget || processes == 1 && tick_us > MAX_US_OF_ONE_PROCESS {
            println!("over budget: at most {budget} ×, and {MAX_US_OF_ONE_PROCESS} µs for one process");
            is_over = true;
        }
        // A tick of 1,000 processes is very slow under strace, and its trace shows nothing new.
        let files = if processes < 1_000 { files_read(processes) } else { continue };
        assert!(files.len() >= 5, "the trace shows too few files: {files:?}");
        for (path, times) in files.iter().filter(|(_, times)| **times > 1) {
            println!("over budget: one tick reads {path} {times} times");
            is_over = true;
        }
    }
    if is_over {
        std::process::exit(1);
    }
}
