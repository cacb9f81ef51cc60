//! Servers and prices: which server would do, and what it costs.
//!
//! In:  a [`Query`] (sizes and filters), [`Settings`] (may we use the network, where is the Keeper).
//! Out: [`Answer`]: servers from the cheapest up with every field of the public API, who says so
//!      and as of when; [`InstancePrice`] and [`RunCost`]; [`Info`] about the catalogues here.
//! Not here: what a job needs (`recommend`), where we run (`cloud`).
//!
//! The Keeper is asked when it can be; else the catalogue of `catalog update`, if it has what is
//! asked; else the embedded one, and the answer says why. [`Catalog`] is one call of a user's: all
//! its requests share one deadline, and a Keeper that failed once is not asked again.
//! [`cheapest`] never uses the network; it is for a run's summary.

mod bytes;
mod cache;
pub mod embedded;
pub mod error;
pub mod filters;
mod keeper;
mod local;
pub mod price;
pub mod query;
pub mod region;
mod remote;
#[cfg(feature = "net")]
mod resolver;
pub mod server;
mod update;

pub use cache::Updated;
pub use error::{CatalogError, KeeperError};
pub use filters::Filters;
pub use keeper::{DEADLINE, KEEPER_URL};
pub(crate) use local::only_match;
pub use price::{Cost, InstancePrice, RunCost, Savings};
pub use query::{Plan, Query};
pub use server::Server;
pub use update::{Step, UpdateReport, update};

use crate::paths::{self, Purpose};
use keeper::{Keeper, unix_now_s, utc_date};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The public server-search service.
    Keeper,
    /// What `catalog update` fetched.
    Updated,
    /// What was built in.
    Embedded,
}

/// How to ask.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Not a single packet.
    pub offline: bool,
    /// Base URL of the Keeper; empty switches it off.
    pub keeper_url: String,
    /// Where answers are kept; nowhere when `None`.
    pub cache_dir: Option<PathBuf>,
    /// For all requests of one call together.
    pub deadline: Duration,
}

impl Settings {
    /// As the environment says: `RESOURCE_TRACKER_OFFLINE`, `RESOURCE_TRACKER_KEEPER_URL`,
    /// and what names the user's folder for caches.
    #[must_use]
    pub fn from_env() -> Self {
        Self {
            offline: crate::network::offline(),
            keeper_url: std::env::var("RESOURCE_TRACKER_KEEPER_URL")
                .unwrap_or_else(|_| KEEPER_URL.to_owned()),
            cache_dir: paths::folder(Purpose::Cache),
            deadline: DEADLINE,
        }
    }

    /// As the environment says, and never on the network.
    #[must_use]
    pub fn offline() -> Self {
        Self { offline: true, ..Self::from_env() }
    }

    fn is_offline(&self) -> bool {
        self.offline || self.keeper_url.trim().is_empty()
    }
}

/// As of when a vendor's prices are, and where they come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VendorDate {
    /// `aws`, `gcp`, …
    pub vendor_id: String,
    /// As people know it.
    pub name: String,
    /// `2026-06`, with a note where regions differ.
    pub as_of: String,
    /// Origin.
    pub from: String,
}

/// Servers, and who says so.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// Who answers.
    pub source: Source,
    /// The day of the answer, or of the catalogue.
    pub as_of: String,
    /// Dates of the vendors in the answer, for the embedded catalogue.
    pub dates: Vec<VendorDate>,
    /// Why the Keeper does not answer, when it does not.
    pub fallback_reason: Option<String>,
    /// What fits, cheapest first; empty when nothing does.
    pub servers: Vec<Server>,
}

impl Answer {
    /// Each server as the fields of the public API, with who says so (`source`) and as of when (`as_of`).
    pub fn rows(&self) -> impl Iterator<Item = serde_json::Map<String, serde_json::Value>> {
        self.servers.iter().map(|server| {
            let fields = server.fields().map(|(name, value)| (name.to_owned(), value.clone()));
            let origin = [
                ("source".to_owned(), serde_json::json!(self.source)),
                ("as_of".to_owned(), serde_json::json!(self.as_of)),
            ];
            fields.chain(origin).collect()
        })
    }
}

/// One call of a user's.
pub struct Catalog {
    settings: Settings,
    keeper: Keeper,
    gave_up: Option<String>,
}

