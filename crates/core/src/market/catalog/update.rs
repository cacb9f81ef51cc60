//! `catalog update`: saves the Keeper's full catalogue in the user's cache folder.
//!
//! In:  settings, regions, a progress callback.
//! Out: [`UpdateReport`], and a file for [`super::Updated`].
//! Not here: the choice of the catalogue for a query (`mod`).
//!
//! The first request reads the hash of the Keeper's data. If the hash has not changed, only prices of new regions are
//! requested. The lowest price of a server may be that of a region which is closed to new customers. So the servers of a
//! vendor with such regions are requested again, with its open regions only.

use super::cache::UpdatedFile;
use super::error::{CatalogError, KeeperError};
use super::keeper::{Keeper, escaped, unix_now_s, utc_date};
use super::query::{Criteria, Query};
use super::{Settings, region, remote};
use crate::market::VENDOR_IDS;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Time limit for all requests of an update, in deadlines of a query (2 s). It is enough for 11 MB at 4.4 Mbit/s.
const DEADLINES: u32 = 10;

/// Progress of an update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Healthcheck,
    Servers,
    Regions,
    /// Servers and prices of one vendor in its open regions.
    OpenRegions(&'static str),
    /// Prices of one region, such as `aws~us-east-1`.
    RegionPrices(String),
    Save,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Healthcheck => f.write_str("checking for changes"),
            Self::Servers => f.write_str("fetching servers"),
            Self::Regions => f.write_str("fetching regions"),
            Self::OpenRegions(vendor) => write!(f, "fetching servers in open regions of {vendor}"),
            Self::RegionPrices(region) => write!(f, "fetching prices in {region}"),
            Self::Save => f.write_str("saving"),
        }
    }
}

/// Result of an update.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UpdateReport {
    /// Whether new data was saved.
    pub changed: bool,
    pub database_hash: String,
    /// Date of the Keeper's data.
    pub database_last_updated: Option<String>,
    /// Date of the saved catalogue.
    pub as_of: String,
    pub servers: usize,
    pub regions: usize,
    /// Regions with separate prices, such as `aws~us-east-1`.
    pub region_prices: Vec<String>,
    pub path: PathBuf,
}

impl Settings {
    /// Saves the catalogue, with separate prices for each of `regions` (such as `eu-west-1` or `aws~eu-west-1`).
    pub fn update_catalog(
        &self,
        regions: &[String],
        progress: &mut dyn FnMut(&Step),
    ) -> Result<UpdateReport, CatalogError> {
        let mut query = Query::new(0.0, 0.0);
        query.filters.region = regions.to_vec();
        let places = Criteria::new(&query)?.places.unwrap_or_default();
        let dir = self.cache_dir.as_deref().ok_or(CatalogError::NoCacheDir)?;
        let mut keeper = Keeper::new(&self.keeper_url, None, self.deadline.saturating_mul(DEADLINES));
        if self.is_offline() {
            return Err(CatalogError::Update {
                url: keeper.url("/healthcheck"),
                source: KeeperError::Offline,
            });
        }

        let health = fetch(&mut keeper, "/healthcheck", &Step::Healthcheck, progress)?;
        let health_text = |field: &str| health.get(field).and_then(Value::as_str).map(ToOwned::to_owned);
        let database_hash = health_text("database_hash").ok_or_else(|| CatalogError::Update {
            url: keeper.url("/healthcheck"),
            source: KeeperError::Schema { field: "database_hash" },
        })?;

        let saved = UpdatedFile::load(dir)
            .filter(|saved| saved.database_hash == database_hash && !saved.servers.is_empty());
        let mut changed = saved.is_none();
        let mut file = if let Some(saved) = saved {
            saved
        } else {
            let mut servers = fetch_servers(&mut keeper, "", &Step::Servers, progress)?;
            let regions = fetch_regions(&mut keeper, progress)?;
            use_open_regions(&mut keeper, &mut servers, &regions, progress)?;
            UpdatedFile {
                servers,
                regions,
                database_hash,
                fetched_unix_s: unix_now_s(),
                region_prices: BTreeMap::new(),
            }
        };
        for place in places {
            let key = format!("{}~{}", place.vendor_id, place.region);
            if file.region_prices.contains_key(&key) {
                continue;
            }
            let step = Step::RegionPrices(key.clone());
            let servers = fetch_in_regions(&mut keeper, place.vendor_id, &[place.region], &step, progress)?;
            let prices = servers.iter().filter_map(|server| {
                Some((
                    server.get("server_id")?.as_str()?.to_owned(),
                    server.get("min_price_ondemand")?.as_f64().filter(|price| *price > 0.0)?,
                ))
            });
            file.region_prices.insert(key, prices.collect());
            changed = true;
        }

        let path = if changed {
            progress(&Step::Save);
            file.save(dir)?
        } else {
            UpdatedFile::path(dir)
        };
        Ok(UpdateReport {
            changed,
            database_last_updated: health_text("database_last_updated"),
            as_of: utc_date(file.fetched_unix_s),
            servers: file.servers.len(),
            regions: file.regions.len(),
            region_prices: file.region_prices.into_keys().collect(),
            database_hash: file.database_hash,
            path,
        })
    }
}

