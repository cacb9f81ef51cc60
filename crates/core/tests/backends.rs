//! Both backends of Linux side by side, on one job and one machine: where two ways of reading agree, both are right.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};

use resource_tracker::config::{Backend, Config};
use resource_tracker::meter::Meter;
use resource_tracker::metric::{Metric, Row, Table};
use resource_tracker::reading;
use resource_tracker::root::Root;
use resource_tracker::sampler::Target;
use resource_tracker::source::sysinfo;

/// Three children: one computes, one holds memory, one writes to the disk. Each of them says when it is done, and all
/// stay until the job's standard input ends.
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
    orders: ChildStdin,
    says: BufReader<std::process::ChildStdout>,
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
        let orders = child.stdin.take().unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        let mut job = Self { child, orders, says };
        job.hear("ready");
        job
    }

    fn hear(&mut self, word: &str) {
        let mut line = String::new();
        self.says.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), word);
    }

    fn go_on(&mut self) {
        self.orders.write_all(b"\n").unwrap();
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.orders.write_all(b"\n");
        let _ = self.child.wait();
    }
}

fn cell(row: &Row, metric: Metric) -> f64 {
    row.get(metric).unwrap_or_else(|| panic!("{metric:?} is empty"))
}

/// One row of procfs that began before the other backend's and ended after it, that other, and one of procfs within it:
/// whatever else the machine does, an amount of the second is between those of the first and the third.
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

/// The second is between the others, or away from them by `amount` or `share` of them at most.
#[track_caller]
fn assert_near(what: Metric, [outer, other, inner]: [f64; 3], amount: f64, share: f64) {
    let away = amount.max(share * outer.max(inner));
    let allowed = inner.min(outer) - away..=inner.max(outer) + away;
    assert!(allowed.contains(&other), "{what:?}: {outer} and {inner} by procfs, {other} by sysinfo");
}

#[test]
fn both_backends_say_the_same_of_one_job_and_one_machine() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut job = Job::start(folder.path());
    let config = |backend| Config { backend, ..Config::default() };
    let target = Target::Running(job.child.id());
    let [mut outer, mut other, mut inner] = [Backend::Procfs, Backend::Sysinfo, Backend::Procfs]
        .map(|backend| Meter::start(config(backend), target).unwrap());
    job.go_on();
    job.hear("done");
    let innermost = inner.row();
    let other = other.row();
    let rows = Nested([outer.row(), other, innermost]);

    assert_eq!(rows.cells(Metric::Children), [3.0; 3]);
    assert_eq!(rows.cells(Metric::Pid), [f64::from(job.child.id()); 3]);
    let kib_50_mb = 50_000_000.0 / 1024.0;
    assert!(rows.cells(Metric::ProcessMemory)[0] > 120.0 * 1024.0, "the job holds its memory");
    rows.assert_near(Metric::ProcessMemory, kib_50_mb, 0.1);
    let cpu_s =
        rows.0.each_ref().map(|row| cell(row, Metric::ProcessUtime) + cell(row, Metric::ProcessStime));
    assert!(cpu_s[0] > 1.0, "the job computes");
    assert_near(Metric::ProcessUtime, cpu_s, 0.25, 0.0);
    assert!(rows.cells(Metric::ProcessWrite)[0] >= 48.0 * 1_048_576.0, "the job writes");
    rows.assert_near(Metric::ProcessWrite, 0.0, 0.0);
    rows.assert_near(Metric::ProcessRead, 0.0, 0.0);

    for level in [Metric::MemoryFree, Metric::MemoryUsed, Metric::MemoryCached] {
        rows.assert_near(level, kib_50_mb, 0.0);
    }
    assert!(rows.cells(Metric::DiskWrite)[0] >= 48.0 * 1_048_576.0, "the machine writes");
    for amount in [Metric::DiskWrite, Metric::DiskRead, Metric::NetRecv, Metric::NetSent] {
        rows.assert_near(amount, 0.0, 0.0);
    }
    // Times are rounded to what the table shows of them.
    for time in [Metric::SystemUtime, Metric::SystemStime] {
        rows.assert_near(time, 0.011, 0.0);
    }
    rows.assert_near(Metric::Processes, 5.0, 0.1);
    for space in [Metric::DiskTotal, Metric::DiskUsed, Metric::DiskFree] {
        rows.assert_near(space, 0.1, 0.01);
    }
}

