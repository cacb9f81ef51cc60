//! Compares answers of the embedded catalogue with a linear scan.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use proptest::prelude::*;
use resource_tracker::market::catalog::embedded::{embedded, prices, usd};
use resource_tracker::market::catalog::server::FIELDS;
use resource_tracker::market::catalog::{Catalog, Query, Server, Settings, Source, embedded_price, region};

fn offline() -> Settings {
    Settings { offline: true, cache_dir: None, ..Settings::from_env() }
}

fn ask(query: &Query) -> Vec<Server> {
    let answer = Catalog::new(offline()).servers(query).unwrap();
    assert_eq!(answer.source, Source::Embedded);
    assert_eq!(answer.fallback_reason.as_deref(), Some("network access is disabled"));
    answer.servers
}

fn short(server: &Server) -> (String, &str, &str) {
    (format!("{:.4}", server.price_usd().unwrap()), server.vendor_id(), server.server_id())
}

/// The expected answer, from a linear scan that shares no code with the search.
fn scan(
    (cpu, memory_mib, gpu, vram_mib): (f64, f64, f64, f64),
    is_place: &dyn Fn(&str, &str) -> bool,
) -> Vec<(String, &'static str, &'static str)> {
    let (catalogue, prices) = (embedded().unwrap(), prices().unwrap());
    let mut found = Vec::new();
    for (index, row) in catalogue.rows.iter().enumerate() {
        let gpus = row.gpu.map_or(0.0, |gpu| gpu.count);
        let vram = row.gpu.map_or(-1.0, |gpu| f64::from(gpu.vram_total_mib));
        if f64::from(row.vcpus) < cpu || f64::from(row.memory_mib) < memory_mib {
            continue;
        }
        if (gpu > 0.0 && gpus < gpu) || (vram_mib > 0.0 && vram < vram_mib) {
            continue;
        }
        let mut all: Vec<f64> = prices.of(index).map(|(_, price)| f64::from(price)).collect();
        all.sort_by(f64::total_cmp);
        let median = f64::midpoint(all[(all.len() - 1) / 2], all[all.len() / 2]);
        let here = prices
            .of(index)
            .filter(|(region, price)| f64::from(*price) >= median / 2.0 && is_place(row.vendor.id, region));
        if let Some(price) = here.map(|(_, price)| price).min() {
            found.push((format!("{:.4}", usd(price)), row.vendor.id, row.server_id));
        }
    }
    found.sort_by(|a, b| {
        let price = |text: &str| text.parse::<f64>().unwrap();
        price(&a.0).total_cmp(&price(&b.0)).then_with(|| (a.1, a.2).cmp(&(b.1, b.2)))
    });
    found
}

fn anywhere(_: &str, _: &str) -> bool {
    true
}

