//! Fuzz tests of the recording loader, the journal reader, CSV and the parsers of kernel files (`support/fuzz.rs`). The
//! settings of the command are fuzzed in its own crate.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "tests fail by panic")]

#[path = "support/fuzz.rs"]
mod support;

use std::io::Write as _;

use resource_tracker::AnyColumn;
use resource_tracker::metric::{Metric, Row};
use resource_tracker::probe::cgroup::groups::{parse_cgroup, parse_key};
use resource_tracker::probe::{gpu, procfs};
use resource_tracker::store::frame::CombinedOptions;
use resource_tracker::store::journal::{Journal, Reader};
use resource_tracker::store::recording::{Recording, gzip};
use support::{fuzz, seeds};

fn parse_kernel_files(bytes: &[u8]) -> bool {
    let stat = procfs::parse_stat(bytes).map(|stat| stat.machine_cpu().busy_ns());
    let meminfo = procfs::parse_meminfo(bytes).map(|meminfo| (meminfo.used_kib(), meminfo.cached_kib()));
    procfs::parse_single_cpus(bytes);
    procfs::parse_diskstats(bytes).for_each(drop);
    procfs::parse_net_dev(bytes).for_each(drop);
    procfs::parse_mountinfo(bytes).for_each(drop);
    let pid_stat = procfs::parse_pid_stat(bytes);
    let _ = procfs::parse_pid_status(bytes);
    let _ = procfs::parse_statm_anon_pages(bytes);
    let _ = procfs::parse_last_pid(bytes);
    let _ = procfs::parse_pid_io(bytes);
    let _ = procfs::parse_is_exiting(bytes);
    let _ = procfs::parse_schedstat(bytes);
    let _ = procfs::process::parse_cmdline(bytes);
    let _ = procfs::parse_smaps_rollup(bytes);
    let _ = procfs::parse_some_us(bytes);
    let _ = parse_cgroup(&String::from_utf8_lossy(bytes));
    let _ = parse_key(bytes, "throttled_usec");
    gpu::parse_any(bytes);
    stat.is_ok() || meminfo.is_ok() || pid_stat.is_ok()
}

/// A loaded recording can be summarised, written and loaded again.
fn parse_recording(bytes: &[u8]) -> bool {
    let Ok(recording) = Recording::read(bytes) else { return false };
    let _ = (recording.stats(), recording.combined(&CombinedOptions::default()));
    let mut text = Vec::new();
    recording.write(&mut text).unwrap();
    assert_eq!(Recording::read(&text[..]).unwrap().rows(), recording.rows());
    true
}

#[test]
fn kernel_files() {
    let seeds = seeds("");
    assert!(seeds.len() > 100, "only {} seeds", seeds.len());
    let (inputs, accepted) = fuzz("kernel", seeds, parse_kernel_files);
    assert!(inputs >= 20_000 && accepted > 100, "{accepted} of {inputs}");
}

#[test]
fn recordings() {
    let (inputs, accepted) = fuzz("recording", seeds("original"), parse_recording);
    assert!(inputs > 1000 && accepted > 100, "{accepted} of {inputs}");
}

#[test]
fn gzipped_recordings() {
    let zip = |bytes: &[u8]| {
        let mut out = gzip(Vec::new());
        out.write_all(bytes).unwrap();
        out.finish().unwrap()
    };
    let mut given: Vec<Vec<u8>> = seeds("original").iter().map(|seed| zip(seed)).collect();
    given.push(zip(&b"{\"process_metrics\":[".iter().copied().chain([b' '; 9000]).collect::<Vec<_>>()));
    let (inputs, accepted) = fuzz("gzipped", given, parse_recording);
    assert!(inputs > 1000 && accepted > 10, "{accepted} of {inputs}");
}

#[test]
fn csv() {
    let (inputs, accepted) = fuzz("csv", seeds("original"), |bytes| AnyColumn::read_csv(bytes).is_ok());
    assert!(inputs > 1000 && accepted > 100, "{accepted} of {inputs}");
}

/// A checksum protects each record, so each input is read a second time with correct checksums.
#[test]
fn journals() {
    // In memory: a journal is a file.
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = folder.path().join("journal");
    let description =
        Recording::read(&include_bytes!("../../../fixtures/original/snapshot.json")[..]).unwrap();
    let description = serde_json::json!({"metadata": description.head.metadata, "tracker": {"pid": 1}});
    let mut journal = Journal::create(&path, description, false).unwrap();
    for number in 0..4_u32 {
        let row = Row::of(|metric| (metric as usize % 5 != 4).then_some(f64::from(number)));
        let gpus = vec![[Some(1.0); Metric::PER_GPU.len()]; number as usize % 3];
        journal.append(&row.with_gpus(gpus)).unwrap();
    }
    let seed = std::fs::read(&path).unwrap();
    let (inputs, accepted) = fuzz("journal", vec![seed], move |bytes| {
        let read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let Ok(mut reader) = Reader::open(&path) else { return 0 };
            let rows = reader.by_ref().count();
            reader.rewind().unwrap();
            assert_eq!(reader.by_ref().count(), rows, "the same rows again");
            rows
        };
        read(bytes) + read(&with_checksums(bytes)) > 0
    });
    drop(folder);
    assert!(inputs > 1000 && accepted > 100, "{accepted} of {inputs}");
}

/// A journal with the right checksum of each record.
fn with_checksums(bytes: &[u8]) -> Vec<u8> {
    let Some(head) = bytes.iter().position(|byte| *byte == b'\n') else { return bytes.to_vec() };
    let mut fixed = bytes.to_vec();
    let mut at = head + 1;
    while let Some(length) = fixed.get(at..at + 2) {
        let end = at + 2 + usize::from(u16::from_le_bytes([length[0], length[1]]));
        let Some(record) = fixed.get(at..end) else { break };
        let checksum = crc32fast::hash(record).to_le_bytes();
        let Some(place) = fixed.get_mut(end..end + 4) else { break };
        place.copy_from_slice(&checksum);
        at = end + 4;
    }
    fixed
}
