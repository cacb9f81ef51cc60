//! A local Keeper with the schema of the real service and the data of the embedded catalogue.

use crate::support::{Reply, Request, TestServer};
use flate2::{Compression, write::GzEncoder};
use resource_tracker::market::catalog::embedded::{Row, embedded, find, prices, usd};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::OnceLock;

/// How the Keeper deviates from its documentation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Deviation {
    None,
    IgnoresFilters,
    IgnoresRegions,
    IgnoresOrder,
    RenamesGpuFields,
    /// Azure has a cheap region that new customers cannot use.
    HasClosedRegion,
}

/// A region that new customers cannot use, and its price relative to the lowest price elsewhere.
const CLOSED: (&str, &str, f64) = ("azure", "jioindiawest", 0.75);

/// Whether a server is available in the closed region.
fn is_in_closed_region(deviation: Deviation, vendor: &str, server: &str) -> bool {
    deviation == Deviation::HasClosedRegion && vendor == CLOSED.0 && server.len().is_multiple_of(4)
}

/// Region id of the Keeper, which is not the name for two vendors.
fn region_id(vendor: &str, name: &str) -> String {
    if matches!(vendor, "gcp" | "hcloud") { format!("1000{}", name.len()) + name } else { name.to_owned() }
}

/// A server in the form of the API. Its price is the lowest price over `regions`, including outliers.
pub fn api_server(index: usize, row: &Row, regions: &[String]) -> Option<Value> {
    let vendor = row.vendor;
    let is_requested =
        |region: &str| regions.is_empty() || regions.contains(&format!("{}~{region}", vendor.id));
    let ondemand = prices()
        .unwrap()
        .of(index)
        .filter(|(region, _)| is_requested(region))
        .map(|(_, price)| usd(price))
        .min_by(f64::total_cmp)?;
    let spot = row.spot.filter(|(_, region)| is_requested(region)).map(|(price, _)| usd(price));
    Some(json!({
        "vendor_id": vendor.id, "server_id": row.server_id, "name": row.display_name,
        "api_reference": row.api_reference, "display_name": row.display_name, "vcpus": row.vcpus,
        "cpu_allocation": row.cpu_allocation, "cpu_architecture": row.cpu_architecture,
        "cpu_manufacturer": row.cpu_manufacturer, "memory_amount": row.memory_mib,
        "gpu_count": row.gpu.map_or(0.0, |gpu| gpu.count),
        "gpu_memory_min": row.gpu.map(|gpu| gpu.vram_min_mib),
        "gpu_memory_total": row.gpu.map(|gpu| gpu.vram_total_mib),
        "gpu_manufacturer": row.gpu.map(|gpu| gpu.manufacturer),
        "gpu_model": row.gpu.map(|gpu| gpu.model),
        "gpus": if row.gpu.is_none() { json!([]) } else { Value::Null },
        "storage_size": row.storage_gb, "status": "active", "min_price_spot": spot, "min_price_ondemand": ondemand,
        "min_price": spot.map_or(ondemand, |spot: f64| spot.min(ondemand)),
        "vendor": {"vendor_id": vendor.id, "name": vendor.name},
        "a_new_field": [row.vcpus],
    }))
}

