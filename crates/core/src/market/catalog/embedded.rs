//! The catalogue inside the binary: servers, their sizes and list prices.
//!
//! In:  the bytes of `data/catalog.bin`, written by `examples/pack_catalog`.
//! Out: [`Embedded`] with one [`Row`] per server, decoded in a few hundred µs; [`Prices`] by region, decoded on demand.
//! Not here: which rows fit a query (`query`), the fields of the API (`server`).
//!
//! Layout. Integers are LEB128 unless a width is given, text is its length and its UTF-8 bytes:
//!
//! ```text
//! magic        8 bytes
//! 4 × u32 LE   length and CRC-32 of the servers section, length and CRC-32 of the prices section
//! servers      not compressed, because the summary of every run reads it
//!   date of collection (text)
//!   vendors    count, each: id, name, as of, from (texts); regions: count, each a text
//!   gpus       count, each: model, manufacturer (texts)
//!   servers    count, each: vendor (index); flags (u8, below); server_id; [api_reference];
//!              [display_name]; vcpus; memory_mib; storage_gb;
//!              [gpu (index), gpu_parts, vram_min_mib, vram_total_mib];
//!              cheapest_micro_usd, its region; spot_micro_usd (0: unknown), [its region]
//!   order      u16 LE each: indexes of the servers by ascending price, in the order of `query`
//! prices       deflated
//!   dictionary count, each price minus the price before it, in micro-USD
//!   floors     per server: prices below this number of micro-USD are outliers
//!   regions    per server: a bit set with one bit per region of its vendor, lowest bit first
//!   low, high  index of every price in the dictionary: first all low bytes, then all high bytes
//! ```
//!
//! Flags: bits 0–1 [`ALLOCATIONS`], bit 2 arm64, bits 3–4 [`MANUFACTURERS`], bit 5 has `api_reference` (otherwise it is
//! `server_id`), bit 6 has `display_name` (otherwise it is `api_reference`), bit 7 has a GPU.

use super::bytes::Bytes;
use super::error::{CatalogError, DecodeError};
use once_cell::race::OnceBox;
use std::io::Read as _;

/// First bytes of the file; the digits are the version of the layout.
pub const MAGIC: &[u8; 8] = b"RTCAT001";
/// Spellings of `cpu_allocation`, by code.
pub const ALLOCATIONS: [&str; 3] = ["Dedicated", "Burstable", "Shared"];
/// Spellings of `cpu_manufacturer`, by code; 0 is unknown.
pub const MANUFACTURERS: [Option<&str>; 4] = [None, Some("Intel"), Some("AMD"), Some("AWS")];
/// GPUs are counted in 24ths, because a server may have 1/2, 1/3, 1/4, 1/6 or 1/8 of a GPU.
pub const GPU_PARTS: u32 = 24;

static BYTES: &[u8] = include_bytes!("../../../data/catalog.bin");

/// A vendor with prices.
#[derive(Debug)]
pub struct Vendor<'a> {
    /// The vendor's id, as in the Keeper's `vendor_id`.
    pub id: &'a str,
    /// The vendor's name for people.
    pub name: &'a str,
    /// Date of the vendor's prices.
    pub as_of: &'a str,
    /// Source of the vendor's prices.
    pub from: &'a str,
    /// Regions of the vendor that have prices.
    pub regions: Vec<&'a str>,
}

/// A GPU model.
#[derive(Debug)]
pub struct Gpu<'a> {
    /// Name of the model, in the spelling of the API.
    pub model: &'a str,
    /// Manufacturer: NVIDIA or AMD.
    pub manufacturer: &'a str,
}

/// The GPUs of a server.
#[derive(Clone, Copy, Debug)]
pub struct RowGpu {
    /// Index into [`Embedded::gpus`].
    pub gpu: usize,
    /// Number of GPUs, multiplied by [`GPU_PARTS`].
    pub parts: u32,
    /// Memory of one GPU. If the server has only a part of a GPU, memory of this part.
    pub vram_min_mib: u32,
    /// Memory of all GPUs together.
    pub vram_total_mib: u32,
}

impl RowGpu {
    /// Number of GPUs. A part of a GPU is a fraction.
    pub fn count(&self) -> f64 {
        f64::from(self.parts) / f64::from(GPU_PARTS)
    }
}

