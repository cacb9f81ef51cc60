//! The report: one HTML file that tells what ran, whether it had the right size, and what it used.
//!
//! In:  a [`Recording`], and a [`Context`] with what is known beside it: earlier runs, servers and prices, who asks.
//! Out: [`render`], the page. It needs no network, and no script to be read. The same input gives the same page.
//! Not here: asking for servers and prices (`catalog`; [`Context::ask`] puts the question), files (`output`).
//!
//! ```text
//! Recording ─ plots ─▶ series by row ─ timeline ─▶ spans, reduced ─ chart ─▶ SVG, table, JSON
//! Context   ─ page  ─▶ sections                                                    │
//!                        └──────────────── page.css, page.js, policy.txt ──────────┴─▶ one file
//! ```

mod advice;
mod axis;
mod chart;
mod figures;
mod gpu_table;
mod html;
mod money;
mod page;
mod plots;
mod snippets;
mod timeline;

pub use crate::human::Zone;

use crate::catalog::{Answer, Catalog, InstancePrice, Query, RunCost, Server};
use crate::recommend::{Advice, Allowed, Limits, RecommendError, advise};
use crate::recording::{Head, Recording, Status};
use crate::stats::Stats;
use crate::summary::Summary;

/// Alternatives that are shown beside the recommended server.
const SERVERS: usize = 5;

/// What a page needs beside the recording.
#[derive(Clone, Debug)]
pub struct Context {
    /// When the report is made, Unix seconds.
    pub made_at: f64,
    /// In which moments are shown.
    pub zone: Zone,
    /// Who asks: `standalone`, `R`, `Metaflow`, …; matched without case.
    pub integration: String,
    /// What to call the run, in place of its job's name or its command.
    pub title: Option<String>,
    /// What else names it: `("Flow", "TrainFlow")`, `("Step", "start")`.
    pub names: Vec<(String, String)>,
    /// What it asked for this time, as its author wrote it: `@resources(cpu=2)`.
    pub requested: Option<String>,
    /// The job failed, whatever the recording says.
    pub failed: bool,
    /// The job still runs, whatever the recording says.
    pub running: bool,
    /// Statistics of earlier runs.
    pub history: Vec<Stats>,
    /// Running figures of the recording.
    pub summary: Summary,
    /// What to run it on next time, or why nobody knows.
    pub advice: Result<Advice, RecommendError>,
    /// Which servers have that.
    pub servers: Servers,
    /// What the machine that it ran on costs, where known.
    pub price: Option<InstancePrice>,
}

/// What the catalogue said.
#[derive(Clone, Debug, PartialEq)]
pub enum Servers {
    /// It was not asked.
    NotAsked,
    /// It could not answer.
    Unanswered {
        /// Why.
        reason: String,
    },
    /// Servers that fit, the cheapest first; none when nothing does.
    Answered(Box<Answer>),
}

impl Context {
    /// All that a recording itself says. Servers and prices are for [`Context::ask`].
    #[must_use]
    pub fn new(recording: &Recording, history: Vec<Stats>, made_at: f64, zone: Zone) -> Self {
        Self::of(&recording.head, recording.summary(), history, made_at, zone)
    }

    /// The same from a recording's head and running figures, where its rows are not at hand.
    #[must_use]
    pub fn of(head: &Head, summary: Summary, history: Vec<Stats>, made_at: f64, zone: Zone) -> Self {
        let advice = advise(&summary, &history, limits(head), head.run.as_ref());
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

    /// Asks for servers that fit the advice, and for the price of the one it ran on. Whether that uses the network is
    /// the catalogue's to know.
    pub fn ask(&mut self, head: &Head, catalog: &mut Catalog) {
        if let Ok(advice) = &self.advice {
            let mut needs = advice.to_ask();
            if needs.gpu == 0 {
                // Memory on a GPU that did nothing is no reason to pay for one.
                needs.vram_mb = 0;
            }
            let query = Query::from(&needs).top(SERVERS);
            self.servers = match catalog.servers(&query) {
                Ok(answer) => Servers::Answered(Box::new(answer)),
                Err(error) => Servers::Unanswered { reason: error.to_string() },
            };
        }
        self.price = price_of(head, catalog);
    }

    /// The recommended server.
    #[must_use]
    pub fn server(&self) -> Option<&Server> {
        match &self.servers {
            Servers::Answered(answer) => answer.servers.first(),
            Servers::NotAsked | Servers::Unanswered { .. } => None,
        }
    }

    /// What a run of this length costs here, and on a server.
    #[must_use]
    pub fn cost(&self, server: Option<&Server>) -> RunCost {
        let duration_s = self.summary.duration_s().unwrap_or(f64::NAN);
        RunCost::new(duration_s, self.price.as_ref(), server)
    }
}

/// The price of the machine that it ran on.
pub(crate) fn price_of(head: &Head, catalog: &mut Catalog) -> Option<InstancePrice> {
    let known = |key: &str| cloud(head, key);
    let (vendor, instance_type) = (known("vendor")?, known("instance_type")?);
    catalog.instance_price(vendor, known("region"), instance_type).ok().flatten()
}

/// What the run had to live with, by its recording.
#[must_use]
pub fn limits(head: &Head) -> Limits {
    let info = head.server_info.as_ref();
    let tightest = |limit: &str, machine: &str| {
        plots::number(info, limit).into_iter().chain(plots::number(info, machine)).reduce(f64::min)
    };
    let figures = head.run.as_ref().map_or(&[][..], |run| run.gpus.as_slice());
    // A recording without figures of every GPU still says how many there were.
    let counted = || {
        let gpus = plots::number(info, "gpu_count")?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small whole number")]
        let gpus = gpus as u32;
        Some(Allowed { gpus, never_used: None, vram_mib: plots::number(info, "gpu_memory_mb") })
    };
    Limits {
        cpu_cores: tightest("cpu_limit", "vcpus"),
        memory_mb: tightest("memory_limit_mb", "memory_mb"),
        gpus: if figures.is_empty() { counted() } else { Allowed::of(figures) },
    }
}

/// A word about the cloud, where it is known.
fn cloud<'a>(head: &'a Head, key: &str) -> Option<&'a str> {
    let word = head.cloud_info.as_ref()?.get(key)?.as_str()?;
    (!word.is_empty() && word != "unknown").then_some(word)
}

/// How the run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Finished,
    Pending,
    Failed,
}

impl Standing {
    fn of(head: &Head, context: &Context) -> Self {
        let run = head.run.as_ref();
        match run.and_then(|run| run.status.as_ref()) {
            _ if context.failed => Self::Failed,
            _ if context.running => Self::Pending,
            Some(Status::Failed | Status::Killed) => Self::Failed,
            Some(Status::Running | Status::Detached | Status::TrackerDied) => Self::Pending,
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

/// The page.
#[must_use]
pub fn render(recording: &Recording, context: &Context) -> String {
    page::render(recording, context)
}

#[cfg(test)]
mod tests;
