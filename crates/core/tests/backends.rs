//! Runs the two Linux backends on the same job and machine. Their figures must agree.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "tests fail by panic")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};

use resource_tracker::config::{Backend, Config};
use resource_tracker::metric::{Metric, Row, Table};
use resource_tracker::os::root::Root;
use resource_tracker::run::meter::Meter;
use resource_tracker::sampler::reading;
use resource_tracker::sampler::reading::portable;

/// A job with three children: the first uses CPU, the second memory, the third writes to disk. Each child reports when
/// it is done, and stays alive until the job's standard input is closed.
const JOB: &str = r#"
import os, sys, time
folder = sys.argv[1]
sys.stdout.write("ready\n"); sys.stdout.flush()
sys.stdin.readline()
ended, done = os.pipe(), os.pipe()
def work(number):
    if number == 0:
        while time.process_time() < 1.0: pass
    elif number == 1:
        held = bytearray(os.urandom(1 << 20) * 120)
    else:
        with open(os.path.join(folder, "written"), "wb") as file:
            for _ in range(48): file.write(os.urandom(1 << 20))
            file.flush(); os.fsync(file.fileno())
    os.write(done[1], b".")
    os.close(ended[1])
    os.read(ended[0], 1)
    os._exit(0)
for number in range(3):
    if os.fork() == 0: work(number)
for _ in range(3): os.read(done[0], 1)
sys.stdout.write("done\n"); sys.stdout.flush()
sys.stdin.readline()
os.close(ended[1])
for _ in range(3): os.wait()
"#;

struct Job {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<std::process::ChildStdout>,
}

impl Job {
    fn start(folder: &std::path::Path) -> Self {
        let mut child = Command::new("python3")
            .args(["-c", JOB])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut job = Self { child, stdin, stdout };
        job.expect("ready");
        job
    }

    fn expect(&mut self, word: &str) {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), word);
    }

    fn go_on(&mut self) {
        self.stdin.write_all(b"\n").unwrap();
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.stdin.write_all(b"\n");
        let _ = self.child.wait();
    }
}

fn cell(row: &Row, metric: Metric) -> f64 {
    row.get(metric).unwrap_or_else(|| panic!("{metric:?} is empty"))
}

/// Three rows: a procfs row that began before and ended after the sysinfo row, the sysinfo row, and a procfs row within
/// the sysinfo row. An amount in the sysinfo row is therefore between the amounts in the two procfs rows.
struct Nested([Row; 3]);

impl Nested {
    fn cells(&self, metric: Metric) -> [f64; 3] {
        self.0.each_ref().map(|row| cell(row, metric))
    }

    #[track_caller]
    fn assert_near(&self, metric: Metric, amount: f64, share: f64) {
        assert_near(metric, self.cells(metric), amount, share);
    }
}

/// Asserts that `other` is between `outer` and `inner`, with a tolerance of `amount` or of the share `share`.
#[track_caller]
fn assert_near(what: Metric, [outer, other, inner]: [f64; 3], amount: f64, share: f64) {
    let tolerance = amount.max(share * outer.max(inner));
    let allowed = inner.min(outer) - tolerance..=inner.max(outer) + tolerance;
    assert!(allowed.contains(&other), "{what:?}: {outer} and {inner} by procfs, {other} by sysinfo");
}

#[test]
fn both_backends_agree_on_one_job_and_one_machine() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut job = Job::start(folder.path());
    let config = |backend| Config { backend, ..Config::default() };
    let pid = Some(job.child.id());
    let [mut outer, mut other, mut inner] = [Backend::Procfs, Backend::Sysinfo, Backend::Procfs]
        .map(|backend| Meter::start(config(backend), pid).unwrap());
    job.go_on();
    job.expect("done");
    let innermost = inner.row();
    let other = other.row();
    let rows = Nested([outer.row(), other, innermost]);

    assert_eq!(rows.cells(Metric::Children), [3.0; 3]);
    assert_eq!(rows.cells(Metric::Pid), [f64::from(job.child.id()); 3]);
    let kib_50_mb = 50_000_000.0 / 1024.0;
    assert!(rows.cells(Metric::ProcessMemory)[0] > 120.0 * 1024.0, "the job has allocated its memory");
    rows.assert_near(Metric::ProcessMemory, kib_50_mb, 0.1);
    let cpu_s =
        rows.0.each_ref().map(|row| cell(row, Metric::ProcessUtime) + cell(row, Metric::ProcessStime));
    assert!(cpu_s[0] > 1.0, "the job has used CPU");
    assert_near(Metric::ProcessUtime, cpu_s, 0.25, 0.0);
    assert!(rows.cells(Metric::ProcessWrite)[0] >= 48.0 * 1_048_576.0, "the job has written");
    rows.assert_near(Metric::ProcessWrite, 0.0, 0.0);
    rows.assert_near(Metric::ProcessRead, 0.0, 0.0);

    for level in [Metric::MemoryFree, Metric::MemoryUsed, Metric::MemoryCached] {
        rows.assert_near(level, kib_50_mb, 0.0);
    }
    assert!(rows.cells(Metric::DiskWrite)[0] >= 48.0 * 1_048_576.0, "the machine has written");
    for amount in [Metric::DiskWrite, Metric::DiskRead, Metric::NetRecv, Metric::NetSent] {
        rows.assert_near(amount, 0.0, 0.0);
    }
    // Both backends round times to 10 ms.
    for time in [Metric::SystemUtime, Metric::SystemStime] {
        rows.assert_near(time, 0.011, 0.0);
    }
    rows.assert_near(Metric::Processes, 5.0, 0.1);
    for space in [Metric::DiskTotal, Metric::DiskUsed, Metric::DiskFree] {
        rows.assert_near(space, 0.1, 0.01);
    }
}

