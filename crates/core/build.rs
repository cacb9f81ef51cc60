//! Compresses the tables of the catalogue in `data/`, which `market::catalog::embedded` includes in the program.
//!
//! Servers are sorted by price and split into parts, so that a search for the cheapest ones reads only the first parts.
//! Prices are split by region. In them, a server is its place in the order of prices.

use flate2::Compression;
use flate2::write::DeflateEncoder;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::io::{Error, Write as _};
use std::path::{Path, PathBuf};

/// Servers in one part.
const PART: usize = 256;
const PRICE_COLUMN: usize = 15;

fn main() -> Result<(), Error> {
    let output = PathBuf::from(std::env::var_os("OUT_DIR").ok_or_else(|| Error::other("no OUT_DIR"))?);
    let (servers, prices) = (read("servers.csv")?, read("prices.csv")?);
    let (header, servers) = servers.split_once('\n').ok_or_else(|| Error::other("no servers"))?;
    let mut servers: Vec<&str> = servers.lines().collect();
    let price = |line: &&str| line.split(',').nth(PRICE_COLUMN).and_then(|price| price.parse().ok());
    servers.sort_by(|a, b| price(a).unwrap_or(f64::NAN).total_cmp(&price(b).unwrap_or(f64::NAN)));

    let mut code = String::from("static SERVERS: &[&[u8]] = &[\n");
    for (number, part) in servers.chunks(PART).enumerate() {
        let text = format!("{header}\n{}\n", part.join("\n"));
        let _ = writeln!(code, "{},", compress(&output, &format!("servers-{number}"), &text)?);
    }
    code += "];\nstatic PRICES: &[(&str, &str, &[u8])] = &[\n";

    let name = |line: &str| line.split(',').take(2).collect::<Vec<_>>().join(",");
    let places: HashMap<String, usize> = servers.iter().map(|line| name(line)).zip(0..).collect();
    let mut by_region: BTreeMap<(&str, &str), Vec<(usize, &str)>> = BTreeMap::new();
    for line in prices.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let (Some(place), &[vendor, _, region, price]) = (places.get(&name(line)), &cells[..]) else {
            return Err(Error::other(format!("`{line}` of prices.csv is not a price of a server")));
        };
        by_region.entry((vendor, region)).or_default().push((*place, price));
    }
    for ((vendor, region), mut lines) in by_region {
        lines.sort_unstable();
        let mut text = String::from("server,price_usd_h\n");
        for (place, price) in lines {
            let _ = writeln!(text, "{place},{price}");
        }
        let bytes = compress(&output, &format!("prices-{vendor}-{region}"), &text)?;
        let _ = writeln!(code, "(\"{vendor}\", \"{region}\", {bytes}),");
    }
    std::fs::write(output.join("catalog.rs"), code + "];\n")
}

fn read(name: &str) -> Result<String, Error> {
    let path = PathBuf::from("data").join(name);
    println!("cargo::rerun-if-changed={}", path.display());
    let text = std::fs::read_to_string(path)?;
    if text.contains('"') { Err(Error::other(format!("`{name}` has quoted cells"))) } else { Ok(text) }
}

/// Writes a compressed file, and returns the expression that includes it.
fn compress(output: &Path, name: &str, text: &str) -> Result<String, Error> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text.as_bytes())?;
    std::fs::write(output.join(name), encoder.finish()?)?;
    Ok(format!("include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{name}\"))"))
}
