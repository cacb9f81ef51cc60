//! Questions to the Keeper, and the checks that its answers must pass.
//!
//! In:  a [`Plan`] and a [`Keeper`].
//! Out: the cheapest servers that fit, or the reason why the answer cannot be taken for that.
//! Not here: transport and cache (`keeper`), what to do instead (`mod`).
//!
//! The Keeper ignores parameters that it does not know, and its parameters are being renamed. So
//! both names are sent, every filter is held against every server again, and an answer that was cut
//! off is only good when the rows that are missing must be dearer. A server carries the cheapest
//! price of all its regions; where a place is asked for, or where that price looks like an outlier,
//! its prices by region are looked up. Those can only be higher, so candidates are taken from the
//! cheapest up and the search ends where no later one can be cheaper than what was found.

use super::embedded::{embedded, prices, usd};
use super::error::KeeperError;
use super::keeper::{Keeper, PRICES_MAX_AGE_S, SERVERS_MAX_AGE_S, escaped};
use super::local::Listed;
use super::query::{Plan, price_rank};
use super::server::Server;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The largest `vcpus_min` that it takes.
const VCPUS_MAX: u32 = 256;
/// Look-ups of one server's prices in one call: with its credits in mind.
const LOOKUPS_MAX: usize = 60;

/// The cheapest servers that fit.
pub(crate) fn search(keeper: &mut Keeper, plan: &Plan) -> Result<Vec<Server>, KeeperError> {
    if plan.cpu > f64::from(VCPUS_MAX) {
        return Err(KeeperError::TooManyCpus { max: VCPUS_MAX });
    }
    if plan.places.as_ref().is_some_and(BTreeSet::is_empty) {
        return Ok(Vec::new());
    }
    let limit = limit(plan);
    let answer = keeper.get(&servers_path(plan, limit), SERVERS_MAX_AGE_S)?;
    let rows = servers(answer)?;
    let cut_off = limit.is_some_and(|limit| rows.len() >= limit);

    let mut candidates: Vec<(f64, Server)> = Vec::new();
    let mut dearest_seen = 0.0_f64;
    for server in rows {
        let Some(lowest) = lowest_price(plan, &server) else { continue };
        if cut_off && price_rank(lowest) < price_rank(dearest_seen) {
            return Err(KeeperError::Incomplete);
        }
        dearest_seen = dearest_seen.max(lowest);
        if plan.fits(&server.facts()) && plan.affords(lowest) {
            candidates.push((lowest, server));
        }
    }
    candidates.sort_by(|a, b| a.0.total_cmp(&b.0));

    let mut found: Vec<(u64, Server)> = Vec::new();
    let mut lookups = 0;
    for (lowest, mut server) in candidates {
        if nth_rank(&found, plan.n).is_some_and(|nth| price_rank(lowest) > nth) {
            break;
        }
        let mut price = lowest;
        if plan.places.is_some() || is_suspicious(&server) {
            lookups += 1;
            if lookups > LOOKUPS_MAX {
                return Err(KeeperError::Incomplete);
            }
            match price_by_region(keeper, plan, &mut server)? {
                Some(checked) if plan.affords(checked) => price = checked,
                _ => continue,
            }
        }
        server.set_price(price);
        found.push((price_rank(price), server));
    }
    found.sort_by(|(rank_a, a), (rank_b, b)| {
        (rank_a, a.vendor_id(), a.server_id()).cmp(&(rank_b, b.vendor_id(), b.server_id()))
    });
    let unseen_may_be_cheaper = nth_rank(&found, plan.n).is_none_or(|nth| nth > price_rank(dearest_seen));
    if cut_off && unseen_may_be_cheaper && plan.max_price_usd.is_none_or(|max| dearest_seen <= max) {
        return Err(KeeperError::Incomplete);
    }
    found.truncate(plan.n);
    Ok(found.into_iter().map(|(_, server)| server).collect())
}