#[test]
fn known_queries_return_the_servers_of_a_linear_scan() {
    for (sizes, first) in [
        ((2.0, 4_096.0, 0.0, 0.0), Some(("0.0102", "hcloud", "114"))),
        ((1.0, 128.0, 0.0, 0.0), Some(("0.0028", "aws", "t4g.nano"))),
        ((8.0, 65_536.0, 1.0, 16_384.0), Some(("1.1435", "gcp", "g2-standard-16"))),
        ((100_000.0, 1.0, 0.0, 0.0), None),
    ] {
        let (cpu, memory, gpu, vram) = sizes;
        let query = Query::new(cpu, memory).with_gpu(gpu, vram);
        let servers = ask(&query);
        let found: Vec<_> = servers.iter().map(short).collect();
        let scanned = scan(sizes, &anywhere);
        assert_eq!(found, scanned[..scanned.len().min(10)], "{sizes:?}");
        assert_eq!(found, ask(&query).iter().map(short).collect::<Vec<_>>(), "stable");
        assert_eq!(found.first().map(|(price, vendor, server)| (price.as_str(), *vendor, *server)), first);
        assert_eq!(ask(&query.top(1)).first().map(short), found.first().cloned());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_query_returns_the_servers_of_a_linear_scan(
        cpu in 0_u32..200, memory in 0_u32..800_000, gpu in 0_u32..3, vram in 0_u32..100_000, place in 0_usize..8,
    ) {
        let sizes = (f64::from(cpu), f64::from(memory), f64::from(gpu), f64::from(vram));
        let query = Query::new(sizes.0, sizes.1).with_gpu(sizes.2, sizes.3).top(usize::MAX);
        let german = |vendor: &str, region: &str| {
            region::places().any(|at| at.vendor_id == vendor && at.region == region && at.country == "DE")
        };
        let (query, scanned) = match place {
            0 => (query.filter("region", "eastus2").unwrap(), scan(sizes, &|_, region| region == "eastus2")),
            1 => (query.filter("country", "DE").unwrap(), scan(sizes, &german)),
            2 => (
                query.filter("vendor_id", "aws").unwrap().filter("region", "eu-west-1").unwrap(),
                scan(sizes, &|vendor, region| vendor == "aws" && region == "eu-west-1"),
            ),
            _ => (query, scan(sizes, &anywhere)),
        };
        let servers = ask(&query);
        prop_assert_eq!(servers.iter().map(short).collect::<Vec<_>>(), scanned);
    }
}

#[test]
fn every_server_matches_the_filters() {
    let all = |name: &str, value: serde_json::Value| {
        let servers = ask(&Query::new(1.0, 1.0).top(usize::MAX).filter(name, value).unwrap());
        assert!(!servers.is_empty(), "{name}");
        servers
    };
    assert!(all("vendor_id", "vultr".into()).iter().all(|server| server.vendor_id() == "vultr"));
    assert_eq!(all("vendor_id", serde_json::json!(["vultr", "hcloud"])).len(), 68);
    assert!(
        all("architecture", "arm64".into())
            .iter()
            .all(|server| server.text("cpu_architecture") == Some("arm64"))
    );
    assert!(
        all("cpu_allocation", "dedicated".into())
            .iter()
            .all(|server| server.text("cpu_allocation") == Some("Dedicated"))
    );
    assert!(
        all("cpu_manufacturer", "amd".into())
            .iter()
            .all(|server| server.text("cpu_manufacturer") == Some("AMD"))
    );
    assert!(
        all("gpu_model", "rtx-pro-6000".into())
            .iter()
            .all(|server| server.text("gpu_model") == Some("RTX PRO 6000"))
    );
    assert!(all("max_price", 0.02.into()).iter().all(|server| server.price_usd().unwrap() <= 0.02));
    assert!(
        all("storage_size", 5_000.into())
            .iter()
            .all(|server| server.number("storage_size").unwrap() >= 5_000.0)
    );
    let european = all("continent", "europe".into());
    assert!(european.iter().all(|server| {
        let place = region::places()
            .find(|place| {
                place.vendor_id == server.vendor_id() && Some(place.region) == server.price_region()
            })
            .unwrap();
        region::continent(place.country) == Some("Europe")
    }));
    assert!(
        ask(&Query::new(1.0, 1.0).filter("country", "DE").unwrap().filter("continent", "Asia").unwrap())
            .is_empty()
    );
    // Only the Keeper has servers of this vendor.
    assert!(ask(&Query::new(1.0, 1.0).filter("vendor_id", "ovh").unwrap()).is_empty());
}

#[test]
fn region_filter_sets_price_and_order() {
    let servers = ask(&Query::new(2.0, 8_192.0)
        .filter("vendor_id", "aws")
        .unwrap()
        .filter("region", "sa-east-1")
        .unwrap());
    let prices: Vec<f64> = servers.iter().map(|server| server.price_usd().unwrap()).collect();
    assert!(prices.is_sorted(), "{prices:?}");
    for server in &servers {
        assert_eq!(server.price_region(), Some("sa-east-1"));
        let listed = embedded_price("aws", Some("sa-east-1"), server.server_id()).unwrap().unwrap();
        assert_eq!((Some(listed.usd_per_hour), listed.in_asked_region), (server.ondemand_usd(), true));
    }
    let more_expensive = servers.iter().filter(|server| {
        let anywhere = embedded_price("aws", None, server.server_id()).unwrap().unwrap();
        server.ondemand_usd() > Some(anywhere.usd_per_hour)
    });
    assert!(more_expensive.count() > 5, "São Paulo is expensive");
}

#[test]
fn price_below_half_the_median_is_ignored() {
    // The price is 4.128 in two regions, and 8.256 or more in all other regions.
    let listed = |region| embedded_price("azure", Some(region), "Standard_D96as_v5").unwrap().unwrap();
    let (outlier, cheapest) = (listed("eastus2"), listed("nowhere"));
    assert_eq!((outlier.usd_per_hour, outlier.in_asked_region), (cheapest.usd_per_hour, false));
    assert!(cheapest.usd_per_hour > 4.2, "{cheapest:?}");
    let there = Query::new(96.0, 1.0).filter("region", "eastus2").unwrap().top(usize::MAX);
    assert!(ask(&there).iter().all(|server| server.server_id() != "Standard_D96as_v5"));
}

#[test]
fn spot_price_is_used_only_with_the_filter_and_in_its_region() {
    let query =
        |spot: bool| Query::new(16.0, 1.0).filter("vendor_id", "gcp").unwrap().filter("spot", spot).unwrap();
    let (with, without) = (ask(&query(true)), ask(&query(false)));
    assert!(with[0].price_usd() < without[0].price_usd());
    assert_eq!(with[0].price_usd(), with[0].spot_usd());
    assert_eq!(without[0].price_usd(), without[0].ondemand_usd());
    assert!(without[0].spot_usd().is_some(), "spot beside on-demand where known");
    let region = with[0].price_region().unwrap().to_owned();
    let elsewhere = if region == "us-east1" { "us-central1" } else { "us-east1" };
    let servers = ask(&query(true).filter("region", elsewhere).unwrap().top(usize::MAX));
    let same = servers.iter().find(|server| server.server_id() == with[0].server_id());
    assert!(
        same.is_none_or(|server| server.spot_usd().is_none()),
        "the spot price is that of another region"
    );
}

#[test]
fn server_has_all_api_fields() {
    let server = ask(&Query::new(8.0, 65_536.0).with_gpu(1.0, 16_384.0)).remove(0);
    let names: Vec<&str> = server.fields().map(|(name, _)| name).collect();
    assert_eq!(names, FIELDS);
    let known: serde_json::Value = server
        .fields()
        .filter(|(_, value)| !value.is_null())
        .map(|(n, v)| (n.to_owned(), v.clone()))
        .collect();
    assert_eq!(
        known,
        serde_json::json!({
            "vendor_id": "gcp", "server_id": "g2-standard-16", "name": "g2-standard-16",
            "api_reference": "g2-standard-16", "display_name": "g2-standard-16", "vcpus": 16,
            "cpu_allocation": "Dedicated", "cpu_architecture": "x86_64", "memory_amount": 65536, "gpu_count": 1.0,
            "gpu_memory_min": 24576, "gpu_memory_total": 24576, "gpu_manufacturer": "NVIDIA", "gpu_model": "L4",
            "storage_size": 0, "status": "active", "price": 1.14345, "min_price": 0.439_688,
            "min_price_spot": 0.439_688, "min_price_ondemand": 1.14345,
            "vendor": {"vendor_id": "gcp", "name": "Google Cloud Platform"},
            "price_region": "us-east4",
        })
    );
    let small = ask(&Query::new(2.0, 4_096.0)).remove(0);
    assert_eq!((small.name(), small.text("cpu_allocation")), ("cx23", Some("Shared")));
}

#[test]
fn answer_contains_source_and_dates() {
    let answer = Catalog::new(offline()).servers(&Query::new(2.0, 4_096.0)).unwrap();
    assert_eq!(answer.as_of, "2026-11-15");
    let dates: Vec<_> =
        answer.dates.iter().map(|date| (date.vendor_id.as_str(), date.as_of.as_str())).collect();
    assert_eq!(
        dates,
        [
            ("aws", "2026-07 (us-east-1), 2025-03 (other regions)"),
            ("azure", "2026-06"),
            ("hcloud", "2026-09"),
            ("upcloud", "2024-12"),
            ("vultr", "2025-12"),
        ]
    );
    let json = serde_json::to_value(&answer).unwrap();
    assert_eq!((&json["source"], &json["servers"][0]["server_id"]), (&"embedded".into(), &"114".into()));
}

#[test]
fn instance_price_falls_back_to_the_cheapest_region() {
    let price = |vendor, region, server| embedded_price(vendor, region, server).unwrap();
    let here = price("aws", Some("us-east-1"), "c5.large").unwrap();
    assert_eq!((here.usd_per_hour, here.region.as_str(), here.in_asked_region), (0.085, "us-east-1", true));
    let elsewhere = price("aws", Some("unknown"), "c5.large").unwrap();
    assert!(!elsewhere.in_asked_region && elsewhere.usd_per_hour <= here.usd_per_hour, "{elsewhere:?}");
    // The name may be that of the vendor's API or the id of the Keeper.
    let hourly = |name| price("hcloud", Some("fsn1"), name).map(|price| price.usd_per_hour);
    assert_eq!((hourly("cx23"), hourly("cx23").is_some()), (hourly("114"), true));
    assert_eq!(price("aws", Some("us-east-1"), "c5.potato"), None);
    assert_eq!(price("acme", Some("us-east-1"), "c5.large"), None);
    assert_eq!(price("", None, ""), None);
}

#[test]
fn no_server_is_in_a_region_that_new_customers_cannot_use() {
    let servers = ask(&Query::new(0.0, 0.0).top(usize::MAX));
    assert!(servers.len() > 3_000, "{}", servers.len());
    for place in region::places() {
        assert_eq!(region::closed(place.vendor_id, place.region), None);
    }
    for server in servers {
        let region = server.price_region().unwrap();
        assert_eq!(region::closed(server.vendor_id(), region), None, "{} in {region}", server.server_id());
    }
    let error = Query::new(1.0, 1.0).filter("region", "azure~jioindiawest").unwrap();
    let error = Catalog::new(offline()).servers(&error).unwrap_err();
    assert!(error.is_usage() && error.to_string().starts_with("new customers cannot use region"), "{error}");
    // The price of a machine in such a region is that of another region.
    let price = embedded_price("azure", Some("jioindiawest"), "Standard_D2s_v3").unwrap().unwrap();
    assert!(!price.in_asked_region && region::closed("azure", &price.region).is_none(), "{price:?}");
}

#[test]
fn compliance_filter_is_an_error_offline() {
    let query = Query::new(1.0, 1.0).filter("compliance_framework_id", "hipaa").unwrap();
    let error = Catalog::new(offline()).servers(&query).unwrap_err();
    assert_eq!(
        error.to_string(),
        "filter `compliance_framework_id` needs the Keeper server-search service: network access is disabled"
    );
    assert_eq!(error.hint(), Some("remove the filter, or allow network access"));
}

#[cfg(not(feature = "net"))]
#[test]
fn build_without_network_uses_the_embedded_catalogue() {
    let online = Settings { offline: false, ..offline() };
    let answer = Catalog::new(online).servers(&Query::new(2.0, 4_096.0)).unwrap();
    assert_eq!((answer.source, answer.servers.len()), (Source::Embedded, 10));
    assert_eq!(answer.fallback_reason.as_deref(), Some("this build has no network support"));
}

#[test]
fn info_counts_servers_regions_and_prices() {
    let info = offline().catalog_info().unwrap();
    let counts: Vec<_> =
        info.vendors.iter().map(|v| (v.date.vendor_id.as_str(), v.servers, v.regions, v.prices)).collect();
    assert_eq!(counts[0], ("aws", 1_345, 33, 8_924));
    assert_eq!(counts.iter().map(|count| count.3).sum::<usize>(), 68_483);
    assert!(info.updated.is_none() && info.keeper_url.is_none());
}

#[test]
fn larger_of_size_and_api_minimum_counts() {
    let answer = |query: &Query| format!("{:?}", ask(query).iter().map(short).collect::<Vec<_>>());
    let small = Query::new(2.0, 4096.0).with_gpu(1.0, 8192.0);
    let cases = [
        ("vcpus_min", 16, Query { cpu: 16.0, ..small.clone() }),
        ("memory_min", 64, Query { memory_mb: 65_536.0, ..small.clone() }),
        ("gpu_min", 4, Query { gpu: Some(4.0), ..small.clone() }),
        ("gpu_memory_total", 80, Query { vram_mb: Some(81_920.0), ..small.clone() }),
    ];
    for (name, least, same) in cases {
        assert_ne!(answer(&small), answer(&same), "{name}: the filter has no effect in this case");
        assert_eq!(answer(&small.clone().filter(name, least).unwrap()), answer(&same), "{name}");
        assert_eq!(
            answer(&same.clone().filter(name, 1).unwrap()),
            answer(&same),
            "{name}: the size of the query is larger"
        );
    }
    let negative = Query::new(1.0, 1.0).filter("memory_min", -1).unwrap();
    let error = Catalog::new(offline()).servers(&negative).unwrap_err().to_string();
    assert_eq!(error, "`memory_min` must be a number of 0 or more, not `-1`");
}
