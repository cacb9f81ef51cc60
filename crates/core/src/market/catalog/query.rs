//! Server queries: sizes and filters.
//!
//! In:  [`Query`] from a front.
//! Out: `Criteria`: the validated query, with names in the spelling of the API. All sources use `Criteria::fits` to
//!      decide whether a server fits.
//! Not here: names and types of filters (`filters`), search and order by price (`local`, `remote`).

use super::embedded::{ALLOCATIONS, Row, embedded};
use super::error::{CatalogError, quoted};
use super::filters::Filters;
use super::region::{self, Place};
use crate::market::VENDOR_IDS;
use serde_json::Value;
use std::collections::BTreeSet;

/// A server must have at least these sizes and match the filters.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    pub cpu: f64,
    /// Minimum memory in MiB.
    pub memory_mb: f64,
    pub gpu: Option<f64>,
    /// Minimum memory of all GPUs together, in MiB.
    pub vram_mb: Option<f64>,
    /// Maximum number of servers in the answer.
    pub n: usize,
    pub filters: Filters,
}

impl Query {
    /// A query for up to ten servers, without GPU and filters.
    pub fn new(cpu: f64, memory_mb: f64) -> Self {
        Self { cpu, memory_mb, gpu: None, vram_mb: None, n: 10, filters: Filters::default() }
    }

    /// Sets the number of GPUs and their total memory.
    pub fn with_gpu(mut self, gpu: f64, vram_mb: f64) -> Self {
        (self.gpu, self.vram_mb) = (Some(gpu), Some(vram_mb));
        self
    }

    /// Sets the maximum number of servers.
    pub fn top(mut self, n: usize) -> Self {
        self.n = n;
        self
    }

    /// Sets a filter; see `Filters::set`.
    pub fn filter(mut self, name: &str, value: impl Into<Value>) -> Result<Self, CatalogError> {
        self.filters.set(name, &value.into())?;
        Ok(self)
    }
}

impl Filters {
    /// Checks the values of all filters, without a search.
    pub fn check(&self) -> Result<(), CatalogError> {
        Criteria::new(&Query { filters: self.clone(), ..Query::new(0.0, 0.0) }).map(drop)
    }

    /// Whether a vendor or a place is chosen.
    pub(crate) fn has_place(&self) -> bool {
        [&self.vendor_id, &self.region, &self.country, &self.continent].iter().any(|names| !names.is_empty())
    }
}

