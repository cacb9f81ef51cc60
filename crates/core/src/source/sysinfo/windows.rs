//! What `sysinfo` lacks on Windows: `GetSystemTimes`, `GetProcessTimes`, the private working set.

use ::sysinfo::Disk;

use super::{Spent, Times};
use crate::error::SourceError;
use crate::root::Root;
use crate::snapshot::{DiskSpace, MachineCpu, MachineMemory, Snapshot};
use crate::sys;

/// Nobody receives what a child has read and written.
pub const STORAGE_IS_HANDED_ON: bool = false;

/// A child's CPU time stays its own.
pub const TIMES_ARE_HANDED_ON: bool = false;

/// The unit of the split of CPU time in the ledger.
pub const fn tick_ns() -> u64 {
    100
}

/// CPU time of the machine.
pub fn machine_cpu() -> Result<MachineCpu, SourceError> {
    let times =
        sys::machine_times().map_err(|source| SourceError::Io { path: "GetSystemTimes".into(), source })?;
    Ok(MachineCpu {
        user_ns: times.user_ns,
        system_ns: times.system_ns,
        steal_ns: None,
        forks: None,
        cpus: sys::cpus(),
    })
}

/// Memory of the machine. What is free has the pages in it that hold files and can be taken at once, so that these are
/// not taken off a second time; there are no figures for buffers, active and inactive memory.
pub fn machine_memory() -> Result<MachineMemory, SourceError> {
    let (total, free) = sys::machine_memory_bytes()
        .map_err(|source| SourceError::Io { path: "GlobalMemoryStatusEx".into(), source })?;
    Ok(MachineMemory {
        free_kib: Some(free / 1024),
        used_kib: total.checked_sub(free).map(|bytes| bytes / 1024),
        // No system runs without one: wine does not count it.
        cached_kib: sys::file_cache_bytes().filter(|bytes| *bytes > 0).map(|bytes| bytes / 1024),
        ..MachineMemory::default()
    })
}

/// What a process has spent; `None` where it is not there, or not ours to ask.
pub fn spent(pid: u32) -> Option<Spent> {
    let times = sys::process_times(pid)?;
    Some(Spent {
        own: Times { user_ns: times.user_ns, system_ns: times.system_ns },
        waited: Times::default(),
        major_faults: 0,
        has_storage: true,
    })
}

/// Memory that is a process's alone.
pub fn share_kib(pid: u32) -> Option<u64> {
    sys::private_kib(pid)
}

/// All but loopback; virtual switches and tunnels, whose bytes go through a device below them too, by their names.
pub fn interfaces_that_count(_root: &Root, names: &[Box<[u8]>]) -> Vec<bool> {
    const NOT: [&str; 6] = ["loopback", "vethernet", "tunnel", "teredo", "isatap", "bridge"];
    let is_virtual = |name: &str| NOT.iter().any(|part| name.contains(part));
    names.iter().map(|name| !is_virtual(&String::from_utf8_lossy(name).to_lowercase())).collect()
}

/// `sysinfo` lists drives, and asks no network for them.
pub const fn read_disks_instead(_root: &Root, _snapshot: &mut Snapshot) -> Option<Result<(), SourceError>> {
    None
}

/// As above.
pub const fn file_systems_instead(_root: &Root) -> Option<Result<Vec<(String, DiskSpace)>, SourceError>> {
    None
}

/// A drive with room for something.
pub fn is_real(disk: &Disk) -> bool {
    disk.total_space() > 0
}

/// The drive.
pub fn device_of(disk: &Disk) -> String {
    disk.mount_point().to_string_lossy().into_owned()
}

/// As users call it.
pub fn name_of(disk: &Disk) -> String {
    device_of(disk)
}

/// A drive is one pool of space.
pub fn pool_of(disk: &Disk) -> String {
    device_of(disk)
}

/// Nothing is kept back here.
pub const fn unused_bytes(_disk: &Disk) -> Option<u64> {
    None
}
