//! Servers and prices: the cheapest servers that fit a query, and the price of an instance.
//!
//! In:  a [`Query`] (sizes and filters), [`Settings`] (network access, URL of the Keeper).
//! Out: [`Answer`]: servers by ascending price, with the source and date of the prices; [`InstancePrice`],
//!      [`RunCost`]; [`Info`] about the local catalogues.
//! Not here: the needs of a job (`analysis`), the cloud of this machine (`cloud`).
//!
//! Sources in order: the Keeper, the catalogue saved by `catalog update`, the embedded catalogue. An answer that is not
//! from the Keeper contains the reason. A [`Catalog`] serves one call of a user: all its requests share one deadline,
//! and it sends no requests after the first failure.

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
pub mod server;
pub mod update;

pub use cache::Updated;
pub use error::{CatalogError, KeeperError};
pub use filters::Filters;
pub use keeper::{DEADLINE, KEEPER_URL};
pub(crate) use local::only_match;
pub use price::{InstancePrice, RunCost};
pub use query::Query;
pub use server::Server;

use crate::os::{
    self,
    paths::{self, Purpose},
};
use keeper::{Keeper, unix_now_s, utc_date};
use query::Criteria;
use serde::Serialize;
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Source of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    Keeper,
    /// The catalogue saved by `catalog update`.
    Updated,
    /// The catalogue inside the binary.
    Embedded,
}

impl Source {
    /// The source for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Keeper => "server-search service",
            Self::Updated => "downloaded catalogue",
            Self::Embedded => "built-in catalogue",
        }
    }
}

/// Settings for the source of servers and prices.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether network access is disabled.
    pub offline: bool,
    /// Base URL of the Keeper. Empty means offline.
    pub keeper_url: String,
    /// Cache folder; `None` disables the cache.
    pub cache_dir: Option<PathBuf>,
    /// Time limit for all requests of one call together.
    pub deadline: Duration,
}

impl Settings {
    /// Settings from `RESOURCE_TRACKER_OFFLINE`, `RESOURCE_TRACKER_KEEPER_URL` and the user's cache folder.
    pub fn from_env() -> Self {
        Self {
            offline: crate::os::network::offline(),
            keeper_url: std::env::var("RESOURCE_TRACKER_KEEPER_URL")
                .unwrap_or_else(|_| KEEPER_URL.to_owned()),
            cache_dir: paths::folder(Purpose::Cache),
            deadline: DEADLINE,
        }
    }

    /// [`Settings::from_env`] without network access.
    pub fn offline() -> Self {
        Self { offline: true, ..Self::from_env() }
    }

    fn is_offline(&self) -> bool {
        self.offline || self.keeper_url.trim().is_empty()
    }

    /// Requests a path with its query from the Keeper. Does not use the cache.
    pub fn keeper_request(&self, path: &str) -> Result<serde_json::Value, KeeperError> {
        if self.is_offline() {
            return Err(KeeperError::Offline);
        }
        Keeper::new(&self.keeper_url, None, self.deadline).get_uncached(path)
    }

    /// Describes the local catalogues, without network access.
    pub fn catalog_info(&self) -> Result<Info, CatalogError> {
        let rows = &embedded::embedded()?.rows;
        let prices = embedded::prices()?;
        let vendor_info = |vendor: &embedded::Vendor| {
            let of_vendor = || rows.iter().enumerate().filter(|(_, row)| row.vendor.id == vendor.id);
            let regions: BTreeSet<_> =
                of_vendor().flat_map(|(row, _)| prices.of(row)).map(|(region, _)| region).collect();
            VendorInfo {
                date: vendor_date(vendor),
                servers: of_vendor().count(),
                prices: of_vendor().map(|(row, _)| prices.of(row).count()).sum(),
                regions: regions.len(),
            }
        };
        let dir = self.cache_dir.as_deref();
        Ok(Info {
            collected: embedded::COLLECTED.to_owned(),
            size_bytes: embedded::size_bytes(),
            vendors: embedded::VENDORS.iter().map(vendor_info).collect(),
            updated: dir.and_then(|dir| {
                let updated = Updated::load(dir)?;
                Some(UpdatedInfo {
                    as_of: utc_date(updated.file.fetched_unix_s),
                    servers: updated.servers().len(),
                    region_prices: updated.file.region_prices.into_keys().collect(),
                    path: cache::UpdatedFile::path(dir),
                })
            }),
            cache_dir: self.cache_dir.clone(),
            cached_answers: dir.map_or(0, cache::count_responses),
            keeper_url: (!self.is_offline()).then(|| self.keeper_url.clone()),
        })
    }
}

