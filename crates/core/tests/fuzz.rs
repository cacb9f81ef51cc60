//! Runs every parser on damaged copies of the fixtures. No input may cause a panic.
//!
//! The test is a plain loop and uses no fuzzing engine, so it runs with the other tests on any machine. The random seed
//! and the number of rounds are fixed, so failures are reproducible.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "tests fail by panic")]

use std::path::Path;

use resource_tracker::AnyColumn;
use resource_tracker::probe::cgroup::groups::{parse_cgroup, parse_key};
use resource_tracker::probe::procfs;
use resource_tracker::store::recording::Recording;

/// Random number generator xorshift64* with a fixed seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % (end.max(1) as u64)).unwrap()
    }
}

const PIECES: [&[u8]; 14] = [
    b"",
    b"\n",
    b" ",
    b":",
    b")",
    b"(",
    b"-",
    b"=",
    b"\"",
    b",",
    b"18446744073709551616",
    b"-1",
    b"\xff\xfe",
    b"99999999999999999999999",
];

/// Makes a few random changes: truncates, removes, inserts, repeats or overwrites bytes.
fn damage(seed: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        let to = (at + random.below(64)).min(bytes.len());
        match random.below(5) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..to)),
            2 => {
                let piece = PIECES[random.below(PIECES.len())];
                bytes.splice(at..at, piece.iter().copied());
            }
            3 => {
                let again = bytes[at..to].to_vec();
                bytes.splice(at..at, again);
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = u8::try_from(random.next() & 0xff).unwrap();
                }
            }
        }
    }
    bytes
}

fn parse_everything(bytes: &[u8]) {
    let _ = procfs::parse_stat(bytes).map(|stat| stat.machine_cpu().busy_ns());
    let _ = procfs::parse_meminfo(bytes).map(|meminfo| (meminfo.used_kib(), meminfo.cached_kib()));
    procfs::parse_diskstats(bytes).for_each(drop);
    procfs::parse_net_dev(bytes).for_each(drop);
    procfs::parse_mountinfo(bytes).for_each(drop);
    let _ = procfs::parse_pid_stat(bytes);
    let _ = procfs::parse_pid_status(bytes);
    let _ = procfs::parse_statm_anon_pages(bytes);
    let _ = procfs::parse_last_pid(bytes);
    let _ = procfs::parse_pid_io(bytes);
    let _ = procfs::parse_smaps_rollup(bytes);
    let _ = procfs::parse_some_us(bytes);
    let _ = parse_cgroup(&String::from_utf8_lossy(bytes));
    let _ = parse_key(bytes, "throttled_usec");
    let _ = AnyColumn::read_csv(bytes);
    let _ = Recording::read(bytes);
}

fn seeds() -> Vec<Vec<u8>> {
    fn add(folder: &Path, seeds: &mut Vec<Vec<u8>>) {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            if entry.path().is_dir() {
                add(&entry.path(), seeds);
            } else if entry.path().is_symlink() {
                // The link is a recorded descriptor. Its target is a device of another machine.
            } else if entry.metadata().unwrap().len() < 100_000 {
                seeds.push(std::fs::read(entry.path()).unwrap());
            }
        }
    }
    let mut seeds = Vec::new();
    add(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures"), &mut seeds);
    seeds
}

#[test]
fn damaged_files_do_not_cause_a_panic() {
    let seeds = seeds();
    assert!(seeds.len() > 100, "only {} seeds", seeds.len());
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for round in 0..20_000 {
        let seed = &seeds[(round + random.below(3)) % seeds.len()];
        parse_everything(&damage(seed, &mut random));
    }
}
