//! Queries to the Keeper, and checks of its responses.
//!
//! In:  [`Criteria`] and a [`Keeper`].
//! Out: the cheapest servers that fit, or the reason why the response cannot be used.
//! Not here: transport and cache (`keeper`), the fallback (`mod`).
//!
//! The Keeper ignores unknown parameters, and it is renaming some parameters. So a query sends the old and the new
//! name, and every server of the response is checked against all filters. A response that was truncated at the
//! requested number of servers is valid only if all missing servers must be more expensive.
//!
//! The Keeper reports the lowest price over all regions. With a place filter, or if the lowest price is an outlier or may
//! be that of a region which is closed to new customers, the prices by region are requested. The price of a server can
//! only rise by this, so candidates are checked by ascending price until no later candidate can be cheaper than the
//! servers found so far.

use super::cache::{PRICES_MAX_AGE_S, SERVERS_MAX_AGE_S};
use super::embedded::{find, prices, usd};
use super::error::KeeperError;
use super::keeper::{Keeper, escaped};
use super::local::{ListPrice, sort_by_price};
use super::query::{Criteria, price_sort_key};
use super::region;
use super::server::Server;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The largest `vcpus_min` that the Keeper accepts.
const VCPUS_MAX: u32 = 256;
/// Maximum number of price requests in one call. The Keeper limits requests per client.
const LOOKUPS_MAX: usize = 60;

pub(crate) fn search(keeper: &mut Keeper, criteria: &Criteria) -> Result<Vec<Server>, KeeperError> {
    if criteria.cpu > f64::from(VCPUS_MAX) {
        return Err(KeeperError::TooManyCpus { max: VCPUS_MAX });
    }
    if criteria.places.as_ref().is_some_and(BTreeSet::is_empty) {
        return Ok(Vec::new());
    }
    let limit = limit(criteria);
    let response = keeper.get(&servers_path(criteria, limit), SERVERS_MAX_AGE_S)?;
    let rows = servers(response)?;
    let truncated = limit.is_some_and(|limit| rows.len() >= limit);

    let mut candidates: Vec<(f64, Server)> = Vec::new();
    let mut highest_seen = 0.0_f64;
    for server in rows {
        let Some(lowest) = lowest_price(criteria, &server) else { continue };
        if truncated && price_sort_key(lowest) < price_sort_key(highest_seen) {
            return Err(KeeperError::Incomplete);
        }
        highest_seen = highest_seen.max(lowest);
        if criteria.fits(&server.facts()) && criteria.within_max_price(lowest) {
            candidates.push((lowest, server));
        }
    }
    candidates.sort_by(|a, b| a.0.total_cmp(&b.0));

    let mut found: Vec<(u64, Server)> = Vec::new();
    let mut lookups = 0;
    let mut closed = ClosedRegions::default();
    for (lowest, mut server) in candidates {
        if nth_key(&found, criteria.n).is_some_and(|nth| price_sort_key(lowest) > nth) {
            break;
        }
        let mut price = lowest;
        if criteria.places.is_some()
            || is_outlier(&server)
            || (is_below_known_price(criteria, &server, lowest) && closed.has(keeper, server.vendor_id())?)
        {
            lookups += 1;
            if lookups > LOOKUPS_MAX {
                return Err(KeeperError::Incomplete);
            }
            match price_by_region(keeper, criteria, &mut server)? {
                Some(checked) if criteria.within_max_price(checked) => price = checked,
                _ => continue,
            }
        }
        server.set_price(price);
        found.push((price_sort_key(price), server));
    }
    sort_by_price(&mut found);
    let missing_may_be_cheaper =
        nth_key(&found, criteria.n).is_none_or(|nth| nth > price_sort_key(highest_seen));
    if truncated && missing_may_be_cheaper && criteria.max_price_usd.is_none_or(|max| highest_seen <= max) {
        return Err(KeeperError::Incomplete);
    }
    found.truncate(criteria.n);
    Ok(found.into_iter().map(|(_, server)| server).collect())
}