/// One server type.
#[derive(Debug)]
pub struct Row<'a> {
    /// Index into [`Embedded::vendors`].
    pub vendor: usize,
    /// Id of the server in the Keeper.
    pub server_id: &'a str,
    /// Name in the vendor's API.
    pub api_reference: &'a str,
    /// Human-readable name.
    pub display_name: &'a str,
    pub vcpus: u32,
    pub memory_mib: u32,
    /// Local storage; 0 if the server has only network disks.
    pub storage_gb: u32,
    /// One of [`ALLOCATIONS`].
    pub cpu_allocation: &'static str,
    /// Architecture: `x86_64` or `arm64`.
    pub cpu_architecture: &'static str,
    /// One of [`MANUFACTURERS`].
    pub cpu_manufacturer: Option<&'static str>,
    /// `None` if the server has no GPU.
    pub gpu: Option<RowGpu>,
    /// Lowest on-demand price over all regions, without outliers.
    pub cheapest_micro_usd: u32,
    /// Region of the lowest price, as an index into the vendor's regions.
    pub cheapest_region: usize,
    /// Spot price in micro-USD and the index of its region; `None` if unknown.
    pub spot: Option<(u32, usize)>,
}

/// The decoded servers of the catalogue.
#[derive(Debug)]
pub struct Embedded<'a> {
    /// Date on which the data was collected.
    pub collected: &'a str,
    /// Vendors with prices.
    pub vendors: Vec<Vendor<'a>>,
    /// GPU models that servers have.
    pub gpus: Vec<Gpu<'a>>,
    pub rows: Vec<Row<'a>>,
    /// Indexes of `rows`, cheapest first.
    pub order: Vec<u16>,
    prices_deflated: &'a [u8],
    prices_crc: u32,
}

/// The decoded on-demand prices by region.
#[derive(Debug)]
pub struct Prices {
    starts: Vec<usize>,
    entries: Vec<(u8, u32)>,
    floors_micro_usd: Vec<u32>,
}

impl Prices {
    /// Region (an index into the vendor's regions) and price for every region of one row, including outliers.
    pub fn of(&self, row: usize) -> &[(u8, u32)] {
        match (self.starts.get(row), self.starts.get(row + 1)) {
            (Some(&start), Some(&end)) => self.entries.get(start..end).unwrap_or_default(),
            _ => &[],
        }
    }

    /// Half the median of a row's prices. A lower price is an outlier: usually an error in the price list.
    pub fn floor_micro_usd(&self, row: usize) -> Option<u32> {
        self.floors_micro_usd.get(row).copied()
    }

    /// Like [`Prices::of`], without outliers.
    pub fn plausible(&self, row: usize) -> impl Iterator<Item = (usize, u32)> {
        let floor = self.floor_micro_usd(row).unwrap_or(0);
        let plausible = self.of(row).iter().filter(move |(_, price)| *price >= floor);
        plausible.map(|(region, price)| (usize::from(*region), *price))
    }
}

/// The embedded servers, decoded at the first call.
pub fn embedded() -> Result<&'static Embedded<'static>, CatalogError> {
    static DECODED: OnceBox<Result<Embedded<'static>, DecodeError>> = OnceBox::new();
    DECODED
        .get_or_init(|| Box::new(decode(BYTES)))
        .as_ref()
        .map_err(|source| CatalogError::Embedded { source: source.clone() })
}

/// The embedded prices by region, decoded at the first call.
pub fn prices() -> Result<&'static Prices, CatalogError> {
    static DECODED: OnceBox<Result<Prices, DecodeError>> = OnceBox::new();
    let catalogue = embedded()?;
    DECODED
        .get_or_init(|| Box::new(catalogue.decode_prices()))
        .as_ref()
        .map_err(|source| CatalogError::Embedded { source: source.clone() })
}

/// Size of the embedded catalogue in bytes.
pub const fn size_bytes() -> usize {
    BYTES.len()
}

/// Decodes the servers of a packed catalogue, without the prices by region.
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
    pub fn vendor_of(&self, row: &Row<'_>) -> &Vendor<'a> {
        &self.vendors[row.vendor]
    }

    /// Index and data of the vendor with this id.
    pub fn vendor(&self, id: &str) -> Option<(usize, &Vendor<'a>)> {
        self.vendors.iter().enumerate().find(|(_, vendor)| vendor.id == id)
    }

    /// Finds a server by its `server_id` or its `api_reference`.
    pub fn find(&self, vendor_id: &str, server: &str) -> Option<(usize, &Row<'a>)> {
        let (vendor, _) = self.vendor(vendor_id)?;
        self.rows
            .iter()
            .enumerate()
            .find(|(_, row)| row.vendor == vendor && (row.api_reference == server || row.server_id == server))
    }

    /// Decodes the prices by region.
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

/// Converts micro-USD to USD.
pub fn usd(micro_usd: u32) -> f64 {
    f64::from(micro_usd) / 1e6
}
