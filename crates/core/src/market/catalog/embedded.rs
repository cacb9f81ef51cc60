//! The catalogue inside the binary: servers, their sizes and list prices.
//!
//! In:  `data/servers.csv` and `data/prices.csv`, which `build.rs` compresses into the program.
//! Out: [`Embedded`] with one [`Row`] per server; [`Prices`] by region. Each file is read at its first use. The summary of a
//!      run needs only the servers.
//! Not here: which rows fit a query (`query`), the fields of the API (`server`), countries of regions (`region`).
//!
//! Both files are sorted by `vendor_id` and `api_reference`, the prices also by region. An empty `server_id` or
//! `display_name` is the same as `api_reference`. A part of a GPU is a fraction such as `1/8`. The price of a server is its
//! lowest on-demand price without outliers. `tests/catalog_data.rs` sorts the files and computes these prices.

use super::error::{CatalogError, DecodeError};
use super::region::{self, Place};
use csv::ByteRecord;
use flate2::bufread::DeflateDecoder;
use once_cell::race::OnceBox;
use std::io::Read;

/// Date on which the data was collected.
pub const COLLECTED: &str = "2026-11-15";
/// Spellings of `cpu_allocation`.
pub const ALLOCATIONS: [&str; 3] = ["Dedicated", "Burstable", "Shared"];

static SERVERS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/servers.csv.deflate"));
static PRICES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/prices.csv.deflate"));

/// A vendor with prices.
#[derive(Debug)]
pub struct Vendor {
    /// The vendor's id, as in the Keeper's `vendor_id`.
    pub id: &'static str,
    /// The vendor's name for people.
    pub name: &'static str,
    /// Date of the vendor's prices.
    pub as_of: &'static str,
    /// Source of the vendor's prices.
    pub from: &'static str,
}

/// The vendors of the catalogue.
pub const VENDORS: [Vendor; 6] = [
    Vendor {
        id: "aws",
        name: "Amazon Web Services",
        as_of: "2026-07 (us-east-1), 2025-03 (other regions)",
        from: "published list prices (karpenter-provider-aws and apache-libcloud tables, Apache-2.0)",
    },
    Vendor {
        id: "azure",
        name: "Microsoft Azure",
        as_of: "2026-06",
        from: "published retail prices (karpenter-provider-azure, kubernetes/autoscaler tables, Apache-2.0)",
    },
    Vendor {
        id: "gcp",
        name: "Google Cloud Platform",
        as_of: "2026-08",
        from: "published list prices (karpenter-provider-gcp, gcp-machine-types tables, Apache-2.0)",
    },
    Vendor {
        id: "hcloud",
        name: "Hetzner Cloud",
        as_of: "2026-09",
        from: "published list prices, EUR at 1.16",
    },
    Vendor { id: "upcloud", name: "UpCloud", as_of: "2024-12", from: "published list prices, EUR at 1.16" },
    Vendor { id: "vultr", name: "Vultr", as_of: "2025-12", from: "published list prices" },
];

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

/// The servers of the catalogue.
#[derive(Debug)]
pub struct Embedded {
    pub rows: Vec<Row>,
}

/// The on-demand prices by region.
#[derive(Debug)]
pub struct Prices {
    /// All regions, in the order of [`region::places`].
    pub places: Vec<Place>,
    /// Index of the first entry of each row, and the number of entries.
    starts: Vec<usize>,
    /// Index into `places`, and price in micro-USD.
    entries: Vec<(u16, u32)>,
}

impl Prices {
    fn entries(&self, row: usize) -> &[(u16, u32)] {
        match (self.starts.get(row), self.starts.get(row + 1)) {
            (Some(&start), Some(&end)) => self.entries.get(start..end).unwrap_or_default(),
            _ => &[],
        }
    }

    /// Region and price in micro-USD for every region of one row, including outliers.
    pub fn of(&self, row: usize) -> impl Iterator<Item = (&'static str, u32)> {
        let named =
            |(place, price): &(u16, u32)| Some((self.places.get(usize::from(*place))?.region, *price));
        self.entries(row).iter().filter_map(named)
    }

    /// Half the median of a row's prices, rounded up. A lower price is an outlier: usually an error in the price list.
    pub fn floor_micro_usd(&self, row: usize) -> Option<u32> {
        let mut sorted: Vec<u64> = self.entries(row).iter().map(|(_, price)| u64::from(*price)).collect();
        sorted.sort_unstable();
        let (low, high) = (sorted.get(sorted.len().checked_sub(1)? / 2)?, sorted.get(sorted.len() / 2)?);
        u32::try_from((low + high).div_ceil(4)).ok()
    }

    /// Region and lowest price of a row without outliers, in the places for which `covered` is true.
    pub fn cheapest(&self, row: usize, covered: &[bool]) -> Option<(&'static str, u32)> {
        let floor = self.floor_micro_usd(row)?;
        let is_covered = |place: u16| covered.get(usize::from(place)) == Some(&true);
        let plausible =
            self.entries(row).iter().filter(|(place, price)| *price >= floor && is_covered(*place));
        let (place, price) = plausible.min_by_key(|(_, price)| *price)?;
        Some((self.places.get(usize::from(*place))?.region, *price))
    }
}

/// The embedded servers, read at the first call.
pub fn embedded() -> Result<&'static Embedded, CatalogError> {
    static DECODED: OnceBox<Result<Embedded, DecodeError>> = OnceBox::new();
    DECODED
        .get_or_init(|| Box::new(Embedded::read(DeflateDecoder::new(SERVERS))))
        .as_ref()
        .map_err(|source| CatalogError::Embedded { source: source.clone() })
}