/// The price of an instance type in a region. If that price is unknown, the price in the vendor's cheapest region.
pub(crate) fn list_price(
    keeper: &mut Keeper,
    vendor_id: &str,
    region: Option<&str>,
    instance_type: &str,
) -> Result<Option<ListPrice>, KeeperError> {
    let prices = region_prices(keeper, vendor_id, instance_type)?;
    let plausible = without_outliers(&prices);
    let here = region.and_then(|region| plausible.iter().find(|price| price.region == region));
    let mut open = plausible.iter().filter(|price| region::closed(vendor_id, &price.region).is_none());
    let cheapest = || open.by_ref().min_by(|a, b| a.ondemand_usd.total_cmp(&b.ondemand_usd));
    let best = here.or_else(cheapest);
    Ok(best.map(|price| ListPrice {
        usd_per_hour: price.ondemand_usd,
        region: price.region.clone(),
        spot_usd_per_hour: price.spot_usd,
    }))
}

/// Parses a list of servers.
pub(crate) fn servers(response: Value) -> Result<Vec<Server>, KeeperError> {
    let Value::Array(rows) = response else { return Err(KeeperError::Schema { field: "list of servers" }) };
    let servers: Vec<Server> = rows
        .into_iter()
        .filter_map(|row| match row {
            Value::Object(object) => Some(Server::from_api(object)),
            _ => None,
        })
        .collect();
    // A single server may lack a value. If all servers lack a field, the Keeper has renamed it.
    for field in ["vcpus", "memory_amount", "min_price_ondemand"] {
        if !servers.is_empty() && servers.iter().all(|server| server.number(field).is_none()) {
            return Err(KeeperError::Schema { field });
        }
    }
    for field in ["vendor_id", "server_id"] {
        if servers.iter().any(|server| server.text(field).is_none()) {
            return Err(KeeperError::Schema { field });
        }
    }
    Ok(servers)
}

/// The lowest price of a server over all regions.
fn lowest_price(criteria: &Criteria, server: &Server) -> Option<f64> {
    let ondemand = server.ondemand_usd().filter(|price| *price > 0.0)?;
    let spot = server.spot_usd().filter(|price| criteria.spot && *price > 0.0);
    Some(spot.map_or(ondemand, |spot| spot.min(ondemand)))
}

/// Sort key of the n-th cheapest server; `None` if fewer than `n` servers were found. 0 if `n` is 0.
fn nth_key(found: &[(u64, Server)], n: usize) -> Option<u64> {
    let mut keys: Vec<u64> = found.iter().map(|(key, _)| *key).collect();
    keys.sort_unstable();
    n.checked_sub(1).map_or(Some(0), |last| keys.get(last).copied())
}

/// Whether the on-demand price is an outlier compared with the prices of the embedded catalogue.
fn is_outlier(server: &Server) -> bool {
    let floor = || {
        let (row, _) = find(server.vendor_id(), server.server_id()).ok()??;
        Some(usd(prices().ok()?.floor_micro_usd(row)?))
    };
    server.ondemand_usd().zip(floor()).is_some_and(|(price, floor)| price < floor)
}

/// Whether a price is below the lowest price of the server in the embedded catalogue, which has only open regions.
fn is_below_known_price(criteria: &Criteria, server: &Server, price_usd: f64) -> bool {
    let known = || {
        let (_, row) = find(server.vendor_id(), server.server_id()).ok()??;
        let spot = row.spot.filter(|_| criteria.spot).map(|(spot, _)| spot);
        Some(usd(spot.map_or(row.cheapest_micro_usd, |spot| spot.min(row.cheapest_micro_usd))))
    };
    known().is_none_or(|known| price_usd < known)
}

/// Whether the Keeper has closed regions, by vendor.
#[derive(Default)]
struct ClosedRegions(BTreeMap<String, bool>);

impl ClosedRegions {
    fn has(&mut self, keeper: &mut Keeper, vendor_id: &str) -> Result<bool, KeeperError> {
        if let Some(known) = self.0.get(vendor_id) {
            return Ok(*known);
        }
        let has = region::has_closed(vendor_id)
            && region_names(keeper, vendor_id)?
                .values()
                .any(|name| region::closed(vendor_id, name).is_some());
        self.0.insert(vendor_id.to_owned(), has);
        Ok(has)
    }
}

