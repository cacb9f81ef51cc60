//! The command line: all commands, options and environment variables, with their help.

mod compare;
mod fleet;
mod help;
mod history;
mod record;
mod telemetry;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::FalseyValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use resource_tracker::{
    AdviceOptions, Aggregate, CatalogError, CatalogSettings, Filters, Fleet, Inputs, Spec,
};

use crate::failure::Failure;

pub use compare::{CheckArgs, CompareArgs};
pub use fleet::{
    CompactArgs, FleetCommand, FleetReportArgs, PullArgs, PushArgs, SqlArgs, StoreArgs, SummaryArgs,
};
pub use help::parser;
pub use history::{ListArgs, OUT_OF_MEMORY, RmArgs, ShowArgs};
pub use record::{AttachArgs, PrintArgs, ProcessArgs, RecordArgs, RunArgs, check_store};
pub use telemetry::TelemetryArgs;

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
    /// Start a phase of the job, from inside the job
    ///
    /// A phase lasts until the next mark, or to the end of the job. `show --phases`, the report and `--json` have what
    /// each phase used. The time before the first mark is the phase `start`. Phases of the same name count as one.
    /// Outside of `resource-tracker run`, a mark has no effect, and the exit status is 0.
    #[command(
        after_help = "Example:\n  resource-tracker run -- sh -c 'resource-tracker mark load; ./load; resource-tracker mark train; ./train'"
    )]
    Mark {
        /// Name of the phase, up to 60 characters
        name: OsString,
    },
    /// Print statistics of a recording
    #[command(
        after_help = "Examples:\n  resource-tracker stats last\n  resource-tracker stats last --stat process_memory:p95 --stat system_cpu_usage:mean"
    )]
    Stats(StatsArgs),
    /// Recommend CPU, memory, GPU and a server for the next run
    #[command(
        after_help = "Examples:\n  resource-tracker recommend train --history 10\n  resource-tracker recommend train --for slurm"
    )]
    Recommend(Box<RecommendArgs>),
    /// Compare runs or jobs against a baseline
    ///
    /// The first argument is the baseline. A job name means all finished runs of the job. `*` marks a real change: 0 is
    /// outside of its 95 % interval. Two jobs are compared by Welch's interval for the difference of their means, a run and
    /// a job by the prediction interval of the job, two runs by the prediction interval of the job of the baseline. A job
    /// needs at least three runs.
    #[command(
        after_help = "Examples:\n  resource-tracker compare 3f9c41 last\n  resource-tracker compare main branch --runs 10"
    )]
    Compare(CompareArgs),
    /// Check a run against budgets or other runs, for CI
    ///
    /// The exit status is 1 if a budget is broken or a figure with a budget is unknown. `--against` checks duration, CPU time,
    /// peak memory, peak VRAM and cost.
    #[command(
        override_usage = "resource-tracker check <RECORDING> [--max <NAME=LIMIT>]... [OPTIONS]",
        after_help = "Budgets: duration, cpu-time, cpu (mean number of CPUs), memory, disk-read,\ndisk-written, net-received, net-sent, gpu (mean number of GPUs), vram, cost (USD)\n\nExamples:\n  resource-tracker check last --max memory=4GiB --max duration=10min\n  resource-tracker check last --against main --tolerance 20% --junit check.xml"
    )]
    Check(Box<CheckArgs>),
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
    #[command(
        after_help = "Examples:\n  resource-tracker list --job train\n  resource-tracker list --tag team=vision --status failed --since 7d"
    )]
    List(ListArgs),
    /// List the cheapest cloud servers with the given resources
    #[command(
        after_help = "Examples:\n  resource-tracker servers --cpu 2 --memory 4096\n  resource-tracker servers --cpu 8 --memory 65536 --gpu 1 --vram 16384 --continent Europe"
    )]
    Servers(Box<ServersArgs>),
    /// Store runs of many machines in one place, and add them up
    #[command(subcommand)]
    Fleet(FleetCommand),
    /// Show this machine, its limits, its cloud and its data sources
    #[command(after_help = "Example:\n  resource-tracker info --json")]
    Info(InfoArgs),
    /// Show or update the catalogue of cloud servers and prices
    #[command(subcommand)]
    Catalog(CatalogCommand),
    /// Write an HTML report of a recording
    #[command(after_help = "Example:\n  resource-tracker report last --open")]
    Report(Box<ReportArgs>),
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
    /// `last`, a job name or id from the history, or a file; `./NAME` is always a file
    pub recording: OsString,
}

