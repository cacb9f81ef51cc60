//! The report of a recording, for Python and R.
//!
//! In:  a [`Recording`], [`ReportOptions`], the statistics of earlier runs. Out: HTML.
//! Not here: the content of the report (`report`).

use std::path::PathBuf;

use crate::analysis::recommend::AdviceOptions;
use crate::market::catalog::{Catalog, Settings};
use crate::os::Moment;
use crate::report;
use crate::store::recording::{Head, Recording, Status};
use crate::store::stats::{Stats, StatsError};

/// What a report shows beside the recording.
#[derive(Clone, Debug, Default)]
pub struct ReportOptions {
    /// The front: `standalone`, `R`, `Metaflow`, …
    pub integration: String,
    /// Version of the front.
    pub integration_version: Option<String>,
    /// Title of the run, instead of its job name, script, notebook or command.
    pub title: Option<String>,
    /// More names of the run, as label and value.
    pub names: Vec<(String, String)>,
    /// The resources that were requested for the run, as its author wrote them.
    pub requested: Option<String>,
    /// Shows the job as failed, even if the recording does not.
    pub failed: bool,
}

impl ReportOptions {
    /// The report of a recording. Unless the environment forbids it, servers and prices are requested over the network.
    /// This may take seconds, so the caller must not hold a lock.
    pub fn report(self, recording: &Recording, history: Vec<Stats>) -> Result<String, StatsError> {
        Stats::combine(&history)?;
        let summary = recording.summary();
        if summary.rows() == 0 {
            return Err(StatsError::NoMetrics);
        }
        let (head, options) = (&recording.head, AdviceOptions::default());
        let known = if history.is_empty() {
            report::Context::of_run(head, summary, &options)
        } else {
            let made_at = Moment::now().wall_s();
            let zone = report::Zone::local_at(head.metadata.start_time.unwrap_or(made_at));
            report::Context::of(head, summary, history.into(), &options, made_at, zone)
        };
        let running = head.run.as_ref().is_some_and(|run| run.status == Some(Status::Running));
        let title = self.title.or_else(|| notebook(head));
        let mut context = report::Context {
            integration: self.integration,
            integration_version: self.integration_version,
            title,
            names: self.names,
            requested: self.requested.or_else(|| known.requested.clone()),
            failed: self.failed,
            running,
            ..known
        };
        let mut catalog = Catalog::new(Settings::from_env());
        context.ask(head, &mut catalog);
        context.ask_what_if(head, &mut catalog);
        Ok(context.render(recording))
    }
}

/// The file name of the notebook that records itself under no job name: the command of its kernel does not have it, and
/// Jupyter tells it by a variable.
fn notebook(head: &Head) -> Option<String> {
    let is_named = head.run.as_ref().is_some_and(|run| run.job.is_some());
    if is_named || head.metadata.pid != std::process::id() {
        return None;
    }
    let path = PathBuf::from(std::env::var_os("JPY_SESSION_NAME")?);
    let is_notebook = path.extension().is_some_and(|extension| extension == "ipynb");
    Some(path.file_name()?.to_string_lossy().into_owned()).filter(|_| is_notebook)
}
