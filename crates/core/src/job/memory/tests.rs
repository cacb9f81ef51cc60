//! Memory of recorded processes.

use std::fs;
use std::path::Path;

use super::*;
use crate::probe::procfs::PidStat;

const MS: u64 = 1_000_000;

struct Recorded {
    pid: u32,
    ppid: u32,
    is_forked: bool,
    anon_mib: u64,
    /// PSS of the anonymous pages; `None` without a file `smaps_rollup`.
    pss_mib: Option<u64>,
    faulted_mib: u64,
}

/// Writes the files of these processes, and of a machine with `machine_mib` of anonymous pages.
fn record(folder: &Path, processes: &[Recorded], machine_mib: u64, sample: u64) -> Vec<Member> {
    let proc = folder.join("proc");
    fs::create_dir_all(&proc).unwrap();
    let meminfo = format!("MemTotal: 99999999 kB\nAnonPages: {} kB\nMapped: 5000 kB\n", machine_mib * 1024);
    fs::write(proc.join("meminfo"), meminfo).unwrap();
    let member = |process: &Recorded| {
        let own = proc.join(process.pid.to_string());
        fs::create_dir_all(&own).unwrap();
        let anon_kib = process.anon_mib * 1024;
        let status = format!("VmHWM: {anon_kib} kB\nRssAnon: {anon_kib} kB\nRssFile: 0 kB\nRssShmem: 0 kB\n");
        fs::write(own.join("status"), status).unwrap();
        let _ = fs::remove_file(own.join("smaps_rollup"));
        if let Some(pss_mib) = process.pss_mib {
            let (pss_kib, own_kib) = (pss_mib * 1024, if pss_mib == process.anon_mib { anon_kib } else { 0 });
            let rollup = format!(
                "Rss: {anon_kib} kB\nPss: {pss_kib} kB\nPss_Anon: {pss_kib} kB\nPrivate_Clean: 0 kB\n\
                 Private_Dirty: {own_kib} kB\nAnonymous: {anon_kib} kB\n"
            );
            fs::write(own.join("smaps_rollup"), rollup).unwrap();
        }
        let stat = PidStat {
            state: b'S',
            ppid: process.ppid,
            is_forked_child: process.is_forked,
            fingerprint: Some((7, 7)),
            minor_faults: process.faulted_mib * 256,
            rss_pages: anon_kib / 4,
            start_ticks: u64::from(process.pid),
            ..PidStat::default()
        };
        Member::new(process.pid, stat, sample, None)
    };
    processes.iter().map(member).collect()
}

fn parent(pss_mib: u64, faulted_mib: u64) -> Recorded {
    Recorded { pid: 5, ppid: 1, is_forked: false, anon_mib: 400, pss_mib: Some(pss_mib), faulted_mib }
}

fn child(pid: u32, pss_mib: Option<u64>, faulted_mib: u64) -> Recorded {
    Recorded { pid, ppid: 5, is_forked: true, anon_mib: 400, pss_mib, faulted_mib }
}

fn level_mib(memory: &Memory) -> u64 {
    memory.level.unwrap().memory_kib / 1024
}

#[test]
fn pages_that_processes_share_count_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut memory = Memory::default();
    let mut sample = |processes: &[Recorded], machine_mib, number: u64, effort| {
        let members = record(folder.path(), processes, machine_mib, number);
        let root = Root::recorded(folder.path()).unwrap();
        memory.sample(&root, &members, number * 1000 * MS, effort);
        level_mib(&memory)
    };
    assert_eq!(sample(&[parent(400, 400)], 1000, 1, Effort::Row), 400);
    let forked = [parent(200, 400), child(6, Some(200), 1)];
    assert_eq!(sample(&forked, 1000, 2, Effort::BetweenRows), 400);
    assert_eq!(sample(&forked, 1000, 3, Effort::Row), 400);
    let copied = [parent(400, 400), child(6, Some(400), 401)];
    assert_eq!(sample(&copied, 1300, 4, Effort::NoPass), 700, "by the counter of the machine");
    assert_eq!(sample(&copied, 1400, 5, Effort::Row), 800, "by a pass");
    assert_eq!(
        sample(&[parent(400, 400)], 1400, 6, Effort::NoPass),
        400,
        "though its pages are not freed yet"
    );
    assert_eq!(memory.peak_kib(), Some(800 * 1024));
}