/// A validated query.
#[derive(Clone, Debug)]
pub(crate) struct Criteria {
    pub(crate) cpu: f64,
    pub(crate) memory_mib: f64,
    pub(crate) gpu: Option<f64>,
    pub(crate) vram_mib: Option<f64>,
    pub(crate) n: usize,
    pub(crate) vendors: Vec<&'static str>,
    /// Regions that match the place filters. `None` if there is no place filter; empty if no region matches.
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

const MIB_PER_GIB: f64 = 1024.0;
const ARCHITECTURES: [&str; 5] = ["arm64", "arm64_mac", "i386", "x86_64", "x86_64_mac"];
const CPU_MANUFACTURERS: [&str; 9] =
    ["Alibaba", "AMD", "Ampere", "Apple", "AWS", "Google", "Intel", "Microsoft", "NVIDIA"];

impl Criteria {
    pub(crate) fn new(query: &Query) -> Result<Self, CatalogError> {
        let filters = &query.filters;
        let vendors = canonical_names("vendor_id", &filters.vendor_id, &VENDOR_IDS)?;
        if let Some(empty) = filters.compliance_framework_id.iter().find(|id| id.trim().is_empty()) {
            return Err(CatalogError::BadValue {
                filter: "compliance_framework_id",
                value: empty.clone(),
                expected: "the id of a compliance framework",
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
            architectures: canonical_names("architecture", &filters.architecture, &ARCHITECTURES)?,
            allocations: canonical_names("cpu_allocation", &filters.cpu_allocation, &ALLOCATIONS)?,
            manufacturers: canonical_names(
                "cpu_manufacturer",
                &filters.cpu_manufacturer,
                &CPU_MANUFACTURERS,
            )?,
            gpu_models: canonical_names("gpu_model", &filters.gpu_model, &gpu_models(filters)?)?,
            vendors,
            compliance: filters.compliance_framework_id.clone(),
            spot: filters.spot,
            max_price_usd: filters.max_price.map(|price| size("max_price", price)).transpose()?,
            storage_gb: filters.storage_size.map(|gb| size("storage_size", gb)).transpose()?,
        })
    }

    /// Whether a server fits, apart from its price and place. A server with an unknown property does not fit.
    pub(crate) fn fits(&self, server: &Facts<'_>) -> bool {
        let at_least = |value: Option<f64>, minimum: f64| value.is_some_and(|value| value >= minimum);
        let one_of = |names: &[&str], value: Option<&str>| {
            names.is_empty() || value.is_some_and(|value| names.iter().any(|name| same_name(name, value)))
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

    pub(crate) fn within_max_price(&self, price_usd: f64) -> bool {
        price_usd > 0.0 && self.max_price_usd.is_none_or(|max| price_usd <= max)
    }

    /// Whether a region matches the place filters.
    pub(crate) fn covers(&self, vendor_id: &str, region: &str) -> bool {
        self.places.as_ref().is_none_or(|places| {
            places.iter().any(|place| place.vendor_id == vendor_id && place.region == region)
        })
    }
}

/// Properties of a server that filters compare, in the same form for all sources.
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

impl Facts<'_> {
    pub(crate) fn of_row(row: &Row) -> Self {
        Facts {
            vendor_id: row.vendor.id,
            vcpus: Some(f64::from(row.vcpus)),
            memory_mib: Some(f64::from(row.memory_mib)),
            gpu_count: Some(row.gpu.map_or(0.0, |gpu| gpu.count)),
            vram_mib: row.gpu.map(|gpu| f64::from(gpu.vram_total_mib)),
            storage_gb: Some(f64::from(row.storage_gb)),
            architecture: Some(row.cpu_architecture),
            cpu_allocation: Some(row.cpu_allocation),
            cpu_manufacturer: row.cpu_manufacturer,
            gpu_model: row.gpu.map(|gpu| gpu.model),
            active: true,
        }
    }
}

/// Sort key of a price: USD per hour, rounded to four decimals, times 10,000.
///
/// The exact value of the double is rounded, as by `round(price, 4)` in Python. The double 0.00325 is slightly smaller
/// than 0.00325, so its key is 32 and not 33.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a price is far below 2^53 and not negative"
)]
pub fn price_sort_key(price_usd: f64) -> u64 {
    let scaled = price_usd * 1e4;
    if (scaled.fract() - 0.5).abs() > 1e-6 {
        return scaled.round() as u64;
    }
    // Close to the middle between two keys, the multiplication may round to the wrong side. Formatting is exact.
    format!("{price_usd:.4}").replace('.', "").parse().unwrap_or(scaled.round() as u64)
}

fn size(name: &'static str, value: f64) -> Result<f64, CatalogError> {
    if value.is_finite() && value >= 0.0 { Ok(value) } else { Err(CatalogError::BadNumber { name, value }) }
}

/// The larger of two minimum sizes, each with the name of its parameter; `None` if no minimum is above 0. `factor`
/// converts the second size to the unit of the first.
fn larger(first: Named, second: Named, factor: f64) -> Result<Option<f64>, CatalogError> {
    let checked = |(name, value): Named| value.map(|value| size(name, value)).transpose();
    let both = checked(first)?.into_iter().chain(checked(second)?.map(|value| value * factor));
    Ok(both.reduce(f64::max).filter(|minimum| *minimum > 0.0))
}

type Named = (&'static str, Option<f64>);

/// Whether two names are equal except for case and punctuation, such as `rtx-pro-6000` and `RTX PRO 6000`.
fn same_name(a: &str, b: &str) -> bool {
    fn letters(name: &str) -> impl Iterator<Item = u8> {
        name.bytes().filter(u8::is_ascii_alphanumeric).map(|byte| byte.to_ascii_lowercase())
    }
    a == b || letters(a).eq(letters(b))
}

/// The values of a filter, in the spelling of `names`.
fn canonical_names(
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
                    valid: quoted(names.iter().copied()),
                }
            })
        })
        .collect()
}

