//! The catalogue inside the binary: servers, their sizes and list prices, in our own format.
//!
//! In:  the bytes of `data/catalog.bin`, made by `examples/pack_catalog` from the vendors' facts.
//! Out: [`Embedded`]: a [`Row`] a server in a few hundred microseconds, and, only when someone asks
//!      about a region, [`Prices`] by region.
//! Not here: which rows fit a question (`query`), the fields that users see (`server`).
//!
//! Layout. Integers are LEB128 unless a width is given, text is its length and its UTF-8 bytes:
//!
//! ```text
//! magic        8 bytes
//! 4 × u32 LE   length and CRC-32 of the servers section, length and CRC-32 of the prices section
//! servers      plain, so that a run's summary pays for no decompression
//!   collected on (text)
//!   vendors    count, each: id, name, as of, from (texts); regions: count, each a text
//!   gpus       count, each: model, manufacturer (texts)
//!   servers    count, each: vendor (index); flags (u8, below); server_id; [api_reference];
//!              [display_name]; vcpus; memory_mib; storage_gb;
//!              [gpu (index), gpu_parts, vram_min_mib, vram_total_mib];
//!              cheapest_micro_usd, its region; spot_micro_usd (0: unknown), [its region]
//!   order      u16 LE each: servers from the cheapest up, as `query` orders them
//! prices       deflated
//!   dictionary count, each the growth over the one before, in micro-USD
//!   floors     a server each: a price in micro-USD below this is an outlier
//!   regions    a bit set a server, one bit a region of its vendor, the lowest bit first
//!   low, high  the low bytes, then the high bytes, of every price's place in the dictionary
//! ```
//!
//! Flags: bits 0–1 [`ALLOCATIONS`], bit 2 arm64, bits 3–4 [`MANUFACTURERS`], bit 5 has its own
//! `api_reference`, bit 6 has its own `display_name`, bit 7 has a GPU.

use super::bytes::Bytes;
use super::error::{CatalogError, DecodeError};
use crate::sys::Handover;
use std::io::Read as _;

/// First bytes of the file; the digits are the version of the layout.
pub const MAGIC: &[u8; 8] = b"RTCAT001";
/// Spellings of `cpu_allocation`, by code.
pub const ALLOCATIONS: [&str; 3] = ["Dedicated", "Burstable", "Shared"];
/// Spellings of `cpu_manufacturer`, by code; 0 is unknown.
pub const MANUFACTURERS: [Option<&str>; 4] = [None, Some("Intel"), Some("AMD"), Some("AWS")];
/// GPUs are counted in this part of one, which holds halves, thirds, quarters, sixths and eighths.
pub const GPU_PARTS: u32 = 24;

static BYTES: &[u8] = include_bytes!("../../data/catalog.bin");

/// A vendor with prices.
#[derive(Debug)]
pub struct Vendor<'a> {
    /// As in `vendor_id`.
    pub id: &'a str,
    /// As people know it.
    pub name: &'a str,
    /// When its prices were true.
    pub as_of: &'a str,
    /// Where they come from.
    pub from: &'a str,
    /// Regions with prices.
    pub regions: Vec<&'a str>,
}

/// What makes a GPU's name.
#[derive(Debug)]
pub struct Gpu<'a> {
    /// As the API spells it.
    pub model: &'a str,
    /// NVIDIA or AMD.
    pub manufacturer: &'a str,
}

/// The GPUs of a server.
#[derive(Clone, Copy, Debug)]
pub struct RowGpu {
    /// Index into [`Embedded::gpus`].
    pub gpu: usize,
    /// Number of GPUs in [`GPU_PARTS`].
    pub parts: u32,
    /// Memory of one GPU (or of the part that is rented).
    pub vram_min_mib: u32,
    /// Memory of all.
    pub vram_total_mib: u32,
}

impl RowGpu {
    /// Number of GPUs; a part of one is a fraction.
    #[must_use]
    pub fn count(&self) -> f64 {
        f64::from(self.parts) / f64::from(GPU_PARTS)
    }
}

/// One server type.
#[derive(Debug)]
pub struct Row<'a> {
    /// Index into [`Embedded::vendors`].
    pub vendor: usize,
    /// The Keeper's key.
    pub server_id: &'a str,
    /// The vendor's own name.
    pub api_reference: &'a str,
    /// The name people read.
    pub display_name: &'a str,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Memory.
    pub memory_mib: u32,
    /// Local storage; 0 where only network disks can be had.
    pub storage_gb: u32,
    /// One of [`ALLOCATIONS`].
    pub cpu_allocation: &'static str,
    /// `x86_64` or `arm64`.
    pub cpu_architecture: &'static str,
    /// One of [`MANUFACTURERS`].
    pub cpu_manufacturer: Option<&'static str>,
    /// `None` where there is none.
    pub gpu: Option<RowGpu>,
    /// Cheapest on-demand price over its regions, outliers left out.
    pub cheapest_micro_usd: u32,
    /// Where that is: index into the vendor's regions.
    pub cheapest_region: usize,
    /// Spot price, and where, if known.
    pub spot: Option<(u32, usize)>,
}

