//! Converts lists of servers and prices into the embedded catalogue.
//!
//! ```text
//! cargo run -p resource-tracker --example pack_catalog -- SERVERS.csv PRICES.csv crates/core/data/catalog.bin
//! ```
//!
//! In:  two CSV files without quotes. `NOTICE` describes the sources of the files.
//! Out: the file format of `src/market/catalog/embedded.rs`. Nothing is written if the data is inconsistent.

mod gpu;

use resource_tracker::market::catalog::embedded::{ALLOCATIONS, MAGIC, MANUFACTURERS};
use resource_tracker::market::catalog::query::price_sort_key;
use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write as _;

/// Vendor id, name, date and source of the prices.
const VENDORS: &[(&str, &str, &str, &str)] = &[
    (
        "aws",
        "Amazon Web Services",
        "2026-07 (us-east-1), 2025-03 (other regions)",
        "published list prices (karpenter-provider-aws and apache-libcloud tables, Apache-2.0)",
    ),
    (
        "azure",
        "Microsoft Azure",
        "2026-06",
        "published retail prices (karpenter-provider-azure, kubernetes/autoscaler tables, Apache-2.0)",
    ),
    (
        "gcp",
        "Google Cloud Platform",
        "2026-08",
        "published list prices (karpenter-provider-gcp, gcp-machine-types tables, Apache-2.0)",
    ),
    ("hcloud", "Hetzner Cloud", "2026-09", "published list prices, EUR at 1.16"),
    ("upcloud", "UpCloud", "2024-12", "published list prices, EUR at 1.16"),
    ("vultr", "Vultr", "2025-12", "published list prices"),
];
/// Server and memory in MiB, for servers whose memory of 0.5 GiB the list rounds down to 0.
const MEMORY_MIB: &[(&str, u32)] = &[("Standard_B1ls", 512)];
/// Date on which the lists were collected.
const COLLECTED: &str = "2026-11-15";

type Record<'a> = BTreeMap<&'a str, &'a str>;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [servers, prices, output] = arguments.as_slice() else {
        return Err("usage: pack_catalog SERVERS.csv PRICES.csv OUTPUT".into());
    };
    let packed = pack(&std::fs::read_to_string(servers)?, &std::fs::read_to_string(prices)?)?;
    std::fs::write(output, packed)?;
    Ok(())
}

