//! The report of a recording, for a host program.
//!
//! In:  a [`Recording`], who asks, the runs before it. Out: the page.
//! Not here: what is on it (`report`).

use crate::catalog::{Catalog, Settings};
use crate::recording::{Recording, Status};
use crate::report;
use crate::snapshot::Moment;
use crate::stats::{Stats, StatsError, aggregate_stats};

/// Who wants a report, and what they call the run.
#[derive(Clone, Debug, Default)]
pub struct Asker {
    /// `standalone`, `R`, `Metaflow`, …
    pub integration: String,
    /// What to call the run, in place of its command.
    pub title: Option<String>,
    /// What else names it.
    pub names: Vec<(String, String)>,
    /// What the run had asked for, as its author wrote it.
    pub requested: Option<String>,
    /// The job failed, whatever the recording says.
    pub failed: bool,
}

/// The report of a recording. Servers and prices are asked for as the environment allows, which may take seconds: a
/// session is not held meanwhile.
///
/// # Errors
/// Those of [`report_for`].
pub fn report_of(
    recording: &Recording,
    integration: &str,
    history: Vec<Stats>,
    failed: bool,
) -> Result<String, StatsError> {
    report_for(recording, Asker { integration: integration.to_owned(), failed, ..Asker::default() }, history)
}

/// The same with names of the asker's own.
///
/// # Errors
/// [`StatsError::NoMetrics`] without a row, and what says that the runs before it cannot be combined.
pub fn report_for(recording: &Recording, asker: Asker, history: Vec<Stats>) -> Result<String, StatsError> {
    aggregate_stats(&history)?;
    let summary = recording.summary();
    if summary.rows() == 0 {
        return Err(StatsError::NoMetrics);
    }
    let (made_at, head) = (Moment::now().wall_s(), &recording.head);
    let zone = report::Zone::local_at(head.metadata.start_time.unwrap_or(made_at));
    let known = report::Context::of(head, summary, history, made_at, zone);
    let running = recording.head.run.as_ref().is_some_and(|run| run.status == Some(Status::Running));
    let Asker { integration, title, names, requested, failed } = asker;
    let mut context = report::Context { integration, title, names, requested, failed, running, ..known };
    context.ask(&recording.head, &mut Catalog::new(Settings::from_env()));
    Ok(report::render(recording, &context))
}
