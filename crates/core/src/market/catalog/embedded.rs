//! The catalogue inside the binary: servers, their sizes and list prices.
//!
//! In:  `data/servers.csv` and `data/prices.csv`, which `build.rs` compresses into the program.
//! Out: one [`Row`] per server, by ascending price; the prices of one region, or all [`Prices`]. Data are read at their
//!      first use. A search for the cheapest servers reads only the first parts of the servers.
//! Not here: which rows fit a query (`query`), the fields of the API (`server`), countries of regions (`region`).
//!
//! A server is known by its index in the order of prices. Both files are sorted by `vendor_id` and `api_reference`, the
//! prices also by region. An empty `server_id` or `display_name` is the same as `api_reference`. A part of a GPU is a
//! fraction such as `1/8`. The price of a server is its lowest on-demand price without outliers. `tests/catalog_data.rs`
//! sorts the files and computes these prices.

use super::error::{CatalogError, DecodeError};
use super::region;
use csv::ByteRecord;
use flate2::bufread::DeflateDecoder;
use once_cell::race::OnceBox;
use std::io::Read;

/// Date on which the data was collected.
pub const COLLECTED: &str = "2026-11-15";
/// Spellings of `cpu_allocation`.
pub const ALLOCATIONS: [&str; 3] = ["Dedicated", "Burstable", "Shared"];

// `SERVERS`: the parts of the servers. `PRICES`: vendor, region, and prices of each region.
include!(concat!(env!("OUT_DIR"), "/catalog.rs"));

/// A vendor with prices.
#[derive(Debug)]
pub struct Vendor {
    /// The vendor's id, as in the Keeper's `vendor_id`.
    pub id: &'static str,
    /// The vendor's name for people.
    pub name: &'static str,
    /// Date of the vendor's prices.
    pub as_of: &'static str,
    /// A region whose prices have another date, and this date.
    pub newer: Option<(&'static str, &'static str)>,
    /// Source of the vendor's prices.
    pub from: &'static str,
}

/// The vendors of the catalogue.
pub const VENDORS: [Vendor; 6] = [
    Vendor {
        id: "aws",
        name: "Amazon Web Services",
        as_of: "2025-03",
        newer: Some(("us-east-1", "2026-07")),
        from: "published list prices (karpenter-provider-aws and apache-libcloud tables, Apache-2.0)",
    },
    Vendor {
        id: "azure",
        name: "Microsoft Azure",
        as_of: "2026-06",
        newer: None,
        from: "published retail prices (karpenter-provider-azure, kubernetes/autoscaler tables, Apache-2.0)",
    },
    Vendor {
        id: "gcp",
        name: "Google Cloud Platform",
        as_of: "2026-08",
        newer: None,
        from: "published list prices (karpenter-provider-gcp, gcp-machine-types tables, Apache-2.0)",
    },
    Vendor {
        id: "hcloud",
        name: "Hetzner Cloud",
        as_of: "2026-09",
        newer: None,
        from: "published list prices, EUR at 1.16",
    },
    Vendor {
        id: "upcloud",
        name: "UpCloud",
        as_of: "2024-12",
        newer: None,
        from: "published list prices, EUR at 1.16",
    },
    Vendor { id: "vultr", name: "Vultr", as_of: "2025-12", newer: None, from: "published list prices" },
];

impl Vendor {
    /// Date of the prices in a region.
    pub fn price_date(&self, region: &str) -> &'static str {
        self.newer.filter(|(newer, _)| *newer == region).map_or(self.as_of, |(_, date)| date)
    }

    /// Dates of all prices, such as `2026-07 (us-east-1), 2025-03 (other regions)`.
    pub fn price_dates(&self) -> String {
        let Some((region, date)) = self.newer else { return self.as_of.to_owned() };
        format!("{date} ({region}), {} (other regions)", self.as_of)
    }
}

/// The vendor with this id.
pub fn vendor(id: &str) -> Option<&'static Vendor> {
    VENDORS.iter().find(|vendor| vendor.id == id)
}

/// The GPUs of a server.
#[derive(Clone, Copy, Debug)]
pub struct RowGpu {
    /// Number of GPUs. A part of a GPU is a fraction.
    pub count: f64,
    /// Name of the model, in the spelling of the API.
    pub model: &'static str,
    /// Manufacturer: NVIDIA or AMD.
    pub manufacturer: &'static str,
    /// Memory of one GPU. If the server has only a part of a GPU, memory of this part.
    pub vram_min_mib: u32,
    /// Memory of all GPUs together.
    pub vram_total_mib: u32,
}

