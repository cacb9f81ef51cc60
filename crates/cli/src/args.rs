//! The command line: every command, option and variable, with its help.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::FalseyValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use resource_tracker::catalog::Settings;
use resource_tracker::config::{Backend, Config, CpuSource, Interval};
use resource_tracker::stats::{Aggregate, Spec};

/// What a batch job really used, and what to run it on next time.
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
    /// Run a command under the tracker
    ///
    /// The command's exit status is ours: its code, 128 + n for a signal, 127 not found, 126 not executable, 125 when
    /// we fail before it starts.
    #[command(
        after_help = "Examples:\n  resource-tracker run -- python train.py\n  resource-tracker run -o train.json.gz -i 0.5 -- make -j8"
    )]
    Run(RunArgs),
    /// Follow a running process and its children until it ends, or Ctrl-C
    #[command(after_help = "Example:\n  resource-tracker attach 4242")]
    Attach(AttachArgs),
    /// Print CSV rows of a process and its children until ended
    #[command(after_help = "Example:\n  resource-tracker process --pid 4242 --samples 10")]
    Process(ProcessArgs),
    /// Print CSV rows of the machine until ended
    #[command(after_help = "Example:\n  resource-tracker system --samples 10 > machine.csv")]
    System(PrintArgs),
    /// Show the statistics of a recording
    #[command(
        after_help = "Examples:\n  resource-tracker stats last\n  resource-tracker stats last --stat process_memory:p95 --stat system_cpu_usage:mean"
    )]
    Stats(StatsArgs),
    /// Say what to ask for next time, and the cheapest server that has it
    #[command(after_help = "Example:\n  resource-tracker recommend train --history 10")]
    Recommend(RecommendArgs),
    /// Compare runs with the first of them
    ///
    /// A change is marked with `*` where it is beyond what the earlier runs of the same job differ by (twice their
    /// standard deviation, three runs at least).
    #[command(after_help = "Example:\n  resource-tracker compare 3f9c41 last")]
    Compare(CompareArgs),
    /// Show a run as its summary did
    #[command(after_help = "Example:\n  resource-tracker show last")]
    Show(ShowArgs),
    /// Remove runs from the history
    #[command(
        after_help = "Examples:\n  resource-tracker rm 3f9c41\n  resource-tracker rm --job train --older-than 30"
    )]
    Rm(RmArgs),
    /// Write a recording in another format
    #[command(after_help = "Example:\n  resource-tracker export last --format csv -o run.csv")]
    Export(ExportArgs),
    /// List the runs in the history, newest first
    #[command(after_help = "Example:\n  resource-tracker list --job train")]
    List(ListArgs),
    /// List the cheapest cloud servers that fit
    #[command(
        after_help = "Examples:\n  resource-tracker servers --cpu 2 --memory 4096\n  resource-tracker servers --cpu 8 --memory 65536 --gpu 1 --vram 16384 --continent Europe"
    )]
    Servers(Box<ServersArgs>),
    /// Show this machine, its limits, its cloud, and which sources of figures work here
    #[command(after_help = "Example:\n  resource-tracker info --json")]
    Info(InfoArgs),
    /// Show or refresh the catalogue of servers
    #[command(subcommand)]
    Catalog(CatalogCommand),
    /// Write a recording as one HTML page
    #[command(after_help = "Example:\n  resource-tracker report last --open")]
    Report(ReportArgs),
    /// Show the settings of `run`, and where each comes from
    #[command(
        after_help = "Settings are read from ~/.config/resource-tracker/config.toml and from resource-tracker.toml\nin the project's folder. An option goes before a variable, a variable before the project's\nfile, that before the user's.\n\nExample:\n  echo 'interval = 0.5' >> resource-tracker.toml && resource-tracker config"
    )]
    Config(JsonArgs),
    /// Print completions for a shell
    #[command(
        after_help = "Example:\n  resource-tracker completions bash > ~/.local/share/bash-completion/completions/resource-tracker"
    )]
    Completions {
        /// Which shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Print the manual page, of a command if one is named
    #[command(after_help = "Example:\n  resource-tracker man run | man -l -")]
    Man {
        /// Which command
        command: Option<String>,
    },
    /// Record for the program that started us
    #[command(hide = true)]
    Companion {
        /// What to do, as JSON
        orders: String,
    },
}

