//! Options of `fleet`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use resource_tracker::{Fleet, FleetBy};

use super::history::since;
use super::{JsonArgs, NetworkArgs};

#[derive(Debug, Subcommand)]
pub enum FleetCommand {
    /// Store runs of the history that the store does not have yet
    ///
    /// Runs that are named are stored again, for example if the store has lost their files.
    #[command(after_help = "Example:\n  resource-tracker fleet push --store /shared/runs")]
    Push(PushArgs),
    /// Add up what runs requested, used, wasted and cost, the most savings first
    ///
    /// A distributed program counts as one run. CPU hours are CPUs times hours, GiB hours are GiB of memory times
    /// hours. If no request is known, what the job could use counts as requested. The memory peak counts as used. Costs
    /// are estimates by list prices.
    #[command(
        after_help = "Examples:\n  resource-tracker fleet summary --store /shared/runs\n  resource-tracker fleet summary --by user --since 30d\n  resource-tracker fleet summary --by tag:team"
    )]
    Summary(SummaryArgs),
    /// Copy the runs of a store to another one, for example to a folder for use without the network
    ///
    /// Files that the copy already has are not copied again. Files that `fleet compact` has merged since are removed
    /// from the copy. Runs that were stored in the copy itself stay.
    #[command(
        after_help = "Example:\n  resource-tracker fleet pull --store s3://bucket/runs --since 30d runs"
    )]
    Pull(PullArgs),
    /// Write the summary as an HTML page with trends, savings and a table to sort and filter
    #[command(
        after_help = "Example:\n  resource-tracker fleet report --store /shared/runs --since 30d -o fleet.html"
    )]
    Report(FleetReportArgs),
    /// Merge the small files of each day
    ///
    /// Other processes may store runs, read the store or merge at the same time. A query of another engine may fail on a
    /// file that has been merged, so a quiet hour is best.
    #[command(after_help = "Example:\n  resource-tracker fleet compact --store /shared/runs")]
    Compact(CompactArgs),
    /// Print views and example queries for an SQL engine
    #[command(after_help = "Example:\n  resource-tracker fleet sql --store /shared/runs | duckdb")]
    Sql(SqlArgs),
}

#[derive(Args, Debug)]
pub struct StoreArgs {
    /// Store of a fleet's runs: a folder, or `s3://BUCKET/PREFIX`
    #[arg(long, value_name = "URL", env = "RESOURCE_TRACKER_STORE", value_parser = store)]
    pub store: Fleet,
    #[command(flatten)]
    pub network: NetworkArgs,
}

#[derive(Args, Debug)]
pub struct PushArgs {
    /// Ids or job names from the history, or `last` [default: all runs]
    #[arg(value_name = "RUN")]
    pub runs: Vec<String>,
    #[command(flatten)]
    pub to: StoreArgs,
    #[command(flatten)]
    pub format: JsonArgs,
}

#[derive(Args, Debug)]
pub struct CompactArgs {
    #[command(flatten)]
    pub of: StoreArgs,
    #[command(flatten)]
    pub format: JsonArgs,
}

#[derive(Args, Debug)]
pub struct PullArgs {
    /// Store to copy to: a folder, or `s3://BUCKET/PREFIX`
    #[arg(value_name = "TO", value_parser = store)]
    pub to: Fleet,
    #[command(flatten)]
    pub of: StoreArgs,
    /// Only days since then: a date, or an age, for example 2026-03-12 or 7d
    #[arg(long, value_name = "DATE|AGE", value_parser = since)]
    pub since: Option<f64>,
    #[command(flatten)]
    pub format: JsonArgs,
}

#[derive(Args, Debug)]
pub struct SummaryArgs {
    #[command(flatten)]
    pub of: StoreArgs,
    #[command(flatten)]
    pub group: ByArgs,
    /// Only runs that started since then: a date, a date and time, or an age, for example 2026-03-12 or 7d
    #[arg(long, value_name = "DATE|AGE", value_parser = since)]
    pub since: Option<f64>,
    #[command(flatten)]
    pub format: JsonArgs,
}

#[derive(Args, Debug)]
pub struct FleetReportArgs {
    #[command(flatten)]
    pub of: StoreArgs,
    /// Output file; `-` is standard output [default: fleet-report.html in the current directory]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace an existing file that resource-tracker did not write
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub format: JsonArgs,
    /// Only runs that started since then: a date, a date and time, or an age, for example 2026-03-12 or 7d
    #[arg(long, value_name = "DATE|AGE", value_parser = since)]
    pub since: Option<f64>,
}

#[derive(Args, Debug)]
pub struct ByArgs {
    /// Group runs by job, user, node, day, or the value of a tag (tag:KEY)
    #[arg(long, value_name = "GROUP", default_value = "job", value_parser = by)]
    pub by: FleetBy,
}

#[derive(Args, Debug)]
pub struct SqlArgs {
    #[command(flatten)]
    pub of: StoreArgs,
    #[command(flatten)]
    pub group: ByArgs,
    /// Engine that runs the SQL
    #[arg(long, value_name = "NAME", default_value = "duckdb", value_parser = ["duckdb", "spark", "trino"])]
    pub engine: String,
}

pub fn store(address: &str) -> Result<Fleet, String> {
    Fleet::open(address).map_err(|error| match error.hint() {
        Some(hint) => format!("{error}: {hint}"),
        None => error.to_string(),
    })
}

fn by(name: &str) -> Result<FleetBy, String> {
    FleetBy::from_name(name).ok_or_else(|| "use job, user, node, day or tag:KEY".to_owned())
}
