//! Options of the commands that sample: `run`, `attach`, `process` and `system`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::FalseyValueParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, ValueEnum};
use resource_tracker::{AdviceOptions, Backend, Config, CpuSource, Filters, Fleet, Interval};

use super::{AdviceArgs, TelemetryArgs};

#[derive(Args, Debug)]
pub struct IntervalArgs {
    /// Sampling interval, 0.001 to 86400
    #[arg(short, long, value_name = "SECONDS", env = "RESOURCE_TRACKER_INTERVAL", default_value = "1", value_parser = interval, allow_hyphen_values = true)]
    pub interval: Interval,
}

#[derive(Args, Debug)]
pub struct BackendArgs {
    /// Data source: procfs or sysinfo [default: the best available]
    #[arg(long, value_name = "NAME", env = Backend::VARIABLE, default_value = Backend::BEST.name(), hide_default_value = true, value_parser = backend)]
    pub backend: Backend,
}

#[derive(Args, Debug)]
pub struct ChildrenArgs {
    /// Track the process without its children
    #[arg(long, env = "RESOURCE_TRACKER_NO_CHILDREN", value_parser = FalseyValueParser::new())]
    pub no_children: bool,
}

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the command line")]
pub struct RecordArgs {
    #[command(flatten)]
    pub pace: IntervalArgs,
    /// Write the recording (gzipped JSON) to FILE, beside the history; `-` is standard output
    #[arg(short, long, value_name = "FILE", env = "RESOURCE_TRACKER_OUTPUT")]
    pub output: Option<PathBuf>,
    /// Save the run neither in the history nor in a store
    #[arg(long, env = "RESOURCE_TRACKER_NO_SAVE", value_parser = FalseyValueParser::new())]
    pub no_save: bool,
    /// Store the run in a store of many machines when the job ends: a folder, or `s3://BUCKET/PREFIX`
    #[arg(long, value_name = "URL", env = "RESOURCE_TRACKER_STORE", value_parser = super::fleet::store)]
    pub store: Option<Fleet>,
    /// Stream samples as CSV to FILE while the job runs; `-` is standard error
    #[arg(long, value_name = "FILE", env = "RESOURCE_TRACKER_CSV")]
    pub csv: Option<PathBuf>,
    #[command(flatten)]
    pub telemetry: TelemetryArgs,
    /// Write an HTML report to FILE when the job ends
    #[arg(long, value_name = "FILE", env = "RESOURCE_TRACKER_REPORT")]
    pub report: Option<PathBuf>,
    /// Replace existing files that resource-tracker did not write
    #[arg(long)]
    pub force: bool,
    /// Name of the job, to find its earlier runs in the history
    #[arg(short, long, value_name = "NAME", env = "RESOURCE_TRACKER_JOB")]
    pub job: Option<String>,
    /// Do not store the command line
    #[arg(long, env = "RESOURCE_TRACKER_NO_COMMAND", value_parser = FalseyValueParser::new())]
    pub no_command: bool,
    /// Tag to store with the run, besides those of `RESOURCE_TRACKER_TAGS`; repeatable
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = tag)]
    pub tags: Vec<(String, String)>,
    /// File or folder that the job reads: later advice relates memory to the size of the input; repeatable
    #[arg(long = "input", value_name = "PATH", env = "RESOURCE_TRACKER_INPUT")]
    pub inputs: Vec<PathBuf>,
    #[command(flatten)]
    pub scope: ChildrenArgs,
    /// Do not record metrics of the whole machine
    #[arg(long, env = "RESOURCE_TRACKER_NO_SYSTEM", value_parser = FalseyValueParser::new())]
    pub no_system: bool,
    /// Read memory at rows only: costs less, but peaks between rows are less exact
    #[arg(long, env = Config::ROWS_ONLY_VARIABLE, value_parser = FalseyValueParser::new())]
    pub rows_only: bool,
    /// Show CPU, memory and I/O on the last line of the terminal while the job runs
    #[arg(long, env = "RESOURCE_TRACKER_LIVE", value_parser = FalseyValueParser::new(), conflicts_with = "quiet")]
    pub live: bool,
    /// Write the run as JSON to FILE when the job ends; `/dev/fd/N` is a descriptor
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Suppress all tracker output
    #[arg(short, long, env = "RESOURCE_TRACKER_QUIET", value_parser = FalseyValueParser::new())]
    pub quiet: bool,
    #[command(flatten)]
    pub advice: AdviceArgs,
    /// Number of runs to keep in the history
    #[arg(long, value_name = "N", env = "RESOURCE_TRACKER_KEEP_RUNS", default_value = "1000")]
    pub keep_runs: usize,
    /// Do not use the network, not even to detect the cloud
    #[arg(long, env = "RESOURCE_TRACKER_OFFLINE", value_parser = FalseyValueParser::new())]
    pub offline: bool,
    /// Source of CPU time; for tests
    #[arg(long, hide = true, value_enum, default_value = "best", env = "RESOURCE_TRACKER_CPU_SOURCE")]
    pub cpu_source: CpuSourceArg,
    #[command(flatten)]
    pub reader: BackendArgs,
    /// Filters for the server in the summary and the report, from the settings.
    #[arg(skip)]
    pub filters: Filters,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum CpuSourceArg {
    Best,
    Cgroup,
    Procfs,
}

/// An error if the command line says to store the run and not to save it. Otherwise a store is not used.
pub fn check_store(matches: &ArgMatches) -> Result<(), clap::Error> {
    const WHY: &str =
        "the argument '--store <URL>' cannot be used with '--no-save': a run is stored from the history\n";
    let is_typed = |id: &str, of: &ArgMatches| {
        of.try_contains_id(id).is_ok() && of.value_source(id) == Some(ValueSource::CommandLine)
    };
    match matches.subcommand() {
        Some((_, of)) if is_typed("no_save", of) && is_typed("store", of) && of.get_flag("no_save") => {
            Err(clap::Error::raw(ErrorKind::ArgumentConflict, WHY))
        }
        _ => Ok(()),
    }
}

impl RecordArgs {
    pub fn advice_options(&self) -> AdviceOptions {
        self.advice.options(self.filters.clone())
    }

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
            memory_between_rows: !self.rows_only,
            ..Config::default()
        }
    }
}

#[derive(Args, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    pub record: RecordArgs,
    /// Run the command again after an out-of-memory kill, at most N times
    #[arg(long, value_name = "N", env = "RESOURCE_TRACKER_RETRY_OOM", default_value = "0")]
    pub retry_oom: u32,
    /// Command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub struct AttachArgs {
    #[command(flatten)]
    pub record: RecordArgs,
    /// Process to track
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub pid: u32,
}

#[derive(Args, Debug)]
pub struct PrintArgs {
    #[command(flatten)]
    pub pace: IntervalArgs,
    #[command(flatten)]
    pub reader: BackendArgs,
    /// Stop after N samples
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub samples: Option<u64>,
    /// Print one JSON object per line
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
    /// Process to track [default: the parent process]
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub pid: Option<u32>,
    #[command(flatten)]
    pub scope: ChildrenArgs,
}

fn interval(text: &str) -> Result<Interval, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    Interval::from_seconds(seconds).map_err(|error| format!("{error}\n\nhint: {}", error.hint()))
}

fn backend(text: &str) -> Result<Backend, String> {
    Backend::from_name(text).map_err(|error| format!("{error}\n\nhint: {}", error.hint()))
}

pub(super) fn tag(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE".to_owned()),
    }
}
