//! Where OTLP requests go: the URL of the user, or the variables of OpenTelemetry.
//!
//! In:  a URL, `OTEL_…` variables. Out: an [`Endpoint`], notes about what is not supported.
//! Not here: the content of requests (`otlp`), when they are sent (`sender`).
//!
//! The variables: "OTLP Exporter Configuration" and "General SDK Configuration" of the specification of OpenTelemetry.

use std::time::Duration;

use super::Telemetry;
use super::address::{Address, percent_decoded};
use crate::human::printable;

const DEFAULT_URL: &str = "http://localhost:4318";
const METRICS_PATH: &str = "/v1/metrics";
const DEFAULT_TIMEOUT_MS: u64 = 10_000;
const PROTOCOL: &str = "http/protobuf";

/// Where requests go, and what the variables add to them.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    pub address: Address,
    pub headers: Vec<(String, String)>,
    pub timeout: Duration,
    /// Whether the content of requests is compressed by gzip.
    pub is_compressed: bool,
    /// Root certificates as PEM, in place of the known ones.
    pub roots: Option<Vec<u8>>,
    /// Attributes of the resource, which replace those of the run.
    pub attributes: Vec<(String, String)>,
}

impl Endpoint {
    /// `given` is the URL of the user, or [`Telemetry::BY_VARIABLES`]. If nothing can be sent, a note says why.
    pub fn of_environment(given: &str, notes: &mut Vec<String>) -> Option<Self> {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        let endpoint = Self::of(given, set, notes);
        endpoint.map_err(|why| notes.push(format!("nothing is sent by OTLP: {why}"))).ok()
    }

    fn of(
        given: &str,
        variable: impl Fn(&str) -> Option<String>,
        notes: &mut Vec<String>,
    ) -> Result<Self, String> {
        if variable("OTEL_SDK_DISABLED").is_some_and(|value| value.trim().eq_ignore_ascii_case("true")) {
            return Err("`OTEL_SDK_DISABLED` is set".to_owned());
        }
        let get = |name: String| variable(&name).map(|value| (name, value.trim().to_owned()));
        // The variables of metrics come before those of all signals.
        let of_metrics = |name: &str| {
            get(format!("OTEL_EXPORTER_OTLP_METRICS_{name}"))
                .or_else(|| get(format!("OTEL_EXPORTER_OTLP_{name}")))
        };
        let is_given = given != Telemetry::BY_VARIABLES;
        let address = if is_given { of_option(given)? } else { of_variables(get, of_metrics("ENDPOINT"))? };
        // A URL of the option is one of OTLP/HTTP, whatever other programs use.
        if let Some((name, value)) =
            of_metrics("PROTOCOL").filter(|(_, value)| !is_given && value != PROTOCOL)
        {
            let value = printable(&value);
            return Err(format!(
                "`{name}` is `{value}`, only `{PROTOCOL}` is supported, for which collectors have the port 4318"
            ));
        }
        let compression = of_metrics("COMPRESSION").filter(|(_, value)| value != "none");
        if let Some((name, value)) = compression.as_ref().filter(|(_, value)| value != "gzip") {
            notes.push(format!(
                "OTLP is not compressed: `{name}` is `{}`, only `gzip` is supported",
                printable(value)
            ));
        }
        let roots = of_metrics("CERTIFICATE").map(|(name, path)| certificates(&name, &path)).transpose()?;
        let timeout_ms = of_metrics("TIMEOUT").and_then(|(_, text)| text.parse().ok()).filter(|ms| *ms > 0);
        let mut attributes = pairs(&variable("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default());
        if let Some(service) = variable("OTEL_SERVICE_NAME") {
            attributes.retain(|(key, _)| key != "service.name");
            attributes.push(("service.name".to_owned(), service));
        }
        Ok(Self {
            address,
            headers: pairs(&of_metrics("HEADERS").unwrap_or_default().1),
            timeout: Duration::from_millis(timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS)),
            is_compressed: compression.is_some_and(|(_, value)| value == "gzip"),
            roots,
            attributes,
        })
    }
}

/// An address of the option gets the path of metrics, unless it has this path already.
fn of_option(url: &str) -> Result<Address, String> {
    let address = Address::parse(url.trim()).ok_or("the address is no http:// or https:// URL")?;
    let is_complete = address.shown().trim_end_matches('/').ends_with(METRICS_PATH);
    Ok(if is_complete { address } else { address.join(METRICS_PATH) })
}

/// The address of metrics is used as it is; that of all signals, the second, gets the path of metrics.
fn of_variables(
    get: impl Fn(String) -> Option<(String, String)>,
    of_all: Option<(String, String)>,
) -> Result<Address, String> {
    let parse = |(name, url): (String, String)| {
        Address::parse(&url).ok_or_else(|| format!("`{name}` is no http:// or https:// URL"))
    };
    if let Some(of_metrics) = get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT".to_owned()) {
        return parse(of_metrics);
    }
    let default = || (String::new(), DEFAULT_URL.to_owned());
    parse(of_all.unwrap_or_else(default)).map(|address| address.join(METRICS_PATH))
}

