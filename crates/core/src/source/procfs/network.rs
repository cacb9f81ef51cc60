//! Traffic of the machine: `/proc/net/dev`, with `/sys/class/net` to tell real interfaces from virtual ones.
//!
//! What goes through a bridge, bond, VLAN or tunnel also goes through the device below it, and a veth pair
//! shows each packet on both ends. So where interfaces with hardware (or a hypervisor's stand-in for it)
//! behind them exist, they alone count; in a container or network namespace, where none does, every
//! interface counts that is not stacked on another one here, and of a veth pair with both ends here one end.

use super::{KeptFile, Picks, parse_net_dev, unparsed};
use crate::error::SourceError;
use crate::root::{Root, Shape};
use crate::snapshot::{Device, Snapshot};
use crate::source::Source;

/// `/proc/net/dev`.
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
        let text = self.file.text(root, PATH, Shape::Records)?;
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

/// Whether each of these interfaces counts.
pub(crate) fn interfaces_that_count(root: &Root, names: &[Box<[u8]>]) -> Vec<bool> {
    let names: Vec<_> = names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    let below = |name: &str, entry: &str| format!("/sys/class/net/{name}/{entry}");
    let has_hardware = |name: &str| root.exists(&below(name, "device"));
    // An alias such as eth0:1 has no folder of its own and its bytes are eth0's.
    let is_candidate = |name: &str| name != "lo" && !name.contains(':');
    if names.iter().any(|name| is_candidate(name) && has_hardware(name)) {
        return names.iter().map(|name| is_candidate(name) && has_hardware(name)).collect();
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
            // A veth names its peer's index; a peer in another namespace is not among ours.
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