/// The servers, decoded.
#[derive(Debug)]
pub struct Embedded<'a> {
    /// The day on which the facts were collected.
    pub collected: &'a str,
    /// Vendors with prices.
    pub vendors: Vec<Vendor<'a>>,
    /// GPU models that servers have.
    pub gpus: Vec<Gpu<'a>>,
    /// All servers.
    pub rows: Vec<Row<'a>>,
    /// Indexes of `rows`, cheapest first.
    pub order: Vec<u16>,
    prices_deflated: &'a [u8],
    prices_crc: u32,
}

/// On-demand prices by region, decoded.
#[derive(Debug)]
pub struct Prices {
    starts: Vec<usize>,
    entries: Vec<(u8, u32)>,
    floors_micro_usd: Vec<u32>,
}

impl Prices {
    /// Region (index into the vendor's) and price of one row, outliers included.
    #[must_use]
    pub fn of(&self, row: usize) -> &[(u8, u32)] {
        match (self.starts.get(row), self.starts.get(row + 1)) {
            (Some(&start), Some(&end)) => self.entries.get(start..end).unwrap_or_default(),
            _ => &[],
        }
    }

    /// Half the median of a row's prices: what is below is a mistake of the list more often than a
    /// bargain.
    #[must_use]
    pub fn floor_micro_usd(&self, row: usize) -> Option<u32> {
        self.floors_micro_usd.get(row).copied()
    }

    /// As [`Prices::of`], outliers left out.
    pub fn plausible(&self, row: usize) -> impl Iterator<Item = (usize, u32)> {
        let floor = self.floor_micro_usd(row).unwrap_or(0);
        let plausible = self.of(row).iter().filter(move |(_, price)| *price >= floor);
        plausible.map(|(region, price)| (usize::from(*region), *price))
    }

    /// How many prices there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no price at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// The servers of the binary, decoded at the first call.
///
/// # Errors
/// When the file that was built in is damaged.
pub fn embedded() -> Result<&'static Embedded<'static>, CatalogError> {
    static DECODED: Handover<Result<Embedded<'static>, DecodeError>> = Handover::empty();
    DECODED
        .get_or_make(|| decode(BYTES))
        .as_ref()
        .map_err(|source| CatalogError::Embedded { source: source.clone() })
}

/// The prices of the binary by region, decoded at the first call.
///
/// # Errors
/// When the file that was built in is damaged.
pub fn prices() -> Result<&'static Prices, CatalogError> {
    static DECODED: Handover<Result<Prices, DecodeError>> = Handover::empty();
    let catalogue = embedded()?;
    DECODED
        .get_or_make(|| catalogue.decode_prices())
        .as_ref()
        .map_err(|source| CatalogError::Embedded { source: source.clone() })
}

/// Size of the embedded file.
#[must_use]
pub const fn size_bytes() -> usize {
    BYTES.len()
}

/// Reads the servers of a packed catalogue; its prices stay packed.
///
/// # Errors
/// When the bytes are not such a file, or not all of it.
pub fn decode(bytes: &[u8]) -> Result<Embedded<'_>, DecodeError> {
    let mut head = Bytes(bytes);
    if head.take(MAGIC.len(), "magic").ok() != Some(MAGIC.as_slice()) {
        return Err(DecodeError::Magic);
    }
    let servers_len = head.u32_le("servers length")? as usize;
    let servers_crc = head.u32_le("servers checksum")?;
    let prices_len = head.u32_le("prices length")? as usize;
    let prices_crc = head.u32_le("prices checksum")?;
    let servers = head.take(servers_len, "servers")?;
    let prices_deflated = head.take(prices_len, "prices")?;
    if crc32fast::hash(servers) != servers_crc {
        return Err(DecodeError::Checksum { section: "servers" });
    }

    let mut from = Bytes(servers);
    let collected = from.text("collected")?;
    let vendors = from.list("vendors", |from| {
        Ok(Vendor {
            id: from.text("vendor id")?,
            name: from.text("vendor name")?,
            as_of: from.text("vendor date")?,
            from: from.text("vendor source")?,
            regions: from.list("regions", |from| from.text("region"))?,
        })
    })?;
    let gpus = from.list("gpus", |from| {
        Ok(Gpu { model: from.text("gpu model")?, manufacturer: from.text("gpu manufacturer")? })
    })?;
    let rows = from.list("servers", |from| decode_row(from, &vendors, gpus.len()))?;
    let order = rows
        .iter()
        .map(|_| {
            from.u16_le("order").and_then(|row| in_range(usize::from(row), rows.len(), "order").map(|_| row))
        })
        .collect::<Result<Vec<u16>, _>>()?;
    Ok(Embedded { collected, vendors, gpus, rows, order, prices_deflated, prices_crc })
}