/// Replaces the servers of vendors with closed regions by the servers and prices in their open regions.
fn use_open_regions(
    keeper: &mut Keeper,
    servers: &mut Vec<Map<String, Value>>,
    regions: &[Value],
    progress: &mut dyn FnMut(&Step),
) -> Result<(), CatalogError> {
    for vendor in VENDOR_IDS.into_iter().filter(|vendor| region::has_closed(vendor)) {
        let names = remote::names_of_regions(regions, vendor);
        let (closed, open): (Vec<&str>, Vec<&str>) =
            names.values().map(String::as_str).partition(|name| region::closed(vendor, name).is_some());
        if closed.is_empty() || open.is_empty() {
            continue;
        }
        let in_open = fetch_in_regions(keeper, vendor, &open, &Step::OpenRegions(vendor), progress)?;
        servers.retain(|server| server.get("vendor_id").and_then(Value::as_str) != Some(vendor));
        servers.extend(in_open);
    }
    Ok(())
}

/// The servers of a vendor that are available in one of `regions`, with the lowest price over these regions.
fn fetch_in_regions(
    keeper: &mut Keeper,
    vendor_id: &str,
    regions: &[&str],
    step: &Step,
    progress: &mut dyn FnMut(&Step),
) -> Result<Vec<Map<String, Value>>, CatalogError> {
    let mut filter = String::new();
    for region in regions {
        filter += "&vendor_regions=";
        filter += &escaped(&format!("{vendor_id}~{region}"));
    }
    let servers = fetch_servers(keeper, &filter, step, progress)?;
    if servers.iter().any(|server| server.get("vendor_id").and_then(Value::as_str) != Some(vendor_id)) {
        return Err(CatalogError::Update { url: keeper.url("/servers"), source: KeeperError::Incomplete });
    }
    Ok(servers)
}

fn fetch(
    keeper: &mut Keeper,
    path: &str,
    step: &Step,
    progress: &mut dyn FnMut(&Step),
) -> Result<Value, CatalogError> {
    progress(step);
    keeper.get_uncached(path).map_err(|source| CatalogError::Update { url: keeper.url(path), source })
}

fn fetch_regions(keeper: &mut Keeper, progress: &mut dyn FnMut(&Step)) -> Result<Vec<Value>, CatalogError> {
    let path = "/regions";
    if let Value::Array(rows) = fetch(keeper, path, &Step::Regions, progress)? {
        return Ok(rows);
    }
    Err(CatalogError::Update {
        url: keeper.url(path),
        source: KeeperError::Schema { field: "list of regions" },
    })
}

fn fetch_servers(
    keeper: &mut Keeper,
    filter: &str,
    step: &Step,
    progress: &mut dyn FnMut(&Step),
) -> Result<Vec<Map<String, Value>>, CatalogError> {
    let path = format!("/servers?limit=-1&best_price_allocation=ONDEMAND_ONLY{filter}");
    let response = fetch(keeper, &path, step, progress)?;
    let error = |source| CatalogError::Update { url: keeper.url(&path), source };
    // The response is checked as in a search, but saved unchanged.
    let checked = remote::servers(response.clone()).map_err(error)?;
    if checked.is_empty() && filter.is_empty() {
        return Err(error(KeeperError::Schema { field: "list of servers" }));
    }
    let Value::Array(rows) = response else { return Ok(Vec::new()) };
    Ok(rows
        .into_iter()
        .filter_map(|row| match row {
            Value::Object(object) => Some(object),
            _ => None,
        })
        .collect())
}
