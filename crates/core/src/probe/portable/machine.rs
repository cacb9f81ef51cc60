//! CPU time, process list, memory and network traffic of the machine.

use ::sysinfo::Networks;

use super::{Table, failed, platform};
use crate::error::SourceError;
use crate::os::root::Root;
use crate::probe::Source;
use crate::probe::snapshot::{Device, Snapshot};

#[derive(Debug)]
pub struct CpuSource;

impl Source for CpuSource {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn read(&mut self, _root: &Root, snapshot: &mut Snapshot) -> Result<(), SourceError> {
        snapshot.cpu = Some(platform::machine_cpu()?);
        Ok(())
    }
}

#[derive(Debug)]
pub struct ProcessesSource(pub Table);

impl Source for ProcessesSource {
    fn name(&self) -> &'static str {
        "processes"
    }

    fn read(&mut self, _root: &Root, snapshot: &mut Snapshot) -> Result<(), SourceError> {
        self.0.refresh()?;
        snapshot.processes = Some(self.0.with(|system| system.processes().len() as u64)?);
        Ok(())
    }
}

#[derive(Debug)]
pub struct MemorySource;

impl Source for MemorySource {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn read(&mut self, _root: &Root, snapshot: &mut Snapshot) -> Result<(), SourceError> {
        snapshot.memory = Some(platform::machine_memory()?);
        Ok(())
    }
}

/// Network traffic. Interfaces that would count a packet a second time are left out.
#[derive(Debug, Default)]
pub struct NetworkSource(Option<Networks>);

impl Source for NetworkSource {
    fn name(&self) -> &'static str {
        "network"
    }

    fn read(&mut self, root: &Root, snapshot: &mut Snapshot) -> Result<(), SourceError> {
        let networks = match &mut self.0 {
            Some(networks) => {
                networks.refresh(true);
                networks
            }
            none => {
                let listed = Networks::new_with_refreshed_list();
                none.insert(listed.map_err(|error| failed("network interfaces", error))?)
            }
        };
        let mut all: Vec<Device> = networks
            .iter()
            .map(|(name, traffic)| Device {
                name: name.to_string_lossy().as_bytes().into(),
                inbound: traffic.total_received(),
                outbound: traffic.total_transmitted(),
            })
            .collect();
        if all.is_empty() {
            return Err(SourceError::Unsupported { path: "network interfaces".into() });
        }
        all.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        let names: Vec<Box<[u8]>> = all.iter().map(|device| device.name.clone()).collect();
        let mut counts = platform::interfaces_that_count(root, &names).into_iter();
        all.retain(|_| counts.next().unwrap_or(false));
        snapshot.network = Some(all);
        Ok(())
    }
}