/// Date and origin of a vendor's prices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VendorDate {
    pub vendor_id: String,
    /// Human-readable name.
    pub name: String,
    /// Date such as `2026-06`, with a note if regions have different dates.
    pub as_of: String,
    pub from: String,
}

/// Servers that fit a query.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    pub source: Source,
    /// Date of the response, or of the catalogue.
    pub as_of: String,
    /// Price dates of the vendors in the answer; empty unless the source is the embedded catalogue.
    pub dates: Vec<VendorDate>,
    /// Reason why the answer is not from the Keeper; `None` if it is from the Keeper.
    pub fallback_reason: Option<String>,
    /// Servers by ascending price; empty if no server fits.
    pub servers: Vec<Server>,
}

impl Answer {
    /// One map per server: the fields of the API, and `source` and `as_of` of the answer.
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

    /// The fields of one server, and `price_source` and `price_date`.
    pub fn with_origin(&self, server: &Server) -> serde_json::Value {
        let mut fields = serde_json::json!(server);
        fields["price_source"] = serde_json::json!(self.source);
        fields["price_date"] = serde_json::json!(self.price_date(server));
        fields
    }

    /// Date of the price of a server in this answer.
    pub fn price_date(&self, server: &Server) -> &str {
        let vendor = embedded::vendor(server.vendor_id()).filter(|_| self.source == Source::Embedded);
        vendor.zip(server.price_region()).map_or(&self.as_of, |(vendor, region)| vendor.price_date(region))
    }

    /// CPU class and architecture of a server, and date and source of its price, for people.
    pub fn about(&self, server: &Server) -> String {
        format!("{}, price of {}, {}", server.cpu_class(), self.price_date(server), self.source.name())
    }
}

/// Server search and prices during one call of a user.
pub struct Catalog {
    settings: Settings,
    keeper: Keeper,
    /// Reason of the first failure. After it, no more requests are sent to the Keeper.
    fallback_reason: Option<String>,
    /// The catalogue saved by `catalog update`, read at the first search that needs it.
    updated: OnceCell<Option<Updated>>,
}

impl Catalog {
    pub fn new(settings: Settings) -> Self {
        let keeper = Keeper::new(&settings.keeper_url, settings.cache_dir.clone(), settings.deadline);
        let fallback_reason = settings.is_offline().then(|| KeeperError::Offline.reason());
        Self { settings, keeper, fallback_reason, updated: OnceCell::new() }
    }

    /// Reads the cheapest embedded servers in a thread, so that a query at the end of a job does not wait for them.
    pub fn load_in_background() -> Option<JoinHandle<()>> {
        let load = || {
            // An error is reported by the query.
            let _ = embedded::by_price().next();
            os::note_background_cpu();
        };
        let thread = thread::Builder::new().name("rt-catalog".into()).stack_size(256 << 10);
        os::without_signals(|| thread.spawn(load)).ok()
    }

    /// The cheapest servers that fit a query.
    pub fn servers(&mut self, query: &Query) -> Result<Answer, CatalogError> {
        let criteria = Criteria::new(query)?;
        if let Some(servers) = self.try_keeper(|keeper| remote::search(keeper, &criteria)) {
            let as_of = utc_date(unix_now_s());
            return Ok(Answer {
                source: Source::Keeper,
                as_of,
                dates: Vec::new(),
                fallback_reason: None,
                servers,
            });
        }
        if !criteria.compliance.is_empty() {
            let reason = self.fallback_reason.clone().unwrap_or_default();
            return Err(CatalogError::NeedsKeeper { filter: "compliance_framework_id", reason });
        }
        let updated = self.updated.get_or_init(|| self.settings.cache_dir.as_deref().and_then(Updated::load));
        if let Some(updated) = updated
            && let Some(servers) = local::search_updated(&criteria, updated)
        {
            return Ok(Answer {
                source: Source::Updated,
                as_of: utc_date(updated.file.fetched_unix_s),
                dates: Vec::new(),
                fallback_reason: self.fallback_reason.clone(),
                servers,
            });
        }
        from_embedded(&criteria, self.fallback_reason.clone())
    }

