//! The data of the embedded catalogue: `data/servers.csv` and `data/prices.csv`.
//!
//! `UPDATE_GENERATED=1` sorts both files, removes prices in regions that new customers cannot use, and computes the lowest
//! price of each server.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use csv::{ReaderBuilder, StringRecord, Writer};
use flate2::Compression;
use flate2::bufread::DeflateDecoder;
use flate2::write::DeflateEncoder;
use resource_tracker::market::catalog::embedded::{
    VENDORS, embedded, find, micro_usd, prices, read_prices, read_servers, size_bytes,
};
use resource_tracker::market::catalog::{Catalog, Query, Settings, region};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::time::{Duration, Instant};

const SERVERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/servers.csv");
const PRICES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/prices.csv");
/// Columns of `servers.csv`: lowest price and its region, spot price and its region.
const PRICE_COLUMNS: [usize; 4] = [15, 16, 17, 18];

/// The header of a file, and its lines by the first `key` cells.
fn read(path: &str, key: usize) -> (StringRecord, BTreeMap<Vec<String>, StringRecord>) {
    let mut reader = ReaderBuilder::new().from_path(path).unwrap();
    let mut lines = BTreeMap::new();
    for line in reader.records().map(Result::unwrap) {
        let cells: Vec<String> = line.iter().take(key).map(ToOwned::to_owned).collect();
        assert_eq!(lines.insert(cells, line.clone()), None, "{path} has two lines for {line:?}");
    }
    (reader.headers().unwrap().clone(), lines)
}

fn check(path: &str, header: &StringRecord, lines: impl Iterator<Item = StringRecord>) {
    let mut writer = Writer::from_writer(Vec::new());
    writer.write_record(header).unwrap();
    lines.for_each(|line| writer.write_record(&line).unwrap());
    let expected = writer.into_inner().unwrap();
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(path, &expected).unwrap();
    }
    assert!(std::fs::read(path).unwrap() == expected, "{path} is not up to date: run `make generate`");
}

#[test]
fn files_are_sorted_and_have_the_lowest_price_of_each_server() {
    let (servers_header, servers) = read(SERVERS, 2);
    let (prices_header, mut prices) = read(PRICES, 3);
    let is_open = |vendor: &str, name: &str| region::closed(vendor, name).is_none();
    prices.retain(|key, _| is_open(&key[0], &key[2]));
    let priced = servers.into_iter().map(|(key, line)| {
        let mut by_price: Vec<(u32, &str, &str)> = prices
            .range(key.clone()..)
            .take_while(|(of, _)| of.starts_with(&key))
            .map(|(of, line)| (micro_usd(line[3].as_bytes()).unwrap(), of[2].as_str(), &line[3]))
            .collect();
        by_price.sort_unstable();
        let middle = |index: usize| f64::from(by_price[index].0);
        let median = f64::midpoint(middle((by_price.len() - 1) / 2), middle(by_price.len() / 2));
        // A price below half the median is an outlier.
        let lowest = by_price.iter().find(|(price, ..)| f64::from(*price) >= median / 2.0).unwrap();
        let has_spot = is_open(&key[0], &line[PRICE_COLUMNS[3]]);
        let cells = line.iter().enumerate().map(|(column, cell)| match column {
            _ if column == PRICE_COLUMNS[0] => lowest.2,
            _ if column == PRICE_COLUMNS[1] => lowest.1,
            _ if PRICE_COLUMNS.contains(&column) && !has_spot => "",
            _ => cell,
        });
        cells.collect::<StringRecord>()
    });
    let priced: Vec<StringRecord> = priced.collect();
    check(SERVERS, &servers_header, priced.into_iter());
    check(PRICES, &prices_header, prices.into_values());
}

#[test]
fn embedded_catalogue_is_complete_and_consistent() {
    let (catalogue, prices) = (embedded().unwrap(), prices().unwrap());
    let count: usize = (0..catalogue.rows.len()).map(|row| prices.of(row).count()).sum();
    assert_eq!((catalogue.rows.len(), count, VENDORS.len()), (3_310, 68_483, 6));
    assert!(size_bytes() < 1_000_000, "{} bytes", size_bytes());

    let by_vendor = catalogue.rows.iter().fold(BTreeMap::new(), |mut counts: BTreeMap<&str, usize>, row| {
        *counts.entry(row.vendor.id).or_default() += 1;
        counts
    });
    let expected =
        [("aws", 1_345), ("azure", 1_367), ("gcp", 519), ("hcloud", 17), ("upcloud", 11), ("vultr", 51)];
    assert_eq!(by_vendor, BTreeMap::from(expected));
    for vendor in &VENDORS {
        assert!(!vendor.as_of.is_empty() && !vendor.from.is_empty() && !vendor.name.is_empty(), "{vendor:?}");
    }

    let mut names = BTreeSet::new();
    for (index, row) in catalogue.rows.iter().enumerate() {
        assert!(names.insert((row.vendor.id, row.server_id)), "{} twice", row.server_id);
        assert!(row.vcpus > 0 && row.memory_mib > 0, "{}", row.server_id);
        assert!(["x86_64", "arm64"].contains(&row.cpu_architecture), "{}", row.server_id);
        assert!(
            ["Intel", "AMD", "AWS"].contains(&row.cpu_manufacturer.unwrap_or("AMD")),
            "{}",
            row.server_id
        );
        let regions: BTreeSet<&str> = prices.of(index).map(|(region, _)| region).collect();
        assert_eq!(regions.len(), prices.of(index).count(), "{} has two prices in a region", row.server_id);
        let floor = prices.floor_micro_usd(index).unwrap();
        let cheapest = prices.of(index).filter(|(_, price)| *price >= floor).min_by_key(|(_, price)| *price);
        assert_eq!(cheapest, Some((row.cheapest_region, row.cheapest_micro_usd)), "{}", row.server_id);
        if let Some(gpu) = row.gpu {
            assert!(gpu.vram_min_mib > 0 && gpu.vram_total_mib >= gpu.vram_min_mib, "{}", row.server_id);
        }
    }
}

