//! What `sysinfo` lacks on macOS: `host_statistics64` and `proc_pid_rusage`.

use ::sysinfo::Disk;

use super::{Spent, Times};
use crate::error::SourceError;
use crate::root::Root;
use crate::snapshot::{DiskSpace, MachineCpu, MachineMemory, Snapshot};
use crate::sys;

/// Nobody receives what a child has read and written.
pub const STORAGE_IS_HANDED_ON: bool = false;

/// A child's CPU time is its parent's too, once it was waited for.
pub const TIMES_ARE_HANDED_ON: bool = true;

/// The unit of the split of CPU time in the ledger.
pub const fn tick_ns() -> u64 {
    1_000
}

fn failed(source: std::io::Error) -> SourceError {
    SourceError::Io { path: "host_statistics64".into(), source }
}

/// CPU time of the machine, in ticks of a hundredth of a second (`CLK_TCK`).
pub fn machine_cpu() -> Result<MachineCpu, SourceError> {
    const TICK_NS: u64 = 10_000_000;
    let [user, system, nice] = sys::machine_ticks().map_err(failed)?;
    let cpus = std::thread::available_parallelism().ok().and_then(|cpus| u32::try_from(cpus.get()).ok());
    Ok(MachineCpu {
        user_ns: user.saturating_add(nice).saturating_mul(TICK_NS),
        system_ns: system.saturating_mul(TICK_NS),
        steal_ns: None,
        forks: None,
        // Not known: then no rate is held to it.
        cpus: cpus.unwrap_or(u32::MAX),
    })
}

/// Memory of the machine. Pages that hold files are the cache; there are no buffers apart from it.
pub fn machine_memory() -> Result<MachineMemory, SourceError> {
    let pages = sys::machine_pages().map_err(failed)?;
    let page_kib = sys::page_bytes() / 1024;
    let kib = |pages: u32| u64::from(pages).checked_mul(page_kib);
    // Pages that were read ahead are free already, and counted as both.
    let free_kib = kib(pages.free_count.saturating_sub(pages.speculative_count));
    let cached_kib = kib(pages.external_page_count);
    let total_kib = sys::memory_bytes().map(|bytes| bytes / 1024);
    Ok(MachineMemory {
        free_kib,
        used_kib: total_kib.and_then(|total| total.checked_sub(free_kib?)?.checked_sub(cached_kib?)),
        buffers_kib: None,
        cached_kib,
        active_kib: kib(pages.active_count),
        inactive_kib: kib(pages.inactive_count),
    })
}

/// What a process has spent; `None` where it is not there, or not ours to ask.
pub fn spent(pid: u32) -> Option<Spent> {
    let account = sys::account_of(pid)?;
    Some(Spent {
        own: Times { user_ns: account.user_ns, system_ns: account.system_ns },
        waited: Times { user_ns: account.waited_user_ns, system_ns: account.waited_system_ns },
        major_faults: account.page_ins,
        has_storage: true,
    })
}

/// Memory that is charged to a process alone: what Activity Monitor calls its memory.
pub fn share_kib(pid: u32) -> Option<u64> {
    sys::account_of(pid).map(|account| account.footprint_kib)
}

/// All but loopback, and without tunnels and bridges, whose bytes go through a device below them too.
pub fn interfaces_that_count(_root: &Root, names: &[Box<[u8]>]) -> Vec<bool> {
    const NOT: [&[u8]; 9] =
        [b"lo", b"utun", b"ipsec", b"gif", b"stf", b"bridge", b"vmenet", b"feth", b"pktap"];
    let numbered = |name: &[u8], kind: &[u8]| {
        name.strip_prefix(kind).is_some_and(|number| number.iter().all(u8::is_ascii_digit))
    };
    names.iter().map(|name| !NOT.iter().any(|kind| numbered(name, kind))).collect()
}

/// `sysinfo` asks the system's list of volumes.
pub const fn read_disks_instead(_root: &Root, _snapshot: &mut Snapshot) -> Option<Result<(), SourceError>> {
    None
}

/// As above.
pub const fn file_systems_instead(_root: &Root) -> Option<Result<Vec<(String, DiskSpace)>, SourceError>> {
    None
}

/// A volume on a disk: neither a network's nor a program's.
pub fn is_real(disk: &Disk) -> bool {
    let kind = disk.file_system().to_string_lossy().to_lowercase();
    disk.total_space() > 0 && ["apfs", "hfs", "exfat", "msdos"].contains(&kind.as_str())
}

/// `sysinfo` counts a whole disk's bytes for each of its volumes, and names volumes only: those that show the same
/// bytes are taken for one disk.
pub fn device_of(disk: &Disk) -> String {
    let usage = disk.usage();
    format!("{}+{}", usage.total_read_bytes, usage.total_written_bytes)
}

/// The first of its volumes: a name that stays.
pub fn name_of(disk: &Disk) -> String {
    disk.mount_point().to_string_lossy().into_owned()
}

/// Volumes of one APFS container share its space, and show the same sizes.
pub fn pool_of(disk: &Disk) -> String {
    format!("{}/{}", disk.total_space(), disk.available_space())
}

/// Nothing is kept back here.
pub const fn unused_bytes(_disk: &Disk) -> Option<u64> {
    None
}
