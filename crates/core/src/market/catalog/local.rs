//! Search in the embedded catalogue and in the catalogue saved by `catalog update`.
//!
//! In:  [`Criteria`].
//! Out: the servers that fit, by ascending price; the price of an instance type.
//! Not here: the network (`remote`), the choice of the source (`mod`).
//!
//! The embedded servers are sorted by price. Without place and spot filters the first servers that fit are the answer,
//! and the table of regional prices need not be decompressed. The query for the summary of a run has no filters.

use super::cache::Updated;
use super::embedded::{Embedded, Prices, embedded, prices, usd};
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
    let catalogue = embedded()?;
    if criteria.places.is_none() && !criteria.spot {
        Ok(in_order(catalogue, criteria))
    } else {
        by_place(catalogue, criteria)
    }
}

fn in_order(catalogue: &Embedded<'_>, criteria: &Criteria) -> Vec<Server> {
    catalogue
        .order
        .iter()
        .filter_map(|index| catalogue.rows.get(usize::from(*index)))
        .filter(|row| {
            criteria.within_max_price(usd(row.cheapest_micro_usd))
                && criteria.fits(&Facts::of_row(catalogue, row))
        })
        .take(criteria.n)
        .map(|row| {
            let region = catalogue.vendor_of(row).regions[row.cheapest_region];
            let price = row.cheapest_micro_usd;
            Server::from_row(
                catalogue,
                row,
                &RowPrice::micro(price, price, row.spot.map(|spot| spot.0), region),
            )
        })
        .collect()
}

fn by_place(catalogue: &Embedded<'_>, criteria: &Criteria) -> Result<Vec<Server>, CatalogError> {
    let prices = prices()?;
    let covered: Vec<Vec<bool>> = catalogue
        .vendors
        .iter()
        .map(|vendor| vendor.regions.iter().map(|region| criteria.covers(vendor.id, region)).collect())
        .collect();
    let is_covered = |vendor: usize, region: usize| {
        covered.get(vendor).and_then(|regions| regions.get(region)) == Some(&true)
    };

    let mut found = Vec::new();
    for (index, row) in catalogue.rows.iter().enumerate() {
        if !criteria.fits(&Facts::of_row(catalogue, row)) {
            continue;
        }
        let cheapest = prices
            .plausible(index)
            .filter(|(region, _)| is_covered(row.vendor, *region))
            .min_by_key(|(region, price)| (*price, *region));
        let Some((region, ondemand)) = cheapest else { continue };
        let spot = row.spot.filter(|(_, region)| is_covered(row.vendor, *region));
        let (used, region) = match spot {
            Some((spot, region)) if criteria.spot && spot < ondemand => (spot, region),
            _ => (ondemand, region),
        };
        if criteria.within_max_price(usd(used)) {
            found.push((
                price_sort_key(usd(used)),
                catalogue.vendor_of(row).id,
                row,
                used,
                ondemand,
                spot,
                region,
            ));
        }
    }
    found.sort_by_key(|(key, vendor, row, ..)| (*key, *vendor, row.server_id));
    Ok(found
        .into_iter()
        .take(criteria.n)
        .map(|(_, _, row, used, ondemand, spot, region)| {
            let region = catalogue.vendor_of(row).regions[region];
            Server::from_row(
                catalogue,
                row,
                &RowPrice::micro(used, ondemand, spot.map(|spot| spot.0), region),
            )
        })
        .collect())
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
    let catalogue = embedded()?;
    let Some((index, row)) = catalogue.find(vendor_id, instance_type) else { return Ok(None) };
    let names = &catalogue.vendor_of(row).regions;
    let here = match region.and_then(|region| names.iter().position(|name| *name == region)) {
        Some(region) => price_in(prices()?, index, region).map(|price| (price, region)),
        None => None,
    };
    let (price, at) = here.unwrap_or((row.cheapest_micro_usd, row.cheapest_region));
    Ok(Some(ListPrice {
        usd_per_hour: usd(price),
        region: names[at].to_owned(),
        spot_usd_per_hour: row.spot.filter(|(_, region)| *region == at).map(|(spot, _)| usd(spot)),
    }))
}

fn price_in(prices: &Prices, row: usize, region: usize) -> Option<u32> {
    prices.plausible(row).find(|(at, _)| *at == region).map(|(_, price)| price)
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
    let catalogue = embedded()?;
    let Some((vendor, _)) = catalogue.vendor(vendor_id) else { return Ok(None) };
    let mut matches = catalogue.rows.iter().filter(|row| {
        let rented = f64::from(row.memory_mib);
        let disk_matches =
            |disk: &u64| disk.abs_diff(u64::from(row.storage_gb)) * 10 <= u64::from(row.storage_gb);
        row.vendor == vendor
            && row.vcpus == vcpus
            && row.cpu_architecture == architecture
            && (rented * 0.85..=rented * 1.01).contains(&memory_mib)
            && (disks_gb.is_empty() || disks_gb.iter().any(disk_matches))
    });
    let first = matches.next();
    Ok(first.filter(|_| matches.next().is_none()).map(|row| row.api_reference))
}
