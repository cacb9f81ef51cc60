//! Answers from what is on this machine: the embedded catalogue, or the one of `catalog update`.
//!
//! In:  a [`Plan`].
//! Out: the servers that fit, cheapest first; prices of one instance type.
//! Not here: the network (`remote`), which source answers (`mod`).
//!
//! Without a place and without spot prices the servers stand in their order already, so the first
//! that fits is the answer and no price table is unpacked: that is what a run's summary asks.

use super::cache::Updated;
use super::embedded::{Embedded, Prices, embedded, prices, usd};
use super::error::CatalogError;
use super::query::{Facts, Plan, price_rank};
use super::server::{RowPrice, Server};
use std::collections::BTreeSet;

/// Price of an instance type, and where.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Listed {
    pub usd_per_hour: f64,
    pub region: String,
    pub spot_usd_per_hour: Option<f64>,
}

/// The cheapest servers of the embedded catalogue that fit.
pub(crate) fn search(plan: &Plan) -> Result<Vec<Server>, CatalogError> {
    let catalogue = embedded()?;
    if plan.places.is_none() && !plan.spot {
        Ok(in_order(catalogue, plan))
    } else {
        by_place(catalogue, plan)
    }
}

fn in_order(catalogue: &Embedded<'_>, plan: &Plan) -> Vec<Server> {
    catalogue
        .order
        .iter()
        .filter_map(|index| catalogue.rows.get(usize::from(*index)))
        .filter(|row| plan.affords(usd(row.cheapest_micro_usd)) && plan.fits(&Facts::of_row(catalogue, row)))
        .take(plan.n)
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

fn by_place(catalogue: &Embedded<'_>, plan: &Plan) -> Result<Vec<Server>, CatalogError> {
    let prices = prices()?;
    // Which regions of a vendor count, worked out once and not for every price.
    let covered: Vec<Vec<bool>> = catalogue
        .vendors
        .iter()
        .map(|vendor| vendor.regions.iter().map(|region| plan.covers(vendor.id, region)).collect())
        .collect();
    let is_covered = |vendor: usize, region: usize| {
        covered.get(vendor).and_then(|regions| regions.get(region)) == Some(&true)
    };

    let mut found = Vec::new();
    for (index, row) in catalogue.rows.iter().enumerate() {
        if !plan.fits(&Facts::of_row(catalogue, row)) {
            continue;
        }
        let cheapest = prices
            .plausible(index)
            .filter(|(region, _)| is_covered(row.vendor, *region))
            .min_by_key(|(region, price)| (*price, *region));
        let Some((region, ondemand)) = cheapest else { continue };
        let spot = row.spot.filter(|(_, region)| is_covered(row.vendor, *region));
        let (used, region) = match spot {
            Some((spot, region)) if plan.spot && spot < ondemand => (spot, region),
            _ => (ondemand, region),
        };
        if plan.affords(usd(used)) {
            found.push((
                price_rank(usd(used)),
                catalogue.vendor_of(row).id,
                row,
                used,
                ondemand,
                spot,
                region,
            ));
        }
    }
    found.sort_by_key(|(rank, vendor, row, ..)| (*rank, *vendor, row.server_id));
    Ok(found
        .into_iter()
        .take(plan.n)
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

/// The cheapest servers of an updated catalogue that fit, or `None` where it has no prices for the
/// place that was asked for.
pub(crate) fn search_updated(plan: &Plan, updated: &Updated) -> Option<Vec<Server>> {
    let mut found: Vec<(u64, Server)> = Vec::new();
    let places = plan.places.as_ref();
    if places
        .is_some_and(|places| places.iter().any(|place| !updated.has_region(place.vendor_id, place.region)))
    {
        return None;
    }
    for server in updated.servers() {
        if !plan.fits(&server.facts()) {
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
        // A spot price is that of the cheapest region, so it says nothing about another.
        let used = server
            .spot_usd()
            .filter(|_| plan.spot && places.is_none())
            .map_or(ondemand, |spot| spot.min(ondemand));
        if plan.affords(used) {
            let mut server = server.clone();
            if let Some(region) = region {
                server.set_region_price(ondemand, None, region);
            }
            server.set_price(used);
            found.push((price_rank(used), server));
        }
    }
    found.sort_by(|(rank_a, a), (rank_b, b)| {
        (rank_a, a.vendor_id(), a.server_id()).cmp(&(rank_b, b.vendor_id(), b.server_id()))
    });
    Some(found.into_iter().take(plan.n).map(|(_, server)| server).collect())
}

/// The list price of an instance type in a region, else in the vendor's cheapest other region.
pub(crate) fn listed(
    vendor_id: &str,
    region: Option<&str>,
    instance_type: &str,
) -> Result<Option<Listed>, CatalogError> {
    let catalogue = embedded()?;
    let Some((index, row)) = catalogue.find(vendor_id, instance_type) else { return Ok(None) };
    let names = &catalogue.vendor_of(row).regions;
    let here = match region.and_then(|region| names.iter().position(|name| *name == region)) {
        Some(region) => price_in(prices()?, index, region).map(|price| (price, region)),
        None => None,
    };
    let (price, at) = here.unwrap_or((row.cheapest_micro_usd, row.cheapest_region));
    Ok(Some(Listed {
        usd_per_hour: usd(price),
        region: names[at].to_owned(),
        spot_usd_per_hour: row.spot.filter(|(_, region)| *region == at).map(|(spot, _)| usd(spot)),
    }))
}

fn price_in(prices: &Prices, row: usize, region: usize) -> Option<u32> {
    prices.plausible(row).find(|(at, _)| *at == region).map(|(_, price)| price)
}

/// The only server type of a vendor with these sizes, if there is exactly one.
///
/// Memory as the kernel counts it is less than what is rented by what firmware and kernel keep, at
/// most 15 %; disks are sold in GB and GiB alike, so 10 % either way is the same disk.
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
