//! The advice after a run, for every front: with the user's history, servers and prices.
//!
//! In:  the head and summary of a run, [`AdviceOptions`]. Out: a report's [`Context`], or the advice as JSON.
//! Not here: the rules (`analysis`), the page (`report`).

use serde_json::Value;

use crate::analysis::recommend::{AdviceOptions, RecommendError};
use crate::market::catalog::{Catalog, Settings};
use crate::os::Moment;
use crate::report::{Context, Zone};
use crate::store::history::{History, without_repetition};
use crate::store::recording::Head;
use crate::store::summary::Summary;

impl Context {
    /// The context of a run with the earlier runs of its job in the user's history and in the options, without servers and
    /// prices. A history that cannot be read counts as empty.
    pub fn of_run(head: &Head, summary: Summary, options: &AdviceOptions) -> Self {
        let history = History::of_user(|name| std::env::var_os(name));
        let earlier = history.and_then(|history| history.earlier(head, options.earlier_runs).ok());
        let mut earlier = earlier.unwrap_or_default();
        if !options.other_runs.is_empty() {
            earlier.extend_from_slice(&options.other_runs);
            earlier = without_repetition(earlier);
            earlier.truncate(options.earlier_runs);
        }
        let now = Moment::now().wall_s();
        let zone = Zone::local_at(head.metadata.start_time.unwrap_or(now));
        Self::of(head, summary, earlier.into(), options, now, zone)
    }

    /// [`Self::of_run`] with servers, prices and the table of predicted times. May use the network for seconds, so the
    /// caller must not hold a lock.
    pub fn with_servers(head: &Head, summary: Summary, options: &AdviceOptions, settings: Settings) -> Self {
        let (mut context, mut catalog) = (Self::of_run(head, summary, options), Catalog::new(settings));
        context.ask(head, &mut catalog);
        context.ask_what_if(head, &mut catalog);
        context
    }

    /// The answer of `advise()` in Python and R, see [`Self::advice_json`].
    pub fn advise(head: &Head, summary: Summary, options: &AdviceOptions) -> Result<Value, RecommendError> {
        Self::with_servers(head, summary, options, Settings::from_env()).advice_json(head)
    }
}
