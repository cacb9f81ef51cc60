//! Servers and prices for a run.
//!
//! In:  the recommendation, the cloud facts of a recording, a catalogue. Out: [`Servers`] that fit the recommendation,
//!      and the price of the machine that the run used.
//! Not here: the search itself and the network (`market`).

use crate::analysis::recommend::Resources;
use crate::market::catalog::{Answer, Catalog, InstancePrice, Query, Server};
use crate::store::recording::Head;

/// Number of servers to search for: the recommended one and its alternatives.
const SERVERS: usize = 5;

/// The result of a server search.
#[derive(Clone, Debug, PartialEq)]
pub enum Servers {
    /// No search was made.
    NotAsked,
    /// The search failed.
    Unanswered { reason: String },
    /// Servers that fit, the cheapest first; the list may be empty.
    Answered(Box<Answer>),
}

impl Servers {
    /// Searches the catalogue for servers with at least these resources.
    pub fn search(needs: Resources, catalog: &mut Catalog) -> Self {
        // VRAM of a GPU that the job did not use is not a reason to rent a GPU.
        let vram_mb = if needs.gpu == 0 { 0 } else { needs.vram_mb };
        let query = Query::from(&Resources { vram_mb, ..needs }).top(SERVERS);
        match catalog.servers(&query) {
            Ok(answer) => Self::Answered(Box::new(answer)),
            Err(error) => Self::Unanswered { reason: error.to_string() },
        }
    }

    /// The cheapest server that fits.
    pub fn cheapest(&self) -> Option<&Server> {
        match self {
            Self::Answered(answer) => answer.servers.first(),
            Self::NotAsked | Self::Unanswered { .. } => None,
        }
    }
}

/// The price of the machine that a recording was made on; `None` if its cloud or its price is unknown.
pub(crate) fn price_of(head: &Head, catalog: &mut Catalog) -> Option<InstancePrice> {
    let (vendor, instance_type) = (cloud(head, "vendor")?, cloud(head, "instance_type")?);
    catalog.instance_price(vendor, cloud(head, "region"), instance_type).ok().flatten()
}

/// A value of `cloud_info`; `None` if it is missing or `unknown`.
pub(crate) fn cloud<'a>(head: &'a Head, key: &str) -> Option<&'a str> {
    let value = head.cloud_info.as_ref()?.get(key)?.as_str()?;
    (!value.is_empty() && value != "unknown").then_some(value)
}
