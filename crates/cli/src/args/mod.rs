//! The command line: all commands, options and environment variables, with their help.

mod record;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::FalseyValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use resource_tracker::{Aggregate, CatalogSettings, Spec};

pub use record::{AttachArgs, PrintArgs, ProcessArgs, RecordArgs, RunArgs};

/// Measure what a batch job uses, and recommend resources for the next run.
#[derive(Debug, Parser)]
#[command(
    name = "resource-tracker",
    version,
    max_term_width = 80,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command and record what it uses
    ///
    /// Output and exit status pass through unchanged. If a signal ends the command, the tracker ends by the same signal.
    /// The exit status is 127 if the command was not found, 126 if it is not executable, and 125 if an output cannot be
    /// opened before the command starts.
    #[command(
        after_help = "Examples:\n  resource-tracker run -- python train.py\n  resource-tracker run -o train.json.gz -i 0.5 -- make -j8"
    )]
    Run(RunArgs),
    /// Track a running process until it ends or Ctrl-C is pressed
    #[command(after_help = "Example:\n  resource-tracker attach 4242")]
    Attach(AttachArgs),
    /// Stream CSV samples of a process until interrupted
    #[command(after_help = "Example:\n  resource-tracker process --pid 4242 --samples 10")]
    Process(ProcessArgs),
    /// Stream CSV samples of the whole machine until interrupted
    #[command(after_help = "Example:\n  resource-tracker system --samples 10 > machine.csv")]
    System(PrintArgs),
    /// Print statistics of a recording
    #[command(
        after_help = "Examples:\n  resource-tracker stats last\n  resource-tracker stats last --stat process_memory:p95 --stat system_cpu_usage:mean"
    )]
    Stats(StatsArgs),
    /// Recommend CPU, memory, GPU and a server for the next run
    #[command(after_help = "Example:\n  resource-tracker recommend train --history 10")]
    Recommend(RecommendArgs),
    /// Compare runs against a baseline
    ///
    /// The first recording is the baseline. `*` marks a change of more than twice the standard deviation of the earlier
    /// runs of the job; at least three earlier runs are needed.
    #[command(after_help = "Example:\n  resource-tracker compare 3f9c41 last")]
    Compare(CompareArgs),
    /// Print the summary of a past run
    #[command(after_help = "Example:\n  resource-tracker show last")]
    Show(ShowArgs),
    /// Delete runs from the history
    #[command(
        after_help = "Examples:\n  resource-tracker rm 3f9c41\n  resource-tracker rm --job train --older-than 30"
    )]
    Rm(RmArgs),
    /// Convert a recording to CSV, JSON, JSON lines or Parquet
    #[command(after_help = "Example:\n  resource-tracker export last --format csv -o run.csv")]
    Export(ExportArgs),
    /// List past runs, newest first
    #[command(after_help = "Example:\n  resource-tracker list --job train")]
    List(ListArgs),
    /// List the cheapest cloud servers with the given resources
    #[command(
        after_help = "Examples:\n  resource-tracker servers --cpu 2 --memory 4096\n  resource-tracker servers --cpu 8 --memory 65536 --gpu 1 --vram 16384 --continent Europe"
    )]
    Servers(Box<ServersArgs>),
    /// Show this machine, its limits, its cloud and its data sources
    #[command(after_help = "Example:\n  resource-tracker info --json")]
    Info(InfoArgs),
    /// Show or update the catalogue of cloud servers and prices
    #[command(subcommand)]
    Catalog(CatalogCommand),
    /// Write an HTML report of a recording
    #[command(after_help = "Example:\n  resource-tracker report last --open")]
    Report(ReportArgs),
    /// Show the settings of `run`, and where each value comes from
    #[command(
        after_help = "Order of precedence, highest first: options, environment variables,\nresource-tracker.toml of the project, ~/.config/resource-tracker/config.toml.\n\nExample:\n  echo 'interval = 0.5' >> resource-tracker.toml && resource-tracker config"
    )]
    Config(JsonArgs),
    /// Print a shell completion script
    #[command(
        after_help = "Example:\n  resource-tracker completions bash > ~/.local/share/bash-completion/completions/resource-tracker"
    )]
    Completions {
        /// Shell to print the script for
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Print the manual page of resource-tracker or of one command
    #[command(after_help = "Example:\n  resource-tracker man run | man -l -")]
    Man {
        /// Command to print the page of
        command: Option<String>,
    },
    /// Record for the Python or R process that started this one
    #[command(hide = true)]
    Sidecar {
        /// Request as JSON
        request: String,
    },
}