impl Catalog {
    /// Nothing is asked or read yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let keeper = Keeper::new(&settings.keeper_url, settings.cache_dir.clone(), settings.deadline);
        let gave_up = settings.is_offline().then(|| KeeperError::Offline.reason());
        Self { settings, keeper, gave_up }
    }

    /// The cheapest servers that fit.
    ///
    /// # Errors
    /// When the question is wrong, or has a filter that only the Keeper knows and it does not answer.
    pub fn servers(&mut self, query: &Query) -> Result<Answer, CatalogError> {
        let plan = Plan::new(query)?;
        if let Some(servers) = self.ask(|keeper| remote::search(keeper, &plan)) {
            let as_of = utc_date(unix_now_s());
            return Ok(Answer {
                source: Source::Keeper,
                as_of,
                dates: Vec::new(),
                fallback_reason: None,
                servers,
            });
        }
        if !plan.compliance.is_empty() {
            let reason = self.gave_up.clone().unwrap_or_default();
            return Err(CatalogError::NeedsKeeper { filter: "compliance_framework_id", reason });
        }
        let updated = self.settings.cache_dir.as_deref().and_then(Updated::load);
        if let Some(updated) = updated
            && let Some(servers) = local::search_updated(&plan, &updated)
        {
            return Ok(Answer {
                source: Source::Updated,
                as_of: utc_date(updated.fetched_unix_s()),
                dates: Vec::new(),
                fallback_reason: self.gave_up.clone(),
                servers,
            });
        }
        from_embedded(&plan, self.gave_up.clone())
    }

    /// The Linux on-demand price of an instance type in a region, else in the vendor's cheapest other
    /// region; `None` when nobody knows it.
    ///
    /// # Errors
    /// When the embedded catalogue is damaged.
    pub fn instance_price(
        &mut self,
        vendor_id: &str,
        region: Option<&str>,
        instance_type: &str,
    ) -> Result<Option<InstancePrice>, CatalogError> {
        let asked = (vendor_id, region, instance_type);
        if vendor_id.is_empty() || instance_type.is_empty() {
            return Ok(None);
        }
        if let Some(Some(listed)) =
            self.ask(|keeper| remote::listed(keeper, vendor_id, region, instance_type))
        {
            return Ok(Some(InstancePrice::new(asked, listed, Source::Keeper, utc_date(unix_now_s()))));
        }
        embedded_price(vendor_id, region, instance_type)
    }

    /// Why the Keeper was not, or is no longer, asked.
    #[must_use]
    pub fn fallback_reason(&self) -> Option<&str> {
        self.gave_up.as_deref()
    }

    fn ask<T>(&mut self, question: impl FnOnce(&mut Keeper) -> Result<T, KeeperError>) -> Option<T> {
        if self.gave_up.is_some() {
            return None;
        }
        question(&mut self.keeper).map_err(|error| self.gave_up = Some(error.reason())).ok()
    }
}

/// What the Keeper answers to a path with its query, asked for now.
///
/// # Errors
/// Why there is no answer.
pub fn keeper_request(settings: &Settings, path: &str) -> Result<serde_json::Value, KeeperError> {
    if settings.is_offline() {
        return Err(KeeperError::Offline);
    }
    Keeper::new(&settings.keeper_url, None, settings.deadline).get_fresh(path)
}

/// The cheapest servers that fit, as the environment says; one call of [`Catalog::servers`].
///
/// # Errors
/// As [`Catalog::servers`].
pub fn servers(query: &Query) -> Result<Answer, CatalogError> {
    Catalog::new(Settings::from_env()).servers(query)
}

/// The cheapest server of the embedded catalogue that fits: no network, no file, well under a
/// millisecond unless a place is asked for.
///
/// # Errors
/// When the question is wrong.
pub fn cheapest(query: &Query) -> Result<Option<Server>, CatalogError> {
    let plan = Plan::new(&query.clone().top(1))?;
    if !plan.compliance.is_empty() {
        let reason = KeeperError::Offline.reason();
        return Err(CatalogError::NeedsKeeper { filter: "compliance_framework_id", reason });
    }
    Ok(local::search(&plan)?.into_iter().next())
}

