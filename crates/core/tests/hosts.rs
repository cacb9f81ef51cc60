//! Tests which devices, limits and processes count, on recorded and constructed hosts.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "tests fail by panic")]

mod replay;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use resource_tracker::analysis::recommend::recommend_resources;
use resource_tracker::config::Config;
use resource_tracker::job::SamplerPlace;
use resource_tracker::job::procfs::Job;
use resource_tracker::metric::{Metric, Row, Table};
use resource_tracker::os::Moment;
use resource_tracker::os::root::Root;
use resource_tracker::probe::snapshot::{Device, DiskSpace, Snapshot};
use resource_tracker::probe::{MachineProbe, host};
use resource_tracker::store::csv;
use resource_tracker::store::recording::{Head, Recording, Run};
use resource_tracker::store::summary::{Scope, Summary};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

fn snapshot_of(name: &str) -> (Arc<Root>, Snapshot) {
    let root = Arc::new(Root::recorded(&fixture(name)).unwrap());
    let mut snapshot = Snapshot::default();
    MachineProbe::detect(Arc::clone(&root), true).read(Moment { wall_ns: 1, monotonic_ns: 1 }, &mut snapshot);
    (root, snapshot)
}

fn names(devices: Option<Vec<Device>>) -> Vec<String> {
    devices.unwrap().into_iter().map(|device| String::from_utf8_lossy(&device.name).into_owned()).collect()
}

const GIB: u64 = 1 << 30;

#[test]
fn only_whole_disks_count() {
    assert_eq!(names(snapshot_of("disks-stacked").1.disks), ["vda", "vdb", "vdc", "nvme0n1", "sr0"]);
}

#[test]
fn container_counts_each_device_once_and_skips_mounts_that_may_hang() {
    let space = snapshot_of("container-overlay").1.space.unwrap();
    assert_eq!(space, DiskSpace { total_bytes: 110 * GIB, used_bytes: 41 * GIB, free_bytes: 64 * GIB });
    let space = snapshot_of("container-overlay-only").1.space.unwrap();
    assert_eq!(space, DiskSpace { total_bytes: 50 * GIB, used_bytes: 30 * GIB, free_bytes: 18 * GIB });
}

#[test]
fn zfs_pool_and_btrfs_subvolumes_are_counted_once() {
    // GiB: rpool has 10 + 5 used and 20 free, tank 40 used and 100 free, boot 0.5 used of 1, btrfs 2 used of 8.
    let space = snapshot_of("zfs-btrfs").1.space.unwrap();
    let used_bytes = 57 * GIB + GIB / 2;
    let free_bytes = 126 * GIB + GIB / 2;
    assert_eq!(space, DiskSpace { total_bytes: used_bytes + free_bytes, used_bytes, free_bytes });
}

#[test]
fn packets_through_stacked_interfaces_count_once() {
    assert_eq!(names(snapshot_of("network-bonded").1.network), ["eth0", "eth1"]);
    assert_eq!(names(snapshot_of("network-namespace").1.network), ["veth0", "tap0"]);
    assert_eq!(names(snapshot_of("container-overlay").1.network), ["eth0"]);
}

#[test]
fn tightest_limit_of_all_ancestor_groups_is_used() {
    let (root, snapshot) = snapshot_of("cgroup2-limited");
    let host = host::read(&root, "self");
    assert_eq!((host.vcpus, host.cpu_limit_cores, host.memory_limit_mib), (Some(2), Some(1.5), Some(2048.0)));
    assert_eq!((snapshot.throttled_ns, snapshot.cgroup_memory_bytes), (Some(250_000_000), Some(104_857_600)));
    let (root, snapshot) = snapshot_of("cgroup1-docker");
    let host = host::read(&root, "self");
    assert_eq!((host.cpu_limit_cores, host.memory_limit_mib), (Some(0.5), Some(512.0)));
    assert_eq!((snapshot.throttled_ns, snapshot.cgroup_memory_bytes), (Some(3_000_000_000), Some(1_048_576)));
    let host = host::read(&snapshot_of("disks-stacked").0, "self");
    assert_eq!((host.cpu_limit_cores, host.memory_limit_mib), (None, None));
}