pub fn answer(request: &Request, deviation: Deviation) -> Reply {
    if request.header("X-Application-ID") != Some("resource-tracker") {
        return Reply::status(400, r#"{"detail": "no application id"}"#);
    }
    let body = match request.route().split('/').collect::<Vec<_>>().as_slice() {
        ["", "healthcheck"] => {
            json!({"packages": {}, "database_hash": "h1", "database_last_updated": "2026-11-14T03:00:00"})
        }
        ["", "regions"] => api_regions(deviation),
        ["", "server", vendor, server, "prices"] => match find(vendor, server).unwrap() {
            Some((index, row)) => api_prices(index, row, deviation),
            None => return Reply::status(404, r#"{"detail": "Server not found"}"#),
        },
        ["", "servers"] => api_servers(request, deviation),
        _ => return Reply::status(404, r#"{"detail": "Not Found"}"#),
    };
    let text = serde_json::to_vec(&body).unwrap();
    assert!(request.header("Accept-Encoding").is_some_and(|codings| codings.contains("gzip")));
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&text).unwrap();
    Reply::Answer {
        status: 200,
        headers: vec![
            ("Content-Encoding", "gzip".to_owned()),
            ("Content-Type", "application/json".to_owned()),
        ],
        body: encoder.finish().unwrap(),
    }
}

/// All regions with a price.
fn api_regions(deviation: Deviation) -> Value {
    let rows = embedded().unwrap().rows.iter().enumerate();
    let mut regions: BTreeSet<(&str, &str)> = rows
        .flat_map(|(index, row)| prices().unwrap().of(index).map(|(region, _)| (row.vendor.id, region)))
        .collect();
    if deviation == Deviation::HasClosedRegion {
        regions.insert((CLOSED.0, CLOSED.1));
    }
    let region = |(vendor, name): (&str, &str)| json!({"vendor_id": vendor, "region_id": region_id(vendor, name), "api_reference": name, "aliases": []});
    regions.into_iter().map(region).collect()
}

fn api_prices(index: usize, row: &Row, deviation: Deviation) -> Value {
    let vendor = row.vendor;
    let line = |region: &str, price: f64, allocation: &str, system: &str| {
        json!({
            "vendor_id": vendor.id, "region_id": region_id(vendor.id, region), "zone_id": "a",
            "server_id": row.server_id, "operating_system": system, "allocation": allocation, "unit": "hour",
            "price": price, "price_tiered": [], "currency": "USD", "status": "active", "observed_at": "2026-11-14",
        })
    };
    let mut lines = Vec::new();
    for (region, price) in prices().unwrap().of(index).map(|(region, price)| (region, usd(price))) {
        lines.push(line(region, price, "ondemand", "Linux"));
        // Prices that the client must ignore: a more expensive zone, another operating system and another contract.
        lines.push(line(region, price * 1.5, "ondemand", "linux"));
        lines.push(line(region, price / 2.0, "ondemand", "Windows"));
        lines.push(line(region, price / 3.0, "reserved", "linux"));
        if let Some((spot, _)) = row.spot.filter(|(_, at)| *at == region) {
            lines.push(line(region, usd(spot), "spot", "linux"));
        }
    }
    if is_in_closed_region(deviation, vendor.id, row.server_id) {
        lines.push(line(CLOSED.1, usd(row.cheapest_micro_usd) * CLOSED.2, "ondemand", "linux"));
    }
    Value::Array(lines)
}

/// All servers in the form of the API. The list is cached for queries without a region.
fn all_servers(regions: &[String]) -> Cow<'static, [Value]> {
    static ANYWHERE: OnceLock<Vec<Value>> = OnceLock::new();
    let make = || {
        let rows = embedded().unwrap().rows.iter().enumerate();
        rows.filter_map(|(index, row)| api_server(index, row, regions)).collect()
    };
    if regions.is_empty() { Cow::Borrowed(ANYWHERE.get_or_init(make)) } else { Cow::Owned(make()) }
}

fn api_servers(request: &Request, deviation: Deviation) -> Value {
    let number =
        |name: &str| request.parameters(name).first().map_or(0.0, |text| text.parse::<f64>().unwrap());
    let regions = if deviation == Deviation::IgnoresRegions {
        Vec::new()
    } else {
        request.parameters("vendor_regions")
    };
    let has = |server: &Value, field: &str| server[field].as_f64().unwrap_or(0.0);
    let one_of = |server: &Value, field: &str, parameter: &str| {
        let values = request.parameters(parameter);
        values.is_empty() || values.iter().any(|value| server[field] == *value)
    };
    let mut found: Vec<Value> = all_servers(&regions)
        .iter()
        .filter(|server| {
            deviation == Deviation::IgnoresFilters
                || (has(server, "vcpus") >= number("vcpus_min")
                    && has(server, "memory_amount") >= number("memory_min") * 1024.0
                    && has(server, "gpu_count") >= number("gpu_min")
                    && has(server, "gpu_memory_total") >= number("gpu_memory_total") * 1024.0
                    && has(server, "storage_size") >= number("storage_size")
                    && one_of(server, "vendor_id", "vendor")
                    && one_of(server, "cpu_architecture", "architecture")
                    && one_of(server, "cpu_manufacturer", "cpu_manufacturer")
                    && one_of(server, "cpu_allocation", "cpu_allocation"))
        })
        .cloned()
        .collect();
    let text = |server: &Value, field: &str| server[field].as_str().unwrap_or_default().to_owned();
    for server in found.iter_mut().filter(|_| regions.is_empty()) {
        if is_in_closed_region(deviation, &text(server, "vendor_id"), &text(server, "server_id")) {
            let ondemand = json!(has(server, "min_price_ondemand") * CLOSED.2);
            (server["min_price"], server["min_price_ondemand"]) = (ondemand.clone(), ondemand);
        }
    }
    let order = request.parameters("order_by").first().cloned().unwrap_or_else(|| "vcpus".to_owned());
    if deviation != Deviation::IgnoresOrder {
        found.sort_by(|a, b| has(a, &order).total_cmp(&has(b, &order)));
    }
    let limit = number("limit");
    if limit >= 0.0 {
        found.truncate(format!("{limit}").parse().unwrap());
    }
    if deviation == Deviation::RenamesGpuFields {
        for server in &mut found {
            let Value::Object(fields) = server else { continue };
            let renamed =
                std::mem::take(fields).into_iter().map(|(name, value)| match name.strip_prefix("gpu") {
                    Some("s") => ("accelerators".to_owned(), value),
                    Some(rest) => (format!("accelerator{rest}"), value),
                    None => (name, value),
                });
            *fields = renamed.collect();
        }
    }
    Value::Array(found)
}

pub fn keeper(deviation: Deviation) -> TestServer {
    TestServer::start(move |request| answer(request, deviation))
}
