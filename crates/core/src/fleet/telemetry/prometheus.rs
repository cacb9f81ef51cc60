//! The text format of Prometheus, for its textfile collector and the Pushgateway.
//!
//! In:  a point, the facts about the run. Out: text, and the address of a group of the Pushgateway.
//! Not here: names (`names`), files and requests (`sender`).
//!
//! There are no timestamps, since both receivers refuse them; `resource_tracker_timestamp_seconds` says how old the values are.

use std::fmt::Write as _;

use serde_json::Value;

use super::address::{Address, base64};
use super::names;
use super::values::{Point, identity, in_base_unit, job_name, status};
use crate::metric::{Kind, Metric};
use crate::store::recording::Run;

pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Facts of the identity that are labels of all metrics.
const LABELS: [&str; 8] = ["user", "node", "cluster", "pod", "scheduler_job", "step", "array_index", "rank"];
/// Facts of the identity that tell the groups of one job and host apart.
const GROUP_LABELS: [&str; 2] = ["array_index", "rank"];
/// Facts of the identity that are amounts, not names.
const AMOUNTS: &str = "asked_";

/// All metrics after a row. `end_s` is the time of the end in Unix seconds, if the run has ended.
pub fn text(point: Option<&Point>, run: &Run, end_s: Option<f64>) -> String {
    let identity = identity(run);
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let known = |key: &str| Some((key.to_owned(), plain(identity.get(key)?)));
    let fact = |key: &str, value: Option<&str>| Some((key.to_owned(), value?.to_owned()));
    let of_run =
        [fact("job", Some(job_name(run))), fact("run", run.id.as_deref()), fact("host", run.host.as_deref())];
    let labels: Vec<_> = of_run.into_iter().flatten().chain(LABELS.into_iter().filter_map(known)).collect();
    let mut text = "# Metrics of resource-tracker\n".to_owned();
    let mut add = |name: &str, help: &str, kind: &str, samples: &[(Vec<(String, String)>, f64)]| {
        if samples.is_empty() {
            return;
        }
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (more, value) in samples {
            let labels: Vec<String> = labels
                .iter()
                .chain(more)
                .map(|(key, value)| format!("{key}=\"{}\"", escaped(value)))
                .collect();
            let _ = writeln!(text, "{name}{{{}}} {value}", labels.join(","));
        }
    };
    for metric in Metric::ALL.iter().copied() {
        let Some(Point { row, .. }) = point else { continue };
        let gpus = (0..row.gpus.len())
            .map(|gpu| (vec![("gpu".to_owned(), gpu.to_string())], row.get_of_gpu(metric, gpu)));
        let cells = gpus.chain([(Vec::new(), row.get(metric))]);
        let samples: Vec<_> =
            cells.filter_map(|(labels, cell)| Some((labels, in_base_unit(metric, cell?)))).collect();
        let kind = if metric.kind() == Kind::Delta { "counter" } else { "gauge" };
        add(&names::prometheus(metric), &names::help(metric), kind, &samples);
    }
    let mut gauge = |name: &str, help: &str, value: Option<f64>| {
        let samples: Vec<_> = value.into_iter().map(|value| (Vec::new(), value)).collect();
        add(&format!("resource_tracker_run_{name}"), help, "gauge", &samples);
    };
    for (key, value) in identity.iter().filter(|(key, _)| key.starts_with(AMOUNTS)) {
        gauge(key, "Requested from the scheduler.", value.as_f64());
    }
    gauge("start_time_seconds", "Start of the run.", point.map(|point| point.start_s));
    gauge("end_time_seconds", "End of the run; missing while it runs.", end_s);
    gauge("exit_code", "Exit code of the job; missing while it runs.", run.exit_code.map(f64::from));
    let is_info = |key: &&String| !LABELS.contains(&key.as_str()) && !key.starts_with(AMOUNTS);
    let info = [fact("status", Some(status(run))), fact("version", Some(crate::PROGRAM_VERSION))];
    let info = info.into_iter().flatten().chain(identity.keys().filter(is_info).filter_map(|key| known(key)));
    let help = "Always 1; the labels say how the run is and where it belongs.";
    add("resource_tracker_run_info", help, "gauge", &[(info.collect(), 1.0)]);
    text
}

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The address of the group of a run: its job and host, and its index where one job has several runs at a time.
pub fn pushgateway_address(url: &str, run: &Run) -> Option<Address> {
    let identity = identity(run);
    let mut path = format!("/metrics{}", segment("job", job_name(run)));
    path += &run.host.as_deref().map(|host| segment("instance", host)).unwrap_or_default();
    for label in GROUP_LABELS {
        path += &identity.get(label).map(|value| segment(label, &value.to_string())).unwrap_or_default();
    }
    Some(Address::parse(url)?.join(&path))
}

/// A label in a path. Values with other characters than these are in base64, as the Pushgateway reads them.
fn segment(label: &str, value: &str) -> String {
    let is_plain = |one: u8| one.is_ascii_alphanumeric() || b"-_".contains(&one);
    if !value.is_empty() && value.bytes().all(is_plain) {
        return format!("/{label}/{value}");
    }
    format!("/{label}@base64/{}", base64(value.as_bytes(), *b"-_", true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Row;
    use crate::store::recording::Status;

    #[test]
    fn labels_are_escaped_and_unknown_cells_are_missing() {
        let run = Run {
            id: Some("id".to_owned()),
            job: Some("a\"b\\c\nd".to_owned()),
            host: Some("node".to_owned()),
            status: Some(Status::Failed),
            exit_code: Some(3),
            ..Run::default()
        };
        let mut row = Row::default();
        row.set(Metric::ProcessMemory, Some(1.5));
        let point = Point { row, start_s: 10.25, time_s: 11.0 };
        let version = crate::PROGRAM_VERSION;
        let labels = "job=\"a\\\"b\\\\c\\nd\",run=\"id\",host=\"node\"";
        let found = text(Some(&point), &run, Some(12.0));
        let samples: Vec<&str> = found.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            samples,
            [
                format!("resource_tracker_process_memory_bytes{{{labels}}} 1536"),
                format!("resource_tracker_run_start_time_seconds{{{labels}}} 10.25"),
                format!("resource_tracker_run_end_time_seconds{{{labels}}} 12"),
                format!("resource_tracker_run_exit_code{{{labels}}} 3"),
                format!("resource_tracker_run_info{{{labels},status=\"failed\",version=\"{version}\"}} 1"),
            ]
        );
    }

    #[test]
    fn group_of_the_pushgateway_takes_any_name() {
        let run =
            |job: &str| Run { job: Some(job.to_owned()), host: Some("n-1".to_owned()), ..Run::default() };
        let url = |job: &str| pushgateway_address("http://gate:9091/", &run(job)).unwrap().url;
        assert_eq!(url("train"), "http://gate:9091/metrics/job/train/instance/n-1");
        assert_eq!(url("../a b"), "http://gate:9091/metrics/job@base64/Li4vYSBi/instance/n-1");
    }
}
