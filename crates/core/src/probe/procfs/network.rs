//! Network traffic of the machine, from `/proc/net/dev` and `/sys/class/net`.
//!
//! Packets of a bridge, bond, VLAN or tunnel also pass through the interface below it, and both ends of a veth pair
//! count each packet. Only interfaces with a device (hardware or virtio) count, and of those only the ones whose master has
//! no device: on Azure, the interface of the virtual machine counts the packets of its accelerated interface too. In a
//! container no interface may have a device: then interfaces count that are not stacked on another interface, and one end of
//! each veth pair.

use super::{KeptFile, Picks, parse_net_dev, unparsed};
use crate::error::SourceError;
use crate::os::root::Root;
use crate::probe::Source;
use crate::probe::snapshot::{Device, Snapshot};

#[derive(Debug, Default)]
pub struct NetworkSource {
    file: KeptFile,
    picks: Picks,
}

impl Source for NetworkSource {
    fn name(&self) -> &'static str {
        "network"
    }

    fn read(&mut self, root: &Root, snapshot: &mut Snapshot) -> Result<(), SourceError> {
        const PATH: &str = "/proc/net/dev";
        let text = self.file.text(root, PATH)?;
        let interfaces: Vec<_> = parse_net_dev(text).collect::<Result<_, _>>().map_err(unparsed(PATH))?;
        let counts = self.picks.of(interfaces.iter().map(|interface| interface.name), |names| {
            interfaces_that_count(root, names)
        });
        let real =
            interfaces.iter().zip(counts).filter(|(_, counts)| **counts).map(|(interface, _)| Device {
                name: interface.name.into(),
                inbound: interface.received_bytes,
                outbound: interface.sent_bytes,
            });
        snapshot.network = Some(real.collect());
        Ok(())
    }
}

/// For each interface, whether its bytes count.
pub(crate) fn interfaces_that_count(root: &Root, names: &[Box<[u8]>]) -> Vec<bool> {
    let names: Vec<_> = names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    let below = |name: &str, entry: &str| format!("/sys/class/net/{name}/{entry}");
    let has_hardware = |name: &str| root.exists(&below(name, "device"));
    // An alias such as `eth0:1` has no folder in sysfs, and its bytes are counted by `eth0`.
    let is_candidate = |name: &str| name != "lo" && !name.contains(':');
    if names.iter().any(|name| is_candidate(name) && has_hardware(name)) {
        let is_counted_by_master = |name: &str| {
            let master = root.link(&below(name, "master"));
            let master = master.as_ref().and_then(|master| master.file_name()?.to_str());
            master.is_some_and(has_hardware)
        };
        let counts = |name: &str| is_candidate(name) && has_hardware(name) && !is_counted_by_master(name);
        return names.iter().map(|name| counts(name)).collect();
    }
    let index = |name: &str, entry: &str| root.text(&below(name, entry))?.parse::<u32>().ok();
    let indices: Vec<_> = names.iter().map(|name| index(name, "ifindex")).collect();
    let mut counted_peers = Vec::new();
    names
        .iter()
        .zip(&indices)
        .map(|(name, own)| {
            let entries = root.names(&below(name, ""));
            let is_stacked = entries
                .iter()
                .any(|entry| entry.starts_with("lower_") || entry == "bridge" || entry == "bonding");
            // `iflink` of a veth is the index of its peer, which may be in another namespace.
            let peer =
                index(name, "iflink").filter(|peer| Some(*peer) != *own && indices.contains(&Some(*peer)));
            if !is_candidate(name) || is_stacked || peer.is_some_and(|peer| counted_peers.contains(&peer)) {
                return false;
            }
            counted_peers.extend(*own);
            true
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn interface_whose_master_has_a_device_is_already_counted() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("proc")).unwrap();
        let net = folder.path().join("sys/class/net");
        for (name, has_device) in [("eth0", true), ("enP1", true), ("bond0", false), ("eth1", true)] {
            let own = net.join(name);
            fs::create_dir_all(&own).unwrap();
            if has_device {
                fs::create_dir(own.join("device")).unwrap();
            }
        }
        // Azure's accelerated interface, and an interface of a bond, which has no device of its own.
        std::os::unix::fs::symlink("../eth0", net.join("enP1/master")).unwrap();
        std::os::unix::fs::symlink("../bond0", net.join("eth1/master")).unwrap();
        let root = Root::recorded(folder.path()).unwrap();
        let names = ["lo", "eth0", "enP1", "bond0", "eth1"].map(|name| Box::from(name.as_bytes()));
        assert_eq!(interfaces_that_count(&root, &names), [false, true, false, false, true]);
    }
}
