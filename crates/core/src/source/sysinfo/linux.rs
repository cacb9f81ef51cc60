//! What `sysinfo` lacks on Linux, from `/proc`.

use std::path::Path;

use ::sysinfo::Disk;

use super::{Spent, Times};
use crate::error::SourceError;
use crate::root::Root;
use crate::snapshot::{DiskSpace, MachineCpu, MachineMemory, Snapshot};
use crate::source::Source as _;
use crate::source::procfs::{
    self, parse_meminfo, parse_mountinfo, parse_pid_stat, parse_smaps_rollup, parse_stat,
};

/// A child's storage bytes are in its parent's once it was waited for (`proc_pid_io(5)`).
pub const STORAGE_IS_HANDED_ON: bool = true;

/// A child's CPU time is its parent's too, once it was waited for.
pub const TIMES_ARE_HANDED_ON: bool = true;

/// The unit of the split of CPU time in the ledger, which gets reaped children's in clock ticks too.
pub fn tick_ns() -> u64 {
    1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)
}

fn text(path: &str) -> Result<Vec<u8>, SourceError> {
    std::fs::read(path).map_err(|source| SourceError::Io { path: path.into(), source })
}

/// CPU time of the machine.
pub fn machine_cpu() -> Result<MachineCpu, SourceError> {
    const PATH: &str = "/proc/stat";
    let stat = parse_stat(&text(PATH)?).map_err(|source| SourceError::Parse { path: PATH.into(), source })?;
    Ok(stat.machine_cpu())
}

/// Memory of the machine.
pub fn machine_memory() -> Result<MachineMemory, SourceError> {
    const PATH: &str = "/proc/meminfo";
    let info =
        parse_meminfo(&text(PATH)?).map_err(|source| SourceError::Parse { path: PATH.into(), source })?;
    Ok(info.machine_memory())
}

/// What a process has spent; `None` where it is not there.
pub fn spent(pid: u32) -> Option<Spent> {
    let stat = parse_pid_stat(&std::fs::read(format!("/proc/{pid}/stat")).ok()?).ok()?;
    let tick_ns = tick_ns();
    let times = |user_ticks: u64, system_ticks: u64| Times {
        user_ns: user_ticks.saturating_mul(tick_ns),
        system_ns: system_ticks.saturating_mul(tick_ns),
    };
    Some(Spent {
        own: times(stat.utime_ticks, stat.stime_ticks),
        waited: times(stat.cutime_ticks, stat.cstime_ticks),
        major_faults: stat.major_faults,
        // Another user's file opens, and refuses to be read.
        has_storage: std::fs::read(format!("/proc/{pid}/io")).is_ok(),
    })
}

/// A process's share of memory (PSS); `None` where its pages may not be looked at.
pub fn share_kib(pid: u32) -> Option<u64> {
    let text = std::fs::read(format!("/proc/{pid}/smaps_rollup")).ok()?;
    parse_smaps_rollup(&text).ok()?.map(|pages| pages.pss_kib)
}

/// As the other backend chooses them: a device below counts, what is stacked on it does not.
pub fn interfaces_that_count(root: &Root, names: &[Box<[u8]>]) -> Vec<bool> {
    procfs::interfaces_that_count(root, names)
}

/// Whether the mounts are ones that `sysinfo` can be asked about. It looks at every one of them, and what is behind a
/// network or a FUSE program may never answer; it knows neither pools of ZFS nor what an overlay lies on. Where there
/// is any of these the kernel's own files are read in place of it.
fn can_be_asked() -> bool {
    let Ok(text) = std::fs::read("/proc/self/mountinfo") else { return false };
    parse_mountinfo(&text).all(|mount| {
        mount.is_ok_and(|mount| procfs::is_safe(&mount.kind) && !["zfs", "overlay"].contains(&&*mount.kind))
    })
}

/// Disks by `/proc`, where `sysinfo` must not be asked.
pub fn read_disks_instead(root: &Root, snapshot: &mut Snapshot) -> Option<Result<(), SourceError>> {
    (!can_be_asked()).then(|| {
        procfs::DisksSource::default().read(root, snapshot)?;
        snapshot.space = DiskSpace::total(procfs::file_systems(root)?.into_iter().map(|(_, space)| space));
        Ok(())
    })
}

/// File systems by `/proc`, where `sysinfo` must not be asked.
pub fn file_systems_instead(root: &Root) -> Option<Result<Vec<(String, DiskSpace)>, SourceError>> {
    (!can_be_asked()).then(|| procfs::file_systems(root))
}

/// A file system on a device: overlays and the like lie on one that is counted by itself.
pub fn is_real(disk: &Disk) -> bool {
    disk.name().as_encoded_bytes().starts_with(b"/dev/") && disk.total_space() > 0
}

/// The device, by whichever of its names it was mounted.
pub fn device_of(disk: &Disk) -> String {
    let name = Path::new(disk.name());
    let real = std::fs::canonicalize(name).unwrap_or_else(|_| name.to_owned());
    real.to_string_lossy().trim_start_matches("/dev/").to_owned()
}

/// As the kernel calls it.
pub fn name_of(disk: &Disk) -> String {
    device_of(disk)
}

/// A device is one pool of space.
pub fn pool_of(disk: &Disk) -> String {
    device_of(disk)
}

/// Not taken by files, reserved blocks included.
pub fn unused_bytes(disk: &Disk) -> Option<u64> {
    let found = rustix::fs::statvfs(disk.mount_point()).ok()?;
    found.f_bfree.checked_mul(found.f_frsize)
}