#[test]
fn gpus_of_azure_match_the_published_series() {
    let catalogue = embedded().unwrap();
    let gpu = |name: &str| {
        let row = find("azure", name).unwrap().unwrap().1;
        row.gpu.map(|gpu| (gpu.model, gpu.count, gpu.vram_min_mib, gpu.vram_total_mib))
    };
    assert_eq!(gpu("Standard_NC24s_v3"), Some(("V100", 4.0, 16_384, 65_536)));
    assert_eq!(gpu("Standard_NC4as_T4_v3"), Some(("T4", 1.0, 16_384, 16_384)));
    assert_eq!(gpu("Standard_NV6ads_A10_v5"), Some(("A10", 1.0 / 6.0, 4_096, 4_096)));
    assert_eq!(gpu("Standard_NV72ads_A10_v5"), Some(("A10", 2.0, 24_576, 49_152)));
    assert_eq!(gpu("Standard_NC48ads_A100_v4"), Some(("A100", 2.0, 81_920, 163_840)));
    assert_eq!(gpu("Standard_NC40ads_H100_v5"), Some(("H100", 1.0, 96_256, 96_256)));
    assert_eq!(gpu("Standard_ND96isr_H100_v5"), Some(("H100", 8.0, 81_920, 655_360)));
    assert_eq!(gpu("Standard_NP10s"), None, "an FPGA is not a GPU");
    let azure = catalogue.rows.iter().filter(|row| row.vendor.id == "azure");
    assert_eq!(azure.filter(|row| row.gpu.is_some()).count(), 48);
}

fn ask(query: &Query) -> usize {
    let offline = Settings { offline: true, cache_dir: None, ..Settings::from_env() };
    Catalog::new(offline).servers(query).unwrap().servers.len()
}

/// The shortest of several runs. Other processes can only make a run longer.
fn fastest<T>(mut work: impl FnMut() -> T) -> Duration {
    let time = |_| {
        let started = Instant::now();
        std::hint::black_box(work());
        started.elapsed()
    };
    (0..25).map(time).min().unwrap()
}

#[test]
#[expect(clippy::print_stderr, reason = "shows the measured times")]
fn reading_and_queries_stay_within_their_budgets() {
    let deflate = |text: &str| {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let servers = deflate(&std::fs::read_to_string(SERVERS).unwrap());
    let servers = fastest(|| read_servers(DeflateDecoder::new(&servers[..])).unwrap());
    let all = std::fs::read_to_string(PRICES).unwrap();
    let lines =
        all.lines().enumerate().map(|(at, line)| format!("{at},{}\n", line.rsplit(',').next().unwrap()));
    let all = deflate(&lines.collect::<String>());
    let by_region = fastest(|| assert_eq!(read_prices(DeflateDecoder::new(&all[..])).unwrap().len(), 68_483));
    let summary = fastest(|| ask(&Query::new(8.0, 65_536.0).with_gpu(1.0, 16_384.0).top(1)));
    let everything = fastest(|| ask(&Query::new(0.0, 0.0).filter("continent", "Europe").unwrap()));
    let plain = fastest(|| ask(&Query::new(4.0, 16_384.0)));
    eprintln!(
        "read servers {servers:?}, read prices {by_region:?}, summary {summary:?}, \
         whole catalogue by place {everything:?}, ten servers {plain:?}"
    );
    // The budgets are for a release build.
    let allowed = |release_ms: u64| {
        Duration::from_millis(if cfg!(debug_assertions) { release_ms * 30 } else { release_ms })
    };
    assert!(servers + by_region < allowed(10), "reading took {:?}", servers + by_region);
    assert!(servers + summary < allowed(2), "the summary of a run took {:?}", servers + summary);
    assert!(everything < allowed(5), "a query over all servers took {everything:?}");
}
