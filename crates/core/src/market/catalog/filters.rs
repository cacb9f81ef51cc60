//! Filters of a query.
//!
//! In:  names and values from a front.
//! Out: [`Filters`], with valid names and types.
//! Not here: valid values, and whether a server fits (`query`).

use super::error::{CatalogError, quoted};
use serde_json::Value;

/// A server must match at least one value of each list. An empty list matches every server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filters {
    pub vendor_id: Vec<String>,
    /// Regions such as `eu-west-1` or `aws~eu-west-1`.
    pub region: Vec<String>,
    /// Countries such as `DE` or `Germany`.
    pub country: Vec<String>,
    /// Continents such as `Europe`.
    pub continent: Vec<String>,
    /// `x86_64` or `arm64`.
    pub architecture: Vec<String>,
    /// `Shared`, `Burstable` or `Dedicated`.
    pub cpu_allocation: Vec<String>,
    /// `Intel`, `AMD` or `AWS`.
    pub cpu_manufacturer: Vec<String>,
    /// GPU models such as `T4` or `A100`.
    pub gpu_model: Vec<String>,
    /// Only the Keeper supports this filter.
    pub compliance_framework_id: Vec<String>,
    /// Use the spot price where it is lower than the on-demand price.
    pub spot: bool,
    /// Maximum price in USD per hour.
    pub max_price: Option<f64>,
    /// Minimum local storage in GB.
    pub storage_size: Option<f64>,
    /// Minimum vCPUs. The larger of this and [`super::Query::cpu`] applies; the next three fields work the same way.
    pub vcpus_min: Option<f64>,
    pub memory_min_gib: Option<f64>,
    pub gpu_min: Option<f64>,
    /// Minimum memory of all GPUs together.
    pub vram_min_gib: Option<f64>,
}

/// API parameters that mean a minimum size, `spot`, or a property that all answers have.
const API_PARAMETERS: [&str; 7] = [
    "vcpus_min",
    "memory_min",
    "gpu_min",
    "gpu_memory_total",
    "only_active",
    "currency",
    "best_price_allocation",
];

impl Filters {
    pub const NAMES: [&'static str; 12] = [
        "vendor_id",
        "region",
        "country",
        "continent",
        "architecture",
        "cpu_allocation",
        "cpu_manufacturer",
        "gpu_model",
        "compliance_framework_id",
        "spot",
        "max_price",
        "storage_size",
    ];