fn pack(servers: &str, prices: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut servers = records(servers)?;
    servers.sort_by_key(|server| (server["vendor_id"], server["api_reference"]));

    let mut regions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut by_server: BTreeMap<(&str, &str), BTreeMap<&str, u32>> = BTreeMap::new();
    for price in records(prices)? {
        let key = (price["vendor_id"], price["api_reference"]);
        let usd = micro_usd(price["price_ondemand_usd_h"])?;
        if by_server.entry(key).or_default().insert(price["region"], usd).is_some() {
            return Err(format!("two prices for {key:?} in {}", price["region"]).into());
        }
        let known = regions.entry(price["vendor_id"]).or_default();
        if !known.contains(&price["region"]) {
            known.push(price["region"]);
        }
    }
    for names in regions.values_mut() {
        names.sort_unstable();
    }

    let mut models: Vec<(&str, &str)> = Vec::new();
    let mut rows = Vec::new();
    let (mut floors, mut region_bits, mut all_prices) = (Vec::new(), Vec::new(), Vec::new());
    let mut ranks = Vec::new();
    for (index, server) in servers.iter().enumerate() {
        let vendor = server["vendor_id"];
        let name = server["api_reference"];
        let vendor_index = VENDORS.iter().position(|known| known.0 == vendor).ok_or("unknown vendor")?;
        let names = &regions[vendor];
        let prices = by_server.remove(&(vendor, name)).ok_or_else(|| format!("`{name}` has no price"))?;
        for column in ["cpu_cores", "cpu_model"] {
            if !server[column].is_empty() {
                return Err(format!("the format has no place for `{column}` of `{name}`").into());
            }
        }

        let floor = outlier_floor(prices.values().copied().collect());
        let (cheapest, cheapest_region) = prices
            .iter()
            .filter(|(_, price)| **price >= floor)
            .map(|(region, price)| (*price, *region))
            .min()
            .ok_or("all prices are outliers")?;
        ranks.push((price_sort_key(f64::from(cheapest) / 1e6), vendor, server["server_id"], index));

        number(&mut floors, floor);
        let mut bits = vec![0_u8; names.len().div_ceil(8)];
        for (position, region) in names.iter().enumerate() {
            if let Some(price) = prices.get(region) {
                bits[position / 8] |= 1 << (position % 8);
                all_prices.push(*price);
            }
        }
        region_bits.extend(bits);

        number(&mut rows, u32::try_from(vendor_index)?);
        row(&mut rows, server, &mut models)?;
        number(&mut rows, cheapest);
        number(&mut rows, position(names, cheapest_region)?);
        if server["price_spot_usd_h"].is_empty() {
            number(&mut rows, 0);
        } else {
            number(&mut rows, micro_usd(server["price_spot_usd_h"])?);
            number(&mut rows, position(names, server["price_spot_region"])?);
        }
    }
    if let Some((orphan, _)) = by_server.first_key_value() {
        return Err(format!("prices without a server: {orphan:?}").into());
    }

    let mut plain = Vec::new();
    text(&mut plain, COLLECTED);
    number(&mut plain, u32::try_from(VENDORS.len())?);
    for (id, name, as_of, from) in VENDORS {
        for value in [id, name, as_of, from] {
            text(&mut plain, value);
        }
        number(&mut plain, u32::try_from(regions[id].len())?);
        regions[id].iter().for_each(|region| text(&mut plain, region));
    }
    number(&mut plain, u32::try_from(models.len())?);
    for (model, manufacturer) in models {
        text(&mut plain, model);
        text(&mut plain, manufacturer);
    }
    number(&mut plain, u32::try_from(servers.len())?);
    plain.extend(rows);
    ranks.sort_unstable();
    for (.., index) in ranks {
        plain.extend(u16::try_from(index)?.to_le_bytes());
    }

    let deflated =
        deflate(&[price_dictionary(&all_prices)?, floors, region_bits, price_places(&all_prices)?].concat())?;
    let mut packed = MAGIC.to_vec();
    for section in [&plain, &deflated] {
        packed.extend(u32::try_from(section.len())?.to_le_bytes());
        packed.extend(crc32fast::hash(section).to_le_bytes());
    }
    packed.extend(plain);
    packed.extend(deflated);
    Ok(packed)
}

/// Encodes the part of a server's row between its vendor and its prices.
fn row(
    rows: &mut Vec<u8>,
    server: &Record<'_>,
    models: &mut Vec<(&'static str, &'static str)>,
) -> Result<(), Box<dyn Error>> {
    let (id, name, display) = (server["server_id"], server["api_reference"], server["display_name"]);
    let allocation = position_ignoring_case(&ALLOCATIONS.map(Some), server["cpu_allocation"])?;
    let manufacturer = match server["cpu_manufacturer"] {
        "" => 0,
        listed => position_ignoring_case(&MANUFACTURERS, listed)?,
    };
    let arm64 = match server["cpu_architecture"] {
        "x86_64" => 0,
        "arm64" => 1,
        other => return Err(format!("unknown architecture `{other}`").into()),
    };
    let gpus = gpu::gpus(
        server["vendor_id"],
        name,
        server["gpu_count"].parse()?,
        server["gpu_model"],
        server["gpu_memory_min_mib"].parse().ok(),
    )?;
    rows.push(
        allocation
            | arm64 << 2
            | manufacturer << 3
            | u8::from(name != id) << 5
            | u8::from(display != name) << 6
            | u8::from(gpus.is_some()) << 7,
    );
    text(rows, id);
    if name != id {
        text(rows, name);
    }
    if display != name {
        text(rows, display);
    }
    let (vcpus, listed_mib): (u32, u32) = (server["vcpus"].parse()?, server["memory_mib"].parse()?);
    let memory_mib = MEMORY_MIB.iter().find(|(known, _)| *known == name).map_or(listed_mib, |(_, mib)| *mib);
    if vcpus == 0 || memory_mib == 0 {
        return Err(format!("`{name}` has no CPU or no memory").into());
    }
    for value in [vcpus, memory_mib, server["storage_gb"].parse()?] {
        number(rows, value);
    }
    if let Some(gpus) = gpus {
        let key = (gpus.model, gpus.manufacturer);
        let model = models.iter().position(|known| *known == key).unwrap_or_else(|| {
            models.push(key);
            models.len() - 1
        });
        for value in [u32::try_from(model)?, gpus.parts, gpus.vram_min_mib, gpus.vram_total_mib] {
            number(rows, value);
        }
    }
    Ok(())
}