#[test]
fn both_backends_have_the_same_totals_of_the_machine() {
    let root = Root::host_as_guest().unwrap();
    let (one, other) = (reading::system(&root), sysinfo::system(&root));
    let near = |what: &str, one: u64, other: u64| {
        #[expect(clippy::cast_precision_loss, reason = "a tenth of it is asked for")]
        let [one, other] = [one, other].map(|bytes| bytes as f64);
        assert!((one - other).abs() <= 0.1 * one.max(other), "{what}: {one} by procfs, {other} by sysinfo");
    };
    near("received", one.net_recv_bytes.unwrap(), other.net_recv_bytes.unwrap());
    near("sent", one.net_sent_bytes.unwrap(), other.net_sent_bytes.unwrap());
    assert!(!one.disks.is_empty() && !other.disks.is_empty() && !other.spaces.is_empty());
    // A partition that is mounted is a part of its disk.
    for (name, read_bytes, written_bytes) in &other.disks {
        let whole = one.disks.iter().find(|(whole, ..)| name.starts_with(whole.as_str()));
        let (_, whole_read_bytes, whole_written_bytes) = whole.unwrap();
        if let Some((_, read_bytes_too, written_bytes_too)) = one.disks.iter().find(|(disk, ..)| disk == name)
        {
            near(name, *read_bytes_too, *read_bytes);
            near(name, *written_bytes_too, *written_bytes);
        } else {
            // Read after the other, so that it may be a little more.
            assert!(
                read_bytes / 2 <= *whole_read_bytes && written_bytes / 2 <= *whole_written_bytes,
                "{name}"
            );
        }
    }
    assert_eq!(one.spaces.len(), other.spaces.len(), "{:?} {:?}", one.spaces, other.spaces);
}

#[test]
fn the_portable_backend_leaves_no_figure_out_on_linux() {
    let root = Root::host_as_guest().unwrap();
    let machine = sysinfo::system(&root);
    let made_of_two = [
        Metric::SystemUtime,
        Metric::SystemStime,
        Metric::SystemCpu,
        Metric::DiskRead,
        Metric::DiskWrite,
        Metric::NetRecv,
        Metric::NetSent,
    ];
    let levels = Table::System.metrics().filter(|metric| !made_of_two.contains(metric));
    let empty: Vec<_> = levels.filter(|metric| machine.levels.get(*metric).is_none()).collect();
    assert_eq!(empty, []);
    assert!(machine.user_s.unwrap() > 0.0 && machine.system_s.unwrap() > 0.0);
    let own = sysinfo::process(&root, std::process::id(), true).unwrap();
    assert!(own.memory_kib > Some(500) && own.children.is_some() && own.read_bytes.is_some(), "{own:?}");
    assert_eq!(sysinfo::process(&root, std::process::id(), false).unwrap().children, None);
}

#[test]
fn threads_are_no_processes() {
    let (ready, wait) = (std::sync::Barrier::new(9), std::sync::Barrier::new(9));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (ready.wait(), wait.wait()));
        }
        ready.wait();
        let pids = std::fs::read_dir("/proc").unwrap().flatten();
        let listed = pids.filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok()).count();
        let counted = cell(&sysinfo::system(&Root::host_as_guest().unwrap()).levels, Metric::Processes);
        wait.wait();
        #[expect(clippy::cast_precision_loss, reason = "a number of processes")]
        let listed = listed as f64;
        assert!((counted - listed).abs() < 6.0, "{counted} counted, {listed} listed");
    });
}
