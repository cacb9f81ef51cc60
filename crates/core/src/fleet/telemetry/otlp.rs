//! OTLP/HTTP: points as a request for metrics, and what its answer says.
//!
//! In:  points, the facts about the run. Out: the bytes of a request; how many points the receiver refused.
//! Not here: names and units (`names`), where it is sent (`endpoint`), when (`sender`).
//!
//! Messages and the numbers of their fields: `metrics/v1/metrics.proto` and
//! `collector/metrics/v1/metrics_service.proto` of OpenTelemetry.

use std::time::Duration;

use serde_json::{Value, json};

use super::names::{self, Instrument, OtelName};
use super::protobuf::{Field, Message, field};
use super::values::{Point, identity, in_base_unit, job_name, status};
use crate::market::cloud::Cloud;
use crate::metric::Metric;
use crate::os::Moment;
use crate::store::recording::Run;

const CUMULATIVE: i64 = 2;

/// The request for some points, which may be none. `newest` is the last point of the run, sent or not; `attributes` replace
/// those of the run.
pub fn request(
    attributes: &[(String, String)],
    points: &[Point],
    newest: Option<&Point>,
    run: &Run,
    cloud: Option<&Cloud>,
) -> Vec<u8> {
    let pid = newest.and_then(|point| point.row.get(Metric::Pid));
    let mut resource = resource(run, pid, cloud);
    resource.retain(|(key, _)| attributes.iter().all(|(other, _)| other != key));
    resource.extend(attributes.iter().map(|(key, value)| (key.clone(), json!(value))));
    let mut request = Message::default();
    request.message(1, |of_resource| {
        of_resource.message(1, |message| {
            for (key, value) in &resource {
                attribute(message, 1, key, value);
            }
        });
        of_resource.message(2, |of_scope| {
            of_scope.message(1, |scope| {
                scope.text(1, "resource-tracker");
                scope.text(2, crate::PROGRAM_VERSION);
            });
            metrics(of_scope, points, newest, run);
        });
        of_resource.text(3, names::SCHEMA_URL);
    });
    request.into_bytes()
}

/// How many data points of a request the receiver did not take, and why, by the answer to the request.
pub fn rejected(answer: &[u8]) -> Option<(u64, String)> {
    let Some(Field::Bytes(partial_success)) = field(answer, 1) else { return None };
    let Some(Field::Integer(points @ 1..)) = field(partial_success, 1) else { return None };
    let why = match field(partial_success, 2) {
        Some(Field::Bytes(why)) => String::from_utf8_lossy(why).into_owned(),
        _ => String::new(),
    };
    Some((points, why))
}

/// The attributes of the run. Facts without a name in the conventions start with `resource_tracker.`.
fn resource(run: &Run, pid: Option<f64>, cloud: Option<&Cloud>) -> Vec<(String, Value)> {
    let identity = identity(run);
    let is_kubernetes = identity.contains_key("pod")
        || identity.get("scheduler").is_some_and(|scheduler| scheduler == "kubernetes");
    let text = |text: Option<&str>| text.map(|text| json!(text));
    let of_cloud = |field: fn(&Cloud) -> Option<&String>| text(cloud.and_then(field).map(String::as_str));
    let vendor = cloud.map(|cloud| if cloud.vendor == "alicloud" { "alibaba_cloud" } else { cloud.vendor });
    let command = run.command.as_ref().map(|words| words.join(" "));
    let named = [
        ("service.name", Some(json!(job_name(run)))),
        ("service.instance.id", text(run.id.as_deref())),
        ("resource_tracker.run_id", text(run.id.as_deref())),
        ("resource_tracker.parent", text(run.parent.as_deref())),
        ("host.name", text(run.host.as_deref())),
        ("process.pid", pid.and_then(|pid| pid.to_string().parse::<i64>().ok()).map(|pid| json!(pid))),
        ("process.command_line", text(command.as_deref())),
        ("cloud.provider", text(vendor)),
        ("cloud.region", of_cloud(|cloud| cloud.region.as_ref())),
        ("cloud.availability_zone", of_cloud(|cloud| cloud.zone.as_ref())),
        ("host.type", of_cloud(|cloud| cloud.instance_type.as_ref())),
        ("host.id", of_cloud(|cloud| cloud.instance_id.as_ref())),
    ];
    let named = named.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    let of_identity = identity.into_iter().map(|(key, value)| {
        let name = match key.as_str() {
            "user" => "user.name".to_owned(),
            "pod" => "k8s.pod.name".to_owned(),
            "image" => "container.image.name".to_owned(),
            "node" if is_kubernetes => "k8s.node.name".to_owned(),
            key => format!("resource_tracker.{key}"),
        };
        (name, value)
    });
    let tags = run.tags.iter().map(|(key, value)| (format!("resource_tracker.tag.{key}"), json!(value)));
    named.chain(of_identity).chain(tags).collect()
}

