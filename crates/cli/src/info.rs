//! `info`: this machine, its limits, its cloud, and which sources of figures work here.

use std::sync::Arc;

use resource_tracker::cloud::{CloudInfo, Discovery};
use resource_tracker::config::{Backend, CpuSource};
use resource_tracker::counter::TreeCounter;
use resource_tracker::host;
use resource_tracker::root::Root;
use resource_tracker::snapshot::{Moment, Snapshot};
use resource_tracker::source::Machine;
use resource_tracker::source::gpu::{self, GpuState};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::args::InfoArgs;
use crate::failure::Failure;
use crate::show;

#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "the names of the contract")]
struct Info {
    version: &'static str,
    server_info: Map<String, Value>,
    cloud_info: CloudInfo,
    cloud_inferred: bool,
    cpu_source: &'static str,
    sources: Vec<SourceState>,
}

#[derive(Serialize)]
struct SourceState {
    name: &'static str,
    works: bool,
    why_not: Option<String>,
}

/// Shows what can be known here.
pub fn info(args: &InfoArgs) -> Result<u8, Failure> {
    let root = Arc::new(Root::host().map_err(|error| Failure::new(error, Some("is /proc mounted?")))?);
    let mut discovery = Discovery::from_env();
    discovery.offline |= args.network.offline;
    let found = discovery.run();
    let (counter, refused) = TreeCounter::for_future_child(&root, CpuSource::Best);
    let mut sources = sources(&root);
    sources.push(SourceState {
        name: "CPU time of whole trees",
        works: counter.is_some(),
        why_not: Some(refused.join("; ")).filter(|why| !why.is_empty()),
    });
    let info = Info {
        version: env!("CARGO_PKG_VERSION"),
        server_info: host::look(&root, "self").server_info(),
        cloud_inferred: found.cloud.as_ref().is_some_and(|cloud| cloud.inferred),
        cloud_info: CloudInfo::new(&found),
        cpu_source: counter.as_ref().map_or(Backend::BEST.name(), TreeCounter::name),
        sources,
    };
    if args.format.json { show::json(&info) } else { show::text(&text(&info)) }
}

fn sources(root: &Arc<Root>) -> Vec<SourceState> {
    let mut machine = Machine::detect(Arc::clone(root), true);
    let mut snapshot = Snapshot::default();
    machine.read(Moment::now(), &mut snapshot);
    let state = |name| {
        let failure = snapshot.failures.iter().find(|(failed, _)| *failed == name);
        SourceState { name, works: failure.is_none(), why_not: failure.map(|(_, error)| error.to_string()) }
    };
    machine.names().map(state).chain(gpus(root)).collect()
}

/// Nothing where there is no GPU.
fn gpus(root: &Root) -> Option<SourceState> {
    let (works, why_not) = match gpu::look(root, &gpu::Question::default()) {
        GpuState::Absent => return None,
        GpuState::Silent => (false, Some("the driver does not answer".to_owned())),
        GpuState::Read(reading) => {
            (!reading.gpus.is_empty(), Some(reading.notes.join("; ")).filter(|notes| !notes.is_empty()))
        }
    };
    Some(SourceState { name: "GPUs", works, why_not })
}

fn text(info: &Info) -> String {
    let field = |name: &str| match info.server_info.get(name) {
        None | Some(Value::Null) => "none".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    };
    let mut lines = vec![
        ("machine", format!("{}, {} CPUs, {} MB of memory", field("os"), field("vcpus"), field("memory_mb"))),
        ("limits", format!("CPUs {}, memory {} MB", field("cpu_limit"), field("memory_limit_mb"))),
    ];
    let cloud = &info.cloud_info;
    let inferred = if info.cloud_inferred { " (inferred from its size)" } else { "" };
    lines.push(match cloud.vendor.as_str() {
        "unknown" => ("cloud", "none found".to_owned()),
        vendor => ("cloud", format!("{vendor}, {}{inferred}, {}", cloud.instance_type, cloud.region)),
    });
    lines.push(("CPU time", format!("counted by {}", info.cpu_source)));
    for source in &info.sources {
        let state = match (&source.why_not, source.works) {
            (None, _) => "works".to_owned(),
            (Some(why), true) => format!("works; {why}"),
            (Some(why), false) => format!("does not work: {why}"),
        };
        lines.push((source.name, state));
    }
    show::aligned(&lines)
}