fn decode_row<'a>(from: &mut Bytes<'a>, vendors: &[Vendor<'a>], gpus: usize) -> Result<Row<'a>, DecodeError> {
    let vendor = in_range(from.size("vendor")?, vendors.len(), "vendor")?;
    let regions = vendors.get(vendor).map_or(0, |vendor| vendor.regions.len());
    let flags = from.u8("flags")?;
    let server_id = from.text("server_id")?;
    let api_reference = if flags & 0x20 == 0 { server_id } else { from.text("api_reference")? };
    let display_name = if flags & 0x40 == 0 { api_reference } else { from.text("display_name")? };
    let cpu_allocation = ALLOCATIONS
        .get(usize::from(flags & 3))
        .copied()
        .ok_or(DecodeError::Range { field: "cpu_allocation" })?;
    Ok(Row {
        vendor,
        server_id,
        api_reference,
        display_name,
        vcpus: from.number("vcpus")?,
        memory_mib: from.number("memory")?,
        storage_gb: from.number("storage")?,
        cpu_allocation,
        cpu_architecture: if flags & 4 == 0 { "x86_64" } else { "arm64" },
        cpu_manufacturer: MANUFACTURERS.get(usize::from(flags >> 3 & 3)).copied().flatten(),
        gpu: if flags & 0x80 == 0 {
            None
        } else {
            Some(RowGpu {
                gpu: in_range(from.size("gpu")?, gpus, "gpu")?,
                parts: from.number("gpu count")?,
                vram_min_mib: from.number("vram of one")?,
                vram_total_mib: from.number("vram of all")?,
            })
        },
        cheapest_micro_usd: from.number("cheapest price")?,
        cheapest_region: in_range(from.size("cheapest region")?, regions, "cheapest region")?,
        spot: match from.number("spot price")? {
            0 => None,
            price => Some((price, in_range(from.size("spot region")?, regions, "spot region")?)),
        },
    })
}

impl<'a> Embedded<'a> {
    /// The vendor of a row.
    #[must_use]
    pub fn vendor_of(&self, row: &Row<'_>) -> &Vendor<'a> {
        &self.vendors[row.vendor]
    }

    /// A vendor by its id.
    #[must_use]
    pub fn vendor(&self, id: &str) -> Option<(usize, &Vendor<'a>)> {
        self.vendors.iter().enumerate().find(|(_, vendor)| vendor.id == id)
    }

    /// A server by its key or by the vendor's own name for it.
    #[must_use]
    pub fn find(&self, vendor_id: &str, server: &str) -> Option<(usize, &Row<'a>)> {
        let (vendor, _) = self.vendor(vendor_id)?;
        self.rows
            .iter()
            .enumerate()
            .find(|(_, row)| row.vendor == vendor && (row.api_reference == server || row.server_id == server))
    }

    /// Unpacks the prices by region.
    ///
    /// # Errors
    /// When that section is damaged.
    pub fn decode_prices(&self) -> Result<Prices, DecodeError> {
        if crc32fast::hash(self.prices_deflated) != self.prices_crc {
            return Err(DecodeError::Checksum { section: "prices" });
        }
        let mut inflated = Vec::with_capacity(self.prices_deflated.len() * 2);
        flate2::read::DeflateDecoder::new(self.prices_deflated)
            .read_to_end(&mut inflated)
            .map_err(|_| DecodeError::Range { field: "deflated prices" })?;
        let mut from = Bytes(&inflated);

        let mut last = 0_u32;
        let dictionary = from.list("dictionary", |from| {
            last = last.checked_add(from.number("price")?).ok_or(DecodeError::Range { field: "price" })?;
            Ok(last)
        })?;
        let floors_micro_usd =
            self.rows.iter().map(|_| from.number("outlier floor")).collect::<Result<Vec<u32>, _>>()?;

        let mut starts = Vec::with_capacity(self.rows.len() + 1);
        let mut regions = Vec::new();
        for row in &self.rows {
            starts.push(regions.len());
            let count = self.vendor_of(row).regions.len();
            for (byte, bits) in from.take(count.div_ceil(8), "regions")?.iter().enumerate() {
                regions.extend(
                    (0..8_u8).filter(|bit| bits >> bit & 1 == 1).map(|bit| byte * 8 + usize::from(bit)),
                );
            }
            if regions.last().is_some_and(|region| *region >= count) {
                return Err(DecodeError::Range { field: "regions" });
            }
        }
        starts.push(regions.len());

        let low = from.take(regions.len(), "low bytes")?;
        let high = from.take(regions.len(), "high bytes")?;
        let entries = regions
            .iter()
            .zip(low.iter().zip(high))
            .map(|(region, (low, high))| {
                let price = dictionary.get(usize::from(u16::from_le_bytes([*low, *high])));
                Some((u8::try_from(*region).ok()?, *price?))
            })
            .collect::<Option<Vec<_>>>()
            .ok_or(DecodeError::Range { field: "price" })?;
        Ok(Prices { starts, entries, floors_micro_usd })
    }
}

fn in_range(index: usize, len: usize, field: &'static str) -> Result<usize, DecodeError> {
    if index < len { Ok(index) } else { Err(DecodeError::Range { field }) }
}

/// A whole number of micro-USD as USD.
#[must_use]
pub fn usd(micro_usd: u32) -> f64 {
    f64::from(micro_usd) / 1e6
}