    /// The Linux on-demand price of an instance type in a region, or in the vendor's cheapest region if the price in
    /// that region is unknown. `None` for an unknown instance type.
    pub fn instance_price(
        &mut self,
        vendor_id: &str,
        region: Option<&str>,
        instance_type: &str,
    ) -> Result<Option<InstancePrice>, CatalogError> {
        if vendor_id.is_empty() || instance_type.is_empty() {
            return Ok(None);
        }
        let from_keeper =
            self.try_keeper(|keeper| remote::list_price(keeper, vendor_id, region, instance_type));
        if let Some(Some(price)) = from_keeper {
            let requested = (vendor_id, region, instance_type);
            return Ok(Some(InstancePrice::new(requested, price, Source::Keeper, utc_date(unix_now_s()))));
        }
        embedded_price(vendor_id, region, instance_type)
    }

    /// Fills in the region of each price that the Keeper gave without one.
    pub(crate) fn find_regions(&mut self, answer: &mut Answer) {
        for server in answer.servers.iter_mut().filter(|server| server.price_region().is_none()) {
            let (vendor, name) = (server.vendor_id().to_owned(), server.server_id().to_owned());
            let found = self.try_keeper(|keeper| remote::list_price(keeper, &vendor, None, &name)).flatten();
            if let Some(price) = found.filter(|price| Some(price.usd_per_hour) == server.ondemand_usd()) {
                server.set_region_price(price.usd_per_hour, price.spot_usd_per_hour, &price.region);
            }
        }
    }

    fn try_keeper<T>(&mut self, request: impl FnOnce(&mut Keeper) -> Result<T, KeeperError>) -> Option<T> {
        if self.fallback_reason.is_some() {
            return None;
        }
        request(&mut self.keeper).map_err(|error| self.fallback_reason = Some(error.reason())).ok()
    }
}

/// Like [`Catalog::instance_price`], but only from the embedded catalogue.
pub fn embedded_price(
    vendor_id: &str,
    region: Option<&str>,
    instance_type: &str,
) -> Result<Option<InstancePrice>, CatalogError> {
    let Some(price) = local::list_price(vendor_id, region, instance_type)? else { return Ok(None) };
    let as_of = embedded::vendor(vendor_id).map_or("", |vendor| vendor.price_date(&price.region)).to_owned();
    Ok(Some(InstancePrice::new((vendor_id, region, instance_type), price, Source::Embedded, as_of)))
}

fn from_embedded(criteria: &Criteria, fallback_reason: Option<String>) -> Result<Answer, CatalogError> {
    let servers = local::search(criteria)?;
    let dates = embedded::VENDORS
        .iter()
        .filter(|vendor| servers.iter().any(|server| server.vendor_id() == vendor.id))
        .map(vendor_date)
        .collect();
    Ok(Answer {
        source: Source::Embedded,
        as_of: embedded::COLLECTED.to_owned(),
        dates,
        fallback_reason,
        servers,
    })
}

fn vendor_date(vendor: &embedded::Vendor) -> VendorDate {
    VendorDate {
        vendor_id: vendor.id.to_owned(),
        name: vendor.name.to_owned(),
        as_of: vendor.price_dates(),
        from: vendor.from.to_owned(),
    }
}

/// A vendor of the embedded catalogue.
#[derive(Clone, Debug, Serialize)]
pub struct VendorInfo {
    #[serde(flatten)]
    pub date: VendorDate,
    /// Number of server types.
    pub servers: usize,
    /// Number of on-demand prices, one per server type and region.
    pub prices: usize,
    /// Number of regions with prices.
    pub regions: usize,
}

/// The catalogue saved by `catalog update`.
#[derive(Clone, Debug, Serialize)]
pub struct UpdatedInfo {
    /// Date of the download.
    pub as_of: String,
    /// Number of server types.
    pub servers: usize,
    /// Regions with separate prices, such as `aws~us-east-1`.
    pub region_prices: Vec<String>,
    pub path: PathBuf,
}

/// The local catalogues.
#[derive(Clone, Debug, Serialize)]
pub struct Info {
    /// Date on which the data of the embedded catalogue was collected.
    pub collected: String,
    /// Size of the embedded catalogue in bytes.
    pub size_bytes: usize,
    pub vendors: Vec<VendorInfo>,
    /// `None` before the first `catalog update`.
    pub updated: Option<UpdatedInfo>,
    pub cache_dir: Option<PathBuf>,
    /// Number of cached responses of the Keeper.
    pub cached_answers: usize,
    /// `None` if network access is disabled.
    pub keeper_url: Option<String>,
}