#[derive(Debug, Subcommand)]
pub enum CatalogCommand {
    /// Show which catalogues there are, and as of when
    Info(JsonArgs),
    /// Fetch the current catalogue from the Keeper
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
    /// Send nothing over the network
    #[arg(long, env = "RESOURCE_TRACKER_OFFLINE", value_parser = FalseyValueParser::new())]
    pub offline: bool,
}

impl NetworkArgs {
    /// Whom the catalogue may ask.
    pub fn catalog(&self) -> Settings {
        if self.offline { Settings::offline() } else { Settings::from_env() }
    }
}

#[derive(Args, Debug)]
pub struct RecordingArgs {
    /// A file, `last`, or a name or id from the history
    pub recording: String,
}

/// What a recording is looked at beside.
#[derive(Args, Debug)]
pub struct ContextArgs {
    /// Count in this many earlier successful runs of the job
    #[arg(long, value_name = "N", env = "RESOURCE_TRACKER_HISTORY", default_value = "5")]
    pub history: usize,
    #[command(flatten)]
    pub network: NetworkArgs,
}

#[derive(Args, Debug)]
pub struct IntervalArgs {
    /// Time between two rows, 0.001 to 86400
    #[arg(short, long, value_name = "SECONDS", env = "RESOURCE_TRACKER_INTERVAL", default_value = "1", value_parser = interval, allow_hyphen_values = true)]
    pub interval: Interval,
}

#[derive(Args, Debug)]
pub struct BackendArgs {
    /// What reads this system: procfs or sysinfo [default: the best there is]
    #[arg(long, value_name = "NAME", env = Backend::VARIABLE, default_value = Backend::BEST.name(), hide_default_value = true, value_parser = backend)]
    pub backend: Backend,
}

#[derive(Args, Debug)]
pub struct ChildrenArgs {
    /// Follow the process alone, not its children
    #[arg(long, env = "RESOURCE_TRACKER_NO_CHILDREN", value_parser = FalseyValueParser::new())]
    pub no_children: bool,
}

#[derive(Args, Debug)]
pub struct UpdateArgs {
    /// Fetch the prices of this region too, such as aws~eu-west-1; may be given more than once
    #[arg(long = "region", value_name = "REGION")]
    pub regions: Vec<String>,
    #[command(flatten)]
    pub format: JsonArgs,
}

#[derive(Args, Debug)]
pub struct ListArgs {
    /// Only runs of this job
    #[arg(short, long, value_name = "NAME")]
    pub job: Option<String>,
    #[command(flatten)]
    pub format: JsonArgs,
}

#[derive(Args, Debug)]
pub struct StatsArgs {
    #[command(flatten)]
    pub which: RecordingArgs,
    /// A statistic of a column in place of the usual ones, such as `process_memory:p95`; may be given more than once
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
    /// Files, `last`, or names or ids from the history; the first is what the others are compared with
    #[arg(required = true, num_args = 2.., value_name = "RECORDING")]
    pub recordings: Vec<String>,
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
    /// `last`, or names or ids from the history
    #[arg(group = "which", value_name = "RUN", conflicts_with_all = ["job", "older_than"])]
    pub runs: Vec<String>,
    /// All runs of this job
    #[arg(short, long, group = "which", value_name = "NAME")]
    pub job: Option<String>,
    /// All runs that started more than so many days ago
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
    /// CPUs at least
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub cpu: f64,
    /// Memory in MB at least
    #[arg(long, value_name = "MB", allow_negative_numbers = true)]
    pub memory: f64,
    /// GPUs at least
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub gpu: Option<f64>,
    /// GPU memory in MB at least, all GPUs together
    #[arg(long, value_name = "MB", allow_negative_numbers = true)]
    pub vram: Option<f64>,
    #[command(flatten)]
    pub filters: FilterArgs,
    /// How many servers to list
    #[arg(short, value_name = "N", default_value = "10")]
    pub n: usize,
    #[command(flatten)]
    pub network: NetworkArgs,
    #[command(flatten)]
    pub format: JsonArgs,
}

