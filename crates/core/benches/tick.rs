//! Budget: a tick costs at most 1.5 × the bare readings of its files, for trees of 1, 10, 100 and 1,000 processes,
//! and at most 0.15 ms of CPU for one process and its machine.
//!
//! The floor is this same process doing only open, read and close (or pread of a kept descriptor, or a listing, or
//! statvfs) of exactly the files that one tick reads, as the tick itself wrote them down. What the tick does beside
//! reading files (clocks, counters, a poll) is not in the floor. Both take turns in one run, so that a busy machine
//! slows both. `cargo bench --bench tick`; ends non-zero when a budget is exceeded.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench prints, and one that cannot go on fails"
)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use resource_tracker::config::Config;
use resource_tracker::metric::Metric;
use resource_tracker::root::{Access, Root};
use resource_tracker::sampler::{Engine, Target};
use resource_tracker::snapshot::Moment;
use resource_tracker::sys;
use rustix::fs::{Mode, OFlags, RawDir, SeekFrom};

const MOST_RATIO: f64 = 1.5;
const MOST_MS: f64 = 0.15;
const SECOND_NS: u64 = 1_000_000_000;

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
        // `setsid` made it the leader of a group of its own.
        let group = rustix::process::Pid::from_child(&self.parent);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.parent.wait();
    }
}

/// The bare readings, with descriptors kept where the tick keeps them.
struct Floor {
    proc: OwnedFd,
    base: OwnedFd,
    kept: BTreeMap<String, OwnedFd>,
    buffer: Vec<u8>,
    space: Vec<MaybeUninit<u8>>,
}

impl Floor {
    fn new() -> Self {
        let open =
            |path: &str, flags| rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).unwrap();
        Self {
            kept: BTreeMap::new(),
            proc: open("/proc", OFlags::RDONLY | OFlags::DIRECTORY),
            base: open("/", OFlags::PATH | OFlags::DIRECTORY),
            buffer: vec![0; 1 << 16],
            space: vec![MaybeUninit::uninit(); 1 << 15],
        }
    }

    fn run(&mut self, accesses: &[Access]) {
        for access in accesses {
            match access {
                Access::Read(path) => {
                    let (folder, below) = match path.strip_prefix("/proc/") {
                        Some(below) => (&self.proc, below),
                        None => (&self.base, path.trim_start_matches('/')),
                    };
                    let fd =
                        rustix::fs::openat(folder, below, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
                    black_box(rustix::io::read(fd.unwrap(), &mut self.buffer).unwrap());
                }
                Access::Pread(path) => {
                    if !self.kept.contains_key(path) {
                        let fd =
                            rustix::fs::open(path.as_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
                        self.kept.insert(path.clone(), fd.unwrap());
                    }
                    black_box(rustix::io::pread(&self.kept[path], &mut self.buffer, 0).unwrap());
                }
                Access::List(_) => {
                    rustix::fs::seek(&self.proc, SeekFrom::Start(0)).unwrap();
                    let mut entries = RawDir::new(&self.proc, &mut self.space);
                    while let Some(entry) = entries.next() {
                        black_box(entry.unwrap().ino());
                    }
                }
                Access::Statvfs(path) => {
                    black_box(rustix::fs::statvfs(path.as_str()).unwrap());
                }
                Access::Links(_) => {
                    black_box(rustix::fs::fstat(&self.proc).unwrap());
                }
                Access::Poll(_) | Access::CpuClock(_) | Access::OwnClock | Access::Counter => {}
            }
        }
    }
}

fn cpu_ns(work: impl FnOnce()) -> u64 {
    let before = sys::thread_cpu_ns().unwrap();
    work();
    sys::thread_cpu_ns().unwrap() - before
}

fn median(mut times: Vec<u64>) -> f64 {
    times.sort_unstable();
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a tick")]
    let middle = times[times.len() / 2] as f64;
    middle / 1e6
}

/// What one tick read, by kind, with the files that are read of each process folded into one line.
fn list(accesses: &[Access]) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for access in accesses {
        let line = match access {
            Access::Read(path) => {
                let file = path.rsplit('/').next().unwrap();
                format!("open+read+close  /proc/PID/{file}")
            }
            Access::Pread(path) => format!("pread            {path}"),
            Access::List(path) => format!("lseek+getdents64 {path}"),
            Access::Links(path) => format!("fstat            {path}"),
            Access::Statvfs(path) => format!("statfs           {path}"),
            Access::Poll(path) => format!("poll             {path} (not in the floor)"),
            Access::CpuClock(_) => "clock_gettime    CPU clock of PID (not in the floor)".to_owned(),
            Access::OwnClock => "clock_gettime    own CPU clock (not in the floor)".to_owned(),
            Access::Counter => "read             inherited counter (not in the floor)".to_owned(),
        };
        *counts.entry(line).or_default() += 1;
    }
    counts.iter().map(|(line, count)| format!("  {count:>6} × {line}")).collect::<Vec<_>>().join("\n")
}

fn measure(processes: usize, rounds: usize) -> (f64, f64) {
    let tree = Tree::start(processes);
    let root = Arc::new(Root::host().unwrap());
    let mut engine =
        Engine::start(Arc::clone(&root), Config::default(), Target::Running(tree.parent.id())).unwrap();
    let mut at = Moment::now();
    let mut tick = |engine: &mut Engine| {
        at.wall_ns += SECOND_NS;
        at.monotonic_ns += SECOND_NS;
        engine.tick(at, 0, false)
    };
    // Until the reserve for first walks is spent.
    for _ in 0..30 {
        let row = tick(&mut engine);
        // Measures work, not an early exit.
        #[expect(clippy::cast_precision_loss, reason = "at most a thousand")]
        let children = (tree.processes - 1) as f64;
        assert_eq!(row.get(Metric::Children), Some(children));
        assert!(row.get(Metric::ProcessMemory).is_some() && row.get(Metric::MemoryFree).is_some());
    }
    let (mut ticks, mut floors, mut accesses) = (Vec::new(), Vec::new(), Vec::new());
    let mut floor = Floor::new();
    for round in 0..rounds {
        // Walks of pages take turns: what the floor reads is what a tick of this moment reads.
        if round % 10 == 0 {
            root.log_accesses(true);
            tick(&mut engine);
            accesses = root.log_accesses(false);
        }
        floors.push(cpu_ns(|| floor.run(&accesses)));
        ticks.push(cpu_ns(|| {
            black_box(tick(&mut engine));
        }));
    }
    let (tick_ms, floor_ms) = (median(ticks), median(floors));
    println!(
        "{processes} processes: tick {tick_ms:.3} ms, floor {floor_ms:.3} ms, ratio {:.2}",
        tick_ms / floor_ms
    );
    println!("{}", list(&accesses));
    (tick_ms, floor_ms)
}

fn main() {
    let limit = rustix::process::Rlimit { current: Some(1024), maximum: Some(1024) };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    let mut kept = true;
    for (processes, rounds) in [(1, 2_000), (10, 500), (100, 100), (1_000, 20)] {
        let (tick_ms, floor_ms) = measure(processes, rounds);
        kept &= tick_ms / floor_ms <= MOST_RATIO && (processes > 1 || tick_ms <= MOST_MS);
    }
    println!(
        "budgets: ratio at most {MOST_RATIO}, one process at most {MOST_MS} ms: {}",
        if kept { "kept" } else { "exceeded" }
    );
    assert!(kept, "a budget was exceeded");
}
