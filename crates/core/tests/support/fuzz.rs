//! Runs a parser on damaged copies of seeds. No input may cause a panic, take a second of CPU time, or let the memory of
//! the process grow past 512 MiB.
//!
//! A plain loop and no fuzzing engine, so it runs with the other tests on any machine. By default the random seed and
//! the number of rounds are fixed. `RESOURCE_TRACKER_FUZZ_SECONDS` sets another budget for each target, with another
//! random seed: `RESOURCE_TRACKER_FUZZ_SECONDS=600 cargo test --release --test fuzz journal`. Inputs that a parser
//! accepts become seeds too, which leads deeper into the format.
//!
//! The input of a failure is written to a file. It belongs in `fixtures/fuzz/TARGET`, whose files are seeds.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant, SystemTime};

use rustix::time::{ClockId, clock_gettime};

const BUDGET: &str = "RESOURCE_TRACKER_FUZZ_SECONDS";
const ROUNDS: u64 = 20_000;
const MOST_CPU_MS: i64 = 1000;
const MOST_MEMORY_KIB: u64 = 512 << 10;
/// An input that takes this long is a loop without an end, also on a busy machine.
const HANGS_AFTER: Duration = Duration::from_mins(1);
/// Number and size of the accepted inputs that become seeds.
const MOST_LEARNED: usize = 500;
const MOST_BYTES: usize = 64 << 10;

/// Random number generator xorshift64*.
pub struct Random(u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % (end.max(1) as u64)).unwrap()
    }
}

const PIECES: [&[u8]; 32] = [
    b"",
    b"\n",
    b" ",
    b":",
    b")",
    b"(",
    b"-",
    b"=",
    b"\"",
    b"\"\"",
    b",",
    b"[",
    b"]",
    b"{",
    b"}",
    b"\\",
    b"\\u0000",
    b"\0",
    b"0",
    b"-0",
    b"1e-400",
    b"1e308",
    b"-1",
    b"1e16",
    b"NaN",
    b"null",
    b"true",
    b"\xff\xfe",
    b"4294967296",
    b"9223372036854775807",
    b"18446744073709551616",
    b"99999999999999999999999",
];

/// Makes a few random changes: truncates, removes, inserts, repeats or overwrites bytes, replaces a number, or inserts a
/// part of another seed.
fn damage(seed: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        let to = (at + random.below(64)).min(bytes.len());
        match random.below(8) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..to)),
            2 => {
                let piece = PIECES[random.below(PIECES.len())];
                bytes.splice(at..at, piece.iter().copied());
            }
            3 => {
                let again = bytes[at..to].repeat(1 + random.below(30));
                bytes.splice(at..at, again);
            }
            4 | 5 => {
                let is_digit = |byte: &u8| byte.is_ascii_digit();
                let start = bytes[at..].iter().position(is_digit).map_or(bytes.len(), |found| at + found);
                let digits = bytes[start..].iter().take_while(|byte| is_digit(byte)).count();
                let piece = PIECES[random.below(PIECES.len())];
                bytes.splice(start..start + digits, piece.iter().copied());
            }
            6 => {
                let from = random.below(other.len());
                let part = other[from..(from + random.below(400)).min(other.len())].to_vec();
                bytes.splice(at..at, part);
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = u8::try_from(random.next() & 0xff).unwrap();
                }
            }
        }
    }
    bytes.truncate(MOST_BYTES);
    bytes
}

/// All files below a folder of the fixtures that are smaller than 100,000 bytes.
pub fn seeds(folder: &str) -> Vec<Vec<u8>> {
    fn add(folder: &Path, seeds: &mut Vec<Vec<u8>>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
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
    add(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(folder), &mut seeds);
    seeds
}

/// Runs `parse` on the seeds of `fixtures/fuzz/TARGET`, on `more`, and on damaged copies of both. `parse` returns
/// whether it accepts the input. Returns the number of inputs and of accepted inputs.
pub fn fuzz(
    target: &'static str,
    more: Vec<Vec<u8>>,
    parse: impl Fn(&[u8]) -> bool + Send + 'static,
) -> (u64, u64) {
    let seeds = [seeds(&format!("fuzz/{target}")), more].concat();
    let current = Arc::new(Mutex::new((0_u64, Vec::new())));
    let shared = Arc::clone(&current);
    let (sender, receiver) = mpsc::channel();
    let worker = std::thread::spawn(move || {
        let done = rounds(target, seeds, &shared, parse);
        let _ = sender.send(done);
    });
    let mut seen = u64::MAX;
    loop {
        match receiver.recv_timeout(HANGS_AFTER) {
            Ok(done) => return done,
            Err(mpsc::RecvTimeoutError::Disconnected) => resume_unwind(worker.join().unwrap_err()),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let (number, input) = current.lock().unwrap().clone();
                assert_ne!(seen, number, "no end; the input is in {}", kept(target, &input).display());
                seen = number;
            }
        }
    }
}

fn rounds(
    target: &str,
    mut seeds: Vec<Vec<u8>>,
    current: &Mutex<(u64, Vec<u8>)>,
    parse: impl Fn(&[u8]) -> bool,
) -> (u64, u64) {
    let seconds = std::env::var(BUDGET).ok().and_then(|text| text.parse().ok());
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
    let mut random =
        Random(end.map_or(0x9e37_79b9_7f4a_7c15, |_| u64::try_from(now & 0xffff_ffff_ffff).unwrap() | 1));
    let given = seeds.len();
    let (mut number, mut accepted) = (0, 0);
    while end.map_or(number < ROUNDS, |end| Instant::now() < end) || number < given as u64 {
        let input = match seeds.get(usize::try_from(number).unwrap()).filter(|_| number < given as u64) {
            Some(seed) => seed.clone(),
            None => damage(&seeds[random.below(seeds.len())], &seeds[random.below(seeds.len())], &mut random),
        };
        *current.lock().unwrap() = (number, input.clone());
        let started = cpu_ms();
        let is_accepted = catch_unwind(AssertUnwindSafe(|| parse(&input))).unwrap_or_else(|panic| {
            std::io::Write::write_all(
                &mut std::io::stderr(),
                format!("the input is in {}\n", kept(target, &input).display()).as_bytes(),
            )
            .unwrap();
            resume_unwind(panic)
        });
        let (took_ms, peak_kib) = (cpu_ms() - started, peak_kib());
        assert!(took_ms < MOST_CPU_MS, "{took_ms} ms; the input is in {}", kept(target, &input).display());
        assert!(
            peak_kib < MOST_MEMORY_KIB,
            "{peak_kib} KiB; the input is in {}",
            kept(target, &input).display()
        );
        if is_accepted {
            accepted += 1;
            if seeds.len() < given + MOST_LEARNED {
                seeds.push(input);
            } else {
                let learned = given + random.below(MOST_LEARNED);
                seeds[learned] = input;
            }
        }
        number += 1;
    }
    (number, accepted)
}

/// Writes an input to a file.
fn kept(target: &str, input: &[u8]) -> PathBuf {
    let path = std::env::temp_dir().join(format!("fuzz-{target}-{}", crc(input)));
    std::fs::write(&path, input).unwrap();
    path
}

fn crc(input: &[u8]) -> String {
    let sum = input
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{sum:016x}")
}

/// CPU time of this thread: a busy machine does not change it.
fn cpu_ms() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1000 + time.tv_nsec / 1_000_000
}

fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix("kB"));
    peak.unwrap().trim().parse().unwrap()
}