/// What a server must be, beside its size. Each may be given more than once.
#[derive(Args, Debug)]
#[command(next_help_heading = "Filters")]
pub struct FilterArgs {
    /// Of this vendor: aws, azure, gcp, hcloud, upcloud, vultr, …
    #[arg(long, value_name = "ID")]
    pub vendor_id: Vec<String>,
    /// In this region, at its price
    #[arg(long, value_name = "REGION")]
    pub region: Vec<String>,
    /// In this country, by code or name
    #[arg(long, value_name = "COUNTRY")]
    pub country: Vec<String>,
    /// On this continent
    #[arg(long, value_name = "CONTINENT")]
    pub continent: Vec<String>,
    /// With this CPU architecture: `x86_64`, arm64
    #[arg(long, value_name = "NAME")]
    pub architecture: Vec<String>,
    /// With CPUs that are Dedicated, Shared or Burstable
    #[arg(long, value_name = "KIND")]
    pub cpu_allocation: Vec<String>,
    /// With CPUs of this maker
    #[arg(long, value_name = "NAME")]
    pub cpu_manufacturer: Vec<String>,
    /// With this GPU
    #[arg(long, value_name = "MODEL")]
    pub gpu_model: Vec<String>,
    /// That meets this framework; only the Keeper knows
    #[arg(long, value_name = "ID")]
    pub compliance_framework_id: Vec<String>,
    /// With this much local storage at least
    #[arg(long, value_name = "GB", allow_negative_numbers = true)]
    pub storage_size: Option<f64>,
    /// That costs this much an hour at most
    #[arg(long, value_name = "USD", allow_negative_numbers = true)]
    pub max_price: Option<f64>,
    /// Spot prices count too
    #[arg(long)]
    pub spot: bool,
}

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub struct RecordArgs {
    #[command(flatten)]
    pub pace: IntervalArgs,
    /// Write the recording (gzipped JSON) here; `-` is standard output [default: the history]
    #[arg(short, long, value_name = "FILE", env = "RESOURCE_TRACKER_OUTPUT")]
    pub output: Option<PathBuf>,
    /// Keep no recording
    #[arg(long, env = "RESOURCE_TRACKER_NO_SAVE", value_parser = FalseyValueParser::new(), conflicts_with = "output")]
    pub no_save: bool,
    /// Write rows as CSV while they come; `-` is standard error
    #[arg(long, value_name = "FILE", env = "RESOURCE_TRACKER_CSV")]
    pub csv: Option<PathBuf>,
    /// Write a report (one HTML page) here at the end
    #[arg(long, value_name = "FILE", env = "RESOURCE_TRACKER_REPORT")]
    pub report: Option<PathBuf>,
    /// Name of the job, by which the history finds its runs
    #[arg(short, long, value_name = "NAME", env = "RESOURCE_TRACKER_JOB")]
    pub job: Option<String>,
    /// Note about the run; may be given more than once
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = tag)]
    pub tags: Vec<(String, String)>,
    #[command(flatten)]
    pub scope: ChildrenArgs,
    /// Leave out the figures of the whole machine
    #[arg(long, env = "RESOURCE_TRACKER_NO_SYSTEM", value_parser = FalseyValueParser::new())]
    pub no_system: bool,
    /// Show CPU, memory and I/O on the last line of the terminal while the job runs
    #[arg(long, env = "RESOURCE_TRACKER_LIVE", value_parser = FalseyValueParser::new(), conflicts_with = "quiet")]
    pub live: bool,
    /// Print the summary as JSON
    #[arg(long, conflicts_with = "quiet")]
    pub json: bool,
    /// Print nothing of our own
    #[arg(short, long, env = "RESOURCE_TRACKER_QUIET", value_parser = FalseyValueParser::new())]
    pub quiet: bool,
    /// Recommend from this many earlier successful runs of the job too
    #[arg(long, value_name = "N", env = "RESOURCE_TRACKER_HISTORY", default_value = "5")]
    pub history: usize,
    /// Keep this many runs in the history
    #[arg(long, value_name = "N", env = "RESOURCE_TRACKER_KEEP_RUNS", default_value = "1000")]
    pub keep_runs: usize,
    /// Send nothing over the network: do not ask which cloud this is
    #[arg(long, env = "RESOURCE_TRACKER_OFFLINE", value_parser = FalseyValueParser::new())]
    pub offline: bool,
    /// Where CPU time may come from; for tests
    #[arg(long, hide = true, value_enum, default_value = "best", env = "RESOURCE_TRACKER_CPU_SOURCE")]
    pub cpu_source: CpuSourceArg,
    #[command(flatten)]
    pub reader: BackendArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum CpuSourceArg {
    Best,
    Cgroup,
    Procfs,
}