fn certificates(name: &str, path: &str) -> Result<Vec<u8>, String> {
    let path_shown = printable(path);
    let pem =
        std::fs::read(path).map_err(|error| format!("cannot read `{path_shown}` of `{name}`: {error}"))?;
    let is_pem = String::from_utf8_lossy(&pem).contains("-----BEGIN CERTIFICATE-----");
    if is_pem { Ok(pem) } else { Err(format!("`{path_shown}` of `{name}` has no certificate")) }
}

/// `key=value,key=value`, where values have the escapes of URLs.
fn pairs(text: &str) -> Vec<(String, String)> {
    let pair = |item: &str| {
        let (key, value) = item.split_once('=')?;
        let value = String::from_utf8(percent_decoded(value.trim())).ok()?;
        Some((key.trim().to_owned(), value)).filter(|(key, _)| !key.is_empty())
    };
    text.split(',').filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_notes(given: &str, variables: &[(&str, &str)]) -> (Result<Endpoint, String>, Vec<String>) {
        let mut notes = Vec::new();
        let variable =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        (Endpoint::of(given, variable, &mut notes), notes)
    }

    fn endpoint(given: &str, variables: &[(&str, &str)]) -> Result<Endpoint, String> {
        with_notes(given, variables).0
    }

    #[test]
    fn endpoint_of_metrics_is_complete_and_others_get_the_path() {
        let url = |given: &str, variables: &[(&str, &str)]| endpoint(given, variables).unwrap().address.url;
        let all = ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://all.example/base/?key=1");
        let metrics = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "https://metrics.example/in/?key=2");
        assert_eq!(url("env", &[]), "http://localhost:4318/v1/metrics");
        assert_eq!(url("env", &[all]), "https://all.example/base/v1/metrics?key=1");
        assert_eq!(url("env", &[all, metrics]), "https://metrics.example/in/?key=2");
        assert_eq!(url("http://given:4318", &[all, metrics]), "http://given:4318/v1/metrics");
        for complete in
            ["http://given/v1/metrics", "http://given/v1/metrics/", "http://given/a/v1/metrics?b=c"]
        {
            assert_eq!(url(complete, &[]), complete);
        }
    }

    #[test]
    fn error_names_the_variable_that_is_wrong() {
        for (name, value, why) in [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4317", "http:// or https:// URL"),
            ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "grpc://h", "http:// or https:// URL"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "only `http/protobuf` is supported"),
            ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/json", "port 4318"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/no/such/file", "cannot read `/no/such/file`"),
            (
                "OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE",
                concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
                "no certificate",
            ),
            ("OTEL_SDK_DISABLED", "True", "is set"),
        ] {
            let error = endpoint("env", &[(name, value)]).unwrap_err();
            assert!(error.contains(&format!("`{name}`")) && error.contains(why), "{error}");
        }
        let grpc = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
        assert!(endpoint("http://given", &[grpc]).is_ok(), "a URL of the option is one of OTLP/HTTP");
        assert!(endpoint("env", &[grpc, ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/protobuf")]).is_ok());
    }

    #[test]
    fn variables_of_metrics_come_before_those_of_all_signals() {
        let found = endpoint(
            "env",
            &[
                ("OTEL_EXPORTER_OTLP_HEADERS", "a=1"),
                ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "Authorization=Bearer%20x, tenant = b ,bad"),
                ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
                ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
                ("OTEL_RESOURCE_ATTRIBUTES", "service.name=low,deployment.environment.name=ci"),
                ("OTEL_SERVICE_NAME", "high"),
            ],
        )
        .unwrap();
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(found.headers, [pair("Authorization", "Bearer x"), pair("tenant", "b")]);
        assert_eq!((found.timeout, found.is_compressed), (Duration::from_millis(2500), true));
        let expected = [pair("deployment.environment.name", "ci"), pair("service.name", "high")];
        assert_eq!(found.attributes, expected);
    }

    #[test]
    fn unknown_compression_is_a_note() {
        let zstd = ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd");
        let (found, notes) = with_notes("env", &[zstd]);
        assert!(!found.unwrap().is_compressed && notes.len() == 1 && notes[0].contains(zstd.0), "{notes:?}");
        let of_metrics = ("OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", "none");
        let (found, notes) = with_notes("env", &[zstd, of_metrics]);
        assert!(!found.unwrap().is_compressed && notes.is_empty(), "{notes:?}");
    }
}
