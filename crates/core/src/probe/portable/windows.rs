//! Figures that `sysinfo` does not provide on Windows, from `GetSystemTimes`, `GetProcessTimes` and the private working
//! set.

use ::sysinfo::Disk;

use super::{Spent, Times};
use crate::error::SourceError;
use crate::os;
use crate::os::root::Root;
use crate::probe::snapshot::{DiskSpace, MachineCpu, MachineMemory, Snapshot};

/// Windows does not add the storage bytes of a child to those of its parent.
pub const PARENT_INHERITS_STORAGE: bool = false;

/// Windows does not add the CPU time of a child to that of its parent.
pub const PARENT_INHERITS_TIMES: bool = false;

/// Unit of user and system time in the ledger.
pub const fn tick_ns() -> u64 {
    100
}

pub fn machine_cpu() -> Result<MachineCpu, SourceError> {
    let times =
        os::machine_times().map_err(|source| SourceError::Io { path: "GetSystemTimes".into(), source })?;
    Ok(MachineCpu {
        user_ns: times.user_ns,
        system_ns: times.system_ns,
        cpus: os::cpus(),
        ..MachineCpu::default()
    })
}

/// Memory of the machine. Free memory includes the file cache, so that used memory is total minus free. Windows does
/// not report buffers, active and inactive memory.
pub fn machine_memory() -> Result<MachineMemory, SourceError> {
    let (total, free) = os::machine_memory_bytes()
        .map_err(|source| SourceError::Io { path: "GlobalMemoryStatusEx".into(), source })?;
    Ok(MachineMemory {
        free_kib: Some(free / 1024),
        used_kib: total.checked_sub(free).map(|bytes| bytes / 1024),
        // Wine does not count the file cache and returns 0.
        cached_kib: os::file_cache_bytes().filter(|bytes| *bytes > 0).map(|bytes| bytes / 1024),
        ..MachineMemory::default()
    })
}

/// CPU time and page faults of a process; `None` if the process does not exist or must not be read.
pub fn spent(pid: u32) -> Option<Spent> {
    let times = os::process_times(pid)?;
    Some(Spent {
        own: Times { user_ns: times.user_ns, system_ns: times.system_ns },
        reaped_children: Times::default(),
        major_faults: 0,
        has_storage: true,
    })
}

/// Private working set of a process.
pub fn share_kib(pid: u32) -> Option<u64> {
    os::private_kib(pid)
}

/// For each interface, whether its bytes count. Loopback, virtual switches and tunnels do not count: their packets also
/// pass through another interface.
pub fn interfaces_that_count(_root: &Root, names: &[Box<[u8]>]) -> Vec<bool> {
    const VIRTUAL: [&str; 6] = ["loopback", "vethernet", "tunnel", "teredo", "isatap", "bridge"];
    let is_virtual = |name: &str| VIRTUAL.iter().any(|part| name.contains(part));
    names.iter().map(|name| !is_virtual(&String::from_utf8_lossy(name).to_lowercase())).collect()
}

/// Always `None`: `sysinfo` lists local drives on Windows, which cannot hang.
pub const fn read_disks_instead(_root: &Root, _snapshot: &mut Snapshot) -> Option<Result<(), SourceError>> {
    None
}

pub const fn file_systems_instead(_root: &Root) -> Option<Result<Vec<(String, DiskSpace)>, SourceError>> {
    None
}

pub fn is_real(disk: &Disk) -> bool {
    disk.total_space() > 0
}

/// Key of the drive of a volume: its mount point, such as `C:\`.
pub fn device_of(disk: &Disk) -> String {
    disk.mount_point().to_string_lossy().into_owned()
}

pub fn name_of(disk: &Disk) -> String {
    device_of(disk)
}

pub fn pool_of(disk: &Disk) -> String {
    device_of(disk)
}

/// Always `None`: Windows reserves no blocks, so free bytes are unused bytes.
pub const fn unused_bytes(_disk: &Disk) -> Option<u64> {
    None
}
