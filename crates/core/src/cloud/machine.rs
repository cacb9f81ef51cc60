//! The size of this machine, to find its instance type where the vendor does not tell.
//!
//! In:  a directory that stands for `/`: its `/proc`, and `/sys/block`.
//! Out: [`Machine`], and the one instance type of a vendor that has these sizes.
//! Not here: what a container may use of it; an instance type is about the whole machine.

use std::collections::BTreeSet;
use std::path::Path;

use crate::host;
use crate::root::Root;

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
    /// Reads the sizes below a root, `None` when CPUs or memory cannot be read: so where there is no `/proc`.
    #[must_use]
    pub fn read(root: &Path) -> Option<Self> {
        let root = Root::recorded(root).ok()?;
        let (vcpus, memory_mib) = host::size(&root);
        Some(Self {
            vcpus: vcpus.filter(|count| *count > 0)?,
            memory_mib: memory_mib?,
            disks_gb: disks_gb(&root),
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

/// Disks that a cloud rents out; `size` counts 512 bytes whatever the disk's own sectors are.
fn disks_gb(root: &Root) -> BTreeSet<u64> {
    let disk = |name: &String| ["vd", "sd", "xvd", "nvme"].iter().any(|prefix| name.starts_with(prefix));
    let disks = root.names("/sys/block").into_iter().filter(disk);
    disks
        .filter_map(|name| root.text(&format!("/sys/block/{name}/size"))?.parse::<u64>().ok())
        .map(|sectors| sectors / 1_000_000 * 512 / 1000)
        .filter(|gb| *gb > 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn sizes_are_read_below_the_root() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert_eq!(Machine::read(root.path()), None);
        write(
            "proc/stat",
            "cpu  2 4 6 8 0 0 0 0\ncpu0 1 2 3 4 0 0 0 0\ncpu1 1 2 3 4 0 0 0 0\nintr 5\nprocesses 7\n",
        );
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
