//! Figures that `sysinfo` does not provide on Linux. They are read from `/proc`.

use std::path::Path;

use ::sysinfo::Disk;

use super::{Spent, Times};
use crate::error::SourceError;
use crate::os::root::Root;
use crate::probe::Source as _;
use crate::probe::procfs::{
    self, parse_meminfo, parse_mountinfo, parse_pid_stat, parse_smaps_rollup, parse_stat,
};
use crate::probe::snapshot::{DiskSpace, MachineCpu, MachineMemory, Snapshot};

/// Linux adds the storage bytes of a reaped child to those of its parent (`proc_pid_io(5)`).
pub const PARENT_INHERITS_STORAGE: bool = true;

/// Linux adds the CPU time of a reaped child to the cutime of its parent.
pub const PARENT_INHERITS_TIMES: bool = true;

/// Unit of user and system time in the ledger: clock ticks, as in cutime.
pub fn tick_ns() -> u64 {
    1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)
}

fn text(path: &str) -> Result<Vec<u8>, SourceError> {
    std::fs::read(path).map_err(|source| SourceError::Io { path: path.into(), source })
}

pub fn machine_cpu() -> Result<MachineCpu, SourceError> {
    const PATH: &str = "/proc/stat";
    let stat = parse_stat(&text(PATH)?).map_err(|source| SourceError::Parse { path: PATH.into(), source })?;
    Ok(stat.machine_cpu())
}

pub fn machine_memory() -> Result<MachineMemory, SourceError> {
    const PATH: &str = "/proc/meminfo";
    let info =
        parse_meminfo(&text(PATH)?).map_err(|source| SourceError::Parse { path: PATH.into(), source })?;
    Ok(info.machine_memory())
}

/// CPU time and page faults of a process; `None` if the process does not exist.
pub fn spent(pid: u32) -> Option<Spent> {
    let stat = parse_pid_stat(&std::fs::read(format!("/proc/{pid}/stat")).ok()?).ok()?;
    let tick_ns = tick_ns();
    let times = |user_ticks: u64, system_ticks: u64| Times {
        user_ns: user_ticks.saturating_mul(tick_ns),
        system_ns: system_ticks.saturating_mul(tick_ns),
    };
    Some(Spent {
        own: times(stat.utime_ticks, stat.stime_ticks),
        reaped_children: times(stat.cutime_ticks, stat.cstime_ticks),
        major_faults: stat.major_faults,
        // For processes of other users `open` succeeds and `read` fails with `EACCES`.
        has_storage: std::fs::read(format!("/proc/{pid}/io")).is_ok(),
    })
}

/// PSS of a process; `None` without permission to read it.
pub fn share_kib(pid: u32) -> Option<u64> {
    let text = std::fs::read(format!("/proc/{pid}/smaps_rollup")).ok()?;
    parse_smaps_rollup(&text).ok()?.map(|pages| pages.pss_kib)
}

/// For each interface, whether its bytes count. The choice is that of the procfs backend.
pub fn interfaces_that_count(root: &Root, names: &[Box<[u8]>]) -> Vec<bool> {
    procfs::interfaces_that_count(root, names)
}

/// Whether `sysinfo` can read the disks of this host. `sysinfo` calls `statvfs` on every mount, which can hang on
/// network and FUSE mounts. It also counts ZFS pools and overlays wrongly. On hosts with any of these mounts the
/// tracker reads `/proc` instead.
fn is_safe_for_sysinfo() -> bool {
    let Ok(text) = std::fs::read("/proc/self/mountinfo") else { return false };
    parse_mountinfo(&text).all(|mount| {
        mount.is_ok_and(|mount| procfs::is_safe(&mount.kind) && !["zfs", "overlay"].contains(&&*mount.kind))
    })
}

/// Reads the disks from `/proc`; `None` if `sysinfo` can read them.
pub fn read_disks_instead(root: &Root, snapshot: &mut Snapshot) -> Option<Result<(), SourceError>> {
    (!is_safe_for_sysinfo()).then(|| {
        procfs::DisksSource::default().read(root, snapshot)?;
        snapshot.space = DiskSpace::total(procfs::file_systems(root)?.into_iter().map(|(_, space)| space));
        Ok(())
    })
}

/// Reads the file systems from `/proc`; `None` if `sysinfo` can read them.
pub fn file_systems_instead(root: &Root) -> Option<Result<Vec<(String, DiskSpace)>, SourceError>> {
    (!is_safe_for_sysinfo()).then(|| procfs::file_systems(root))
}

/// Whether a mount is a file system on a device. An overlay is not: the file system below it is counted.
pub fn is_real(disk: &Disk) -> bool {
    disk.name().as_encoded_bytes().starts_with(b"/dev/") && disk.total_space() > 0
}

/// The kernel's name of the device. A mount may use another name, such as `/dev/mapper/…` or `/dev/disk/by-uuid/…`.
pub fn device_of(disk: &Disk) -> String {
    let name = Path::new(disk.name());
    let real = std::fs::canonicalize(name).unwrap_or_else(|_| name.to_owned());
    real.to_string_lossy().trim_start_matches("/dev/").to_owned()
}

pub fn name_of(disk: &Disk) -> String {
    device_of(disk)
}

/// Key of the space that mounts share: the device, because all mounts of a device share its space.
pub fn pool_of(disk: &Disk) -> String {
    device_of(disk)
}

/// Free bytes, including blocks reserved for root.
pub fn unused_bytes(disk: &Disk) -> Option<u64> {
    let found = rustix::fs::statvfs(disk.mount_point()).ok()?;
    found.f_bfree.checked_mul(found.f_frsize)
}
