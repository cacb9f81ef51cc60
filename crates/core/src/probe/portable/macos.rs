//! Figures that `sysinfo` does not provide on macOS, from `host_statistics64` and `proc_pid_rusage`.

use ::sysinfo::Disk;

use super::{Spent, Times};
use crate::error::SourceError;
use crate::os;
use crate::os::root::Root;
use crate::probe::snapshot::{DiskSpace, MachineCpu, MachineMemory, Snapshot};

/// macOS does not add the storage bytes of a reaped child to those of its parent.
pub const PARENT_INHERITS_STORAGE: bool = false;

/// macOS adds the CPU time of a reaped child to the child time of its parent.
pub const PARENT_INHERITS_TIMES: bool = true;

/// Unit of user and system time in the ledger.
pub const fn tick_ns() -> u64 {
    1_000
}

fn failed(source: std::io::Error) -> SourceError {
    SourceError::Io { path: "host_statistics64".into(), source }
}

/// CPU time of the machine. The system counts it in ticks of 10 ms (`CLK_TCK`).
pub fn machine_cpu() -> Result<MachineCpu, SourceError> {
    const TICK_NS: u64 = 10_000_000;
    let [user, system, nice] = os::machine_ticks().map_err(failed)?;
    let cpus = std::thread::available_parallelism().ok().and_then(|cpus| u32::try_from(cpus.get()).ok());
    Ok(MachineCpu {
        user_ns: user.saturating_add(nice).saturating_mul(TICK_NS),
        system_ns: system.saturating_mul(TICK_NS),
        // Rates are capped at the number of CPUs. If that number is unknown, the cap must not apply.
        cpus: cpus.unwrap_or(u32::MAX),
        ..MachineCpu::default()
    })
}

/// Memory of the machine. Pages of files count as cache; macOS has no separate buffers.
pub fn machine_memory() -> Result<MachineMemory, SourceError> {
    let pages = os::machine_pages().map_err(failed)?;
    let page_kib = os::page_bytes() / 1024;
    let kib = |pages: u32| u64::from(pages).checked_mul(page_kib);
    // `free_count` includes speculative (read-ahead) pages, which are counted as cache.
    let free_kib = kib(pages.free_count.saturating_sub(pages.speculative_count));
    let cached_kib = kib(pages.external_page_count);
    let total_kib = os::memory_bytes().map(|bytes| bytes / 1024);
    Ok(MachineMemory {
        free_kib,
        used_kib: total_kib.and_then(|total| total.checked_sub(free_kib?)?.checked_sub(cached_kib?)),
        buffers_kib: None,
        cached_kib,
        active_kib: kib(pages.active_count),
        inactive_kib: kib(pages.inactive_count),
    })
}

/// CPU time and page faults of a process; `None` if the process does not exist or must not be read.
pub fn spent(pid: u32) -> Option<Spent> {
    let account = os::account_of(pid)?;
    Some(Spent {
        own: Times { user_ns: account.user_ns, system_ns: account.system_ns },
        reaped_children: Times { user_ns: account.waited_user_ns, system_ns: account.waited_system_ns },
        major_faults: account.page_ins,
        has_storage: true,
    })
}

/// Physical footprint of a process, which Activity Monitor shows as memory.
pub fn share_kib(pid: u32) -> Option<u64> {
    os::account_of(pid).map(|account| account.footprint_kib)
}

/// For each interface, whether its bytes count. Loopback, tunnels and bridges do not count: their packets also pass
/// through another interface.
pub fn interfaces_that_count(_root: &Root, names: &[Box<[u8]>]) -> Vec<bool> {
    const VIRTUAL: [&[u8]; 9] =
        [b"lo", b"utun", b"ipsec", b"gif", b"stf", b"bridge", b"vmenet", b"feth", b"pktap"];
    let numbered = |name: &[u8], kind: &[u8]| {
        name.strip_prefix(kind).is_some_and(|number| number.iter().all(u8::is_ascii_digit))
    };
    names.iter().map(|name| !VIRTUAL.iter().any(|kind| numbered(name, kind))).collect()
}

/// Always `None`: `sysinfo` reads the list of volumes on macOS, which cannot hang.
pub const fn read_disks_instead(_root: &Root, _snapshot: &mut Snapshot) -> Option<Result<(), SourceError>> {
    None
}

pub const fn file_systems_instead(_root: &Root) -> Option<Result<Vec<(String, DiskSpace)>, SourceError>> {
    None
}

/// Whether a volume is on a local disk.
pub fn is_real(disk: &Disk) -> bool {
    let kind = disk.file_system().to_string_lossy().to_lowercase();
    disk.total_space() > 0 && ["apfs", "hfs", "exfat", "msdos"].contains(&kind.as_str())
}

/// Key of the disk of a volume. `sysinfo` reports the bytes of the whole disk for each of its volumes, and does not
/// report the name of the disk. Volumes with equal counters are therefore taken as one disk.
pub fn device_of(disk: &Disk) -> String {
    let usage = disk.usage();
    format!("{}+{}", usage.total_read_bytes, usage.total_written_bytes)
}

/// Name of a disk: the mount point of its first volume. The key of `device_of` changes with the counters.
pub fn name_of(disk: &Disk) -> String {
    disk.mount_point().to_string_lossy().into_owned()
}

/// Key of the space that volumes share. The volumes of an APFS container share its space and show equal sizes.
pub fn pool_of(disk: &Disk) -> String {
    format!("{}/{}", disk.total_space(), disk.available_space())
}

/// Always `None`: macOS reserves no blocks, so free bytes are unused bytes.
pub const fn unused_bytes(_disk: &Disk) -> Option<u64> {
    None
}