impl RecordArgs {
    pub fn config(&self) -> Config {
        Config {
            interval: self.pace.interval,
            children: !self.scope.no_children,
            track_processes: true,
            track_system: !self.no_system,
            cpu_source: match self.cpu_source {
                CpuSourceArg::Best => CpuSource::Best,
                CpuSourceArg::Cgroup => CpuSource::Cgroup,
                CpuSourceArg::Procfs => CpuSource::Procfs,
            },
            backend: self.reader.backend,
            ..Config::default()
        }
    }
}

#[derive(Args, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    pub record: RecordArgs,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub struct AttachArgs {
    #[command(flatten)]
    pub record: RecordArgs,
    /// The process to follow
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub pid: u32,
}

#[derive(Args, Debug)]
pub struct PrintArgs {
    #[command(flatten)]
    pub pace: IntervalArgs,
    #[command(flatten)]
    pub reader: BackendArgs,
    /// Stop after this many rows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub samples: Option<u64>,
    /// Print a JSON object a line
    #[arg(long)]
    pub json: bool,
}

impl PrintArgs {
    pub fn config(&self) -> Config {
        Config { interval: self.pace.interval, backend: self.reader.backend, ..Config::default() }
    }
}

#[derive(Args, Debug)]
pub struct ProcessArgs {
    #[command(flatten)]
    pub print: PrintArgs,
    /// The process to follow [default: the one that started us]
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub pid: Option<u32>,
    #[command(flatten)]
    pub scope: ChildrenArgs,
}

#[derive(Args, Debug)]
pub struct ExportArgs {
    #[command(flatten)]
    pub which: RecordingArgs,
    /// The format to write
    #[arg(long, value_enum, default_value = "csv")]
    pub format: FormatArg,
    /// Where to write; `-` is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
    /// Memory and disk space in bytes
    #[arg(long)]
    pub bytes: bool,
    /// Column names for people
    #[arg(long)]
    pub human_names: bool,
}

#[derive(Args, Debug)]
pub struct ReportArgs {
    #[command(flatten)]
    pub which: RecordingArgs,
    /// Where to write; `-` is standard output [default: the job's name with `-report.html`, here]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Show it in the browser
    #[arg(long)]
    pub open: bool,
    #[command(flatten)]
    pub context: ContextArgs,
    #[command(flatten)]
    pub format: JsonArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum FormatArg {
    /// The combined table
    Csv,
    /// The whole recording
    Json,
    /// The combined table, an object a line
    Jsonl,
    /// The combined table
    Parquet,
}

fn interval(text: &str) -> Result<Interval, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Interval::from_seconds(seconds).map_err(|error| format!("{error}\n\nhint: {}", error.hint()))
}

fn backend(text: &str) -> Result<Backend, String> {
    Backend::from_name(text).map_err(|error| format!("{error}\n\nhint: {}", error.hint()))
}

fn spec(text: &str) -> Result<Spec, String> {
    let (column, aggregate) = text.rsplit_once(':').ok_or("not COLUMN:AGGREGATE")?;
    let aggregate = aggregate.parse::<Aggregate>();
    let aggregate =
        aggregate.map_err(|error| format!("{error}\n\nhint: {}", error.hint().unwrap_or_default()))?;
    Ok(Spec { column: column.to_owned(), aggregate, name: None, round: Some(2) })
}

fn days(text: &str) -> Result<f64, String> {
    let days: f64 = text.parse().map_err(|_| "not a number of days".to_owned())?;
    if days.is_finite() && days >= 0.0 { Ok(days) } else { Err("not a number of days".to_owned()) }
}

fn tag(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("not KEY=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parser_is_sound() {
        use clap::CommandFactory as _;
        Cli::command().debug_assert();
    }
}
