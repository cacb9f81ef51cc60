//! The size of this machine, to find its instance type where the vendor does not tell.
//!
//! In:  a directory that stands for `/`: `proc/stat`, `proc/meminfo`, `sys/block`.
//! Out: [`Machine`], and the one instance type of a vendor that has these sizes.
//! Not here: what a container may use of it; an instance type is about the whole machine.

use std::collections::BTreeSet;
use std::path::Path;

/// What is compared with the catalogue.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Memory as the kernel counts it.
    pub memory_mib: f64,
    /// Sizes of whole disks.
    pub disks_gb: BTreeSet<u64>,
    /// `x86_64` or `arm64`.
    pub architecture: &'static str,
}

impl Machine {
    /// Reads the sizes below a root, `None` when CPUs or memory cannot be read.
    #[must_use]
    pub fn read(root: &Path) -> Option<Self> {
        let text = |path: &str| std::fs::read_to_string(root.join(path)).ok();
        Some(Self {
            vcpus: parse_vcpus(&text("proc/stat")?)?,
            memory_mib: parse_memory_mib(&text("proc/meminfo")?)?,
            disks_gb: disks_gb(root),
            architecture: if std::env::consts::ARCH == "aarch64" { "arm64" } else { std::env::consts::ARCH },
        })
    }

    /// The vendor's only instance type of this size, `None` when there is none or more than one.
    #[must_use]
    pub(crate) fn instance_type(&self, vendor_id: &str) -> Option<String> {
        let found = crate::catalog::only_match(
            vendor_id,
            self.vcpus,
            self.memory_mib,
            &self.disks_gb,
            self.architecture,
        );
        found.ok().flatten().map(ToOwned::to_owned)
    }
}

/// Lines `cpu0`, `cpu1`, … of `/proc/stat`.
fn parse_vcpus(text: &str) -> Option<u32> {
    let is_cpu = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_digit()))
    };
    u32::try_from(text.lines().filter(is_cpu).count()).ok().filter(|count| *count > 0)
}

fn parse_memory_mib(text: &str) -> Option<f64> {
    let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?.trim().strip_suffix("kB")?.trim();
    kib.parse::<u32>().ok().map(|kib| f64::from(kib) / 1024.0)
}

/// Disks that a cloud rents out; `size` counts 512 bytes whatever the disk's own sectors are.
fn disks_gb(root: &Path) -> BTreeSet<u64> {
    let disk = |name: &str| ["vd", "sd", "xvd", "nvme"].iter().any(|prefix| name.starts_with(prefix));
    std::fs::read_dir(root.join("sys/block"))
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| disk(&entry.file_name().to_string_lossy()))
        .filter_map(|entry| {
            std::fs::read_to_string(entry.path().join("size")).ok()?.trim().parse::<u64>().ok()
        })
        .map(|sectors| sectors / 1_000_000 * 512 / 1000)
        .filter(|gb| *gb > 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_below_the_root() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert_eq!(Machine::read(root.path()), None);
        write("proc/stat", "cpu  1 2 3\ncpu0 1 2 3\ncpu1 1 2 3\nintr 5\n");
        write("proc/meminfo", "MemTotal:        3911304 kB\nMemFree: 1 kB\n");
        write("sys/block/sda/size", "80003072\n");
        write("sys/block/loop0/size", "999999999\n");
        let machine = Machine::read(root.path()).unwrap();
        assert_eq!((machine.vcpus, machine.memory_mib), (2, 3_911_304.0 / 1024.0));
        assert_eq!(machine.disks_gb, BTreeSet::from([40]));
    }

    #[test]
    fn one_match_is_reported_and_two_are_not() {
        let machine = |disk, architecture| Machine {
            vcpus: 2,
            memory_mib: 3819.6,
            disks_gb: BTreeSet::from([disk]),
            architecture,
        };
        assert_eq!(machine(40, "x86_64").instance_type("hcloud").as_deref(), Some("cx23"));
        assert_eq!(machine(40, "arm64").instance_type("hcloud").as_deref(), Some("cax11"));
        assert_eq!(machine(81, "x86_64").instance_type("hcloud").as_deref(), Some("cpx22"));
        assert_eq!(machine(500, "x86_64").instance_type("hcloud"), None);
        assert_eq!(machine(40, "x86_64").instance_type("digitalocean"), None);
        // 1 vCPU, 1 GB, 25 GB: an old size, one of AMD and one of Intel.
        let small =
            Machine { vcpus: 1, memory_mib: 960.0, disks_gb: BTreeSet::from([25]), architecture: "x86_64" };
        assert_eq!(small.instance_type("vultr"), None);
    }
}