/// Requests the prices of a server by region, and sets its price to the lowest price in the requested places.
fn price_by_region(
    keeper: &mut Keeper,
    criteria: &Criteria,
    server: &mut Server,
) -> Result<Option<f64>, KeeperError> {
    let mut prices = region_prices(keeper, server.vendor_id(), server.server_id())?;
    prices.retain(|price| region::closed(server.vendor_id(), &price.region).is_none());
    let plausible = without_outliers(&prices);
    let used = |price: &RegionPrice| match price.spot_usd {
        Some(spot) if criteria.spot => spot.min(price.ondemand_usd),
        _ => price.ondemand_usd,
    };
    let best = plausible
        .iter()
        .filter(|price| criteria.covers(server.vendor_id(), &price.region))
        .min_by(|a, b| used(a).total_cmp(&used(b)).then_with(|| a.region.cmp(&b.region)));
    Ok(best.map(|price| {
        server.set_region_price(price.ondemand_usd, price.spot_usd, &price.region);
        used(price)
    }))
}

/// Prices of one server in the cheapest zone of a region.
#[derive(Clone, Debug)]
struct RegionPrice {
    region: String,
    ondemand_usd: f64,
    spot_usd: Option<f64>,
}

/// Drops prices below half the median over the regions.
fn without_outliers(prices: &[RegionPrice]) -> Vec<&RegionPrice> {
    let mut sorted: Vec<f64> = prices.iter().map(|price| price.ondemand_usd).collect();
    sorted.sort_by(f64::total_cmp);
    let middle = |index: usize| sorted.get(index).copied().unwrap_or(0.0);
    let median = f64::midpoint(middle(sorted.len().saturating_sub(1) / 2), middle(sorted.len() / 2));
    prices.iter().filter(|price| price.ondemand_usd >= median / 2.0).collect()
}

