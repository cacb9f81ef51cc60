//! `get_process_stats` against the kernel's own time for the same files.
//!
//! Budget: a look at 10 and at 100 processes takes at most 1.5 times what opening, reading and closing the same files
//! takes with nothing made of them. Run it by itself: `cargo bench -p resource-tracker --bench reading`.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench shows what it finds, and stops where it cannot"
)]

use std::hint::black_box;
use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use resource_tracker::reading;
use resource_tracker::root::{Access, Root};

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

/// A shell that waits, with so many children that do.
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

fn main() {
    let mut is_past = false;
    for processes in [1_usize, 10, 100] {
        let mut shell = tree(processes - 1);
        let root = Root::host_as_guest().unwrap();
        root.log_accesses(true);
        let reading = reading::process(&root, shell.id(), true).unwrap();
        assert_eq!(reading.children, Some(processes as u64 - 1), "measures the work");
        let files: Vec<String> = root
            .log_accesses(false)
            .into_iter()
            .filter_map(|access| if let Access::Read(path) = access { Some(path) } else { None })
            .collect();
        assert!(files.len() >= 4 * processes, "{files:?}");
        let mut buffer = vec![0; 8192];
        let bare_us = median_us(|| {
            for path in &files {
                let fd =
                    rustix::fs::open(path, rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap();
                black_box(rustix::io::read(&fd, &mut buffer).unwrap());
            }
        });
        let ours_us = median_us(|| {
            black_box(reading::process(&root, shell.id(), true).unwrap());
        });
        let ratio = ours_us / bare_us;
        println!(
            "{processes:>3} processes: {ours_us:8.1} µs, bare readings {bare_us:8.1} µs, ratio {ratio:.2}"
        );
        is_past |= processes > 1 && ratio > BUDGET;
        drop(shell.stdin.take());
        shell.wait().unwrap();
    }
    assert!(!is_past, "past the budget of {BUDGET}");
}
