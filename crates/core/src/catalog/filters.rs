//! What must hold of a server beyond its sizes, by name.
//!
//! In:  names and values as a front gives them. Out: [`Filters`], of known names and right types.
//! Not here: which values there are, and whether a server fits (`query`).

use super::error::CatalogError;
use super::query::quoted;
use serde_json::Value;

/// What must hold beyond sizes. In each list one match is enough; an empty list asks for nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filters {
    /// `aws`, `gcp`, …
    pub vendor_id: Vec<String>,
    /// `eu-west-1`, or `aws~eu-west-1`.
    pub region: Vec<String>,
    /// `DE` or `Germany`.
    pub country: Vec<String>,
    /// `Europe`.
    pub continent: Vec<String>,
    /// `x86_64`, `arm64`.
    pub architecture: Vec<String>,
    /// `Shared`, `Burstable`, `Dedicated`.
    pub cpu_allocation: Vec<String>,
    /// `Intel`, `AMD`, `AWS`.
    pub cpu_manufacturer: Vec<String>,
    /// `T4`, `A100`.
    pub gpu_model: Vec<String>,
    /// Only the Keeper knows these.
    pub compliance_framework_id: Vec<String>,
    /// Whether a spot price may stand for the on-demand price where it is lower.
    pub spot: bool,
    /// USD an hour at most.
    pub max_price: Option<f64>,
    /// Local storage in GB at least.
    pub storage_size: Option<f64>,
    /// vCPUs at least, if that is more than the question asks for; so with the next three.
    pub vcpus_min: Option<f64>,
    /// Memory in GiB.
    pub memory_min_gib: Option<f64>,
    /// GPUs.
    pub gpu_min: Option<f64>,
    /// VRAM of all GPUs in GiB.
    pub vram_min_gib: Option<f64>,
}

/// Parameters of the API that say in its words what the question's sizes and `spot` say, or what always holds.
const OF_THE_API: [&str; 7] = [
    "vcpus_min",
    "memory_min",
    "gpu_min",
    "gpu_memory_total",
    "only_active",
    "currency",
    "best_price_allocation",
];

impl Filters {
    /// All filters by name.
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

    /// Sets a filter by name: text or a list of texts, a truth value for `spot`, a number for
    /// `max_price` and `storage_size`; null takes it off. Names of the API's own parameters will do,
    /// but for order and pages: an answer is ordered by price, and has as many servers as are asked for.
    ///
    /// # Errors
    /// When there is no filter of that name, or the value has the wrong type.
    pub fn set(&mut self, name: &str, value: &Value) -> Result<(), CatalogError> {
        let asked = match name {
            "vendor" => "vendor_id",
            "regions" | "vendor_regions" => "region",
            "countries" => "country",
            "compliance_framework" => "compliance_framework_id",
            name => name,
        };
        let filter =
            Self::NAMES.into_iter().chain(OF_THE_API).find(|known| *known == asked).ok_or_else(|| {
                CatalogError::UnknownFilter { name: name.to_owned(), known: quoted(Self::NAMES) }
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
            "only_active" => return Err(bad("true, since only active servers are known")),
            "currency" if value.is_null() || value == "USD" => return Ok(()),
            "currency" => return Err(bad("`USD`, in which all prices are")),
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
                    item.as_str().map(ToOwned::to_owned).ok_or_else(|| bad("text or a list of texts"))
                })
                .collect::<Result<_, _>>()?,
            _ => return Err(bad("text or a list of texts")),
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
    fn minima_are_taken_in_the_apis_words() {
        let least = |vcpus_min, memory_min_gib, gpu_min, vram_min_gib| {
            Ok(Filters { vcpus_min, memory_min_gib, gpu_min, vram_min_gib, ..Filters::default() })
        };
        assert_eq!(set("vcpus_min", 8), least(Some(8.0), None, None, None));
        assert_eq!(set("memory_min", 0.5), least(None, Some(0.5), None, None));
        assert_eq!(set("gpu_min", 0.25), least(None, None, Some(0.25), None));
        assert_eq!(set("gpu_memory_total", 16), least(None, None, None, Some(16.0)));
        assert_eq!(set("vcpus_min", 1.5).unwrap_err(), "filter `vcpus_min` takes a whole number, not `1.5`");
        assert_eq!(set("gpu_min", "2").unwrap_err(), "filter `gpu_min` takes a number, not `\"2\"`");
    }

    #[test]
    fn what_always_holds_may_be_asked_for_and_its_contrary_may_not() {
        for (name, value) in
            [("only_active", json!(true)), ("currency", json!("USD")), ("currency", Value::Null)]
        {
            assert_eq!(set(name, value), Ok(Filters::default()));
        }
        let refused = [
            ("only_active", json!(false), "takes true, since only active servers are known, not `false`"),
            ("currency", json!("EUR"), "takes `USD`, in which all prices are, not `\"EUR\"`"),
            (
                "best_price_allocation",
                json!("SPOT_ONLY"),
                "takes `ANY` or `ONDEMAND_ONLY`, not `\"SPOT_ONLY\"`",
            ),
            ("best_price_allocation", json!(7), "takes `ANY` or `ONDEMAND_ONLY`, not `7`"),
        ];
        for (name, value, said) in refused {
            assert_eq!(set(name, value), Err(format!("filter `{name}` {said}")));
        }
    }

    #[test]
    fn prices_of_any_kind_are_spot_prices_too() {
        assert!(set("best_price_allocation", "ANY").unwrap().spot);
        assert!(!set("best_price_allocation", "ONDEMAND_ONLY").unwrap().spot);
        assert!(!set("best_price_allocation", Value::Null).unwrap().spot, "taken off");
    }

    #[test]
    fn order_and_pages_are_no_filters() {
        for name in ["order_by", "order_dir", "limit", "page"] {
            assert!(set(name, 1).unwrap_err().starts_with(&format!("unknown filter `{name}`; known are")));
        }
    }
}
