//! What is asked: sizes and filters, checked once, then held against every server.
//!
//! In:  [`Query`] as a front builds it, filters by name.
//! Out: [`Plan`], in which every name is known and spelled as the API spells it, and
//!      `Plan::fits`, the one place that decides whether a server will do.
//! Not here: names and types of filters (`filters`), prices and their order by source (`local`, `remote`).

use super::embedded::{ALLOCATIONS, Embedded, Row, embedded};
use super::error::CatalogError;
use super::filters::Filters;
use super::region::{self, Place};
use serde_json::Value;
use std::collections::BTreeSet;

/// A question for servers.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// vCPUs at least.
    pub cpu: f64,
    /// Memory at least; MB here are MiB, as everywhere in the contract.
    pub memory_mb: f64,
    /// GPUs at least.
    pub gpu: Option<f64>,
    /// VRAM of all GPUs at least.
    pub vram_mb: Option<f64>,
    /// How many servers to return.
    pub n: usize,
    /// What else must hold.
    pub filters: Filters,
}

impl Query {
    /// Ten servers of these sizes, no GPU, no filter.
    #[must_use]
    pub fn new(cpu: f64, memory_mb: f64) -> Self {
        Self { cpu, memory_mb, gpu: None, vram_mb: None, n: 10, filters: Filters::default() }
    }

    /// As many as `gpu` GPUs with `vram_mb` of memory in all.
    #[must_use]
    pub fn with_gpu(mut self, gpu: f64, vram_mb: f64) -> Self {
        (self.gpu, self.vram_mb) = (Some(gpu), Some(vram_mb));
        self
    }

    /// At most `n` servers.
    #[must_use]
    pub fn top(mut self, n: usize) -> Self {
        self.n = n;
        self
    }

    /// With one more filter; values as in [`Filters::set`].
    ///
    /// # Errors
    /// When the name or the value's type is unknown.
    pub fn filter(mut self, name: &str, value: impl Into<Value>) -> Result<Self, CatalogError> {
        self.filters.set(name, &value.into())?;
        Ok(self)
    }
}

/// A question in which every name is known.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) cpu: f64,
    pub(crate) memory_mib: f64,
    pub(crate) gpu: Option<f64>,
    pub(crate) vram_mib: Option<f64>,
    pub(crate) n: usize,
    pub(crate) vendors: Vec<&'static str>,
    /// Where, when a place was asked for; may be nowhere.
    pub(crate) places: Option<BTreeSet<Place>>,
    pub(crate) architectures: Vec<&'static str>,
    pub(crate) allocations: Vec<&'static str>,
    pub(crate) manufacturers: Vec<&'static str>,
    pub(crate) gpu_models: Vec<&'static str>,
    pub(crate) compliance: Vec<String>,
    pub(crate) spot: bool,
    pub(crate) max_price_usd: Option<f64>,
    pub(crate) storage_gb: Option<f64>,
}

/// Vendors that a filter may name: those whose clouds we recognise.
pub const VENDORS: [&str; 14] = crate::cloud::VENDOR_IDS;
const MIB_PER_GIB: f64 = 1024.0;
const ARCHITECTURES: [&str; 5] = ["arm64", "arm64_mac", "i386", "x86_64", "x86_64_mac"];
const CPU_MANUFACTURERS: [&str; 9] =
    ["Alibaba", "AMD", "Ampere", "Apple", "AWS", "Google", "Intel", "Microsoft", "NVIDIA"];

impl Plan {
    /// Checks a question.
    ///
    /// # Errors
    /// When a size is no size, or a filter's value is unknown.
    pub fn new(query: &Query) -> Result<Self, CatalogError> {
        let filters = &query.filters;
        let catalogue = embedded()?;
        let vendors = known("vendor_id", &filters.vendor_id, &VENDORS)?;
        let mut gpu_models: Vec<&'static str> = catalogue.gpus.iter().map(|gpu| gpu.model).collect();
        gpu_models.sort_unstable();
        if let Some(empty) = filters.compliance_framework_id.iter().find(|id| id.trim().is_empty()) {
            return Err(CatalogError::BadValue {
                filter: "compliance_framework_id",
                value: empty.clone(),
                expected: "the id of a framework",
            });
        }
        Ok(Self {
            cpu: larger(("cpu", Some(query.cpu)), ("vcpus_min", filters.vcpus_min), 1.0)?.unwrap_or(0.0),
            memory_mib: larger(
                ("memory", Some(query.memory_mb)),
                ("memory_min", filters.memory_min_gib),
                MIB_PER_GIB,
            )?
            .unwrap_or(0.0),
            gpu: larger(("gpu", query.gpu), ("gpu_min", filters.gpu_min), 1.0)?,
            vram_mib: larger(
                ("vram", query.vram_mb),
                ("gpu_memory_total", filters.vram_min_gib),
                MIB_PER_GIB,
            )?,
            n: query.n,
            places: places(filters, &vendors)?,
            architectures: known("architecture", &filters.architecture, &ARCHITECTURES)?,
            allocations: known("cpu_allocation", &filters.cpu_allocation, &ALLOCATIONS)?,
            manufacturers: known("cpu_manufacturer", &filters.cpu_manufacturer, &CPU_MANUFACTURERS)?,
            gpu_models: known("gpu_model", &filters.gpu_model, &gpu_models)?,
            vendors,
            compliance: filters.compliance_framework_id.clone(),
            spot: filters.spot,
            max_price_usd: filters.max_price.map(|price| size("max_price", price)).transpose()?,
            storage_gb: filters.storage_size.map(|gb| size("storage_size", gb)).transpose()?,
        })
    }

