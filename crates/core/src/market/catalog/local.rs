//! Search in the embedded catalogue and in the catalogue saved by `catalog update`.
//!
//! In:  [`Criteria`].
//! Out: the servers that fit, by ascending price; the price of an instance type.
//! Not here: the network (`remote`), the choice of the source (`mod`).
//!
//! Servers come by ascending lowest price, so the search stops when no later server can be cheaper than those found.

use super::cache::Updated;
use super::embedded::{Row, by_price, embedded, find, region_prices, usd};
use super::error::CatalogError;
use super::query::{Criteria, Facts, price_sort_key};
use super::server::{RowPrice, Server};
use std::collections::BTreeSet;

/// Price of an instance type in a region.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ListPrice {
    pub usd_per_hour: f64,
    pub region: String,
    pub spot_usd_per_hour: Option<f64>,
}

/// The cheapest servers of the embedded catalogue that fit.
pub(crate) fn search(criteria: &Criteria) -> Result<Vec<Server>, CatalogError> {
    // Prices in the requested places by server, the lowest first.
    let mut in_places: Vec<(usize, u32, &str)> = Vec::new();
    for place in criteria.places.iter().flatten() {
        let prices = region_prices(place.vendor_id, place.region)?;
        in_places.extend(prices.iter().map(|(index, price)| (*index, *price, place.region)));
    }
    in_places.sort_unstable();
    // A price below the lowest price of a server is an outlier.
    let cheapest_in_places = |index: usize, row: &Row| {
        let first = in_places.partition_point(|price| (price.0, price.1) < (index, row.cheapest_micro_usd));
        in_places.get(first).filter(|price| price.0 == index).map(|price| (price.2, price.1))
    };
    // Sorted by price, at most `criteria.n`.
    let mut found: Vec<((u64, &str, &str), &Row, RowPrice<'_>)> = Vec::new();
    for next in by_price() {
        let (index, row) = next?;
        let key = price_sort_key(usd(row.cheapest_micro_usd));
        let is_complete = found.len() >= criteria.n && found.last().is_none_or(|(last, ..)| key > last.0);
        // Spot prices do not follow this order.
        if is_complete && !criteria.spot {
            break;
        }
        if !criteria.fits(&Facts::of_row(row)) {
            continue;
        }
        let (lowest, spot) = match criteria.places {
            None => (Some((row.cheapest_region, row.cheapest_micro_usd)), row.spot),
            Some(_) => (
                cheapest_in_places(index, row),
                row.spot.filter(|(_, region)| criteria.covers(row.vendor.id, region)),
            ),
        };
        let Some((region, ondemand)) = lowest else { continue };
        let (used, region) = match spot {
            Some((spot, region)) if criteria.spot && spot < ondemand => (spot, region),
            _ => (ondemand, region),
        };
        if criteria.within_max_price(usd(used)) {
            let price = RowPrice::micro(used, ondemand, spot.map(|spot| spot.0), region);
            let key = (price_sort_key(usd(used)), row.vendor.id, row.server_id);
            let at = found.partition_point(|(other, ..)| *other < key);
            found.insert(at, (key, row, price));
            found.truncate(criteria.n);
        }
    }
    Ok(found.iter().map(|(_, row, price)| Server::from_row(row, price)).collect())
}

/// The cheapest servers of an updated catalogue that fit; `None` if the catalogue has no prices for a requested region.
pub(crate) fn search_updated(criteria: &Criteria, updated: &Updated) -> Option<Vec<Server>> {
    let mut found: Vec<(u64, Server)> = Vec::new();
    let places = criteria.places.as_ref();
    if places
        .is_some_and(|places| places.iter().any(|place| !updated.has_region(place.vendor_id, place.region)))
    {
        return None;
    }
    for server in updated.servers() {
        if !criteria.fits(&server.facts()) {
            continue;
        }
        let Some(global) = server.ondemand_usd() else { continue };
        let (ondemand, region) = match places {
            None => (global, None),
            Some(places) => {
                let cheapest = places
                    .iter()
                    .filter(|place| place.vendor_id == server.vendor_id())
                    .filter_map(|place| {
                        Some((
                            updated.region_price(place.vendor_id, place.region, server.server_id())?,
                            place.region,
                        ))
                    })
                    .min_by(|a, b| a.0.total_cmp(&b.0));
                let Some((price, region)) = cheapest else { continue };
                (price, Some(region))
            }
        };
        // The file has only the spot price of the cheapest region, which is not valid in other regions.
        let used = server
            .spot_usd()
            .filter(|_| criteria.spot && places.is_none())
            .map_or(ondemand, |spot| spot.min(ondemand));
        if criteria.within_max_price(used) {
            let mut server = server.clone();
            if let Some(region) = region {
                server.set_region_price(ondemand, None, region);
            }
            server.set_price(used);
            found.push((price_sort_key(used), server));
        }
    }
    sort_by_price(&mut found);
    Some(found.into_iter().take(criteria.n).map(|(_, server)| server).collect())
}

/// Sorts servers by price key, then by vendor and id.
pub(crate) fn sort_by_price(servers: &mut [(u64, Server)]) {
    servers.sort_by(|(key_a, a), (key_b, b)| {
        (key_a, a.vendor_id(), a.server_id()).cmp(&(key_b, b.vendor_id(), b.server_id()))
    });
}

/// The price of an instance type in a region. If that price is unknown, the price in the vendor's cheapest region.
pub(crate) fn list_price(
    vendor_id: &str,
    region: Option<&str>,
    instance_type: &str,
) -> Result<Option<ListPrice>, CatalogError> {
    let Some((index, row)) = find(vendor_id, instance_type)? else { return Ok(None) };
    // The prices of the region are not read for the cheapest region.
    let here = match region {
        Some(region) if region != row.cheapest_region => {
            let is_price =
                |(server, price): &&(usize, u32)| *server == index && *price >= row.cheapest_micro_usd;
            region_prices(vendor_id, region)?.iter().find(is_price).map(|(_, price)| (region, *price))
        }
        _ => None,
    };
    let (region, price) = here.unwrap_or((row.cheapest_region, row.cheapest_micro_usd));
    Ok(Some(ListPrice {
        usd_per_hour: usd(price),
        region: region.to_owned(),
        spot_usd_per_hour: row.spot.filter(|(_, at)| *at == region).map(|(spot, _)| usd(spot)),
    }))
}

/// The server type of a vendor with these sizes; `None` if no type or more than one type matches.
///
/// `MemTotal` is up to 15 % smaller than the vendor's figure, because firmware and kernel reserve memory. Some vendors
/// give disk sizes in GB and others in GiB, so disk sizes match within 10 %.
pub(crate) fn only_match(
    vendor_id: &str,
    vcpus: u32,
    memory_mib: f64,
    disks_gb: &BTreeSet<u64>,
    architecture: &str,
) -> Result<Option<&'static str>, CatalogError> {
    let mut matches = embedded()?.rows.iter().filter(|row| {
        let rented = f64::from(row.memory_mib);
        let disk_matches =
            |disk: &u64| disk.abs_diff(u64::from(row.storage_gb)) * 10 <= u64::from(row.storage_gb);
        row.vendor.id == vendor_id
            && row.vcpus == vcpus
            && row.cpu_architecture == architecture
            && (rented * 0.85..=rented * 1.01).contains(&memory_mib)
            && (disks_gb.is_empty() || disks_gb.iter().any(disk_matches))
    });
    let first = matches.next();
    Ok(first.filter(|_| matches.next().is_none()).map(|row| row.api_reference))
}
