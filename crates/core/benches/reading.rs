//! Cost of one `get_process_stats`, compared with the bare system calls for the same files.
//!
//! Budget: for 10 and for 100 processes at most 1.5 times the time of open, read and close of the four files of each
//! process. `cargo bench -p resource-tracker --bench reading` fails over budget.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench prints its results and panics on a failed precondition"
)]

use std::hint::black_box;
use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use resource_tracker::os::root::Root;
use resource_tracker::sampler::reading;

const BUDGET: f64 = 1.5;

fn median_us(mut work: impl FnMut()) -> f64 {
    let mut found: Vec<f64> = (0..101)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    found.sort_by(f64::total_cmp);
    found[found.len() / 2]
}

/// A shell with sleeping children, which ends when its standard input is closed.
fn tree(children: usize) -> Child {
    let line = "i=0; while [ $i -lt $0 ]; do sleep 600 & p=\"$p $!\"; i=$((i + 1)); done; echo up; read x; [ -z \"$p\" ] || kill $p";
    let mut shell = Command::new("sh")
        .args(["-c", line, &children.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut up = [0; 3];
    shell.stdout.as_mut().unwrap().read_exact(&mut up).unwrap();
    shell
}

/// The files that one reading of a shell and its children must read.
fn files(shell_pid: u32) -> Vec<String> {
    let children = std::fs::read_to_string(format!("/proc/{shell_pid}/task/{shell_pid}/children")).unwrap();
    let pids = children.split_whitespace().map(str::to_owned).chain([shell_pid.to_string()]);
    let of = |pid: String| {
        ["stat", &format!("task/{pid}/children"), "smaps_rollup", "io"]
            .map(|file| format!("/proc/{pid}/{file}"))
    };
    pids.flat_map(of).collect()
}

fn main() {
    let mut is_over = false;
    for processes in [1_usize, 10, 100] {
        let mut shell = tree(processes - 1);
        let root = Root::host_in_process().unwrap();
        let reading = reading::procfs::process(&root, shell.id(), true).unwrap();
        assert_eq!(reading.children, Some(processes as u64 - 1), "the reading covers all processes");
        let files = files(shell.id());
        assert_eq!(files.len(), 4 * processes);
        let mut buffer = vec![0; 8192];
        let bare_us = median_us(|| {
            for path in &files {
                let fd =
                    rustix::fs::open(path, rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap();
                black_box(rustix::io::read(&fd, &mut buffer).unwrap());
            }
        });
        let reading_us = median_us(|| {
            black_box(reading::procfs::process(&root, shell.id(), true).unwrap());
        });
        let ratio = reading_us / bare_us;
        println!(
            "{processes:>3} processes: {reading_us:8.1} µs, bare system calls {bare_us:8.1} µs, ratio {ratio:.2}"
        );
        is_over |= processes > 1 && ratio > BUDGET;
        drop(shell.stdin.take());
        shell.wait().unwrap();
    }
    assert!(!is_over, "over the budget of {BUDGET}");
}
