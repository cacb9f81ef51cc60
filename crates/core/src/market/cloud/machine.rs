//! Size of this machine. The instance type is inferred from it if the metadata service does not report the type.
//!
//! In:  the root folder (`/`, or another folder in tests), with `/proc` and `/sys/block`.
//! Out: [`Machine`], and the vendor's instance type of this size if there is exactly one.
//! Not here: limits of a container, since an instance type describes the whole machine.

use std::collections::BTreeSet;
use std::path::Path;

use crate::os::root::Root;
use crate::probe::host;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Machine {
    pub vcpus: u32,
    /// `MemTotal`. Smaller than the vendor's figure, because firmware and kernel reserve memory.
    pub memory_mib: f64,
    /// Sizes of whole disks, without partitions.
    pub disks_gb: BTreeSet<u64>,
    /// `x86_64` or `arm64`.
    pub architecture: &'static str,
}

impl Machine {
    /// `None` if CPUs or memory cannot be read, for example without `/proc`.
    pub(crate) fn read(root: &Path) -> Option<Self> {
        let root = Root::recorded(root).ok()?;
        let (vcpus, memory_mib) = host::size(&root);
        Some(Self {
            vcpus: vcpus.filter(|count| *count > 0)?,
            memory_mib: memory_mib?,
            disks_gb: disks_gb(&root),
            architecture: host::architecture(),
        })
    }

    /// The vendor's instance type of this size; `None` if no type or more than one type has this size.
    pub(crate) fn instance_type(&self, vendor_id: &str) -> Option<String> {
        let found = crate::market::catalog::only_match(
            vendor_id,
            self.vcpus,
            self.memory_mib,
            &self.disks_gb,
            self.architecture,
        );
        found.ok().flatten().map(ToOwned::to_owned)
    }
}

/// Sizes of disks whose type clouds provide. The file `size` counts units of 512 bytes, independent of the sector size.
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
    fn sizes_come_from_proc_and_sys_block() {
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
    fn instance_type_is_inferred_only_from_a_single_match() {
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
        // Two types have 1 vCPU, 1 GB of memory and a disk of 25 GB: one with AMD CPUs, one with Intel CPUs.
        let small =
            Machine { vcpus: 1, memory_mib: 960.0, disks_gb: BTreeSet::from([25]), architecture: "x86_64" };
        assert_eq!(small.instance_type("vultr"), None);
    }
}