/// The GPU models of the catalogue; none if no filter needs them.
fn gpu_models(filters: &Filters) -> Result<Vec<&'static str>, CatalogError> {
    if filters.gpu_model.is_empty() {
        return Ok(Vec::new());
    }
    let models: BTreeSet<_> =
        embedded()?.rows.iter().filter_map(|row| row.gpu).map(|gpu| gpu.model).collect();
    Ok(models.into_iter().collect())
}

/// Regions that match all place filters; `None` without a place filter.
fn places(filters: &Filters, vendors: &[&'static str]) -> Result<Option<BTreeSet<Place>>, CatalogError> {
    if filters.region.is_empty() && filters.country.is_empty() && filters.continent.is_empty() {
        return Ok(None);
    }
    let of_vendor = |place: &Place| vendors.is_empty() || vendors.contains(&place.vendor_id);
    let mut found: BTreeSet<Place> = region::places().filter(of_vendor).collect();
    if !filters.region.is_empty() {
        let mut matching = BTreeSet::new();
        for name in &filters.region {
            let of_name: Vec<Place> = region::in_region(name).filter(of_vendor).collect();
            if of_name.is_empty() {
                if let Some(reason) = region::closed_by_name(name) {
                    return Err(CatalogError::ClosedRegion { region: name.clone(), reason });
                }
                let regions: BTreeSet<&str> =
                    region::places().filter(of_vendor).map(|place| place.region).collect();
                return Err(CatalogError::UnknownValue {
                    filter: "region",
                    value: name.clone(),
                    valid: quoted(regions),
                });
            }
            matching.extend(of_name);
        }
        found.retain(|place| matching.contains(place));
    }
    if !filters.country.is_empty() {
        let codes = filters
            .country
            .iter()
            .map(|name| {
                region::country_code(name).ok_or_else(|| CatalogError::UnknownValue {
                    filter: "country",
                    value: name.clone(),
                    valid: quoted(region::country_codes()),
                })
            })
            .collect::<Result<Vec<_>, _>>()?;
        found.retain(|place| codes.contains(&place.country));
    }
    if !filters.continent.is_empty() {
        let continents = canonical_names("continent", &filters.continent, &region::CONTINENTS)?;
        found.retain(|place| region::continent(place.country).is_some_and(|name| continents.contains(&name)));
    }
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn error(query: Result<Query, CatalogError>) -> String {
        query.and_then(|query| Criteria::new(&query)).unwrap_err().to_string()
    }

    #[test]
    fn invalid_size_is_an_error_with_its_name() {
        for (value, shown) in [(-1.0, "-1"), (f64::NAN, "NaN"), (f64::INFINITY, "inf")] {
            let expected = |name: &str| format!("`{name}` must be a number of 0 or more, not `{shown}`");
            assert_eq!(error(Ok(Query::new(value, 1.0))), expected("cpu"));
            assert_eq!(error(Ok(Query::new(1.0, value))), expected("memory"));
            assert_eq!(error(Ok(Query::new(1.0, 1.0).with_gpu(value, 1.0))), expected("gpu"));
            assert_eq!(error(Ok(Query::new(1.0, 1.0).with_gpu(1.0, value))), expected("vram"));
        }
        assert_eq!(
            error(Query::new(1.0, 1.0).filter("max_price", -0.5)),
            "`max_price` must be a number of 0 or more, not `-0.5`"
        );
    }

    #[test]
    fn error_for_an_unknown_name_or_value_lists_the_valid_ones() {
        let query = || Query::new(1.0, 1.0);
        assert_eq!(
            error(query().filter("colour", "blue")),
            "unknown filter `colour`; valid filters: `vendor_id`, `region`, `country`, `continent`, `architecture`, \
             `cpu_allocation`, `cpu_manufacturer`, `gpu_model`, `compliance_framework_id`, `spot`, `max_price`, \
             `storage_size`"
        );
        assert_eq!(
            error(query().filter("vendor_id", "acme")),
            "unknown value `acme` for filter `vendor_id`; valid values: `aws`, `gcp`, `azure`, `hcloud`, `upcloud`, `ovh`, \
             `alicloud`, `vultr`, `digitalocean`, `oracle`, `scaleway`, `linode`, `exoscale`, `openstack`"
        );
        assert_eq!(
            error(query().filter("cpu_allocation", "lonely")),
            "unknown value `lonely` for filter `cpu_allocation`; valid values: `Dedicated`, `Burstable`, `Shared`"
        );
        assert_eq!(
            error(
                query().filter("vendor_id", "hcloud").and_then(|query| query.filter("region", "eu-west-1"))
            ),
            "unknown value `eu-west-1` for filter `region`; valid values: `ash`, `fsn1`, `hel1`, `hil`, `nbg1`, `sin`"
        );
        assert_eq!(
            error(query().filter("continent", "Atlantis")),
            "unknown value `Atlantis` for filter `continent`; valid values: `Africa`, `Asia`, `Europe`, `North America`, \
             `Oceania`, `South America`"
        );
        assert_eq!(
            error(query().filter("region", "jioindiawest")),
            "new customers cannot use region `jioindiawest`: not among the regions of the public cloud \
             (learn.microsoft.com/azure/reliability/regions-list)"
        );
        for (filter, value) in
            [("region", ""), ("country", ""), ("architecture", "vax"), ("gpu_model", "voodoo2")]
        {
            let text = error(query().filter(filter, value));
            assert!(
                text.starts_with(&format!("unknown value `{value}` for filter `{filter}`; valid values: `")),
                "{text}"
            );
        }
        assert_eq!(
            error(query().filter("spot", "yes")),
            "filter `spot` must be true or false, not `\"yes\"`"
        );
        assert_eq!(
            error(query().filter("region", 7)),
            "filter `region` must be a string or a list of strings, not `7`"
        );
    }

    #[test]
    fn api_parameter_names_are_filter_names() {
        let by = |name: &str, value: &str| Query::new(1.0, 1.0).filter(name, value).unwrap().filters;
        assert_eq!(by("vendor", "aws"), by("vendor_id", "aws"));
        assert_eq!(by("vendor_regions", "aws~eu-west-1"), by("region", "aws~eu-west-1"));
        assert_eq!(by("regions", "eu-west-1"), by("region", "eu-west-1"));
        assert_eq!(by("countries", "DE"), by("country", "DE"));
        assert_eq!(by("compliance_framework", "soc2"), by("compliance_framework_id", "soc2"));
    }

    #[test]
    fn repeated_region_is_one_place() {
        let query = Query::new(1.0, 1.0).filter("region", json!(["fsn1", "FSN1", "hcloud~fsn1"])).unwrap();
        let places = Criteria::new(&query).unwrap().places.unwrap();
        assert_eq!(places.iter().map(|place| place.region).collect::<Vec<_>>(), ["fsn1"]);
    }

    #[test]
    fn null_removes_a_filter() {
        let query =
            Query::new(1.0, 1.0).filter("region", "fsn1").unwrap().filter("region", Value::Null).unwrap();
        assert_eq!(query, Query::new(1.0, 1.0));
    }

    #[test]
    fn sort_key_rounds_the_binary_value() {
        assert_eq!(
            [0.003_25, 0.000_05, 0.2, 360.987, 0.00015].map(price_sort_key),
            [32, 1, 2000, 3_609_870, 1]
        );
    }

    proptest! {
        /// Servers are sorted by the price that is displayed.
        #[test]
        fn sort_key_is_the_price_with_four_decimals(micro in 1_u32..400_000_000) {
            let price = f64::from(micro) / 1e6;
            let printed: f64 = format!("{price:.4}").parse().unwrap();
            #[expect(clippy::cast_precision_loss, reason = "keys of this test are below 2^53")]
            let key = price_sort_key(price) as f64;
            prop_assert!((key / 1e4 - printed).abs() < 1e-9, "{price} {key} {printed}");
        }

        #[test]
        fn any_text_as_a_filter_is_accepted_or_an_error(name in "\\PC{0,12}", value in "\\PC{0,12}") {
            let _ = Query::new(1.0, 1.0).filter(&name, value.clone());
            for filter in Filters::NAMES {
                if let Ok(query) = Query::new(1.0, 1.0).filter(filter, value.clone()) {
                    let _ = Criteria::new(&query);
                }
            }
        }
    }
}