/// The price of an instance type by the embedded catalogue alone.
///
/// # Errors
/// When the embedded catalogue is damaged.
pub fn embedded_price(
    vendor_id: &str,
    region: Option<&str>,
    instance_type: &str,
) -> Result<Option<InstancePrice>, CatalogError> {
    let Some(listed) = local::listed(vendor_id, region, instance_type)? else { return Ok(None) };
    let as_of = embedded::embedded()?
        .vendor(vendor_id)
        .map_or_else(String::new, |(_, vendor)| vendor.as_of.to_owned());
    Ok(Some(InstancePrice::new((vendor_id, region, instance_type), listed, Source::Embedded, as_of)))
}

fn from_embedded(plan: &Plan, fallback_reason: Option<String>) -> Result<Answer, CatalogError> {
    let catalogue = embedded::embedded()?;
    let servers = local::search(plan)?;
    let dates = catalogue
        .vendors
        .iter()
        .filter(|vendor| servers.iter().any(|server| server.vendor_id() == vendor.id))
        .map(vendor_date)
        .collect();
    Ok(Answer {
        source: Source::Embedded,
        as_of: catalogue.collected.to_owned(),
        dates,
        fallback_reason,
        servers,
    })
}

fn vendor_date(vendor: &embedded::Vendor<'_>) -> VendorDate {
    VendorDate {
        vendor_id: vendor.id.to_owned(),
        name: vendor.name.to_owned(),
        as_of: vendor.as_of.to_owned(),
        from: vendor.from.to_owned(),
    }
}

/// A vendor of the embedded catalogue.
#[derive(Clone, Debug, Serialize)]
pub struct VendorInfo {
    /// Date and origin.
    #[serde(flatten)]
    pub date: VendorDate,
    /// Server types.
    pub servers: usize,
    /// On-demand prices by region.
    pub prices: usize,
    /// Regions with prices.
    pub regions: usize,
}

/// The catalogue of `catalog update`.
#[derive(Clone, Debug, Serialize)]
pub struct UpdatedInfo {
    /// The day it was fetched.
    pub as_of: String,
    /// Server types.
    pub servers: usize,
    /// Regions with prices of their own.
    pub region_prices: Vec<String>,
    /// The file.
    pub path: PathBuf,
}

/// Which catalogues there are.
#[derive(Clone, Debug, Serialize)]
pub struct Info {
    /// The day on which the embedded facts were collected.
    pub collected: String,
    /// Size of the embedded file.
    pub size_bytes: usize,
    /// Its vendors.
    pub vendors: Vec<VendorInfo>,
    /// What `catalog update` fetched, if it ever ran.
    pub updated: Option<UpdatedInfo>,
    /// Where answers are kept.
    pub cache_dir: Option<PathBuf>,
    /// How many are.
    pub cached_answers: usize,
    /// Whom a question would go to; `None` when the network is switched off.
    pub keeper_url: Option<String>,
}

/// Says which catalogues there are, without asking anyone.
///
/// # Errors
/// When the embedded catalogue is damaged.
pub fn info(settings: &Settings) -> Result<Info, CatalogError> {
    let catalogue = embedded::embedded()?;
    let prices = embedded::prices()?;
    let vendor_info = |(index, vendor): (usize, &embedded::Vendor<'_>)| {
        let rows = || catalogue.rows.iter().enumerate().filter(move |(_, row)| row.vendor == index);
        VendorInfo {
            date: vendor_date(vendor),
            servers: rows().count(),
            prices: rows().map(|(row, _)| prices.of(row).len()).sum(),
            regions: vendor.regions.len(),
        }
    };
    let dir = settings.cache_dir.as_deref();
    Ok(Info {
        collected: catalogue.collected.to_owned(),
        size_bytes: embedded::size_bytes(),
        vendors: catalogue.vendors.iter().enumerate().map(vendor_info).collect(),
        updated: dir.and_then(|dir| {
            let updated = Updated::load(dir)?;
            Some(UpdatedInfo {
                as_of: utc_date(updated.fetched_unix_s()),
                servers: updated.servers().len(),
                region_prices: updated.regions_with_prices().map(ToOwned::to_owned).collect(),
                path: Updated::path(dir),
            })
        }),
        cache_dir: settings.cache_dir.clone(),
        cached_answers: dir.map_or(0, cache::answers),
        keeper_url: (!settings.is_offline()).then(|| settings.keeper_url.clone()),
    })
}