#[derive(Debug, Subcommand)]
pub enum CatalogCommand {
    /// Show the available catalogues and their dates
    Info(JsonArgs),
    /// Download the current catalogue from the Keeper, a Spare Cores service
    #[command(after_help = "Example:\n  resource-tracker catalog update --region aws~eu-west-1")]
    Update(UpdateArgs),
}

#[derive(Args, Debug)]
pub struct JsonArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct NetworkArgs {
    /// Do not use the network
    #[arg(long, env = "RESOURCE_TRACKER_OFFLINE", value_parser = FalseyValueParser::new())]
    pub offline: bool,
}

impl NetworkArgs {
    pub fn catalog(&self) -> CatalogSettings {
        if self.offline { CatalogSettings::offline() } else { CatalogSettings::from_env() }
    }
}

#[derive(Args, Debug)]
pub struct RecordingArgs {
    /// File, `last`, or a job name or id from the history
    pub recording: OsString,
}

#[derive(Args, Debug)]
pub struct ContextArgs {
    /// Number of earlier successful runs of the job to include
    #[arg(long, value_name = "N", env = "RESOURCE_TRACKER_HISTORY", default_value = "5")]
    pub history: usize,
    #[command(flatten)]
    pub network: NetworkArgs,
}

#[derive(Args, Debug)]
pub struct UpdateArgs {
    /// Also download prices of this region, for example aws~eu-west-1; repeatable
    #[arg(long = "region", value_name = "REGION")]
    pub regions: Vec<String>,
    #[command(flatten)]
    pub format: JsonArgs,
}

#[derive(Args, Debug)]
pub struct ListArgs {
    /// List only the runs of this job
    #[arg(short, long, value_name = "NAME")]
    pub job: Option<String>,
    #[command(flatten)]
    pub format: JsonArgs,
}

#[derive(Args, Debug)]
pub struct StatsArgs {
    #[command(flatten)]
    pub which: RecordingArgs,
    /// Statistic to print instead of the default ones, for example `process_memory:p95`; repeatable
    #[arg(long = "stat", value_name = "COLUMN:AGGREGATE", value_parser = spec)]
    pub specs: Vec<Spec>,
    #[command(flatten)]
    pub format: JsonArgs,
}

#[derive(Args, Debug)]
pub struct RecommendArgs {
    #[command(flatten)]
    pub which: RecordingArgs,
    #[command(flatten)]
    pub context: ContextArgs,
    #[command(flatten)]
    pub format: JsonArgs,
}

#[derive(Args, Debug)]
pub struct CompareArgs {
    /// Files, `last`, or job names or ids from the history; the first is the baseline
    #[arg(required = true, num_args = 2.., value_name = "RECORDING")]
    pub recordings: Vec<OsString>,
    #[command(flatten)]
    pub format: JsonArgs,
}

#[derive(Args, Debug)]
pub struct ShowArgs {
    #[command(flatten)]
    pub which: RecordingArgs,
    #[command(flatten)]
    pub format: JsonArgs,
}

#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("which").required(true).multiple(true))]
pub struct RmArgs {
    /// `last`, or job names or ids from the history
    #[arg(group = "which", value_name = "RUN", conflicts_with_all = ["job", "older_than"])]
    pub runs: Vec<String>,
    /// Delete all runs of this job
    #[arg(short, long, group = "which", value_name = "NAME")]
    pub job: Option<String>,
    /// Delete all runs that started more than DAYS days ago
    #[arg(long, group = "which", value_name = "DAYS", value_parser = days, allow_negative_numbers = true)]
    pub older_than: Option<f64>,
    #[command(flatten)]
    pub format: JsonArgs,
}

#[derive(Args, Debug)]
pub struct InfoArgs {
    #[command(flatten)]
    pub network: NetworkArgs,
    #[command(flatten)]
    pub format: JsonArgs,
}