#[test]
fn both_backends_agree_on_totals_of_the_machine() {
    let root = Root::host_in_process().unwrap();
    let (one, other) = (reading::procfs::system(&root), portable::system(&root));
    let near = |what: &str, one: u64, other: u64| {
        #[expect(clippy::cast_precision_loss, reason = "compared with a tolerance of 10 %")]
        let [one, other] = [one, other].map(|bytes| bytes as f64);
        assert!((one - other).abs() <= 0.1 * one.max(other), "{what}: {one} by procfs, {other} by sysinfo");
    };
    near("received", one.net_recv_bytes.unwrap(), other.net_recv_bytes.unwrap());
    near("sent", one.net_sent_bytes.unwrap(), other.net_sent_bytes.unwrap());
    assert!(!one.disks.is_empty() && !other.disks.is_empty() && !other.spaces.is_empty());
    // sysinfo reports mounted partitions, procfs reports whole disks.
    for (name, read_bytes, written_bytes) in &other.disks {
        let whole = one.disks.iter().find(|(whole, ..)| name.starts_with(whole.as_str()));
        let (_, whole_read_bytes, whole_written_bytes) = whole.unwrap();
        if let Some((_, read_bytes_too, written_bytes_too)) = one.disks.iter().find(|(disk, ..)| disk == name)
        {
            near(name, *read_bytes_too, *read_bytes);
            near(name, *written_bytes_too, *written_bytes);
        } else {
            // The partition was read later, so its counter may be slightly larger than that of the disk.
            assert!(
                read_bytes / 2 <= *whole_read_bytes && written_bytes / 2 <= *whole_written_bytes,
                "{name}"
            );
        }
    }
    assert_eq!(one.spaces.len(), other.spaces.len(), "{:?} {:?}", one.spaces, other.spaces);
}

#[test]
fn portable_backend_has_all_figures_on_linux() {
    let root = Root::host_in_process().unwrap();
    let machine = portable::system(&root);
    let growth = [
        Metric::SystemUtime,
        Metric::SystemStime,
        Metric::SystemCpu,
        Metric::DiskRead,
        Metric::DiskWrite,
        Metric::NetRecv,
        Metric::NetSent,
    ];
    let levels = Table::System.metrics().filter(|metric| !growth.contains(metric));
    let empty: Vec<_> = levels.filter(|metric| machine.levels.get(*metric).is_none()).collect();
    assert_eq!(empty, []);
    assert!(machine.user_s.unwrap() > 0.0 && machine.system_s.unwrap() > 0.0);
    let own = portable::process(&root, std::process::id(), true).unwrap();
    assert!(own.memory_kib > Some(500) && own.children.is_some() && own.read_bytes.is_some(), "{own:?}");
    assert_eq!(portable::process(&root, std::process::id(), false).unwrap().children, None);
}

#[test]
fn threads_are_not_counted_as_processes() {
    let (ready, wait) = (std::sync::Barrier::new(9), std::sync::Barrier::new(9));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (ready.wait(), wait.wait()));
        }
        ready.wait();
        let pids = std::fs::read_dir("/proc").unwrap().flatten();
        let listed = pids.filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok()).count();
        let counted = cell(&portable::system(&Root::host_in_process().unwrap()).levels, Metric::Processes);
        wait.wait();
        #[expect(clippy::cast_precision_loss, reason = "a number of processes")]
        let listed = listed as f64;
        assert!((counted - listed).abs() < 6.0, "{counted} counted, {listed} listed");
    });
}
