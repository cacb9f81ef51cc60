//! `catalog update`: the Keeper's whole catalogue into the user's cache directory.
//!
//! In:  settings, the regions whose prices are wanted, someone to tell how far it is.
//! Out: [`UpdateReport`], and a file that [`super::Updated`] reads.
//! Not here: which catalogue answers a question (`mod`).
//!
//! The Keeper's hash of its data is asked for first; while it is unchanged nothing else is fetched
//! but regions that were not fetched before.

use super::cache::UpdatedFile;
use super::error::{CatalogError, KeeperError};
use super::keeper::{Keeper, escaped, unix_now_s, utc_date};
use super::query::{Plan, Query};
use super::{Settings, remote};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// 11 MB over a slow line.
const DEADLINE: Duration = Duration::from_mins(2);

/// What is being done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Asking whether anything changed.
    Healthcheck,
    /// Fetching all servers.
    Servers,
    /// Fetching all regions.
    Regions,
    /// Fetching the prices of one region, as `aws~us-east-1`.
    RegionPrices(String),
    /// Writing the file.
    Save,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Healthcheck => f.write_str("asking whether the catalogue has changed"),
            Self::Servers => f.write_str("fetching servers"),
            Self::Regions => f.write_str("fetching regions"),
            Self::RegionPrices(region) => write!(f, "fetching prices of {region}"),
            Self::Save => f.write_str("saving"),
        }
    }
}

/// What an update did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UpdateReport {
    /// Whether anything new was fetched.
    pub changed: bool,
    /// The Keeper's hash of its data.
    pub database_hash: String,
    /// When it says its data changed last.
    pub database_last_updated: Option<String>,
    /// The day of our copy.
    pub as_of: String,
    /// Servers in it.
    pub servers: usize,
    /// Regions in it.
    pub regions: usize,
    /// Regions with prices of their own in it.
    pub region_prices: Vec<String>,
    /// Where it is.
    pub path: PathBuf,
}

/// Fetches the catalogue, and the prices in `regions` (`eu-west-1`, `aws~eu-west-1`).
///
/// # Errors
/// When a region is unknown, the Keeper gives no catalogue, or the file cannot be written. The
/// catalogue that was there before stays.
pub fn update(
    settings: &Settings,
    regions: &[String],
    progress: &mut dyn FnMut(&Step),
) -> Result<UpdateReport, CatalogError> {
    let mut query = Query::new(0.0, 0.0);
    query.filters.region = regions.to_vec();
    let places = Plan::new(&query)?.places.unwrap_or_default();
    let dir = settings.cache_dir.as_deref().ok_or(CatalogError::NoCacheDir)?;
    let mut keeper = Keeper::new(&settings.keeper_url, None, DEADLINE);
    if settings.is_offline() {
        return Err(CatalogError::Update { url: keeper.url("/healthcheck"), source: KeeperError::Offline });
    }

    let health = fetch(&mut keeper, "/healthcheck", &Step::Healthcheck, progress)?;
    let health_text = |field: &str| health.get(field).and_then(Value::as_str).map(ToOwned::to_owned);
    let database_hash = health_text("database_hash").ok_or_else(|| CatalogError::Update {
        url: keeper.url("/healthcheck"),
        source: KeeperError::Schema { field: "database_hash" },
    })?;

    let kept =
        UpdatedFile::load(dir).filter(|kept| kept.database_hash == database_hash && !kept.servers.is_empty());
    let mut changed = kept.is_none();
    let mut file = match kept {
        Some(kept) => kept,
        None => UpdatedFile {
            servers: fetch_servers(&mut keeper, "", &Step::Servers, progress)?,
            regions: fetch_regions(&mut keeper, progress)?,
            database_hash,
            fetched_unix_s: unix_now_s(),
            region_prices: BTreeMap::new(),
        },
    };
    for place in places {
        let key = format!("{}~{}", place.vendor_id, place.region);
        if file.region_prices.contains_key(&key) {
            continue;
        }
        let step = Step::RegionPrices(key.clone());
        let servers =
            fetch_servers(&mut keeper, &format!("&vendor_regions={}", escaped(&key)), &step, progress)?;
        let text = |server: &Map<String, Value>, field: &str| Some(server.get(field)?.as_str()?.to_owned());
        if servers.iter().any(|server| text(server, "vendor_id").as_deref() != Some(place.vendor_id)) {
            return Err(CatalogError::Update {
                url: keeper.url("/servers"),
                source: KeeperError::Incomplete,
            });
        }
        let prices = servers.iter().filter_map(|server| {
            Some((
                text(server, "server_id")?,
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

fn fetch(
    keeper: &mut Keeper,
    path: &str,
    step: &Step,
    progress: &mut dyn FnMut(&Step),
) -> Result<Value, CatalogError> {
    progress(step);
    keeper.get_fresh(path).map_err(|source| CatalogError::Update { url: keeper.url(path), source })
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
    let answer = fetch(keeper, &path, step, progress)?;
    let broken = |source| CatalogError::Update { url: keeper.url(&path), source };
    // The checks of a search; what is kept is what came.
    let checked = remote::servers(answer.clone()).map_err(broken)?;
    if checked.is_empty() && filter.is_empty() {
        return Err(broken(KeeperError::Schema { field: "list of servers" }));
    }
    let Value::Array(rows) = answer else { return Ok(Vec::new()) };
    Ok(rows
        .into_iter()
        .filter_map(|row| match row {
            Value::Object(object) => Some(object),
            _ => None,
        })
        .collect())
}