#[derive(Args, Debug)]
pub struct ServersArgs {
    /// Minimum number of CPUs
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub cpu: f64,
    /// Minimum memory
    #[arg(long, value_name = "MiB", allow_negative_numbers = true)]
    pub memory: f64,
    /// Minimum number of GPUs
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub gpu: Option<f64>,
    /// Minimum GPU memory, summed over all GPUs
    #[arg(long, value_name = "MiB", allow_negative_numbers = true)]
    pub vram: Option<f64>,
    #[command(flatten)]
    pub filters: FilterArgs,
    /// Number of servers to list
    #[arg(short, value_name = "N", default_value = "10")]
    pub n: usize,
    #[command(flatten)]
    pub network: NetworkArgs,
    #[command(flatten)]
    pub format: JsonArgs,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Filters")]
pub struct FilterArgs {
    /// Vendor, for example aws, azure, gcp, hcloud, upcloud or vultr; repeatable
    #[arg(long, value_name = "ID")]
    pub vendor_id: Vec<String>,
    /// Region; the prices are those of the region; repeatable
    #[arg(long, value_name = "REGION")]
    pub region: Vec<String>,
    /// Country code or name; repeatable
    #[arg(long, value_name = "COUNTRY")]
    pub country: Vec<String>,
    /// Continent; repeatable
    #[arg(long, value_name = "CONTINENT")]
    pub continent: Vec<String>,
    /// CPU architecture: `x86_64` or arm64; repeatable
    #[arg(long, value_name = "NAME")]
    pub architecture: Vec<String>,
    /// CPU allocation: Dedicated, Shared or Burstable; repeatable
    #[arg(long, value_name = "KIND")]
    pub cpu_allocation: Vec<String>,
    /// CPU manufacturer; repeatable
    #[arg(long, value_name = "NAME")]
    pub cpu_manufacturer: Vec<String>,
    /// GPU model; repeatable
    #[arg(long, value_name = "MODEL")]
    pub gpu_model: Vec<String>,
    /// Compliance framework; needs the Keeper; repeatable
    #[arg(long, value_name = "ID")]
    pub compliance_framework_id: Vec<String>,
    /// Minimum local storage
    #[arg(long, value_name = "GB", allow_negative_numbers = true)]
    pub storage_size: Option<f64>,
    /// Maximum price per hour
    #[arg(long, value_name = "USD", allow_negative_numbers = true)]
    pub max_price: Option<f64>,
    /// Also consider spot prices
    #[arg(long)]
    pub spot: bool,
}

#[derive(Args, Debug)]
pub struct ExportArgs {
    #[command(flatten)]
    pub which: RecordingArgs,
    /// Output format
    #[arg(long, value_enum, default_value = "csv")]
    pub format: FormatArg,
    /// Output file; `-` is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
    /// Replace an existing file that resource-tracker did not write
    #[arg(long)]
    pub force: bool,
    /// Write memory and disk space in bytes
    #[arg(long)]
    pub bytes: bool,
    /// Use human-readable column names
    #[arg(long)]
    pub human_names: bool,
}

#[derive(Args, Debug)]
pub struct ReportArgs {
    #[command(flatten)]
    pub which: RecordingArgs,
    /// Output file; `-` is standard output [default: JOB-report.html in the current directory]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace an existing file that resource-tracker did not write
    #[arg(long)]
    pub force: bool,
    /// Open the report in a browser
    #[arg(long)]
    pub open: bool,
    #[command(flatten)]
    pub context: ContextArgs,
    #[command(flatten)]
    pub format: JsonArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum FormatArg {
    /// Combined table
    Csv,
    /// Complete recording
    Json,
    /// Combined table, one JSON object per line
    Jsonl,
    /// Combined table
    Parquet,
}

fn spec(text: &str) -> Result<Spec, String> {
    let (column, aggregate) = text.rsplit_once(':').ok_or("expected COLUMN:AGGREGATE")?;
    let aggregate = aggregate.parse::<Aggregate>();
    let aggregate =
        aggregate.map_err(|error| format!("{error}\n\nhint: {}", error.hint().unwrap_or_default()))?;
    Ok(Spec { column: column.to_owned(), aggregate, name: None, round: Some(2) })
}

fn days(text: &str) -> Result<f64, String> {
    let days = text.parse().ok().filter(|days: &f64| days.is_finite() && *days >= 0.0);
    days.ok_or_else(|| "expected a number of days, 0 or more".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parser_is_consistent() {
        use clap::CommandFactory as _;
        Cli::command().debug_assert();
    }
}