#[test]
fn damaged_files_affect_only_their_own_fields_and_are_named() {
    let (_, snapshot) = snapshot_of("hostile-machine");
    assert!(
        snapshot.cpu.is_none()
            && snapshot.disks.is_none()
            && snapshot.network.is_none()
            && snapshot.space.is_none()
    );
    assert_eq!(snapshot.memory.unwrap().used_kib, None);
    let failed: Vec<_> = snapshot.failures.iter().map(|(name, _)| *name).collect();
    assert_eq!(failed, ["cpu", "disks", "network", "disk space", "pressure"]);
    for (_, error) in &snapshot.failures {
        assert!(error.to_string().starts_with("cannot parse `/proc/"), "{error}");
    }
}

#[test]
fn hostile_process_names_do_not_change_numbers() {
    let (root, snapshot) = snapshot_of("hostile-processes");
    let mut job = Job::new(&root, 42, &Config::default(), None, None);
    let usage = job.read(&root, &snapshot, &[], SamplerPlace::OwnProcess).unwrap();
    let members: Vec<u32> = job.members().iter().map(|member| member.pid).collect();
    assert_eq!(members, [42, 43, 44]);
    assert_eq!((usage.children, usage.threads), (Some(2), Some(12)));
    // Three processes with 250 + 50 ticks of their own and 20 + 10 ticks of reaped children.
    assert_eq!(usage.cpu.seen_ns, 3 * 330 * 10_000_000);
    // PSS of one process, and RSS of the two other processes.
    assert_eq!(usage.memory_kib, Some(8000 + 2 * 8192));
    assert_eq!((usage.read_bytes, usage.write_bytes), (Some(u64::MAX), Some(7)));
}

fn recorded_rows() -> Vec<Row> {
    replay::rows(&fixture("linux-6.18-vm"), 15270, &Config::default())
}

#[test]
fn recorded_job_gives_the_golden_tables_statistics_and_recommendation() {
    let rows = recorded_rows();
    let mut text = Vec::new();
    for table in Table::ALL {
        csv::write_header(&mut text, table);
        for row in &rows {
            csv::write_row(&mut text, table, row);
        }
    }
    let mut summary = Summary::new(Scope { process: true, system: true, start_time: None, interval_s: 0.7 });
    for row in &rows {
        summary.add(row);
    }
    let stats = summary.stats().unwrap();
    text.extend(serde_json::to_vec_pretty(&stats).unwrap());
    text.push(b'\n');
    text.extend(serde_json::to_vec_pretty(&recommend_resources(&stats, &[]).unwrap()).unwrap());
    text.push(b'\n');
    assert_golden("linux-6.18-vm.txt", &text);

    let mut recording =
        Recording::new(Head::new(&Config::default(), 15270, 1_794_781_097.148, Run::default()));
    recording.head.metadata.resource_tracker.version = "any".to_owned();
    recording.head.metadata.set_stop_time(1_794_781_099.395, 0.0);
    for row in &rows {
        recording.push(row);
    }
    let mut json = Vec::new();
    recording.write(&mut json).unwrap();
    assert_golden("linux-6.18-vm.json", &json);
    assert_eq!(Recording::read(json.as_slice()).unwrap(), recording);
}

fn assert_golden(name: &str, text: &[u8]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden").join(name);
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(String::from_utf8_lossy(text), golden, "run `make generate` if this change is intended");
}

#[test]
fn rows_agree_with_the_recorded_kernel_files() {
    // Sums of utime + stime and of write_bytes over the three processes, at the first two ticks.
    let sum_of = |tick: &str| {
        let mut ticks = 0_u64;
        let mut written = 0_u64;
        for pid in ["15270", "15272", "15273"] {
            let folder = fixture("linux-6.18-vm").join(tick).join("proc").join(pid);
            let stat = std::fs::read_to_string(folder.join("stat")).unwrap();
            let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
            ticks += fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
            let io = std::fs::read_to_string(folder.join("io")).unwrap();
            let line = io.lines().find(|line| line.starts_with("write_bytes")).unwrap();
            written += line.split(' ').nth(1).unwrap().parse::<u64>().unwrap();
        }
        (ticks, written)
    };
    let (then, now) = (sum_of("000"), sum_of("001"));
    let row = recorded_rows().remove(0);
    let cell = |metric: Metric| row.get(metric).unwrap();
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let (cpu_s, written) = ((now.0 - then.0) as f64 / 100.0, (now.1 - then.1) as f64);
    assert!((cell(Metric::ProcessUtime) + cell(Metric::ProcessStime) - cpu_s).abs() < 1e-6);
    assert_eq!(cell(Metric::ProcessWrite), written);
    assert_eq!(cell(Metric::Children), 2.0);
}