    /// Whether a server will do, price and place aside. What is unknown about it does not fit.
    #[must_use]
    pub(crate) fn fits(&self, server: &Facts<'_>) -> bool {
        let at_least = |has: Option<f64>, asked: f64| has.is_some_and(|has| has >= asked);
        let one_of = |asked: &[&str], has: Option<&str>| {
            asked.is_empty() || has.is_some_and(|has| asked.iter().any(|name| same_name(name, has)))
        };
        server.active
            && at_least(server.vcpus, self.cpu)
            && at_least(server.memory_mib, self.memory_mib)
            && self.gpu.is_none_or(|gpu| at_least(server.gpu_count, gpu))
            && self.vram_mib.is_none_or(|vram| at_least(server.vram_mib, vram))
            && self.storage_gb.is_none_or(|gb| at_least(server.storage_gb, gb))
            && one_of(&self.vendors, Some(server.vendor_id))
            && one_of(&self.architectures, server.architecture)
            && one_of(&self.allocations, server.cpu_allocation)
            && one_of(&self.manufacturers, server.cpu_manufacturer)
            && one_of(&self.gpu_models, server.gpu_model)
    }

    /// Whether a price may be asked for.
    #[must_use]
    pub(crate) fn affords(&self, price_usd: f64) -> bool {
        price_usd > 0.0 && self.max_price_usd.is_none_or(|max| price_usd <= max)
    }

    /// Whether a region of a vendor was asked for.
    #[must_use]
    pub(crate) fn covers(&self, vendor_id: &str, region: &str) -> bool {
        self.places.as_ref().is_none_or(|places| {
            places.iter().any(|place| place.vendor_id == vendor_id && place.region == region)
        })
    }
}

/// What a filter looks at, whatever the source.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    pub vendor_id: &'a str,
    pub vcpus: Option<f64>,
    pub memory_mib: Option<f64>,
    pub gpu_count: Option<f64>,
    pub vram_mib: Option<f64>,
    pub storage_gb: Option<f64>,
    pub architecture: Option<&'a str>,
    pub cpu_allocation: Option<&'a str>,
    pub cpu_manufacturer: Option<&'a str>,
    pub gpu_model: Option<&'a str>,
    pub active: bool,
}

impl<'a> Facts<'a> {
    pub(crate) fn of_row(catalogue: &'a Embedded<'a>, row: &Row<'a>) -> Self {
        Facts {
            vendor_id: catalogue.vendor_of(row).id,
            vcpus: Some(f64::from(row.vcpus)),
            memory_mib: Some(f64::from(row.memory_mib)),
            gpu_count: Some(row.gpu.map_or(0.0, |gpu| gpu.count())),
            vram_mib: row.gpu.map(|gpu| f64::from(gpu.vram_total_mib)),
            storage_gb: Some(f64::from(row.storage_gb)),
            architecture: Some(row.cpu_architecture),
            cpu_allocation: Some(row.cpu_allocation),
            cpu_manufacturer: row.cpu_manufacturer,
            gpu_model: row.gpu.and_then(|gpu| catalogue.gpus.get(gpu.gpu)).map(|gpu| gpu.model),
            active: true,
        }
    }
}

/// Place of a price in the order of servers: USD an hour in ten-thousandths, rounded.
///
/// Rounded as the double itself lies, which is what `round(price, 4)` in Python does too: 0.00325 is
/// a little less than that, so it is 32 and not 33.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a price is far below 2^53 and not negative"
)]
pub fn price_rank(price_usd: f64) -> u64 {
    let scaled = price_usd * 1e4;
    if (scaled.fract() - 0.5).abs() > 1e-6 {
        return scaled.round() as u64;
    }
    // Too near the middle for a multiplication that rounds by itself; the decimals decide.
    format!("{price_usd:.4}").replace('.', "").parse().unwrap_or(scaled.round() as u64)
}

