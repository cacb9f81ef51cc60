//! What `resource-tracker info` prints: the machine, its limits, its cloud, and the data sources that work.
//!
//! In:  the host. Out: [`HostInfo`]. Not here: the text for people (the command).

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::PROGRAM_VERSION;
use crate::config::{Backend, CpuSource};
use crate::error::SourceError;
use crate::job::counter::TreeCounter;
use crate::market::cloud::{CloudInfo, Discovery};
use crate::os::Moment;
use crate::os::root::Root;
use crate::probe::gpu::{self, GpuState};
use crate::probe::snapshot::Snapshot;
use crate::probe::{MachineProbe, host};

/// The machine, its limits, its cloud, and the data sources that work here.
#[derive(Debug, Serialize)]
pub struct HostInfo {
    pub version: &'static str,
    pub server_info: Map<String, Value>,
    pub cloud_info: CloudInfo,
    /// Whether the instance type was inferred from the machine's size, not read from the metadata service.
    pub cloud_inferred: bool,
    pub cpu_source: &'static str,
    pub sources: Vec<SourceState>,
}

/// Whether a data source works on this host.
#[derive(Debug, Serialize)]
pub struct SourceState {
    pub name: &'static str,
    pub works: bool,
    /// Why the source does not work, or what a working source does not provide.
    pub why_not: Option<String>,
}

impl HostInfo {
    /// Reads the host once. The cloud's metadata service is not contacted when `offline` is set.
    pub fn read(offline: bool) -> Result<Self, SourceError> {
        let root = Arc::new(Root::host()?);
        let mut discovery = Discovery::from_env();
        discovery.offline |= offline;
        let found = discovery.run();
        let (counter, refused) = TreeCounter::for_future_child(&root, CpuSource::Best);
        let mut sources = machine_sources(&root);
        sources.extend(gpu_source(&root));
        sources.push(SourceState {
            name: "CPU time of whole trees",
            works: counter.is_some(),
            why_not: Some(refused.join("; ")).filter(|why| !why.is_empty()),
        });
        Ok(Self {
            version: PROGRAM_VERSION,
            server_info: host::read(&root, "self").server_info(),
            cloud_inferred: found.cloud.as_ref().is_some_and(|cloud| cloud.inferred),
            cloud_info: CloudInfo::new(&found),
            cpu_source: counter.as_ref().map_or(Backend::BEST.name(), TreeCounter::name),
            sources,
        })
    }
}

fn machine_sources(root: &Arc<Root>) -> Vec<SourceState> {
    let mut machine = MachineProbe::detect(Arc::clone(root), true);
    let mut snapshot = Snapshot::default();
    machine.read(Moment::now(), &mut snapshot);
    let state = |name| {
        let failure = snapshot.failures.iter().find(|(failed, _)| *failed == name);
        SourceState { name, works: failure.is_none(), why_not: failure.map(|(_, error)| error.to_string()) }
    };
    machine.names().map(state).collect()
}

/// `None` on a machine without a GPU.
fn gpu_source(root: &Root) -> Option<SourceState> {
    let (works, why_not) = match gpu::read_now(root, &gpu::Question::default()) {
        GpuState::Absent => return None,
        GpuState::Silent => (false, Some("the driver does not answer".to_owned())),
        GpuState::Read(reading) => {
            (!reading.gpus.is_empty(), Some(reading.notes.join("; ")).filter(|notes| !notes.is_empty()))
        }
    };
    Some(SourceState { name: "GPUs", works, why_not })
}
