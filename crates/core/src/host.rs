//! The machine we run on: its size, and what a container lets us use of it.
//!
//! In:  `/proc`, cgroups and the CPU affinity. Out: [`Host`], and as the contract's `server_info`.
//! Not here: which cloud it belongs to (`cloud`), what its GPUs do (`source::gpu`).

use serde_json::{Map, Value, json};

use crate::root::Root;
#[cfg(target_os = "linux")]
use crate::source::cgroup::read_limits;
use crate::source::gpu::{self, Inventory};
#[cfg(target_os = "linux")]
use crate::source::procfs::{parse_meminfo, parse_stat};

/// A machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Host {
    /// Operating system, as Python's `sys.platform` names it.
    pub os: &'static str,
    /// CPUs that are on line.
    pub vcpus: Option<u32>,
    /// Memory.
    pub memory_mib: Option<f64>,
    /// CPUs that we may use, where that is less: by quota, CPU set or affinity.
    pub cpu_limit_cores: Option<f64>,
    /// Memory that we may use, where that is less.
    pub memory_limit_mib: Option<f64>,
    /// GPUs.
    pub gpus: Inventory,
}

/// Looks at the machine, and at the limits of process `pid` (`self` for ours). Waits up to a second for a GPU's
/// driver that was not asked before.
#[must_use]
pub fn look(root: &Root, pid: &str) -> Host {
    Host { gpus: gpu::inventory(root, gpu::Patience::Second), ..look_at_limits(root, pid) }
}

/// The same at the end of a job, which waits for nobody: GPUs are what was heard of them while it ran.
#[must_use]
pub fn look_at_once(root: &Root, pid: &str) -> Host {
    Host { gpus: gpu::inventory(root, gpu::Patience::None), ..look_at_limits(root, pid) }
}

/// Systems other than Linux set no limits that we know of.
#[cfg(not(target_os = "linux"))]
fn look_at_limits(root: &Root, _pid: &str) -> Host {
    let (vcpus, memory_mib) = size(root);
    Host { os: if cfg!(windows) { "win32" } else { "darwin" }, vcpus, memory_mib, ..Host::default() }
}

/// CPUs that are on line, and MiB of memory.
#[cfg(not(target_os = "linux"))]
pub(crate) fn size(_root: &Root) -> (Option<u32>, Option<f64>) {
    let cpus = std::thread::available_parallelism().ok();
    let vcpus = cpus.and_then(|cpus| u32::try_from(cpus.get()).ok());
    (vcpus, crate::source::sysinfo::total_memory_kib().map(mib_of_kib))
}

#[cfg(target_os = "linux")]
fn look_at_limits(root: &Root, pid: &str) -> Host {
    let (vcpus, memory_mib) = size(root);
    let limits = read_limits(root, pid);
    let all = vcpus.map(f64::from);
    // A set of all CPUs is no limit.
    let fewer = |cpus: Option<u64>| {
        cpus.and_then(|cpus| u32::try_from(cpus).ok())
            .map(f64::from)
            .filter(|cpus| all.is_none_or(|all| *cpus < all))
    };
    let candidates = [limits.cpu_cores, fewer(limits.cpuset_cpus), fewer(affinity_cpus(root, pid))];
    let memory_limit_mib = limits.memory_bytes.map(|bytes| mib_of_kib(bytes / 1024));
    Host {
        os: std::env::consts::OS,
        vcpus,
        memory_mib,
        cpu_limit_cores: candidates.into_iter().flatten().reduce(f64::min),
        memory_limit_mib: memory_limit_mib.filter(|limit| memory_mib.is_none_or(|all| *limit < all)),
        gpus: Inventory::default(),
    }
}

/// CPUs that are on line, and MiB of memory.
#[cfg(target_os = "linux")]
pub(crate) fn size(root: &Root) -> (Option<u32>, Option<f64>) {
    let mut buffer = Vec::new();
    let stat = root.read("/proc/stat", &mut buffer).ok().and_then(|text| parse_stat(text).ok());
    let meminfo = root.read("/proc/meminfo", &mut buffer).ok().and_then(|text| parse_meminfo(text).ok());
    (stat.map(|stat| stat.cpus), meminfo.and_then(|meminfo| meminfo.total_kib).map(mib_of_kib))
}

#[cfg(target_os = "linux")]
/// CPUs that a process may run on, by `Cpus_allowed_list`… which a recorded tree has too.
fn affinity_cpus(root: &Root, pid: &str) -> Option<u64> {
    let status = root.text(&format!("/proc/{pid}/status"))?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    crate::source::cgroup::count_cpus(list.trim())
}

#[expect(clippy::cast_precision_loss, reason = "below 2^53 KiB")]
fn mib_of_kib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

/// The first of those names that are there most often.
fn most_common(names: &[String]) -> &str {
    let count = |name: &String| names.iter().filter(|other| *other == name).count();
    // Of several maxima `max_by_key` gives the last, so the first comes last.
    names.iter().rev().max_by_key(|name| count(name)).map_or("", String::as_str)
}

impl Host {
    /// The contract's `server_info`; `allocation` is added by whoever knows the figures.
    #[must_use]
    pub fn server_info(&self) -> Map<String, Value> {
        let two_decimals = |value: f64| (value * 100.0).round() / 100.0;
        let Value::Object(info) = json!({
            "os": self.os,
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
    fn this_machine_is_as_its_commands_say() {
        let host = look(&Root::host().unwrap(), "self");
        let nproc = std::process::Command::new("getconf").arg("_NPROCESSORS_ONLN").output().unwrap();
        assert_eq!(host.vcpus.unwrap().to_string(), String::from_utf8_lossy(&nproc.stdout).trim());
        assert!(host.memory_mib.unwrap() > 64.0);
    }

    #[test]
    fn gpus_go_by_the_name_that_most_of_them_have_and_unknown_ones_are_null() {
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
