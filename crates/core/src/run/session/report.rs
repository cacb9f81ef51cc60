//! The report of a recording, for Python and R.
//!
//! In:  a [`Recording`], [`ReportOptions`], the statistics of earlier runs. Out: HTML.
//! Not here: the content of the report (`report`).

use crate::market::catalog::{Catalog, Settings};
use crate::os::Moment;
use crate::report;
use crate::store::recording::{Recording, Status};
use crate::store::stats::{Stats, StatsError};

/// What a report shows beside the recording.
#[derive(Clone, Debug, Default)]
pub struct ReportOptions {
    /// The front: `standalone`, `R`, `Metaflow`, …
    pub integration: String,
    /// Title of the run, instead of its command.
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
        let (made_at, head) = (Moment::now().wall_s(), &recording.head);
        let zone = report::Zone::local_at(head.metadata.start_time.unwrap_or(made_at));
        let known = report::Context::of(head, summary, history, made_at, zone);
        let running = head.run.as_ref().is_some_and(|run| run.status == Some(Status::Running));
        let ReportOptions { integration, title, names, requested, failed } = self;
        let mut context = report::Context { integration, title, names, requested, failed, running, ..known };
        context.ask(head, &mut Catalog::new(Settings::from_env()));
        Ok(context.render(recording))
    }
}