/// One server type.
#[derive(Debug)]
pub struct Row {
    pub vendor: &'static Vendor,
    /// Id of the server in the Keeper.
    pub server_id: &'static str,
    /// Name in the vendor's API.
    pub api_reference: &'static str,
    /// Human-readable name.
    pub display_name: &'static str,
    pub vcpus: u32,
    pub memory_mib: u32,
    /// Local storage; 0 if the server has only network disks.
    pub storage_gb: u32,
    /// One of [`ALLOCATIONS`].
    pub cpu_allocation: &'static str,
    /// Architecture: `x86_64` or `arm64`.
    pub cpu_architecture: &'static str,
    pub cpu_manufacturer: Option<&'static str>,
    /// `None` if the server has no GPU.
    pub gpu: Option<RowGpu>,
    /// Lowest on-demand price over all regions, without outliers.
    pub cheapest_micro_usd: u32,
    /// Region of the lowest price.
    pub cheapest_region: &'static str,
    /// Spot price in micro-USD and its region; `None` if unknown.
    pub spot: Option<(u32, &'static str)>,
}

/// The servers of the catalogue, by ascending price.
#[derive(Debug)]
pub struct Embedded {
    pub rows: Vec<&'static Row>,
}

/// The on-demand prices by region.
#[derive(Debug)]
pub struct Prices {
    /// Index of a row, region, and price in micro-USD, sorted.
    entries: Vec<(usize, &'static str, u32)>,
}

impl Prices {
    /// Region and price in micro-USD for every region of one row, including outliers.
    pub fn of(&self, row: usize) -> impl Iterator<Item = (&'static str, u32)> {
        let first = self.entries.partition_point(|entry| entry.0 < row);
        let entries = self.entries.iter().skip(first).take_while(move |entry| entry.0 == row);
        entries.map(|(_, region, price)| (*region, *price))
    }

    /// Half the median of a row's prices, rounded up. A lower price is an outlier: usually an error in the price list.
    pub fn floor_micro_usd(&self, row: usize) -> Option<u32> {
        let mut sorted: Vec<u64> = self.of(row).map(|(_, price)| u64::from(price)).collect();
        sorted.sort_unstable();
        let (low, high) = (sorted.get(sorted.len().checked_sub(1)? / 2)?, sorted.get(sorted.len() / 2)?);
        u32::try_from((low + high).div_ceil(4)).ok()
    }
}

/// The lines of a part, read at its first use.
type Decoded<T> = OnceBox<Result<Vec<T>, DecodeError>>;

/// The embedded servers by ascending price, with their indexes. Each part is read when the iterator reaches it.
pub fn by_price() -> impl Iterator<Item = Result<(usize, &'static Row), CatalogError>> {
    static PARTS: [Decoded<Row>; SERVERS.len()] = [const { OnceBox::new() }; SERVERS.len()];
    let parts = PARTS.iter().zip(SERVERS).map(|(decoded, part)| {
        decoded.get_or_init(|| Box::new(read_servers(DeflateDecoder::new(*part)))).as_ref()
    });
    let rows = parts.flat_map(|part| match part {
        Ok(rows) => rows.iter().map(Ok).chain(None),
        Err(error) => [].iter().map(Ok).chain(Some(Err(error))),
    });
    rows.enumerate().map(|(index, row)| row.map(|row| (index, row)).map_err(unreadable))
}

fn unreadable(source: &DecodeError) -> CatalogError {
    CatalogError::Embedded { source: source.clone() }
}

/// All embedded servers, read at the first call.
pub fn embedded() -> Result<&'static Embedded, CatalogError> {
    static ALL: OnceBox<Embedded> = OnceBox::new();
    ALL.get_or_try_init(|| {
        let rows = by_price().map(|row| row.map(|(_, row)| row)).collect::<Result<_, _>>()?;
        Ok(Box::new(Embedded { rows }))
    })
}

/// Index of a server and price in micro-USD for every server in a region, including outliers.
pub fn region_prices(vendor_id: &str, region: &str) -> Result<&'static [(usize, u32)], CatalogError> {
    static REGIONS: [Decoded<(usize, u32)>; PRICES.len()] = [const { OnceBox::new() }; PRICES.len()];
    let mut regions = REGIONS.iter().zip(PRICES);
    let is_same = |(_, (vendor, name, _)): &(_, &(&str, &str, _))| *vendor == vendor_id && *name == region;
    let Some((decoded, (.., prices))) = regions.find(is_same) else { return Ok(&[]) };
    let read = || Box::new(read_prices(DeflateDecoder::new(*prices)));
    decoded.get_or_init(read).as_deref().map_err(unreadable)
}

