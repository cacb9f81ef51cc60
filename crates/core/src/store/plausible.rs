//! Plausible numbers: the ranges of all numbers in a file of a run.
//!
//! In:  cells of a table; the JSON values of a head. Out: nothing, or [`Implausible`], which names the field.
//! Not here: the ranges of columns (`metric::Unit::range`).
//!
//! Files may be damaged or forged. Sums and ratios of numbers in these ranges stay finite and short when printed.

use std::ops::RangeInclusive;

use serde_json::Value;
use thiserror::Error;

use crate::metric::{Metric, Table, Unit};

/// Smallest number above 0 in a table or a limit. Recordings have six decimals; a ratio to a smaller number is absurd.
const SMALLEST: f64 = 1e-9;

/// A range that the number of a later version must be in, and a number without an entry in [`FIELDS`].
const OTHER: RangeInclusive<f64> = -1e21..=1e21;

/// Keys of the head. The value 0 means unknown, except for the interval.
const FIELDS: [(&[&str], RangeInclusive<f64>); 6] = [
    (&["interval"], 1e-6..=1e9),
    (&["start_time", "stop_time"], Unit::UnixTime.range()),
    // The wall clock may be set back during a run.
    (&["duration", "duration_s"], -1e12..=1e12),
    (&["vcpus", "cpu_limit", "gpu_count"], SMALLEST..=1e6),
    (&["memory_mb", "memory_limit_mb", "gpu_memory_mb", "vram_total_mib"], SMALLEST..=1e15),
    (&["coverage", "discovery_time"], 0.0..=1e6),
];

/// A number outside of its range.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("`{field}` is {}, not a number from {} to {}", short(*.value), short(*.range.start()), short(*.range.end()))]
pub struct Implausible {
    /// Path of the key, such as `server_info.vcpus`; or a column.
    pub field: String,
    value: f64,
    range: RangeInclusive<f64>,
}

/// Numbers of this column.
pub(crate) fn range_of(table: Table, column: &str) -> RangeInclusive<f64> {
    Metric::unit_of(table, column).map_or(OTHER, Unit::range)
}

/// Checks a cell of the column `field`.
pub(crate) fn cell(field: &str, value: f64, range: &RangeInclusive<f64>) -> Result<(), Implausible> {
    let is_plausible = range.contains(&value) && (value == 0.0 || value.abs() >= SMALLEST);
    if is_plausible {
        Ok(())
    } else {
        Err(Implausible { field: field.to_owned(), value, range: range.clone() })
    }
}

/// Checks all numbers in a JSON value. `path` is the key of the value.
pub(crate) fn check(path: &str, value: &Value) -> Result<(), Implausible> {
    match value {
        Value::Number(number) => {
            let value = number.as_f64().unwrap_or(f64::NAN);
            let key = path.rsplit('.').next().unwrap_or_default();
            let field = FIELDS.iter().find(|(keys, _)| keys.contains(&key));
            let range = field.map_or(&OTHER, |(_, range)| range);
            if range.contains(&value) || (value == 0.0 && key != "interval") {
                return Ok(());
            }
            Err(Implausible { field: path.to_owned(), value, range: range.clone() })
        }
        Value::Array(values) => values.iter().try_for_each(|value| check(path, value)),
        Value::Object(values) => values.iter().try_for_each(|(key, value)| {
            check(&if path.is_empty() { key.clone() } else { format!("{path}.{key}") }, value)
        }),
        Value::Null | Value::Bool(_) | Value::String(_) => Ok(()),
    }
}

/// A number in few characters.
fn short(value: f64) -> String {
    let is_short = value == 0.0 || (1e-4..1e15).contains(&value.abs());
    if is_short { value.to_string() } else { format!("{value:e}") }
}
