//! `info`: prints this machine, its limits, its cloud, and which data sources work.

use resource_tracker::HostInfo;
use resource_tracker::human;
use serde_json::Value;

use crate::args::InfoArgs;
use crate::failure::Failure;
use crate::show;

pub fn info(args: &InfoArgs) -> Result<u8, Failure> {
    let info = HostInfo::read(args.network.offline);
    let info = info.map_err(|error| Failure::new(error, Some("check that /proc is mounted")))?;
    if args.format.json { show::json(&info) } else { show::text(&text(&info)) }
}

fn text(info: &HostInfo) -> String {
    let number = |name: &str| info.server_info.get(name).and_then(Value::as_f64);
    let (cpus, memory) = (number("vcpus").map(show::cpus), number("memory_mb"));
    let cpu_limit = number("cpu_limit").map_or_else(|| "no CPU limit".to_owned(), show::cpus);
    let memory_limit = number("memory_limit_mb")
        .map_or_else(|| "no memory limit".to_owned(), |mib| format!("{} memory", human::megabytes(mib)));
    let os = info.server_info.get("os").and_then(Value::as_str).unwrap_or_default();
    let mut lines = vec![
        (
            "machine",
            format!(
                "{os}, {}, {}",
                cpus.unwrap_or_else(|| "CPUs unknown".to_owned()),
                memory.map_or_else(
                    || "memory unknown".to_owned(),
                    |mib| format!("{} memory", human::megabytes(mib))
                )
            ),
        ),
        ("limits", format!("{cpu_limit}, {memory_limit}")),
    ];
    let cloud = &info.cloud_info;
    let inferred = if info.cloud_inferred { " (inferred from the machine's size)" } else { "" };
    lines.push(match cloud.vendor.as_str() {
        "unknown" => ("cloud", "not running on a recognised cloud".to_owned()),
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