/// The embedded prices of all regions, read at the first call.
pub fn prices() -> Result<&'static Prices, CatalogError> {
    static ALL: OnceBox<Prices> = OnceBox::new();
    ALL.get_or_try_init(|| {
        let mut entries = Vec::with_capacity(80_000);
        for place in region::places() {
            let prices = region_prices(place.vendor_id, place.region)?;
            entries.extend(prices.iter().map(|(row, price)| (*row, place.region, *price)));
        }
        entries.sort_unstable();
        Ok(Box::new(Prices { entries }))
    })
}

/// Size of the embedded catalogue in bytes.
pub fn size_bytes() -> usize {
    SERVERS.iter().chain(PRICES.iter().map(|(_, _, prices)| prices)).map(|part| part.len()).sum()
}

/// Reads servers. Their texts stay in memory until the program ends.
pub fn read_servers(csv: impl Read) -> Result<Vec<Row>, DecodeError> {
    let mut rows = Vec::with_capacity(256);
    let mut free: &'static mut [u8] = &mut [];
    each_line("servers.csv", csv, |record| {
        // One allocation holds the texts of many lines.
        if free.len() < record.as_slice().len() {
            free = Box::leak(vec![0; 16 << 10].into_boxed_slice());
        }
        let (text, rest) = std::mem::take(&mut free).split_at_mut_checked(record.as_slice().len())?;
        free = rest;
        text.copy_from_slice(record.as_slice());
        rows.push(row(record, std::str::from_utf8(text).ok()?)?);
        Some(())
    })?;
    Ok(rows)
}

/// Reads the prices of a region.
pub fn read_prices(csv: impl Read) -> Result<Vec<(usize, u32)>, DecodeError> {
    let mut prices = Vec::with_capacity(512);
    each_line("prices.csv", csv, |record| {
        let index = std::str::from_utf8(record.get(0)?).ok()?.parse().ok()?;
        prices.push((index, micro_usd(record.get(1)?)?));
        Some(())
    })?;
    Ok(prices)
}

/// Finds a server by its `server_id` or its `api_reference`.
pub fn find(vendor_id: &str, server: &str) -> Result<Option<(usize, &'static Row)>, CatalogError> {
    let is_same =
        |row: &Row| row.vendor.id == vendor_id && (row.api_reference == server || row.server_id == server);
    by_price().find(|row| row.as_ref().map_or(true, |(_, row)| is_same(row))).transpose()
}

/// Calls `read` with every line after the header. `read` returns `None` if the line is not valid.
fn each_line(
    file: &'static str,
    csv: impl Read,
    mut read: impl FnMut(&ByteRecord) -> Option<()>,
) -> Result<(), DecodeError> {
    let mut reader = csv::Reader::from_reader(csv);
    let mut record = ByteRecord::new();
    loop {
        match reader.read_byte_record(&mut record) {
            Ok(false) => return Ok(()),
            Ok(true) if read(&record).is_some() => {}
            _ => return Err(DecodeError { file, line: record.position().map_or(0, csv::Position::line) }),
        }
    }
}