/// The price of an instance type in a region, else in the vendor's cheapest other region.
pub(crate) fn listed(
    keeper: &mut Keeper,
    vendor_id: &str,
    region: Option<&str>,
    instance_type: &str,
) -> Result<Option<Listed>, KeeperError> {
    let prices = region_prices(keeper, vendor_id, instance_type)?;
    let plausible = without_outliers(&prices);
    let here = region.and_then(|region| plausible.iter().find(|price| price.region == region));
    let best = here.or_else(|| plausible.iter().min_by(|a, b| a.ondemand_usd.total_cmp(&b.ondemand_usd)));
    Ok(best.map(|price| Listed {
        usd_per_hour: price.ondemand_usd,
        region: price.region.clone(),
        spot_usd_per_hour: price.spot_usd,
    }))
}

/// The objects of an answer that should be a list of servers.
pub(crate) fn servers(answer: Value) -> Result<Vec<Server>, KeeperError> {
    let Value::Array(rows) = answer else { return Err(KeeperError::Schema { field: "list of servers" }) };
    let servers: Vec<Server> = rows
        .into_iter()
        .filter_map(|row| match row {
            Value::Object(object) => Some(Server::from_api(object)),
            _ => None,
        })
        .collect();
    // One row may lack a value; a field that all of them lack was renamed.
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

/// The price that ranks it, at most what any of its regions costs.
fn lowest_price(plan: &Plan, server: &Server) -> Option<f64> {
    let ondemand = server.ondemand_usd().filter(|price| *price > 0.0)?;
    let spot = server.spot_usd().filter(|price| plan.spot && *price > 0.0);
    Some(spot.map_or(ondemand, |spot| spot.min(ondemand)))
}

fn nth_rank(found: &[(u64, Server)], n: usize) -> Option<u64> {
    let mut ranks: Vec<u64> = found.iter().map(|(rank, _)| *rank).collect();
    ranks.sort_unstable();
    // Asked for none, nothing can be cheaper than nothing.
    n.checked_sub(1).map_or(Some(0), |last| ranks.get(last).copied())
}

/// Whether the on-demand price would be an outlier among those that we know of this server type.
fn is_suspicious(server: &Server) -> bool {
    let known = || {
        let (row, _) = embedded().ok()?.find(server.vendor_id(), server.server_id())?;
        Some(usd(prices().ok()?.floor_micro_usd(row)?))
    };
    server.ondemand_usd().zip(known()).is_some_and(|(price, floor)| price < floor)
}

/// Looks the server's prices up and takes the cheapest of the places asked for.
fn price_by_region(
    keeper: &mut Keeper,
    plan: &Plan,
    server: &mut Server,
) -> Result<Option<f64>, KeeperError> {
    let prices = region_prices(keeper, server.vendor_id(), server.server_id())?;
    let plausible = without_outliers(&prices);
    let used = |price: &RegionPrice| match price.spot_usd {
        Some(spot) if plan.spot => spot.min(price.ondemand_usd),
        _ => price.ondemand_usd,
    };
    let best = plausible
        .iter()
        .filter(|price| plan.covers(server.vendor_id(), &price.region))
        .min_by(|a, b| used(a).total_cmp(&used(b)).then_with(|| a.region.cmp(&b.region)));
    Ok(best.map(|price| {
        server.set_region_price(price.ondemand_usd, price.spot_usd, &price.region);
        used(price)
    }))
}

/// Prices of one server in one region, the cheapest zone's.
#[derive(Clone, Debug)]
struct RegionPrice {
    region: String,
    ondemand_usd: f64,
    spot_usd: Option<f64>,
}

/// Prices below half the median over the regions are left out.
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
        // A server that it does not know is an answer, not a failure.
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
        *cheapest = Some(cheapest.map_or(price, |known| known.min(price)));
    }
    Ok(by_region
        .into_iter()
        .filter_map(|(region, (ondemand, spot_usd))| {
            Some(RegionPrice { region, ondemand_usd: ondemand?, spot_usd })
        })
        .collect())
}