/// The embedded prices by region, read at the first call.
pub fn prices() -> Result<&'static Prices, CatalogError> {
    static DECODED: OnceBox<Result<Prices, DecodeError>> = OnceBox::new();
    let catalogue = embedded()?;
    DECODED
        .get_or_init(|| Box::new(catalogue.read_prices(DeflateDecoder::new(PRICES))))
        .as_ref()
        .map_err(|source| CatalogError::Embedded { source: source.clone() })
}

/// Size of the embedded catalogue in bytes.
pub const fn size_bytes() -> usize {
    SERVERS.len() + PRICES.len()
}

impl Embedded {
    /// Reads `servers.csv`. Its texts stay in memory until the program ends.
    pub fn read(csv: impl Read) -> Result<Self, DecodeError> {
        let mut rows = Vec::with_capacity(4_096);
        let mut free: &'static mut [u8] = &mut [];
        each_line("servers.csv", csv, |record| {
            // One allocation holds the texts of many lines.
            if free.len() < record.as_slice().len() {
                free = Box::leak(vec![0; 64 << 10].into_boxed_slice());
            }
            let (text, rest) = std::mem::take(&mut free).split_at_mut_checked(record.as_slice().len())?;
            free = rest;
            text.copy_from_slice(record.as_slice());
            rows.push(row(record, std::str::from_utf8(text).ok()?)?);
            Some(())
        })?;
        Ok(Self { rows })
    }

    /// Reads `prices.csv`, which must have the same order of servers.
    pub fn read_prices(&self, csv: impl Read) -> Result<Prices, DecodeError> {
        let places: Vec<Place> = region::places().collect();
        let mut regions = Regions::default();
        let mut prices = Prices { places, starts: vec![0], entries: Vec::with_capacity(80_000) };
        each_line("prices.csv", csv, |record| {
            let [vendor, server, region, price] =
                [record.get(0)?, record.get(1)?, record.get(2)?, record.get(3)?];
            let mut row = self.rows.get(prices.starts.len() - 1)?;
            while row.api_reference.as_bytes() != server || row.vendor.id.as_bytes() != vendor {
                prices.starts.push(prices.entries.len());
                row = self.rows.get(prices.starts.len() - 1)?;
            }
            prices.entries.push((regions.find(&prices.places, row.vendor.id, region)?, micro_usd(price)?));
            Some(())
        })?;
        prices.starts.resize(self.rows.len() + 1, prices.entries.len());
        Ok(prices)
    }

    /// Finds a server by its `server_id` or its `api_reference`.
    pub fn find(&self, vendor_id: &str, server: &str) -> Option<(usize, &Row)> {
        self.rows.iter().enumerate().find(|(_, row)| {
            row.vendor.id == vendor_id && (row.api_reference == server || row.server_id == server)
        })
    }
}

/// Names of the regions of one vendor.
#[derive(Default)]
struct Regions {
    vendor_id: &'static str,
    /// Name, and index of the place.
    names: Vec<(&'static str, u16)>,
    /// Index of the name that was found last.
    last: usize,
}

impl Regions {
    /// Index of the place of a region. Lines are sorted by region, so the search starts at the name that was found last.
    fn find(&mut self, places: &[Place], vendor_id: &'static str, name: &[u8]) -> Option<u16> {
        if self.vendor_id != vendor_id {
            let of_vendor = places.iter().zip(0..).filter(|(place, _)| place.vendor_id == vendor_id);
            let mut names: Vec<_> = of_vendor.map(|(place, index)| (place.region, index)).collect();
            names.sort_unstable();
            *self = Self { vendor_id, names, last: 0 };
        }
        let (before, after) = self.names.split_at_checked(self.last)?;
        let steps = after.iter().chain(before).position(|(known, _)| known.as_bytes() == name)?;
        self.last = (self.last + steps) % self.names.len();
        self.names.get(self.last).map(|(_, place)| *place)
    }
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
        let read = |line: &str| Embedded::read(format!("{header}\n{good}\n{line}\n").as_bytes());
        let two = read(good).unwrap();
        assert_eq!(
            (two.rows.len(), two.rows[1].gpu.unwrap().count, two.rows[1].spot),
            (2, 0.125, Some((50_000, "ewr")))
        );
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
        let prices = |lines: &str| {
            let csv = format!("vendor_id,api_reference,region,price_usd_h\n{lines}");
            two.read_prices(csv.as_bytes()).map(|prices| prices.of(0).collect::<Vec<_>>())
        };
        assert_eq!(
            prices("vultr,vc2-1c,ams,0.1\nvultr,vc2-1c,ewr,0.2\n").unwrap(),
            [("ams", 100_000), ("ewr", 200_000)]
        );
        for line in
            ["vultr,vc9,ams,0.1", "vultr,vc2-1c,atlantis,0.1", "vultr,vc2-1c,ams,free", "vultr,vc2-1c,ams"]
        {
            assert_eq!(prices(line).unwrap_err().line, 2, "{line}");
        }
    }

    #[test]
    fn damaged_data_is_an_error() {
        for cut in (0..SERVERS.len()).step_by(997) {
            assert!(Embedded::read(DeflateDecoder::new(&SERVERS[..cut])).is_err(), "cut at {cut}");
        }
    }
}
