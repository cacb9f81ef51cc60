//! Options of `compare` and `check`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use resource_tracker::Budget;

use super::{JsonArgs, RecordingArgs, percent};

#[derive(Args, Debug)]
pub struct PastRunsArgs {
    /// Use only the latest N runs of each job [default: all]
    #[arg(long, value_name = "N", value_parser = count)]
    runs: Option<usize>,
}

impl PastRunsArgs {
    pub fn latest(&self) -> usize {
        self.runs.unwrap_or(usize::MAX)
    }
}

#[derive(Args, Debug)]
pub struct CompareArgs {
    /// Job names (all finished runs), `last`, ids from the history, or files; the first is the baseline
    #[arg(required = true, num_args = 2.., value_name = "RECORDING")]
    pub recordings: Vec<OsString>,
    #[command(flatten)]
    pub past: PastRunsArgs,
    #[command(flatten)]
    pub format: JsonArgs,
}

#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("limits").required(true).multiple(true))]
pub struct CheckArgs {
    #[command(flatten)]
    pub which: RecordingArgs,
    /// Highest value of a figure, for example memory=4GiB; repeatable
    #[arg(long, value_name = "NAME=LIMIT", group = "limits", value_parser = budget)]
    pub max: Vec<Budget>,
    /// Job (the mean of its finished runs, without the checked run) or run to check against
    #[arg(long, value_name = "RECORDING", group = "limits")]
    pub against: Option<OsString>,
    /// How much more than `--against` is allowed, in percent
    #[arg(long, value_name = "PERCENT", default_value = "10", value_parser = percent, requires = "against")]
    pub tolerance: f64,
    #[command(flatten)]
    pub past: PastRunsArgs,
    /// Print broken budgets as annotations of GitHub Actions
    #[arg(long, conflicts_with = "json")]
    pub github: bool,
    /// Write the result as `JUnit` XML
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Replace an existing file that resource-tracker did not write
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub format: JsonArgs,
}

fn budget(text: &str) -> Result<Budget, String> {
    text.parse::<Budget>().map_err(|error| error.to_string())
}

/// A number of MiB, or a size with a unit as in a budget.
pub fn mebibytes(text: &str) -> Result<f64, String> {
    let with_unit = || budget(&format!("memory={text}")).map(|size| size.limit / 1_048_576.0);
    text.trim().parse().or_else(|_| with_unit())
}

fn count(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|count| *count > 0)
        .ok_or_else(|| "expected a whole number, 1 or more".to_owned())
}
