//! Price of an instance, cost of a run, and savings on another server.
//!
//! In:  prices in USD per hour, a duration.
//! Out: [`InstancePrice`], [`RunCost`]; `None` where a price is unknown.
//! Not here: sources of prices (`local`, `remote`).

use super::local::ListPrice;
use super::{Server, Source};
use serde::Serialize;

/// The Linux on-demand price of an instance type.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InstancePrice {
    pub vendor_id: String,
    pub instance_type: String,
    pub usd_per_hour: f64,
    /// Spot price in the same region.
    pub spot_usd_per_hour: Option<f64>,
    /// Region in which the price applies.
    pub region: String,
    /// Whether `region` is the requested region.
    pub in_asked_region: bool,
    pub source: Source,
    /// Date of the price.
    pub as_of: String,
}

impl InstancePrice {
    pub(crate) fn new(
        requested: (&str, Option<&str>, &str),
        price: ListPrice,
        source: Source,
        as_of: String,
    ) -> Self {
        let (vendor_id, region, instance_type) = requested;
        Self {
            vendor_id: vendor_id.to_owned(),
            instance_type: instance_type.to_owned(),
            usd_per_hour: price.usd_per_hour,
            spot_usd_per_hour: price.spot_usd_per_hour,
            in_asked_region: region == Some(price.region.as_str()),
            region: price.region,
            source,
            as_of,
        }
    }
}

/// Cost of a run on one server, on demand unless stated otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cost {
    pub usd_per_hour: f64,
    pub usd: f64,
    /// Cost of the run at the spot price.
    pub spot_usd: Option<f64>,
}

/// Savings on the recommended server; negative if it is more expensive.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Savings {
    pub usd: f64,
    /// Savings relative to the cost on the current server.
    pub percent: f64,
    /// Whether both prices are of the same vendor and region.
    pub same_region: bool,
}

/// Cost of a run on the current and on the recommended server.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RunCost {
    #[serde(rename = "duration_seconds")]
    pub duration_s: f64,
    pub current: Option<Cost>,
    pub recommended: Option<Cost>,
    pub savings: Option<Savings>,
}

impl RunCost {
    /// Costs are `None` if the duration is negative or not finite.
    pub fn new(duration_s: f64, current: Option<&InstancePrice>, recommended: Option<&Server>) -> Self {
        let hours = Some(duration_s / 3600.0).filter(|hours| hours.is_finite() && *hours >= 0.0);
        let cost = |usd_per_hour: f64, spot_usd_per_hour: Option<f64>| {
            let hours = hours?;
            Some(Cost {
                usd_per_hour,
                usd: usd_per_hour * hours,
                spot_usd: spot_usd_per_hour.map(|spot| spot * hours),
            })
        };
        let same_region = current.zip(recommended).is_some_and(|(price, server)| {
            price.vendor_id == server.vendor_id() && server.price_region() == Some(price.region.as_str())
        });
        let current = current.and_then(|price| cost(price.usd_per_hour, price.spot_usd_per_hour));
        let recommended = recommended.and_then(|server| cost(server.ondemand_usd()?, server.spot_usd()));
        let savings = current.zip(recommended).map(|(current, recommended)| Savings {
            usd: current.usd - recommended.usd,
            // The percentage is computed from hourly prices, so that a run of 0 s has one too.
            percent: (1.0 - recommended.usd_per_hour / current.usd_per_hour) * 100.0,
            same_region,
        });
        Self { duration_s, current, recommended, savings }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, json};

    fn price(usd_per_hour: f64) -> InstancePrice {
        let list_price = ListPrice { usd_per_hour, region: "r".into(), spot_usd_per_hour: None };
        InstancePrice::new(("v", Some("r"), "t"), list_price, Source::Embedded, "2026".into())
    }

    fn server(ondemand: f64, spot: f64) -> Server {
        Server::from_api(Map::from_iter([
            ("min_price_ondemand".to_owned(), json!(ondemand)),
            ("min_price_spot".to_owned(), json!(spot)),
            ("vendor_id".to_owned(), json!("v")),
            ("price_region".to_owned(), json!("r")),
        ]))
    }

    #[test]
    fn savings_are_relative_to_the_current_server() {
        let cost = RunCost::new(1800.0, Some(&price(2.0)), Some(&server(0.5, 0.2)));
        assert_eq!(cost.current, Some(Cost { usd_per_hour: 2.0, usd: 1.0, spot_usd: None }));
        assert_eq!(cost.recommended, Some(Cost { usd_per_hour: 0.5, usd: 0.25, spot_usd: Some(0.1) }));
        assert_eq!(cost.savings, Some(Savings { usd: 0.75, percent: 75.0, same_region: true }));
    }

    #[test]
    fn savings_in_another_region_or_with_another_vendor_are_marked() {
        let mut other_region = price(2.0);
        other_region.region = "elsewhere".into();
        let mut other_vendor = price(2.0);
        other_vendor.vendor_id = "w".into();
        for current in [other_region, other_vendor] {
            let cost = RunCost::new(1800.0, Some(&current), Some(&server(0.5, 0.2)));
            assert!(!cost.savings.unwrap().same_region, "{current:?}");
        }
    }

    #[test]
    fn unknown_cost_is_none() {
        let cost = RunCost::new(60.0, None, Some(&server(1.0, 0.5)));
        assert_eq!((cost.current, cost.savings), (None, None));
        assert!(cost.recommended.is_some());
        let cost = RunCost::new(f64::NAN, Some(&price(1.0)), Some(&server(1.0, 0.5)));
        assert_eq!((cost.current, cost.recommended, cost.savings), (None, None, None));
    }

    #[test]
    fn savings_are_negative_on_a_more_expensive_server() {
        let cost = RunCost::new(3600.0, Some(&price(1.0)), Some(&server(1.5, 1.0)));
        assert_eq!(cost.savings, Some(Savings { usd: -0.5, percent: -50.0, same_region: true }));
    }
}