#[test]
fn pages_that_a_child_unmaps_during_a_pass_do_not_count_twice() {
    let folder = tempfile::tempdir().unwrap();
    let mut memory = Memory::default();
    let processes = |freed_mib: u64| {
        // In `smaps_rollup` of the child, the pages that it unmaps are gone; in `status`, not all of them.
        let child = Recorded { anon_mib: 400 - freed_mib, ..child(6, None, 1) };
        let members = record(folder.path(), &[parent(400, 400), child], 1000, 1 + freed_mib);
        let rollup = "Rss: 4096 kB\nPss: 2048 kB\nPss_Anon: 2048 kB\nPrivate_Clean: 0 kB\n\
                      Private_Dirty: 0 kB\nAnonymous: 4096 kB\n";
        fs::write(folder.path().join("proc/6/smaps_rollup"), rollup).unwrap();
        (Root::recorded(folder.path()).unwrap(), members)
    };
    for (freed_mib, second) in [(100_u64, 1), (200, 2), (396, 3)] {
        let (root, members) = processes(freed_mib);
        memory.sample(&root, &members, second * 1000 * MS, Effort::Row);
        assert_eq!(level_mib(&memory), 400, "after {freed_mib} MiB");
    }
}

#[test]
fn mapped_pages_are_those_of_the_first_pass_even_if_a_process_grows_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let growing = Recorded { anon_mib: 60, ..parent(20, 60) };
    let members = record(folder.path(), &[growing], 1000, 1);
    let status = "RssAnon: 61440 kB\nRssFile: 102400 kB\nRssShmem: 0 kB\n";
    let rollup = "Rss: 122880 kB\nPss: 71680 kB\nPss_Anon: 20480 kB\nPrivate_Clean: 0 kB\n\
                  Private_Dirty: 20480 kB\nAnonymous: 20480 kB\n";
    fs::write(folder.path().join("proc/5/status"), status).unwrap();
    fs::write(folder.path().join("proc/5/smaps_rollup"), rollup).unwrap();
    let mut memory = Memory::default();
    memory.sample(&Root::recorded(folder.path()).unwrap(), &members, 1000 * MS, Effort::Row);
    assert_eq!(level_mib(&memory), 60 + 50, "half of the mapped pages belong to others");
}

#[test]
fn memory_of_a_worker_that_was_forked_outside_the_job_stays_when_its_children_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut memory = Memory::default();
    let worker = |pss_mib| Recorded { is_forked: true, ..parent(pss_mib, 400) };
    let mut sample = |processes: &[Recorded], machine_mib, number: u64| {
        let members = record(folder.path(), processes, machine_mib, number);
        let root = Root::recorded(folder.path()).unwrap();
        let effort = if number == 1 { Effort::Row } else { Effort::NoPass };
        memory.sample(&root, &members, number * 1000 * MS, effort);
        level_mib(&memory)
    };
    assert_eq!(sample(&[worker(400)], 1000, 1), 400);
    assert_eq!(sample(&[worker(200), child(6, Some(200), 1)], 9000, 2), 400, "with a disturbed counter");
    assert_eq!(sample(&[worker(400)], 1000, 3), 400);
}

#[test]
fn forked_child_without_pss_counts_with_the_pages_of_its_parent() {
    let folder = tempfile::tempdir().unwrap();
    let mut memory = Memory::default();
    let members = record(folder.path(), &[parent(400, 400), child(6, None, 90)], 1000, 1);
    let root = Root::recorded(folder.path()).unwrap();
    memory.sample(&root, &members, 1000 * MS, Effort::Row);
    assert_eq!(level_mib(&memory), 400);
}

#[test]
fn mean_is_weighted_by_time() {
    let mut mean = Mean::default();
    mean.add(0, 100);
    mean.add(10, 100);
    mean.add(20, 300);
    assert_eq!(mean.kib(), Some(150), "100 for 10 ns, and 200 on average for 10 ns");
    mean.restart();
    assert_eq!(mean.kib(), None);
    mean.add(40, 300);
    assert_eq!(mean.kib(), Some(300));
}