fn region_prices(
    keeper: &mut Keeper,
    vendor_id: &str,
    server: &str,
) -> Result<Vec<RegionPrice>, KeeperError> {
    let path = format!("/server/{}/{}/prices", escaped(vendor_id), escaped(server));
    let rows = match keeper.get(&path, PRICES_MAX_AGE_S) {
        Ok(Value::Array(rows)) => rows,
        Ok(_) => return Err(KeeperError::Schema { field: "list of prices" }),
        // The Keeper does not know the server.
        Err(KeeperError::Status { status: 404, .. }) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let names = region_names(keeper, vendor_id)?;
    let mut by_region: BTreeMap<String, (Option<f64>, Option<f64>)> = BTreeMap::new();
    for row in &rows {
        let text = |field: &str| row.get(field).and_then(Value::as_str);
        let is = |field: &str, expected: &str| {
            text(field).is_none_or(|value| value.eq_ignore_ascii_case(expected))
        };
        let (Some(region), Some(price)) = (text("region_id"), row.get("price").and_then(Value::as_f64))
        else {
            continue;
        };
        if price <= 0.0
            || !is("operating_system", "linux")
            || !is("currency", "USD")
            || !is("status", "active")
            || !is("unit", "hour")
        {
            continue;
        }
        let region = names.get(region).cloned().unwrap_or_else(|| region.to_owned());
        let (ondemand, spot) = by_region.entry(region).or_default();
        let cheapest = match text("allocation") {
            Some("ondemand") => ondemand,
            Some("spot") => spot,
            _ => continue,
        };
        *cheapest = Some(cheapest.map_or(price, |lowest| lowest.min(price)));
    }
    Ok(by_region
        .into_iter()
        .filter_map(|(region, (ondemand, spot_usd))| {
            Some(RegionPrice { region, ondemand_usd: ondemand?, spot_usd })
        })
        .collect())
}

/// Name of each region by its id. The Keeper's ids are numeric for some vendors.
fn region_names(keeper: &mut Keeper, vendor_id: &str) -> Result<BTreeMap<String, String>, KeeperError> {
    let Value::Array(rows) = keeper.get("/regions", SERVERS_MAX_AGE_S)? else {
        return Err(KeeperError::Schema { field: "list of regions" });
    };
    Ok(names_of_regions(&rows, vendor_id))
}

/// Id and name of each region of a vendor in a list of regions.
pub(crate) fn names_of_regions(rows: &[Value], vendor_id: &str) -> BTreeMap<String, String> {
    let name = |row: &Value| {
        let text = |field: &str| row.get(field).and_then(Value::as_str).map(ToOwned::to_owned);
        (text("vendor_id").is_none_or(|vendor| vendor == vendor_id)).then_some(())?;
        Some((text("region_id")?, text("api_reference")?))
    };
    rows.iter().filter_map(name).collect()
}

/// Number of servers to request; `None` means all.
fn limit(criteria: &Criteria) -> Option<usize> {
    // The Keeper has no parameter for GPU models. Servers of other models are dropped here, so more are requested.
    let wanted = if criteria.gpu_models.is_empty() {
        criteria.n.saturating_mul(2).max(25)
    } else {
        250.max(criteria.n)
    };
    (wanted <= 250).then_some(wanted)
}

fn servers_path(criteria: &Criteria, limit: Option<usize>) -> String {
    let mut path = format!("/servers?vcpus_min={}", criteria.cpu.ceil().max(1.0));
    let mut add = |name: &str, value: &str| {
        let _ = write!(path, "&{name}={}", escaped(value));
    };
    add("memory_min", &(criteria.memory_mib / 1024.0).to_string());
    for (name, value) in
        [("min", criteria.gpu), ("memory_total", criteria.vram_mib.map(|vram| vram / 1024.0))]
    {
        if let Some(value) = value {
            add(&format!("gpu_{name}"), &value.to_string());
            add(&format!("accelerator_{name}"), &value.to_string());
        }
    }
    if let Some(gb) = criteria.storage_gb {
        add("storage_size", &gb.ceil().to_string());
    }
    for (name, values) in [
        ("vendor", &criteria.vendors),
        ("architecture", &criteria.architectures),
        ("cpu_allocation", &criteria.allocations),
        ("cpu_manufacturer", &criteria.manufacturers),
    ] {
        for value in values {
            add(name, value);
        }
    }
    for id in &criteria.compliance {
        add("compliance_framework", id);
    }
    for place in criteria.places.iter().flatten() {
        add("vendor_regions", &format!("{}~{}", place.vendor_id, place.region));
    }
    add("only_active", "true");
    add("currency", "USD");
    add("best_price_allocation", if criteria.spot { "ANY" } else { "ONDEMAND_ONLY" });
    add("order_by", if criteria.spot { "min_price" } else { "min_price_ondemand" });
    add("order_dir", "asc");
    add("limit", &limit.map_or_else(|| "-1".to_owned(), |limit| limit.to_string()));
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::market::catalog::query::Query;

    #[test]
    fn sizes_are_sent_in_gib_and_never_rounded_down() {
        let criteria = |query: Query| Criteria::new(&query).unwrap();
        let path = servers_path(&criteria(Query::new(1.2, 512.0)), Some(25));
        assert_eq!(
            path,
            "/servers?vcpus_min=2&memory_min=0.5&only_active=true&currency=USD&best_price_allocation=ONDEMAND_ONLY\
             &order_by=min_price_ondemand&order_dir=asc&limit=25"
        );
        let query = Query::new(8.0, 65536.0).with_gpu(1.0, 16384.0).filter("vendor_id", "aws").unwrap();
        let path = servers_path(&criteria(query.filter("region", "eu-west-1").unwrap()), None);
        assert_eq!(
            path,
            "/servers?vcpus_min=8&memory_min=64&gpu_min=1&accelerator_min=1&gpu_memory_total=16\
             &accelerator_memory_total=16&vendor=aws&vendor_regions=aws~eu-west-1&only_active=true&currency=USD\
             &best_price_allocation=ONDEMAND_ONLY&order_by=min_price_ondemand&order_dir=asc&limit=-1"
        );
    }
}
