//! What an instance costs, what a run cost, and what it would have cost elsewhere.
//!
//! In:  prices in USD an hour, a duration.
//! Out: [`InstancePrice`], [`RunCost`]; `None` wherever a price is not known.
//! Not here: where prices come from (`local`, `remote`).

use super::local::Listed;
use super::{Server, Source};
use serde::Serialize;

/// The Linux on-demand price of an instance type.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InstancePrice {
    /// `aws`, `gcp`, …
    pub vendor_id: String,
    /// As it was asked for.
    pub instance_type: String,
    /// USD an hour on demand.
    pub usd_per_hour: f64,
    /// USD an hour at spot in the same region.
    pub spot_usd_per_hour: Option<f64>,
    /// The region that the price is of.
    pub region: String,
    /// Whether that is the region that was asked for.
    pub in_asked_region: bool,
    /// Who says so.
    pub source: Source,
    /// As of when.
    pub as_of: String,
}

impl InstancePrice {
    pub(crate) fn new(
        asked: (&str, Option<&str>, &str),
        listed: Listed,
        source: Source,
        as_of: String,
    ) -> Self {
        let (vendor_id, region, instance_type) = asked;
        Self {
            vendor_id: vendor_id.to_owned(),
            instance_type: instance_type.to_owned(),
            usd_per_hour: listed.usd_per_hour,
            spot_usd_per_hour: listed.spot_usd_per_hour,
            in_asked_region: region == Some(listed.region.as_str()),
            region: listed.region,
            source,
            as_of,
        }
    }
}

/// One price over one duration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// USD an hour on demand.
    pub usd_per_hour: f64,
    /// USD for the duration, on demand.
    pub usd: f64,
    /// USD for the duration at spot, where known.
    pub spot_usd: Option<f64>,
}

/// What the recommended server would have saved; negative when it is dearer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Savings {
    /// USD for the duration.
    pub usd: f64,
    /// Of what the current one cost.
    pub percent: f64,
}

/// What a run cost, and what it would have cost on the recommended server.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RunCost {
    /// How long it ran.
    pub duration_s: f64,
    /// On the instance it ran on.
    pub current: Option<Cost>,
    /// On the recommended server.
    pub recommended: Option<Cost>,
    /// The difference, where both are known.
    pub savings: Option<Savings>,
}

impl RunCost {
    /// Prices a run. A duration that is no duration costs nothing known.
    #[must_use]
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
        let current = current.and_then(|price| cost(price.usd_per_hour, price.spot_usd_per_hour));
        let recommended = recommended.and_then(|server| cost(server.ondemand_usd()?, server.spot_usd()));
        let savings = current.zip(recommended).map(|(current, recommended)| Savings {
            usd: current.usd - recommended.usd,
            // By the hour, so that a run of no length has a percentage too.
            percent: (1.0 - recommended.usd_per_hour / current.usd_per_hour) * 100.0,
        });
        Self { duration_s, current, recommended, savings }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, json};

    fn price(usd_per_hour: f64) -> InstancePrice {
        let listed = Listed { usd_per_hour, region: "r".into(), spot_usd_per_hour: None };
        InstancePrice::new(("v", Some("r"), "t"), listed, Source::Embedded, "2026".into())
    }

    fn server(ondemand: f64, spot: f64) -> Server {
        Server::from_api(Map::from_iter([
            ("min_price_ondemand".to_owned(), json!(ondemand)),
            ("min_price_spot".to_owned(), json!(spot)),
        ]))
    }

    #[test]
    fn a_run_is_priced_by_its_duration_and_savings_are_against_the_current_server() {
        let cost = RunCost::new(1800.0, Some(&price(2.0)), Some(&server(0.5, 0.2)));
        assert_eq!(cost.current, Some(Cost { usd_per_hour: 2.0, usd: 1.0, spot_usd: None }));
        assert_eq!(cost.recommended, Some(Cost { usd_per_hour: 0.5, usd: 0.25, spot_usd: Some(0.1) }));
        assert_eq!(cost.savings, Some(Savings { usd: 0.75, percent: 75.0 }));
    }

    #[test]
    fn what_is_not_known_is_not_zero() {
        let cost = RunCost::new(60.0, None, Some(&server(1.0, 0.5)));
        assert_eq!((cost.current, cost.savings), (None, None));
        assert!(cost.recommended.is_some());
        let cost = RunCost::new(f64::NAN, Some(&price(1.0)), Some(&server(1.0, 0.5)));
        assert_eq!((cost.current, cost.recommended, cost.savings), (None, None, None));
    }

    #[test]
    fn a_dearer_recommendation_is_a_negative_saving() {
        let cost = RunCost::new(3600.0, Some(&price(1.0)), Some(&server(1.5, 1.0)));
        assert_eq!(cost.savings, Some(Savings { usd: -0.5, percent: -50.0 }));
    }
}
