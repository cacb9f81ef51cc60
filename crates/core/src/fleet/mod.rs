//! Beyond one machine: the runs of a fleet as one dataset of Parquet files, and live telemetry.
//!
//! In:  runs of the history. Out: [`Fleet`]: a dataset in a store, its summary, and the same sums in SQL. Rows as they are
//!      made: [`Telemetry`].
//! Not here: when a run is stored (`run`), the text of a summary (the command).

pub mod columns;
pub mod dataset;
mod form;
mod nested;
pub mod overview;
mod page;
pub mod pull;
pub mod read;
pub mod sql;
pub mod store;
pub mod summary;
pub mod table;
pub mod telemetry;

pub use dataset::{Dataset as Fleet, DatasetError as FleetError};
pub use summary::By;
pub use telemetry::Telemetry;

use dataset::{Dataset, DatasetError};
use sql::Engine;
use table::Table;

use crate::os::Moment;
use crate::report::Context;
use crate::store::history::Entry;
use crate::store::recording::Recording;

impl Dataset {
    /// Stores a run with its samples. Storing it again replaces it.
    pub fn store_run(
        &self,
        entry: &Entry,
        recording: &Recording,
        context: &Context,
    ) -> Result<(), DatasetError> {
        let unreadable = |source| DatasetError::Run { id: entry.id.clone(), source: Box::new(source) };
        let row = columns::run_row(entry, &recording.head, context, Moment::now().wall_s());
        let row = Table::of_rows(columns::run_columns(), &[row]);
        let samples = columns::samples(recording, &entry.id).map_err(unreadable)?;
        self.put(&entry.id, entry.start_time.unwrap_or(0.0), &row, &samples)
    }

    /// The page of all runs that started at `since_s` or later, in Unix seconds, as HTML.
    pub fn report(&self, since_s: Option<f64>) -> Result<String, DatasetError> {
        Ok(page::page(
            &self.overview(since_s)?,
            &self.url(),
            self.warning().as_deref(),
            Moment::now().wall_s(),
        ))
    }

    /// Views, the query of the summary and example queries as SQL for an engine: `duckdb`, `spark` or `trino`; `None` for
    /// another name.
    pub fn sql(&self, engine: &str, by: &By) -> Option<String> {
        let statements = self.statements(engine, by)?.into_iter().map(|(_, statement)| statement + ";\n");
        Some(statements.collect::<Vec<_>>().join("\n"))
    }

    /// The statements of [`Self::sql`], each with its part: `connection`, `runs` and `samples` make the views, `summary` is the
    /// query of the summary, each `question` is an example. Of `polars`, which has no views over files, only the queries are
    /// of use; the value of a tag must be in the column `tag`.
    pub fn statements(&self, engine: &str, by: &By) -> Option<Vec<(&'static str, String)>> {
        let statements =
            sql::statements(Engine::from_name(engine)?, &self.url(), self.store.connection().as_ref(), by);
        Some(statements.into_iter().map(|(part, statement)| (part.name(), statement)).collect())
    }
}