/// The metrics of a scope, with a data point for each point and GPU. Several columns may be one metric.
fn metrics(scope: &mut Message, points: &[Point], newest: Option<&Point>, run: &Run) {
    let mut found: Vec<(OtelName, String, Message)> = Vec::new();
    for metric in Metric::ALL.iter().copied() {
        let Some(name) = names::otel(metric) else { continue };
        let mut data = Message::default();
        for point in points {
            let gpus = (0..point.row.gpus.len()).map(|gpu| (Some(gpu), point.row.get_of_gpu(metric, gpu)));
            let cells = gpus.chain([(None, point.row.get(metric))]);
            for (gpu, value) in cells.filter_map(|(gpu, cell)| Some((gpu, cell?))) {
                let gpu = gpu.map(|gpu| [("hw.id", json!(gpu.to_string())), ("hw.type", json!("gpu"))]);
                let own = name.attribute.map(|(key, value)| (key, json!(value)));
                let attributes: Vec<_> = own.into_iter().chain(gpu.into_iter().flatten()).collect();
                data_point(&mut data, point.start_s, point.time_s, in_base_unit(metric, value), &attributes);
            }
        }
        if let Some((.., known)) = found.iter_mut().find(|(other, ..)| other.name == name.name) {
            known.append(data);
        } else {
            // Columns of one metric differ in their help.
            let help = if name.attribute.is_none() { names::help(metric) } else { String::new() };
            found.push((name, help, data));
        }
    }
    let mut info = Message::default();
    let exit_code = run.exit_code.map(|code| ("process.exit.code", json!(code)));
    let attributes: Vec<_> =
        [("resource_tracker.status", json!(status(run)))].into_iter().chain(exit_code).collect();
    let time_s = Moment::now().wall_s();
    let start_s = newest.map_or(time_s, |point| point.start_s);
    data_point(&mut info, start_s, time_s, 1.0, &attributes);
    let name = OtelName {
        name: "resource_tracker.run.info".to_owned(),
        unit: "1",
        instrument: Instrument::Gauge,
        attribute: None,
    };
    found.push((name, "Always 1; the attributes say how the run is.".to_owned(), info));
    for (name, help, mut data) in found.into_iter().filter(|(.., data)| !data.is_empty()) {
        scope.message(2, |metric| {
            metric.text(1, &name.name);
            metric.text(2, &help);
            metric.text(3, name.unit);
            if name.instrument == Instrument::Gauge {
                metric.message(5, |gauge| gauge.append(data));
            } else {
                data.integer(2, CUMULATIVE);
                data.integer(3, i64::from(name.instrument == Instrument::Counter));
                metric.message(7, |sum| sum.append(data));
            }
        });
    }
}

fn data_point(data: &mut Message, start_s: f64, time_s: f64, value: f64, attributes: &[(&str, Value)]) {
    data.message(1, |point| {
        point.fixed64(2, nanoseconds(start_s));
        point.fixed64(3, nanoseconds(time_s));
        point.double(4, value);
        for (key, value) in attributes {
            attribute(point, 7, key, value);
        }
    });
}

fn nanoseconds(seconds: f64) -> u64 {
    let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn attribute(message: &mut Message, field: u32, key: &str, value: &Value) {
    message.message(field, |pair| {
        pair.text(1, key);
        pair.message(2, |any| match (value.as_str(), value.as_i64(), value.as_f64()) {
            (Some(text), ..) => any.text(1, text),
            (_, Some(number), _) => any.integer(3, number),
            (.., Some(number)) => any.double(4, number),
            _ => any.text(1, &value.to_string()),
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_says_how_many_points_were_refused() {
        let mut answer = Message::default();
        answer.message(1, |partial| {
            partial.integer(1, 7);
            partial.text(2, "too old");
        });
        assert_eq!(rejected(&answer.into_bytes()), Some((7, "too old".to_owned())));
        let mut warning = Message::default();
        warning.message(1, |partial| partial.text(2, "deprecated"));
        assert_eq!(rejected(&warning.into_bytes()), None);
        assert_eq!((rejected(b""), rejected(b"ok\n"), rejected(b"{}")), (None, None, None));
    }
}
