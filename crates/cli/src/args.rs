//! The command line: every command, option and variable, with its help.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use resource_tracker::config::{Config, CpuSource, Interval};

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
    System(SystemArgs),
    /// Write a recording in another format
    #[command(after_help = "Example:\n  resource-tracker export last --format csv -o run.csv")]
    Export(ExportArgs),
}

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub struct RecordArgs {
    /// Time between two rows, 0.001 to 86400
    #[arg(short, long, value_name = "SECONDS", env = "RESOURCE_TRACKER_INTERVAL", default_value = "1", value_parser = interval, allow_hyphen_values = true)]
    pub interval: Interval,
    /// Write the recording (gzipped JSON) here; `-` is standard output [default: the history]
    #[arg(short, long, value_name = "FILE", env = "RESOURCE_TRACKER_OUTPUT")]
    pub output: Option<PathBuf>,
    /// Keep no recording
    #[arg(long, env = "RESOURCE_TRACKER_NO_SAVE", conflicts_with = "output")]
    pub no_save: bool,
    /// Write rows as CSV while they come; `-` is standard error
    #[arg(long, value_name = "FILE", env = "RESOURCE_TRACKER_CSV")]
    pub csv: Option<PathBuf>,
    /// Name of the job, by which the history finds its runs
    #[arg(short, long, value_name = "NAME", env = "RESOURCE_TRACKER_JOB")]
    pub job: Option<String>,
    /// Note about the run; may be given more than once
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = tag)]
    pub tags: Vec<(String, String)>,
    /// Follow the process alone, not its children
    #[arg(long, env = "RESOURCE_TRACKER_NO_CHILDREN")]
    pub no_children: bool,
    /// Leave out the figures of the whole machine
    #[arg(long, env = "RESOURCE_TRACKER_NO_SYSTEM")]
    pub no_system: bool,
    /// Print nothing of our own
    #[arg(short, long, env = "RESOURCE_TRACKER_QUIET")]
    pub quiet: bool,
    /// Where CPU time may come from; for tests
    #[arg(long, hide = true, value_enum, default_value = "best", env = "RESOURCE_TRACKER_CPU_SOURCE")]
    pub cpu_source: CpuSourceArg,
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
            interval: self.interval,
            children: !self.no_children,
            track_processes: true,
            track_system: !self.no_system,
            cpu_source: match self.cpu_source {
                CpuSourceArg::Best => CpuSource::Best,
                CpuSourceArg::Cgroup => CpuSource::Cgroup,
                CpuSourceArg::Procfs => CpuSource::Procfs,
            },
        }
    }
}

#[derive(Args, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    pub record: RecordArgs,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
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
    /// Time between two rows, 0.001 to 86400
    #[arg(short, long, value_name = "SECONDS", env = "RESOURCE_TRACKER_INTERVAL", default_value = "1", value_parser = interval, allow_hyphen_values = true)]
    pub interval: Interval,
    /// Stop after this many rows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub samples: Option<u64>,
}

#[derive(Args, Debug)]
pub struct ProcessArgs {
    #[command(flatten)]
    pub print: PrintArgs,
    /// The process to follow [default: the one that started us]
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub pid: Option<u32>,
    /// Follow the process alone, not its children
    #[arg(long, env = "RESOURCE_TRACKER_NO_CHILDREN")]
    pub no_children: bool,
}

#[derive(Args, Debug)]
pub struct SystemArgs {
    #[command(flatten)]
    pub print: PrintArgs,
}

#[derive(Args, Debug)]
pub struct ExportArgs {
    /// A file, `last`, or a name or id from the history
    pub recording: String,
    /// The format to write
    #[arg(long, value_enum, default_value = "csv")]
    pub format: Format,
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

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Format {
    /// The combined table
    Csv,
}

fn interval(text: &str) -> Result<Interval, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Interval::from_seconds(seconds).map_err(|error| format!("{error}\n\nhint: {}", error.hint()))
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