/// The Keeper's own region ids, numeric at some vendors, to the vendors' names.
fn region_names(keeper: &mut Keeper, vendor_id: &str) -> Result<BTreeMap<String, String>, KeeperError> {
    let Value::Array(rows) = keeper.get("/regions", SERVERS_MAX_AGE_S)? else {
        return Err(KeeperError::Schema { field: "list of regions" });
    };
    let name = |row: &Value| {
        let text = |field: &str| row.get(field).and_then(Value::as_str).map(ToOwned::to_owned);
        (text("vendor_id").is_none_or(|vendor| vendor == vendor_id)).then_some(())?;
        Some((text("region_id")?, text("api_reference")?))
    };
    Ok(rows.iter().filter_map(name).collect())
}

/// How many rows to ask for; `None` is all of them.
fn limit(plan: &Plan) -> Option<usize> {
    // Rows that a filter without a parameter drops must not be all there is.
    let wanted = if plan.gpu_models.is_empty() { plan.n.saturating_mul(2).max(25) } else { 250.max(plan.n) };
    (wanted <= 250).then_some(wanted)
}

fn servers_path(plan: &Plan, limit: Option<usize>) -> String {
    let mut path = format!("/servers?vcpus_min={}", plan.cpu.ceil().max(1.0));
    let mut add = |name: &str, value: &str| {
        let _ = write!(path, "&{name}={}", escaped(value));
    };
    add("memory_min", &(plan.memory_mib / 1024.0).to_string());
    for (name, value) in [("min", plan.gpu), ("memory_total", plan.vram_mib.map(|vram| vram / 1024.0))] {
        if let Some(value) = value {
            add(&format!("gpu_{name}"), &value.to_string());
            add(&format!("accelerator_{name}"), &value.to_string());
        }
    }
    if let Some(gb) = plan.storage_gb {
        add("storage_size", &gb.ceil().to_string());
    }
    for (name, values) in [
        ("vendor", &plan.vendors),
        ("architecture", &plan.architectures),
        ("cpu_allocation", &plan.allocations),
        ("cpu_manufacturer", &plan.manufacturers),
    ] {
        for value in values {
            add(name, value);
        }
    }
    for id in &plan.compliance {
        add("compliance_framework", id);
    }
    for place in plan.places.iter().flatten() {
        add("vendor_regions", &format!("{}~{}", place.vendor_id, place.region));
    }
    add("only_active", "true");
    add("currency", "USD");
    add("best_price_allocation", if plan.spot { "ANY" } else { "ONDEMAND_ONLY" });
    add("order_by", if plan.spot { "min_price" } else { "min_price_ondemand" });
    add("order_dir", "asc");
    add("limit", &limit.map_or_else(|| "-1".to_owned(), |limit| limit.to_string()));
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::query::Query;

    #[test]
    fn sizes_are_asked_for_in_gib_and_never_rounded_down() {
        let plan = |query: Query| Plan::new(&query).unwrap();
        let path = servers_path(&plan(Query::new(1.2, 512.0)), Some(25));
        assert_eq!(
            path,
            "/servers?vcpus_min=2&memory_min=0.5&only_active=true&currency=USD&best_price_allocation=ONDEMAND_ONLY\
             &order_by=min_price_ondemand&order_dir=asc&limit=25"
        );
        let query = Query::new(8.0, 65536.0).with_gpu(1.0, 16384.0).filter("vendor_id", "aws").unwrap();
        let path = servers_path(&plan(query.filter("region", "eu-west-1").unwrap()), None);
        assert_eq!(
            path,
            "/servers?vcpus_min=8&memory_min=64&gpu_min=1&accelerator_min=1&gpu_memory_total=16\
             &accelerator_memory_total=16&vendor=aws&vendor_regions=aws~eu-west-1&only_active=true&currency=USD\
             &best_price_allocation=ONDEMAND_ONLY&order_by=min_price_ondemand&order_dir=asc&limit=-1"
        );
    }
}
