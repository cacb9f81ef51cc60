//! Facts about the host: CPUs, memory, GPUs, and the limits of a container.
//!
//! In:  `/proc`, cgroups and the CPU affinity. Out: [`Host`], and its JSON form `server_info`.
//! Not here: the cloud (`market/cloud`), GPU usage (`probe/gpu`).

use serde_json::{Map, Value, json};

use crate::os::root::Root;
use crate::probe::cgroup::{Limits, read_limits};
use crate::probe::gpu::{self, Inventory};
#[cfg(target_os = "linux")]
use crate::probe::procfs::{parse_meminfo, parse_stat};
use crate::probe::snapshot::DiskSpace;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Host {
    /// Operating system, named as in Python's `sys.platform`.
    pub os: &'static str,
    /// Number of online CPUs.
    pub vcpus: Option<u32>,
    pub memory_mib: Option<f64>,
    /// The smallest of CPU quota, CPU set and CPU affinity; `None` if that is not smaller than `vcpus`.
    pub cpu_limit_cores: Option<f64>,
    /// Memory limit of the cgroup; `None` if it is not smaller than `memory_mib`.
    pub memory_limit_mib: Option<f64>,
    pub gpus: Inventory,
}

/// Reads the host and the limits of process `pid` (a number or `self`). Waits up to one second for a GPU driver that
/// has not answered yet.
pub fn read(root: &Root, pid: &str) -> Host {
    read_with(root, read_limits(root, pid))
}

/// Like [`read`], with the limits that a job had.
pub fn read_with(root: &Root, limits: Limits) -> Host {
    Host { gpus: gpu::inventory(root, gpu::Patience::Second), ..read_without_gpus(root, limits) }
}

/// Like [`read_with`], but does not wait for a GPU driver. Lists the GPUs that answered while the job ran.
pub fn read_without_waiting(root: &Root, limits: Limits) -> Host {
    Host { gpus: gpu::inventory(root, gpu::Patience::None), ..read_without_gpus(root, limits) }
}

/// The `server_info` of this host; empty if the host cannot be read.
pub fn server_info() -> Map<String, Value> {
    Root::host_in_process().map(|root| read(&root, "self").server_info()).unwrap_or_default()
}

/// Name of the operating system as `uname -s` and Python's `platform.system()` write it.
fn os() -> &'static str {
    match std::env::consts::OS {
        "linux" => "Linux",
        "macos" => "Darwin",
        "windows" => "Windows",
        other => other,
    }
}

/// CPU architecture in the spelling of the catalogue: `x86_64`, `arm64`, …
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "aarch64" => "arm64",
        "x86" => "i386",
        other => other,
    }
}

/// Size, used and free bytes of each ZFS pool.
pub fn zfs_pools() -> Vec<(String, DiskSpace)> {
    Root::host_in_process().and_then(|root| super::zfs_pools(&root)).unwrap_or_default()
}

/// `cpu_limit_cores` and `memory_limit_mib` are read on Linux only.
#[cfg(not(target_os = "linux"))]
fn read_without_gpus(root: &Root, _limits: Limits) -> Host {
    let (vcpus, memory_mib) = size(root);
    Host { os: if cfg!(windows) { "win32" } else { "darwin" }, vcpus, memory_mib, ..Host::default() }
}

/// Number of online CPUs, and memory in MiB.
#[cfg(not(target_os = "linux"))]
pub(crate) fn size(_root: &Root) -> (Option<u32>, Option<f64>) {
    let cpus = std::thread::available_parallelism().ok();
    let vcpus = cpus.and_then(|cpus| u32::try_from(cpus.get()).ok());
    (vcpus, crate::probe::portable::total_memory_kib().map(mib_of_kib))
}

