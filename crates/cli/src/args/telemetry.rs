//! Options of `run` and `attach` for live telemetry.

use std::path::PathBuf;

use clap::Args;
use resource_tracker::Telemetry;

#[derive(Args, Debug)]
pub struct TelemetryArgs {
    /// Send metrics by OTLP/HTTP after each sample, to URL or to the address in `OTEL_EXPORTER_OTLP_ENDPOINT`
    #[arg(long, value_name = "URL", env = "RESOURCE_TRACKER_OTLP", num_args = 0..=1, default_missing_value = Telemetry::BY_VARIABLES, value_parser = otlp)]
    pub otlp: Option<String>,
    /// Write metrics to FILE after each sample, for the textfile collector of Prometheus
    #[arg(long, value_name = "FILE", env = "RESOURCE_TRACKER_PROMETHEUS")]
    pub prometheus: Option<PathBuf>,
    /// Send metrics to a Pushgateway of Prometheus after each sample
    #[arg(long, value_name = "URL", env = "RESOURCE_TRACKER_PUSHGATEWAY", value_parser = address)]
    pub pushgateway: Option<String>,
}

fn otlp(text: &str) -> Result<String, String> {
    if text == Telemetry::BY_VARIABLES { Ok(text.to_owned()) } else { address(text) }
}

fn address(text: &str) -> Result<String, String> {
    Telemetry::address(text).ok_or_else(|| "expected an http:// or https:// URL".to_owned())
}
