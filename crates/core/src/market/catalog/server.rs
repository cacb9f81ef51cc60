//! A server with the fields of the public server-search API.
//!
//! In:  a row of the embedded catalogue, or an object of an API response.
//! Out: [`Server`]: the fields of [`FIELDS`], null if unknown, followed by further fields of the API. The JSON form has
//!      the same order.
//! Not here: whether a server fits a query (`query`).
//!
//! The API is renaming `gpu_*` to `accelerator_*`. Both spellings become `gpu_*`.

use super::embedded::{Row, usd};
use super::query::Facts;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value, json};

/// The fields of every server, in order.
pub const FIELDS: &[&str] = &[
    "vendor_id",
    "server_id",
    "name",
    "api_reference",
    "display_name",
    "description",
    "family",
    "vcpus",
    "hypervisor",
    "cpu_allocation",
    "cpu_cores",
    "cpu_speed",
    "cpu_architecture",
    "cpu_manufacturer",
    "cpu_family",
    "cpu_model",
    "cpu_l1_cache",
    "cpu_l1d_cache",
    "cpu_l1i_cache",
    "cpu_l2_cache",
    "cpu_l3_cache",
    "cpu_flags",
    "cpus",
    "memory_amount",
    "memory_generation",
    "memory_speed",
    "memory_ecc",
    "gpu_count",
    "gpu_memory_min",
    "gpu_memory_total",
    "gpu_manufacturer",
    "gpu_family",
    "gpu_model",
    "gpus",
    "storage_size",
    "storage_type",
    "storages",
    "network_speed",
    "inbound_traffic",
    "outbound_traffic",
    "ipv4",
    "status",
    "observed_at",
    "score",
    "price",
    "min_price",
    "min_price_spot",
    "min_price_ondemand",
    "min_price_ondemand_monthly",
    "score_per_price",
    "vendor",
    "price_breakdown",
    PRICE_REGION,
];

/// Region of `price`; null if the API does not report it. The API itself does not have this field.
const PRICE_REGION: &str = "price_region";

/// One server type with its price.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    values: Map<String, Value>,
}

impl Server {
    /// Makes a server from an object of an API response.
    pub fn from_api(object: Map<String, Value>) -> Self {
        let mut values = Map::new();
        for (name, value) in object {
            let name = match name.strip_prefix("accelerator") {
                Some("s") => "gpus".to_owned(),
                Some(rest) if rest.starts_with('_') => format!("gpu{rest}"),
                _ => name,
            };
            // If the response has both spellings, the field with a value is used.
            if !value.is_null() || !values.contains_key(&name) {
                values.insert(name, value);
            }
        }
        for field in FIELDS {
            if !values.contains_key(*field) {
                values.insert((*field).to_owned(), Value::Null);
            }
        }
        Self { values }
    }

    /// Makes a server from a row of the embedded catalogue.
    pub(crate) fn from_row(row: &Row, price: &RowPrice<'_>) -> Self {
        let vendor = row.vendor;
        let spot = price.spot_usd;
        let object = json!({
            "vendor_id": vendor.id,
            "server_id": row.server_id,
            "name": row.display_name,
            "api_reference": row.api_reference,
            "display_name": row.display_name,
            "vcpus": row.vcpus,
            "cpu_allocation": row.cpu_allocation,
            "cpu_architecture": row.cpu_architecture,
            "cpu_manufacturer": row.cpu_manufacturer,
            "memory_amount": row.memory_mib,
            "gpu_count": row.gpu.map_or(0.0, |gpu| gpu.count),
            "gpu_memory_min": row.gpu.map(|gpu| gpu.vram_min_mib),
            "gpu_memory_total": row.gpu.map(|gpu| gpu.vram_total_mib),
            "gpu_manufacturer": row.gpu.map(|gpu| gpu.manufacturer),
            "gpu_model": row.gpu.map(|gpu| gpu.model),
            "gpus": if row.gpu.is_none() { json!([]) } else { Value::Null },
            "storage_size": row.storage_gb,
            "status": "active",
            "price": price.used_usd,
            "min_price": spot.map_or(price.ondemand_usd, |spot| spot.min(price.ondemand_usd)),
            "min_price_spot": spot,
            "min_price_ondemand": price.ondemand_usd,
            "vendor": { "vendor_id": vendor.id, "name": vendor.name },
            PRICE_REGION: price.region,
        });
        match object {
            Value::Object(values) => Self::from_api(values),
            _ => Self::from_api(Map::new()),
        }
    }

    /// Sets the price by which servers are sorted.
    pub(crate) fn set_price(&mut self, used_usd: f64) {
        self.values.insert("price".to_owned(), json!(used_usd));
    }

    /// Replaces the lowest price over all regions by the price in one region.
    pub(crate) fn set_region_price(&mut self, ondemand_usd: f64, spot_usd: Option<f64>, region: &str) {
        self.values.insert(
            "min_price".to_owned(),
            json!(spot_usd.map_or(ondemand_usd, |spot| spot.min(ondemand_usd))),
        );
        self.values.insert("min_price_spot".to_owned(), json!(spot_usd));
        self.values.insert("min_price_ondemand".to_owned(), json!(ondemand_usd));
        self.values.insert(PRICE_REGION.to_owned(), json!(region));
    }

