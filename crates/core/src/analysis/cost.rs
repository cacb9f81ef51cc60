//! Servers and prices for a run.
//!
//! In:  the advice, the machine and the cloud of a recording, filters of the user, a catalogue.
//! Out: [`Servers`] that fit the advice, and the price of the machine that the run used.
//! Not here: the search itself and the network (`market`).
//!
//! Without filters of the user, servers have the CPU architecture of the run, and no burstable CPUs unless the job is
//! mostly idle. On a known cloud, the vendor and region of the run are searched as well.

use crate::analysis::recommend::{Advice, Resources};
use crate::analysis::sizing::{WhatIf, what_if};
use crate::market::catalog::{Answer, Catalog, Filters, InstancePrice, Query, Server};
use crate::store::cpu_profile::CpuProfile;
use crate::store::recording::Head;
use serde::Serialize;
use serde_json::{Value, json};

/// Number of servers to search for: the recommended one and its alternatives.
const SERVERS: usize = 5;
/// Mean use of the requested CPUs above which a burstable server would run out of CPU credits. The baseline of most
/// burstable servers is between 10 % and 40 % of their CPUs.
const MOSTLY_IDLE: f64 = 0.2;

/// The result of a server search.
#[derive(Clone, Debug, PartialEq)]
pub enum Servers {
    /// No search was made.
    NotAsked,
    /// The search failed.
    Unanswered { reason: String },
    /// Servers that fit, the cheapest first; the lists may be empty.
    Answered(Box<Offers>),
}

/// Servers that fit, by place.
#[derive(Clone, Debug, PartialEq)]
pub struct Offers {
    /// Servers of the vendor of the run, in its region if that is known. `None` if the cloud of the run is unknown, or if
    /// the user has chosen vendors or places.
    pub here: Option<Answer>,
    /// Servers of all vendors and regions that the user's filters allow.
    pub anywhere: Answer,
    /// What the search could not take into account, for people.
    pub notes: Vec<String>,
}

impl Servers {
    /// Searches the catalogue for servers with the advised resources. A filter replaces the matching default.
    pub fn search(advice: &Advice, head: &Head, catalog: &mut Catalog, filters: &Filters) -> Self {
        let needs = advice.request;
        // VRAM of a GPU that the job did not use is not a reason to rent a GPU.
        let vram_mb = if needs.gpu == 0 { 0 } else { needs.vram_mb };
        let mut query = Query::from(&Resources { vram_mb, ..needs }).top(SERVERS);
        query.filters = filters.clone();
        let mut notes = Vec::new();
        if filters.architecture.is_empty() {
            match architecture(head) {
                Some(name) => {
                    let own = Filters { architecture: vec![name.to_owned()], ..Filters::default() };
                    if own.check().is_err() {
                        let reason = format!("the catalogue has no servers with {name} CPUs");
                        return Self::Unanswered { reason };
                    }
                    query.filters.architecture = own.architecture;
                }
                None => notes.push(
                    "the CPU architecture of this run is unknown, so the server may have another one"
                        .to_owned(),
                ),
            }
        }
        let is_idle = |mean: f64| mean <= MOSTLY_IDLE * f64::from(needs.cpu);
        if filters.cpu_allocation.is_empty()
            && !advice.cpu.as_ref().is_some_and(|cpu| is_idle(cpu.mean_cores))
        {
            query.filters.cpu_allocation = ["Dedicated", "Shared"].map(ToOwned::to_owned).to_vec();
        }
        let here = cloud(head, "vendor").filter(|_| !filters.has_place()).and_then(|vendor| {
            let region = cloud(head, "region");
            let mut query = query.clone();
            query.filters.vendor_id = vec![vendor.to_owned()];
            query.filters.region = region.map(|region| format!("{vendor}~{region}")).into_iter().collect();
            // An error means that the catalogue does not know the vendor or the region.
            let answer = catalog.servers(&query).ok().filter(|answer| !answer.servers.is_empty());
            if answer.is_none() {
                let region = region.map_or_else(String::new, |region| format!(" in {region}"));
                notes.push(format!("no server of {vendor}{region} is known to fit"));
            }
            answer
        });
        match catalog.servers(&query) {
            Ok(mut anywhere) => {
                catalog.find_regions(&mut anywhere);
                Self::Answered(Box::new(Offers { here, anywhere, notes }))
            }
            Err(error) => Self::Unanswered { reason: error.to_string() },
        }
    }

    /// The cheapest server in the cloud region of the run.
    pub fn here(&self) -> Option<(&Answer, &Server)> {
        cheapest(self.offers()?.here.as_ref()?)
    }

    /// The cheapest server of all that fit.
    pub fn anywhere(&self) -> Option<(&Answer, &Server)> {
        cheapest(&self.offers()?.anywhere)
    }

    /// The server to show first: the cheapest one here, else the cheapest one anywhere.
    pub fn first(&self) -> Option<(&Answer, &Server)> {
        self.here().or_else(|| self.anywhere())
    }

    /// The cheapest server anywhere, if it is cheaper than the cheapest one here.
    pub fn cheaper_elsewhere(&self) -> Option<(&Answer, &Server)> {
        let here = self.here()?.1.price_usd()?;
        self.anywhere().filter(|(_, server)| server.price_usd().is_some_and(|price| price < here))
    }

    /// What the search could not take into account.
    pub fn notes(&self) -> &[String] {
        self.offers().map(|offers| offers.notes.as_slice()).unwrap_or_default()
    }

    /// Reason why the search failed.
    pub fn problem(&self) -> Option<&str> {
        match self {
            Self::Unanswered { reason } => Some(reason),
            Self::NotAsked | Self::Answered(_) => None,
        }
    }

    /// `here`, `anywhere` and `notes`: the cheapest servers, with date and source of their prices.
    pub fn json(&self) -> Value {
        let shown =
            |found: Option<(&Answer, &Server)>| found.map(|(answer, server)| answer.with_origin(server));
        json!({ "here": shown(self.here()), "anywhere": shown(self.anywhere()), "notes": self.notes() })
    }

    fn offers(&self) -> Option<&Offers> {
        match self {
            Self::Answered(offers) => Some(offers),
            Self::NotAsked | Self::Unanswered { .. } => None,
        }
    }
}

fn cheapest(answer: &Answer) -> Option<(&Answer, &Server)> {
    Some((answer, answer.servers.first()?))
}

/// The CPU architecture of the machine of a recording; `None` if it is unknown, as in files of older versions.
fn architecture(head: &Head) -> Option<&str> {
    head.server_info.as_ref()?.get("architecture")?.as_str().filter(|name| !name.is_empty())
}

/// A server in the table of predicted times.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PricedServer {
    pub vendor_id: String,
    pub name: String,
    pub region: Option<String>,
    pub usd_per_hour: f64,
}

/// The predicted time, the cheapest server and the cost of a run with 1, 2, 4, … CPUs.
pub(crate) fn what_if_costs(
    advice: &Advice,
    profile: &CpuProfile,
    head: &Head,
    catalog: &mut Catalog,
    filters: &Filters,
) -> Vec<WhatIf<PricedServer>> {
    what_if(profile, |cpu| {
        let advice = Advice { request: Resources { cpu, ..advice.request }, ..advice.clone() };
        let servers = Servers::search(&advice, head, catalog, filters);
        let (_, server) = servers.first()?;
        let usd_per_hour = server.price_usd()?;
        let (vendor_id, name) = (server.vendor_id().to_owned(), server.name().to_owned());
        let region = server.price_region().map(ToOwned::to_owned);
        Some((PricedServer { vendor_id, name, region, usd_per_hour }, usd_per_hour))
    })
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