    /// Sets a filter by name. The value is a string or a list of strings, for `spot` a boolean, and for `max_price` and
    /// `storage_size` a number. Null removes the filter. Names of API parameters are valid too, except those for sort
    /// order and pages.
    pub fn set(&mut self, name: &str, value: &Value) -> Result<(), CatalogError> {
        let canonical = match name {
            "vendor" => "vendor_id",
            "regions" | "vendor_regions" => "region",
            "countries" => "country",
            "compliance_framework" => "compliance_framework_id",
            name => name,
        };
        let mut names = Self::NAMES.into_iter().chain(API_PARAMETERS);
        let filter = names.find(|name| *name == canonical).ok_or_else(|| CatalogError::UnknownFilter {
            name: name.to_owned(),
            valid: quoted(Self::NAMES),
        })?;
        let bad = |expected| CatalogError::BadValue { filter, value: value.to_string(), expected };
        let list = match filter {
            "spot" => {
                self.spot = match value {
                    Value::Null => false,
                    Value::Bool(allowed) => *allowed,
                    _ => return Err(bad("true or false")),
                };
                return Ok(());
            }
            "best_price_allocation" => {
                self.spot = match value.as_str() {
                    Some("ANY") => true,
                    Some("ONDEMAND_ONLY") => false,
                    None if value.is_null() => false,
                    _ => return Err(bad("`ANY` or `ONDEMAND_ONLY`")),
                };
                return Ok(());
            }
            "only_active" if matches!(value, Value::Null | Value::Bool(true)) => return Ok(()),
            "only_active" => return Err(bad("true (all servers are active)")),
            "currency" if value.is_null() || value == "USD" => return Ok(()),
            "currency" => return Err(bad("`USD` (all prices are in USD)")),
            "vcpus_min" if value.as_f64().is_some_and(|vcpus| vcpus.fract() != 0.0) => {
                return Err(bad("a whole number"));
            }
            "max_price" | "storage_size" | "vcpus_min" | "memory_min" | "gpu_min" | "gpu_memory_total" => {
                let number = match value {
                    Value::Null => None,
                    value => Some(value.as_f64().ok_or_else(|| bad("a number"))?),
                };
                *(match filter {
                    "max_price" => &mut self.max_price,
                    "storage_size" => &mut self.storage_size,
                    "vcpus_min" => &mut self.vcpus_min,
                    "memory_min" => &mut self.memory_min_gib,
                    "gpu_min" => &mut self.gpu_min,
                    _ => &mut self.vram_min_gib,
                }) = number;
                return Ok(());
            }
            "vendor_id" => &mut self.vendor_id,
            "region" => &mut self.region,
            "country" => &mut self.country,
            "continent" => &mut self.continent,
            "architecture" => &mut self.architecture,
            "cpu_allocation" => &mut self.cpu_allocation,
            "cpu_manufacturer" => &mut self.cpu_manufacturer,
            "gpu_model" => &mut self.gpu_model,
            _ => &mut self.compliance_framework_id,
        };
        *list = match value {
            Value::Null => Vec::new(),
            Value::String(text) => vec![text.clone()],
            Value::Array(items) => items
                .iter()
                .map(|item| {
                    item.as_str().map(ToOwned::to_owned).ok_or_else(|| bad("a string or a list of strings"))
                })
                .collect::<Result<_, _>>()?,
            _ => return Err(bad("a string or a list of strings")),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(name: &str, value: impl Into<Value>) -> Result<Filters, String> {
        let mut filters = Filters { spot: name == "best_price_allocation", ..Filters::default() };
        filters.set(name, &value.into()).map(|()| filters).map_err(|error| error.to_string())
    }

    #[test]
    fn minimum_sizes_can_be_set_by_api_parameter() {
        let least = |vcpus_min, memory_min_gib, gpu_min, vram_min_gib| {
            Ok(Filters { vcpus_min, memory_min_gib, gpu_min, vram_min_gib, ..Filters::default() })
        };
        assert_eq!(set("vcpus_min", 8), least(Some(8.0), None, None, None));
        assert_eq!(set("memory_min", 0.5), least(None, Some(0.5), None, None));
        assert_eq!(set("gpu_min", 0.25), least(None, None, Some(0.25), None));
        assert_eq!(set("gpu_memory_total", 16), least(None, None, None, Some(16.0)));
        assert_eq!(
            set("vcpus_min", 1.5).unwrap_err(),
            "filter `vcpus_min` must be a whole number, not `1.5`"
        );
        assert_eq!(set("gpu_min", "2").unwrap_err(), "filter `gpu_min` must be a number, not `\"2\"`");
    }

    #[test]
    fn fixed_properties_can_be_requested_but_not_changed() {
        for (name, value) in
            [("only_active", json!(true)), ("currency", json!("USD")), ("currency", Value::Null)]
        {
            assert_eq!(set(name, value), Ok(Filters::default()));
        }
        let refused = [
            ("only_active", json!(false), "must be true (all servers are active), not `false`"),
            ("currency", json!("EUR"), "must be `USD` (all prices are in USD), not `\"EUR\"`"),
            (
                "best_price_allocation",
                json!("SPOT_ONLY"),
                "must be `ANY` or `ONDEMAND_ONLY`, not `\"SPOT_ONLY\"`",
            ),
            ("best_price_allocation", json!(7), "must be `ANY` or `ONDEMAND_ONLY`, not `7`"),
        ];
        for (name, value, text) in refused {
            assert_eq!(set(name, value), Err(format!("filter `{name}` {text}")));
        }
    }

    #[test]
    fn best_price_allocation_sets_spot() {
        assert!(set("best_price_allocation", "ANY").unwrap().spot);
        assert!(!set("best_price_allocation", "ONDEMAND_ONLY").unwrap().spot);
        assert!(!set("best_price_allocation", Value::Null).unwrap().spot, "removed");
    }

    #[test]
    fn sort_order_and_pages_are_not_filters() {
        for name in ["order_by", "order_dir", "limit", "page"] {
            assert!(
                set(name, 1).unwrap_err().starts_with(&format!("unknown filter `{name}`; valid filters:"))
            );
        }
    }
}
