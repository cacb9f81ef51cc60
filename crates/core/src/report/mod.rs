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
mod bands;
mod chart;
mod data;
mod facts;
mod figures;
mod folded_table;
mod gpu_table;
mod header;
mod money;
mod page;
mod plots;
mod program_table;
mod stood_out;
mod timeline;
mod title;
mod waits;

pub use crate::human::Zone;
#[cfg(feature = "parquet")]
pub(crate) use page::{document, footer};

use serde_json::{Map, Value, json};

use crate::analysis::cost::{PricedServer, Servers, price_of, what_if_costs};
use crate::analysis::recommend::{Advice, AdviceOptions, RecommendError};
use crate::analysis::sizing::{EarlierRuns, WhatIf};
use crate::analysis::verdict::Verdict;
use crate::analysis::waits::Waits;
use crate::market::catalog::{Catalog, Filters, InstancePrice, RunCost, Server};
use crate::store::history::Entry;
use crate::store::recording::{Head, Identity, Recording, Status};
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
    /// Version of that program.
    pub integration_version: Option<String>,
    /// Title of the page; by default the job's name, script or command.
    pub title: Option<String>,
    /// More names of the run: `("Flow", "TrainFlow")`, `("Step", "start")`.
    pub names: Vec<(String, String)>,
    /// The resources requested for this run: as written by the user, `@resources(cpu=2)`, or as a scheduler says.
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
    /// Why the run did not end with status 0; `None` if it did, or if its end is unknown.
    pub verdict: Option<Verdict>,
    /// Which servers are offered.
    pub filters: Filters,
    /// Servers that fit the advice.
    pub servers: Servers,
    /// Predicted time and cost of a run with 1, 2, 4, … CPUs; empty before `ask_what_if`.
    pub what_if: Vec<WhatIf<PricedServer>>,
    /// Price of the machine that the run used; `None` if unknown.
    pub price: Option<InstancePrice>,
}

impl Context {
    /// The context of a recording with this head and summary, without servers and prices.
    pub fn of(
        head: &Head,
        summary: Summary,
        earlier: EarlierRuns,
        options: &AdviceOptions,
        made_at: f64,
        zone: Zone,
    ) -> Self {
        let advice = Advice::of(head, &summary, &earlier, options);
        let request_mb = advice.as_ref().ok().map(|advice| advice.request.memory_mb);
        Self {
            verdict: Verdict::of(head, &summary, request_mb),
            made_at,
            zone,
            integration: "standalone".to_owned(),
            integration_version: None,
            title: None,
            names: Vec::new(),
            requested: head.identity().and_then(Identity::requested),
            failed: false,
            running: false,
            history: earlier.stats,
            summary,
            advice,
            filters: options.filters.clone(),
            servers: Servers::NotAsked,
            what_if: Vec::new(),
            price: None,
        }
    }

    /// Looks up servers and prices. The settings of the catalogue decide whether this uses the network.
    pub fn ask(&mut self, head: &Head, catalog: &mut Catalog) {
        self.price = price_of(head, catalog);
        if let Ok(advice) = &self.advice {
            self.servers = Servers::search(advice, head, catalog, &self.filters);
        }
    }

    /// Looks up a server for each row of the table of predicted times.
    pub fn ask_what_if(&mut self, head: &Head, catalog: &mut Catalog) {
        if let Ok(advice) = &self.advice {
            let profile = self.summary.cpu_profile();
            self.what_if = what_if_costs(advice, profile, head, catalog, &self.filters);
        }
    }

    /// What the run waited for; `None` if it was not measured.
    pub fn waits(&self, head: &Head) -> Option<Waits> {
        Waits::of(&self.summary, head.cpu_limit_cores())
    }

    /// The recommended server: the cheapest one in the cloud region of the run, else the cheapest one anywhere.
    pub fn server(&self) -> Option<&Server> {
        self.servers.first().map(|(_, server)| server)
    }

    /// The cost of a run of this duration on its own machine and on a server.
    pub fn cost(&self, server: Option<&Server>) -> RunCost {
        let duration_s = self.summary.duration_s().unwrap_or(f64::NAN);
        RunCost::new(duration_s, self.price.as_ref(), server)
    }

    /// The advice with servers and costs: the answer of `recommend --json`, and of `advise()` in Python and R.
    pub fn advice_json(&self, head: &Head) -> Result<Value, RecommendError> {
        let advice = self.advice.as_ref().map_err(Clone::clone)?;
        let mut answer = json!(advice);
        answer["requests"] = json!(advice.request.requests(head.run.as_ref()));
        answer["servers"] = self.servers.json();
        answer["what_if"] = json!(self.what_if);
        answer["cost"] = json!(self.cost(self.server()));
        answer["run"] = json!(Entry::object_of(head, &self.summary));
        Ok(answer)
    }

    /// What explains the run: why it failed, what it waited for, and what its programs and phases used. The answer of `explain()` in
    /// Python and R, and part of `show --json`.
    pub fn explain(&self, head: &Head) -> Map<String, Value> {
        let run = head.run.as_ref();
        let programs = run.map(|run| run.programs.as_slice()).unwrap_or_default();
        let phases = run.map(|run| run.phases.as_slice()).unwrap_or_default();
        Map::from_iter([
            ("verdict".to_owned(), json!(self.verdict)),
            ("waiting".to_owned(), json!(self.waits(head))),
            ("programs".to_owned(), json!(programs)),
            ("phases".to_owned(), json!(phases)),
        ])
    }

    /// The object of the run with what explains it, advice, servers and costs, for `run --json` and `show --json`.
    pub fn run_json(&self, head: &Head) -> Value {
        let mut run = Entry::object_of(head, &self.summary);
        run.extend(self.explain(head));
        let mut run = Value::Object(run);
        run["requested"] = json!(head.identity().map(|identity| json!({
            "cpus": identity.asked_cpus,
            "memory_bytes": identity.asked_memory_bytes,
            "gpus": identity.asked_gpus,
        })));
        run["advice"] = json!(self.advice.as_ref().ok());
        run["servers"] = self.servers.json();
        run["cost"] = json!(self.cost(self.server()));
        run
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