fn size(name: &'static str, value: f64) -> Result<f64, CatalogError> {
    if value.is_finite() && value >= 0.0 { Ok(value) } else { Err(CatalogError::BadNumber { name, value }) }
}

/// What must be there at the least by two names, the second in another unit; `None` where nothing must.
fn larger(one: Named, other: Named, factor: f64) -> Result<Option<f64>, CatalogError> {
    let checked = |(name, value): Named| value.map(|value| size(name, value)).transpose();
    let both = checked(one)?.into_iter().chain(checked(other)?.map(|value| value * factor));
    Ok(both.reduce(f64::max).filter(|least| *least > 0.0))
}

type Named = (&'static str, Option<f64>);

/// Names of hardware are compared without case and punctuation: `rtx-pro-6000` is `RTX PRO 6000`.
fn same_name(a: &str, b: &str) -> bool {
    fn letters(name: &str) -> impl Iterator<Item = u8> {
        name.bytes().filter(u8::is_ascii_alphanumeric).map(|byte| byte.to_ascii_lowercase())
    }
    a == b || letters(a).eq(letters(b))
}

fn known(
    filter: &'static str,
    values: &[String],
    names: &[&'static str],
) -> Result<Vec<&'static str>, CatalogError> {
    values
        .iter()
        .map(|value| {
            names.iter().copied().find(|name| same_name(name, value)).ok_or_else(|| {
                CatalogError::UnknownValue {
                    filter,
                    value: value.clone(),
                    known: quoted(names.iter().copied()),
                }
            })
        })
        .collect()
}

/// Where all three kinds of place filter agree; `None` when none was given.
fn places(filters: &Filters, vendors: &[&'static str]) -> Result<Option<BTreeSet<Place>>, CatalogError> {
    if filters.region.is_empty() && filters.country.is_empty() && filters.continent.is_empty() {
        return Ok(None);
    }
    let of_vendor = |place: &Place| vendors.is_empty() || vendors.contains(&place.vendor_id);
    let mut found: BTreeSet<Place> = region::places().filter(of_vendor).collect();
    if !filters.region.is_empty() {
        let mut asked = BTreeSet::new();
        for name in &filters.region {
            let meant: Vec<Place> = region::in_region(name).filter(of_vendor).collect();
            if meant.is_empty() {
                let regions: BTreeSet<&str> =
                    region::places().filter(of_vendor).map(|place| place.region).collect();
                return Err(CatalogError::UnknownValue {
                    filter: "region",
                    value: name.clone(),
                    known: quoted(regions),
                });
            }
            asked.extend(meant);
        }
        found.retain(|place| asked.contains(place));
    }
    if !filters.country.is_empty() {
        let codes = filters
            .country
            .iter()
            .map(|name| {
                region::country_code(name).ok_or_else(|| CatalogError::UnknownValue {
                    filter: "country",
                    value: name.clone(),
                    known: quoted(region::country_codes()),
                })
            })
            .collect::<Result<Vec<_>, _>>()?;
        found.retain(|place| codes.contains(&place.country));
    }
    if !filters.continent.is_empty() {
        let continents = known("continent", &filters.continent, &region::CONTINENTS)?;
        found.retain(|place| region::continent(place.country).is_some_and(|name| continents.contains(&name)));
    }
    Ok(Some(found))
}

pub(super) fn quoted<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn refused(query: Result<Query, CatalogError>) -> String {
        query.and_then(|query| Plan::new(&query)).unwrap_err().to_string()
    }

    #[test]
    fn sizes_that_are_none_are_refused_by_name() {
        for (value, shown) in [(-1.0, "-1"), (f64::NAN, "NaN"), (f64::INFINITY, "inf")] {
            let expected = |name: &str| format!("`{name}` must be a number of 0 or more, not `{shown}`");
            assert_eq!(refused(Ok(Query::new(value, 1.0))), expected("cpu"));
            assert_eq!(refused(Ok(Query::new(1.0, value))), expected("memory"));
            assert_eq!(refused(Ok(Query::new(1.0, 1.0).with_gpu(value, 1.0))), expected("gpu"));
            assert_eq!(refused(Ok(Query::new(1.0, 1.0).with_gpu(1.0, value))), expected("vram"));
        }
        assert_eq!(
            refused(Query::new(1.0, 1.0).filter("max_price", -0.5)),
            "`max_price` must be a number of 0 or more, not `-0.5`"
        );
    }

    #[test]
    fn unknown_names_and_values_are_refused_with_the_known_ones() {
        let ask = || Query::new(1.0, 1.0);
        assert_eq!(
            refused(ask().filter("colour", "blue")),
            "unknown filter `colour`; known are `vendor_id`, `region`, `country`, `continent`, `architecture`, \
             `cpu_allocation`, `cpu_manufacturer`, `gpu_model`, `compliance_framework_id`, `spot`, `max_price`, \
             `storage_size`"
        );
        assert_eq!(
            refused(ask().filter("vendor_id", "acme")),
            "filter `vendor_id` knows no `acme`; known are `aws`, `gcp`, `azure`, `hcloud`, `upcloud`, `ovh`, \
             `alicloud`, `vultr`, `digitalocean`, `oracle`, `scaleway`, `linode`, `exoscale`, `openstack`"
        );
        assert_eq!(
            refused(ask().filter("cpu_allocation", "lonely")),
            "filter `cpu_allocation` knows no `lonely`; known are `Dedicated`, `Burstable`, `Shared`"
        );
        assert_eq!(
            refused(ask().filter("vendor_id", "hcloud").and_then(|ask| ask.filter("region", "eu-west-1"))),
            "filter `region` knows no `eu-west-1`; known are `ash`, `fsn1`, `hel1`, `hil`, `nbg1`, `sin`"
        );
        assert_eq!(
            refused(ask().filter("continent", "Atlantis")),
            "filter `continent` knows no `Atlantis`; known are `Africa`, `Asia`, `Europe`, `North America`, \
             `Oceania`, `South America`"
        );
        for (filter, value) in
            [("region", ""), ("country", ""), ("architecture", "vax"), ("gpu_model", "voodoo2")]
        {
            let text = refused(ask().filter(filter, value));
            assert!(
                text.starts_with(&format!("filter `{filter}` knows no `{value}`; known are `")),
                "{text}"
            );
        }
        assert_eq!(refused(ask().filter("spot", "yes")), "filter `spot` takes true or false, not `\"yes\"`");
        assert_eq!(
            refused(ask().filter("region", 7)),
            "filter `region` takes text or a list of texts, not `7`"
        );
    }

    #[test]
    fn names_of_the_apis_own_parameters_will_do() {
        let by = |name: &str, value: &str| Query::new(1.0, 1.0).filter(name, value).unwrap().filters;
        assert_eq!(by("vendor", "aws"), by("vendor_id", "aws"));
        assert_eq!(by("vendor_regions", "aws~eu-west-1"), by("region", "aws~eu-west-1"));
        assert_eq!(by("regions", "eu-west-1"), by("region", "eu-west-1"));
        assert_eq!(by("countries", "DE"), by("country", "DE"));
        assert_eq!(by("compliance_framework", "soc2"), by("compliance_framework_id", "soc2"));
    }

    #[test]
    fn a_region_named_twice_or_in_two_ways_is_one_place() {
        let query = Query::new(1.0, 1.0).filter("region", json!(["fsn1", "FSN1", "hcloud~fsn1"])).unwrap();
        let places = Plan::new(&query).unwrap().places.unwrap();
        assert_eq!(places.iter().map(|place| place.region).collect::<Vec<_>>(), ["fsn1"]);
    }

    #[test]
    fn null_takes_a_filter_off() {
        let query =
            Query::new(1.0, 1.0).filter("region", "fsn1").unwrap().filter("region", Value::Null).unwrap();
        assert_eq!(query, Query::new(1.0, 1.0));
    }

    #[test]
    fn half_a_ten_thousandth_is_rounded_as_the_double_lies() {
        assert_eq!([0.003_25, 0.000_05, 0.2, 360.987, 0.00015].map(price_rank), [32, 1, 2000, 3_609_870, 1]);
    }

    proptest! {
        /// The order of servers must be the order of the prices that people see.
        #[test]
        fn rank_is_the_price_printed_with_four_decimals(micro in 1_u32..400_000_000) {
            let price = f64::from(micro) / 1e6;
            let printed: f64 = format!("{price:.4}").parse().unwrap();
            #[expect(clippy::cast_precision_loss, reason = "ranks of this test are below 2^53")]
            let rank = price_rank(price) as f64;
            prop_assert!((rank / 1e4 - printed).abs() < 1e-9, "{price} {rank} {printed}");
        }

        /// Names come from users: whatever they are, they are known or refused, never a panic.
        #[test]
        fn any_text_as_a_filter_is_taken_or_refused(name in "\\PC{0,12}", value in "\\PC{0,12}") {
            let _ = Query::new(1.0, 1.0).filter(&name, value.clone());
            for filter in Filters::NAMES {
                if let Ok(query) = Query::new(1.0, 1.0).filter(filter, value.clone()) {
                    let _ = Plan::new(&query);
                }
            }
        }
    }
}