/// Makes a server from a line of `servers.csv`, whose cells are ranges of `text`.
fn row(record: &ByteRecord, text: &'static str) -> Option<Row> {
    let cell = |column: usize| text.get(record.range(column)?);
    let filled = |column: usize| cell(column).filter(|value| !value.is_empty());
    let number = |column: usize| cell(column)?.parse::<u32>().ok();
    let price = |column: usize| micro_usd(cell(column)?.as_bytes());
    let api_reference = filled(1)?;
    Some(Row {
        vendor: vendor(cell(0)?)?,
        api_reference,
        server_id: filled(2).unwrap_or(api_reference),
        display_name: filled(3).unwrap_or(api_reference),
        vcpus: number(4)?,
        memory_mib: number(5)?,
        storage_gb: number(6)?,
        cpu_allocation: ALLOCATIONS.into_iter().find(|name| Some(*name) == cell(7))?,
        cpu_architecture: filled(8)?,
        cpu_manufacturer: filled(9),
        gpu: match filled(10) {
            None => None,
            Some(count) => Some(RowGpu {
                count: fraction(count)?,
                model: filled(11)?,
                manufacturer: filled(12)?,
                vram_min_mib: number(13)?,
                vram_total_mib: number(14)?,
            }),
        },
        cheapest_micro_usd: price(15)?,
        cheapest_region: filled(16)?,
        spot: match filled(18) {
            None => None,
            Some(region) => Some((price(17)?, region)),
        },
    })
}

/// A number such as `8` or `1/8`, which is above 0.
fn fraction(text: &str) -> Option<f64> {
    let (parts, whole) = text.split_once('/').unwrap_or((text, "1"));
    let (parts, whole) = (parts.parse::<u32>().ok()?, whole.parse::<u32>().ok()?);
    (parts > 0 && whole > 0).then(|| f64::from(parts) / f64::from(whole))
}

/// Converts a price in USD, which is above 0 and has at most six decimals, to micro-USD.
pub fn micro_usd(price: &[u8]) -> Option<u32> {
    let (mut value, mut decimals) = (0_u32, None);
    for byte in price {
        match byte {
            b'0'..=b'9' => {
                value = value.checked_mul(10)?.checked_add(u32::from(byte - b'0'))?;
                decimals = decimals.map(|count: u32| count + 1);
            }
            b'.' if decimals.is_none() => decimals = Some(0),
            _ => return None,
        }
    }
    let missing = 6_u32.checked_sub(decimals.unwrap_or(0))?;
    value.checked_mul(10_u32.pow(missing)).filter(|price| *price > 0)
}

/// Converts micro-USD to USD.
pub fn usd(micro_usd: u32) -> f64 {
    f64::from(micro_usd) / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn price_is_exact_or_not_valid() {
        let prices = ["0.2568", "12", "0.000001", "4294.967295", "3."].map(|text| micro_usd(text.as_bytes()));
        assert_eq!(prices, [256_800, 12_000_000, 1, 4_294_967_295, 3_000_000].map(Some));
        for text in ["", "0", "-1", "1e3", "1.2.3", "0.0000001", "4294.967296", "n/a"] {
            assert_eq!(micro_usd(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn invalid_line_is_an_error_with_its_number() {
        let header = include_str!("../../../data/servers.csv").lines().next().unwrap();
        let good = "vultr,vc2-1c,,,1,1024,25,Shared,x86_64,,1/8,A16,NVIDIA,2048,2048,0.1,ewr,0.05,ewr";
        let read = |line: &str| read_servers(format!("{header}\n{good}\n{line}\n").as_bytes());
        let two = read(good).unwrap();
        assert_eq!((two.len(), two[1].gpu.unwrap().count, two[1].spot), (2, 0.125, Some((50_000, "ewr"))));
        for (from, to) in [
            ("vultr", "acme"),
            (",1,1024", ",one,1024"),
            ("1/8", "1/0"),
            ("Shared", ""),
            ("0.1,ewr", "0.1,"),
            (",,", ","),
        ] {
            let error = read(&good.replacen(from, to, 1)).unwrap_err();
            assert_eq!(error.to_string(), "line 3 of `servers.csv` is not valid", "{to}");
        }
        let prices = |lines: &str| read_prices(format!("server,price_usd_h\n{lines}").as_bytes());
        assert_eq!(prices("7,0.1\n12,0.2\n").unwrap(), [(7, 100_000), (12, 200_000)]);
        for line in ["x,0.1", "-1,0.1", "7,free", "7", "7,0.1,9"] {
            assert_eq!(prices(&format!("5,1\n{line}")).unwrap_err().line, 3, "{line}");
        }
    }

    #[test]
    fn damaged_data_is_an_error() {
        for cut in (0..SERVERS[0].len()).step_by(97) {
            assert!(read_servers(DeflateDecoder::new(&SERVERS[0][..cut])).is_err(), "cut at {cut}");
        }
    }
}