    /// All fields: those of `FIELDS` first, then further fields of the API.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &Value)> {
        FIELDS
            .iter()
            .filter_map(|field| self.values.get_key_value(*field))
            .chain(self.values.iter().filter(|(name, _)| !FIELDS.contains(&name.as_str())))
            .map(|(name, value)| (name.as_str(), value))
    }

    /// The value of a field; null if it is unknown.
    pub fn get(&self, field: &str) -> &Value {
        self.values.get(field).unwrap_or(&Value::Null)
    }

    pub fn text(&self, field: &str) -> Option<&str> {
        self.get(field).as_str()
    }

    pub fn number(&self, field: &str) -> Option<f64> {
        self.get(field).as_f64()
    }

    pub fn vendor_id(&self) -> &str {
        self.text("vendor_id").unwrap_or_default()
    }

    pub fn server_id(&self) -> &str {
        self.text("server_id").unwrap_or_default()
    }

    /// Human-readable name.
    pub fn name(&self) -> &str {
        ["display_name", "name", "api_reference", "server_id"]
            .iter()
            .find_map(|field| self.text(field))
            .unwrap_or_default()
    }

    /// Price by which servers are sorted, in USD per hour: the on-demand price, or the spot price if allowed and lower.
    pub fn price_usd(&self) -> Option<f64> {
        self.number("price")
    }

    /// On-demand price in USD per hour.
    pub fn ondemand_usd(&self) -> Option<f64> {
        self.number("min_price_ondemand")
    }

    /// Spot price in USD per hour.
    pub fn spot_usd(&self) -> Option<f64> {
        self.number("min_price_spot")
    }

    /// Region of the price.
    pub fn price_region(&self) -> Option<&str> {
        self.text(PRICE_REGION)
    }

    /// CPU class and architecture, such as `dedicated x86_64`.
    pub fn cpu_class(&self) -> String {
        let class = self.text("cpu_allocation").unwrap_or("unknown CPU class").to_lowercase();
        format!("{class} {}", self.text("cpu_architecture").unwrap_or("of unknown architecture"))
    }

    pub(crate) fn facts(&self) -> Facts<'_> {
        Facts {
            vendor_id: self.vendor_id(),
            vcpus: self.number("vcpus"),
            memory_mib: self.number("memory_amount"),
            gpu_count: self.number("gpu_count"),
            vram_mib: self.number("gpu_memory_total"),
            storage_gb: self.number("storage_size"),
            architecture: self.text("cpu_architecture"),
            cpu_allocation: self.text("cpu_allocation"),
            cpu_manufacturer: self.text("cpu_manufacturer"),
            gpu_model: self.text("gpu_model"),
            active: self.text("status").is_none_or(|status| status.eq_ignore_ascii_case("active")),
        }
    }
}

pub(crate) struct RowPrice<'a> {
    pub used_usd: f64,
    pub ondemand_usd: f64,
    pub spot_usd: Option<f64>,
    pub region: &'a str,
}

impl RowPrice<'_> {
    pub(crate) fn micro(used: u32, ondemand: u32, spot: Option<u32>, region: &str) -> RowPrice<'_> {
        RowPrice { used_usd: usd(used), ondemand_usd: usd(ondemand), spot_usd: spot.map(usd), region }
    }
}

impl Serialize for Server {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.values.len()))?;
        for (name, value) in self.fields() {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(map) => map,
            other => panic!("{other} is not an object"),
        }
    }

    #[test]
    fn fields_are_in_api_order_with_unknown_ones_last() {
        let server = Server::from_api(object(json!({
            "zeta": 1, "vcpus": 2, "vendor_id": "aws", "a_new_field": {"deep": [1, 2]}
        })));
        let names: Vec<&str> = server.fields().map(|(name, _)| name).collect();
        assert_eq!(names[..FIELDS.len()], *FIELDS);
        assert_eq!(names[FIELDS.len()..], ["zeta", "a_new_field"]);
        let text = serde_json::to_string(&server).unwrap();
        assert!(text.starts_with(r#"{"vendor_id":"aws","server_id":null,"name":null,"#), "{text}");
        assert!(text.ends_with(r#""price_region":null,"zeta":1,"a_new_field":{"deep":[1,2]}}"#), "{text}");
    }

    #[test]
    fn both_spellings_of_gpu_fields_are_read() {
        let server = Server::from_api(object(json!({
            "accelerator_count": 2.0, "gpu_count": null, "accelerator_memory_total": 32768, "accelerators": [{}]
        })));
        assert_eq!(server.number("gpu_count"), Some(2.0));
        assert_eq!(server.number("gpu_memory_total"), Some(32768.0));
        assert_eq!(server.get("gpus"), &json!([{}]));
        assert!(!server.fields().any(|(name, _)| name.starts_with("accelerator")));
    }
}