#[cfg(target_os = "linux")]
fn read_without_gpus(root: &Root, limits: Limits) -> Host {
    let (vcpus, memory_mib) = size(root);
    let all = vcpus.map(f64::from);
    // A CPU set or affinity that contains all CPUs is not a limit.
    let fewer = |cpus: Option<u64>| {
        cpus.and_then(|cpus| u32::try_from(cpus).ok())
            .map(f64::from)
            .filter(|cpus| all.is_none_or(|all| *cpus < all))
    };
    let candidates = [limits.cpu_cores, fewer(limits.cpuset_cpus), fewer(limits.affinity_cpus)];
    let memory_limit_mib = limits.memory_bytes.map(|bytes| mib_of_kib(bytes / 1024));
    Host {
        os: os(),
        vcpus,
        memory_mib,
        cpu_limit_cores: candidates.into_iter().flatten().reduce(f64::min),
        memory_limit_mib: memory_limit_mib.filter(|limit| memory_mib.is_none_or(|all| *limit < all)),
        gpus: Inventory::default(),
    }
}

/// Number of online CPUs, and memory in MiB.
#[cfg(target_os = "linux")]
pub(crate) fn size(root: &Root) -> (Option<u32>, Option<f64>) {
    let mut buffer = Vec::new();
    let stat = root.read("/proc/stat", &mut buffer).ok().and_then(|text| parse_stat(text).ok());
    let meminfo = root.read("/proc/meminfo", &mut buffer).ok().and_then(|text| parse_meminfo(text).ok());
    (stat.map(|stat| stat.cpus), meminfo.and_then(|meminfo| meminfo.total_kib).map(mib_of_kib))
}

#[expect(clippy::cast_precision_loss, reason = "memory sizes are far below 2^53 KiB")]
fn mib_of_kib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

/// The most common name. If several names are equally common, the first of them.
fn most_common(names: &[String]) -> &str {
    let count = |name: &String| names.iter().filter(|other| *other == name).count();
    // `max_by_key` returns the last maximum, hence the reversed order.
    names.iter().rev().max_by_key(|name| count(name)).map_or("", String::as_str)
}

impl Host {
    /// The JSON object `server_info`. The key `allocation` is missing because it needs the statistics of the run.
    pub fn server_info(&self) -> Map<String, Value> {
        let two_decimals = |value: f64| (value * 100.0).round() / 100.0;
        let Value::Object(info) = json!({
            "os": self.os,
            "architecture": architecture(),
            "vcpus": self.vcpus,
            "memory_mb": self.memory_mib.map(two_decimals),
            "gpu_count": self.gpus.names.as_ref().map(Vec::len),
            "gpu_names": self.gpus.names.as_deref().unwrap_or_default(),
            "gpu_name": self.gpus.names.as_deref().map_or("", most_common),
            "gpu_memory_mb": self.gpus.memory_bytes.map(|bytes| mib_of_kib(bytes / 1024)),
            "cpu_limit": self.cpu_limit_cores,
            "memory_limit_mb": self.memory_limit_mib.map(two_decimals),
        }) else {
            return Map::new();
        };
        info
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn cpu_count_agrees_with_getconf() {
        let host = read(&Root::host().unwrap(), "self");
        let nproc = std::process::Command::new("getconf").arg("_NPROCESSORS_ONLN").output().unwrap();
        assert_eq!(host.vcpus.unwrap().to_string(), String::from_utf8_lossy(&nproc.stdout).trim());
        assert!(host.memory_mib.unwrap() > 64.0);
    }

    #[test]
    fn gpu_name_is_the_most_common_name_and_unknown_gpus_are_null() {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(most_common(&names(&["T4", "A10", "A10"])), "A10");
        assert_eq!(most_common(&names(&["T4", "A10"])), "T4");
        assert_eq!(most_common(&[]), "");
        let info =
            Host { gpus: Inventory { names: None, memory_bytes: None }, ..Host::default() }.server_info();
        assert_eq!((&info["gpu_count"], &info["gpu_memory_mb"]), (&Value::Null, &Value::Null));
        let none = Inventory { names: Some(Vec::new()), memory_bytes: Some(0) };
        let info = Host { gpus: none, ..Host::default() }.server_info();
        assert_eq!((&info["gpu_count"], &info["gpu_memory_mb"]), (&json!(0), &json!(0.0)));
    }
}