#[derive(Args, Debug)]
pub struct ContextArgs {
    #[command(flatten)]
    pub advice: AdviceArgs,
    /// Input of the next run, a file or folder: scales the memory request with the input size; repeatable
    #[arg(long = "input", value_name = "PATH")]
    pub inputs: Vec<PathBuf>,
    #[command(flatten)]
    pub network: NetworkArgs,
    #[command(flatten)]
    pub filters: FilterArgs,
}

impl ContextArgs {
    pub fn options(&self) -> Result<AdviceOptions, Failure> {
        let input_bytes = Inputs::total_bytes(&self.inputs).map_err(|error| Failure::new(error, None))?;
        Ok(AdviceOptions { input_bytes, ..self.advice.options(self.filters.filters()?) })
    }
}

#[derive(Args, Debug)]
pub struct AdviceArgs {
    /// Number of earlier runs of the job that the advice is based on
    #[arg(long, value_name = "N", env = "RESOURCE_TRACKER_HISTORY", default_value = "100")]
    pub history: usize,
    /// How much longer a run may take with fewer CPUs, in percent
    #[arg(long, value_name = "PERCENT", env = "RESOURCE_TRACKER_SLOWDOWN", default_value = "5", value_parser = percent)]
    pub slowdown: f64,
}

impl AdviceArgs {
    pub fn options(&self, filters: Filters) -> AdviceOptions {
        AdviceOptions {
            earlier_runs: self.history,
            slowdown: self.slowdown / 100.0,
            filters,
            ..AdviceOptions::default()
        }
    }
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim_end();
    let percent = number.parse().ok().filter(|percent| (0.0..=1000.0).contains(percent));
    percent.ok_or_else(|| "must be a number from 0 to 1000".to_owned())
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
pub struct StatsArgs {
    #[command(flatten)]
    pub which: RecordingArgs,
    /// Statistic to print instead of the default ones, for example `process_memory:p95` or `swap:max`; repeatable
    #[arg(long = "stat", value_name = "COLUMN:AGGREGATE", value_parser = spec)]
    pub specs: Vec<Spec>,
    #[command(flatten)]
    pub format: JsonArgs,
}

#[derive(Args, Debug)]
pub struct RecommendArgs {
    #[command(flatten)]
    pub which: RecordingArgs,
    /// Print only the request, as text to paste
    #[arg(long = "for", value_name = "NAME", value_enum, conflicts_with = "json")]
    pub system: Option<SystemArg>,
    /// Also use the earlier runs of the job that other machines have put into this store
    #[arg(long, value_name = "STORE", value_parser = fleet::store)]
    pub store: Option<Fleet>,
    #[command(flatten)]
    pub format: JsonArgs,
    #[command(flatten)]
    pub context: ContextArgs,
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
    /// Minimum memory, in MiB or with a unit, for example 4096 or 4GiB
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = compare::mebibytes)]
    pub memory: f64,
    /// Minimum number of GPUs
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub gpu: Option<f64>,
    /// Minimum GPU memory, summed over all GPUs, in MiB or with a unit
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true, value_parser = compare::mebibytes)]
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
    /// Compliance framework, which only the Keeper knows (a public service of Spare Cores); repeatable
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

impl FilterArgs {
    /// The filters, after a check of their values.
    pub fn filters(&self) -> Result<Filters, CatalogError> {
        let filters = Filters {
            vendor_id: self.vendor_id.clone(),
            region: self.region.clone(),
            country: self.country.clone(),
            continent: self.continent.clone(),
            architecture: self.architecture.clone(),
            cpu_allocation: self.cpu_allocation.clone(),
            cpu_manufacturer: self.cpu_manufacturer.clone(),
            gpu_model: self.gpu_model.clone(),
            compliance_framework_id: self.compliance_framework_id.clone(),
            spot: self.spot,
            storage_size: self.storage_size,
            max_price: self.max_price,
            ..Filters::default()
        };
        filters.check()?;
        Ok(filters)
    }
}

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the command line")]
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
    /// Add the columns of the extra table: peaks between rows, swap, threads, pressure, GPUs
    #[arg(long)]
    pub extra: bool,
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
    pub format: JsonArgs,
    #[command(flatten)]
    pub context: ContextArgs,
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

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum SystemArg {
    Metaflow,
    Slurm,
    Kubernetes,
    Nextflow,
    Snakemake,
    AwsBatch,
}

fn spec(text: &str) -> Result<Spec, String> {
    let (column, aggregate) = text.rsplit_once(':').ok_or("expected COLUMN:AGGREGATE")?;
    let aggregate = aggregate.parse::<Aggregate>();
    let aggregate =
        aggregate.map_err(|error| format!("{error}\n\nhint: {}", error.hint().unwrap_or_default()))?;
    Ok(Spec { column: column.to_owned(), aggregate, name: None, round: Some(2) })
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