fn records(csv: &str) -> Result<Vec<Record<'_>>, Box<dyn Error>> {
    let mut lines = csv.lines();
    let header: Vec<&str> = lines.next().ok_or("empty file")?.split(',').collect();
    lines
        .map(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            if line.contains('"') || cells.len() != header.len() {
                return Err(format!("not {} plain cells: `{line}`", header.len()).into());
            }
            Ok(header.iter().copied().zip(cells).collect())
        })
        .collect()
}

/// Converts a price in USD with up to six decimals to micro-USD, without rounding.
fn micro_usd(price: &str) -> Result<u32, Box<dyn Error>> {
    let (whole, fraction) = price.split_once('.').unwrap_or((price, ""));
    if fraction.len() > 6 {
        return Err(format!("price `{price}` has more than six decimals").into());
    }
    let micro = whole.parse::<u32>()? * 1_000_000 + format!("{fraction:0<6}").parse::<u32>()?;
    if micro == 0 { Err(format!("price `{price}` is not above 0").into()) } else { Ok(micro) }
}

/// Half the median of the prices, rounded up. Lower prices are outliers.
fn outlier_floor(mut prices: Vec<u32>) -> u32 {
    prices.sort_unstable();
    let (low, high) = (prices[(prices.len() - 1) / 2], prices[prices.len() / 2]);
    (low + high).div_ceil(4)
}

fn price_dictionary(prices: &[u32]) -> Result<Vec<u8>, Box<dyn Error>> {
    let sorted = distinct(prices);
    let mut bytes = Vec::new();
    number(&mut bytes, u32::try_from(sorted.len())?);
    let mut last = 0;
    for price in sorted {
        number(&mut bytes, price - last);
        last = price;
    }
    Ok(bytes)
}

fn price_places(prices: &[u32]) -> Result<Vec<u8>, Box<dyn Error>> {
    let sorted = distinct(prices);
    let places = prices
        .iter()
        .map(|price| u16::try_from(sorted.partition_point(|known| known < price)))
        .collect::<Result<Vec<u16>, _>>()?;
    let byte = |which: usize| places.iter().map(move |place| place.to_le_bytes()[which]);
    Ok(byte(0).chain(byte(1)).collect())
}

fn distinct(prices: &[u32]) -> Vec<u32> {
    let mut sorted = prices.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    sorted
}

fn deflate(bytes: &[u8]) -> Result<Vec<u8>, std::io::Error> {
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes)?;
    encoder.finish()
}

fn number(bytes: &mut Vec<u8>, mut value: u32) {
    while value > 0x7f {
        bytes.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    bytes.push(value.to_le_bytes()[0]);
}

fn text(bytes: &mut Vec<u8>, value: &str) {
    number(bytes, u32::try_from(value.len()).expect("texts are short"));
    bytes.extend(value.as_bytes());
}

fn position(names: &[&str], name: &str) -> Result<u32, Box<dyn Error>> {
    let position =
        names.iter().position(|known| *known == name).ok_or_else(|| format!("no region `{name}`"))?;
    Ok(u32::try_from(position)?)
}

fn position_ignoring_case(names: &[Option<&str>], name: &str) -> Result<u8, Box<dyn Error>> {
    let position = names
        .iter()
        .position(|known| known.is_some_and(|known| known.eq_ignore_ascii_case(name)))
        .ok_or_else(|| format!("no code for `{name}`"))?;
    Ok(u8::try_from(position)?)
}
