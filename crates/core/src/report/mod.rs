//! The report of a run: one HTML file with its facts, recommended resources, statistics and charts.
//!
//! In:  a [`Recording`] and a [`Context`]: earlier runs, servers and prices, names for the page.
//! Out: [`render`], the page. It needs no network, and is complete without scripts. The same input gives the same page.
//! Not here: the recommendation and the server search (`analysis`), files (`os::output`).
//!
//! ```text
//! Recording ─ plots ─▶ series by row ─ timeline ─▶ spans, reduced ─ chart ─▶ SVG, table, JSON
//! Context   ─ page  ─▶ sections                                                    │
//!                        └──────────────── page.css, page.js, policy.txt ──────────┴─▶ one file
//! ```
//!
//! The templates are `maud` macros, which escape every value by default. `PreEscaped` is for style, script and JSON only.

mod advice;
mod axis;
mod chart;
mod data;
mod facts;
mod figures;
mod gpu_table;
mod header;
mod money;
mod page;
mod plots;
mod snippets;
mod timeline;

pub use crate::human::Zone;

use crate::analysis::cost::{Servers, price_of};
use crate::analysis::recommend::{Advice, RecommendError, advise};
use crate::market::catalog::{Catalog, InstancePrice, RunCost, Server};
use crate::store::recording::{Head, Recording, Status};
use crate::store::stats::Stats;
use crate::store::summary::Summary;

/// The input of a page beside the recording.
#[derive(Clone, Debug)]
pub struct Context {
    /// Date of the report, Unix seconds.
    pub made_at: f64,
    /// Time zone of all times on the page.
    pub zone: Zone,
    /// The program that makes the report: `standalone`, `R`, `Metaflow`, …; case-insensitive.
    pub integration: String,
    /// Title of the page; by default the job's name or command.
    pub title: Option<String>,
    /// More names of the run: `("Flow", "TrainFlow")`, `("Step", "start")`.
    pub names: Vec<(String, String)>,
    /// The resources requested for this run, as written by the user: `@resources(cpu=2)`.
    pub requested: Option<String>,
    /// Show the run as failed, whatever the status in the recording.
    pub failed: bool,
    /// Show the run as running, whatever the status in the recording, unless `failed` is set.
    pub running: bool,
    /// Statistics of earlier runs.
    pub history: Vec<Stats>,
    /// Summary of the recording.
    pub summary: Summary,
    pub advice: Result<Advice, RecommendError>,
    /// Servers that fit the advice.
    pub servers: Servers,
    /// Price of the machine that the run used; `None` if unknown.
    pub price: Option<InstancePrice>,
}

impl Context {
    /// The context of a recording with this head and summary, without servers and prices.
    pub fn of(head: &Head, summary: Summary, history: Vec<Stats>, made_at: f64, zone: Zone) -> Self {
        let advice = advise(&summary, &history, head.limits(), head.run.as_ref());
        Self {
            made_at,
            zone,
            integration: "standalone".to_owned(),
            title: None,
            names: Vec::new(),
            requested: None,
            failed: false,
            running: false,
            history,
            summary,
            advice,
            servers: Servers::NotAsked,
            price: None,
        }
    }

    /// Looks up servers and prices. The settings of the catalogue decide whether this uses the network.
    pub fn ask(&mut self, head: &Head, catalog: &mut Catalog) {
        if let Ok(advice) = &self.advice {
            self.servers = Servers::search(advice.to_ask(), catalog);
        }
        self.price = price_of(head, catalog);
    }

    /// The recommended server.
    pub fn server(&self) -> Option<&Server> {
        self.servers.cheapest()
    }

    /// The cost of a run of this duration on its own machine and on a server.
    pub fn cost(&self, server: Option<&Server>) -> RunCost {
        let duration_s = self.summary.duration_s().unwrap_or(f64::NAN);
        RunCost::new(duration_s, self.price.as_ref(), server)
    }

    /// The page as HTML.
    pub fn render(&self, recording: &Recording) -> String {
        page::render(recording, self)
    }
}

/// The status of a run on the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Finished,
    Pending,
    /// The tracker died; the result of the job is unknown.
    TrackerDied,
    Failed,
}

impl Standing {
    fn of(head: &Head, context: &Context) -> Self {
        let run = head.run.as_ref();
        match run.and_then(|run| run.status.as_ref()) {
            _ if context.failed => Self::Failed,
            _ if context.running => Self::Pending,
            Some(Status::Failed | Status::Killed) => Self::Failed,
            Some(Status::Running | Status::Detached) => Self::Pending,
            Some(Status::TrackerDied) => Self::TrackerDied,
            Some(Status::Finished | Status::Ended) => Self::Finished,
            Some(Status::Other(_)) | None => match run {
                Some(run) if run.signal.is_some() || run.exit_code.is_some_and(|code| code != 0) => {
                    Self::Failed
                }
                _ if head.metadata.stop_time.is_none() => Self::Pending,
                _ => Self::Finished,
            },
        }
    }
}

#[cfg(test)]
mod tests;
