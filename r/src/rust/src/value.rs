//! Converts between JSON values and R values.
//!
//! In:  null, booleans, numbers, strings, arrays and objects. Out: `NULL`, vectors and named lists.
//!
//! R has no scalars, so an array of one element looks like its element. In a snapshot, which becomes JSON again, arrays of
//! one element get R's class `AsIs`.

use extendr_api::prelude::*;
use serde_json::{Map, Number, Value};

use crate::failure::{Answer, Failure, Kind};

/// How arrays of one element are converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Singles {
    /// As plain vectors.
    Plain,
    /// With class `AsIs`, so that they become arrays again.
    Marked,
}

pub fn to_r(value: &Value, singles: Singles) -> Answer {
    Ok(match value {
        Value::Null => NULL.into(),
        Value::Bool(truth) => truth.into(),
        Value::Number(number) => number_to_r(number),
        Value::String(text) => text.into(),
        Value::Array(items) => {
            let mut array = array_to_r(items, singles)?;
            if items.len() == 1 && singles == Singles::Marked && !array.is_list() {
                array.set_class(["AsIs"])?;
            }
            array
        }
        Value::Object(map) => map_to_r(map, singles)?,
    })
}

/// `None` as `NULL`; extendr's own conversion gives `NA`.
pub fn or_null(value: Option<impl Into<Robj>>) -> Robj {
    value.map_or_else(|| NULL.into(), Into::into)
}

pub fn map_to_r(map: &Map<String, Value>, singles: Singles) -> Answer {
    let values: Vec<Robj> = map.values().map(|value| to_r(value, singles)).collect::<Answer<_>>()?;
    Ok(List::from_names_and_values(map.keys(), values)?.into())
}

/// Whole numbers become R integers if they fit.
fn number_to_r(number: &Number) -> Robj {
    match number.as_i64().and_then(|whole| i32::try_from(whole).ok()).filter(|whole| *whole != i32::MIN) {
        Some(whole) => whole.into(),
        None => number.as_f64().into(),
    }
}

/// A vector if all items have one type, else a list.
fn array_to_r(items: &[Value], singles: Singles) -> Answer {
    if items.is_empty() {
        return Ok(List::new(0).into());
    }
    if let Some(texts) = items.iter().map(Value::as_str).collect::<Option<Vec<_>>>() {
        return Ok(texts.into());
    }
    if let Some(truths) = items.iter().map(Value::as_bool).collect::<Option<Vec<_>>>() {
        return Ok(truths.into());
    }
    if let Some(numbers) = items.iter().map(Value::as_f64).collect::<Option<Vec<_>>>() {
        return Ok(numbers.into());
    }
    let values: Vec<Robj> = items.iter().map(|item| to_r(item, singles)).collect::<Answer<_>>()?;
    Ok(List::from_values(values).into())
}

/// Limit on the nesting of lists.
const DEEPEST: usize = 64;

/// Converts to JSON; `NA` and non-finite numbers become null.
pub fn from_r(value: &Robj) -> Answer<Value> {
    nested(value, DEEPEST)
}

fn nested(value: &Robj, deeper: usize) -> Answer<Value> {
    if value.is_null() {
        return Ok(Value::Null);
    }
    if value.is_list() {
        let deeper = deeper.checked_sub(1).ok_or_else(|| {
            Failure::new(Kind::Value, format!("lists are nested more than {DEEPEST} levels deep"))
        })?;
        return list_from_r(value, deeper);
    }
    let items: Vec<Value> = if let Some(texts) = value.as_str_iter() {
        texts.map(|text| if text.is_na() { Value::Null } else { text.into() }).collect()
    } else if let Some(truths) = value.as_logical_slice() {
        truths.iter().map(|truth| if truth.is_na() { Value::Null } else { truth.is_true().into() }).collect()
    } else if let Some(numbers) = value.as_integer_slice() {
        numbers.iter().map(|number| if number.is_na() { Value::Null } else { (*number).into() }).collect()
    } else if let Some(numbers) = value.as_real_slice() {
        numbers.iter().map(|number| real_from_r(*number)).collect()
    } else {
        let kind = format!("{:?}", value.rtype()).to_lowercase();
        return Err(Failure::new(Kind::Value, format!("cannot convert a value of type `{kind}`")));
    };
    if items.len() == 1 && !value.inherits("AsIs") {
        return Ok(items.into_iter().next().unwrap_or(Value::Null));
    }
    Ok(Value::Array(items))
}

/// R has no whole numbers beyond 32 bits, so `number_to_r` makes them reals.
fn real_from_r(number: f64) -> Value {
    let beyond_integers = f64::from(i32::MAX)..=9_007_199_254_740_992.0; // 2^53
    if number.fract() == 0.0 && beyond_integers.contains(&number.abs()) {
        #[expect(clippy::cast_possible_truncation, reason = "whole and at most 2^53")]
        return Value::from(number as i64);
    }
    Number::from_f64(number).map_or(Value::Null, Value::Number)
}

/// Lists with names become objects, lists without names arrays, and data frames arrays of rows.
fn list_from_r(value: &Robj, deeper: usize) -> Answer<Value> {
    let list = value.as_list().unwrap_or_default();
    if value.inherits("data.frame") {
        return rows_from_r(&list, deeper);
    }
    if value.names().is_none() {
        return list.values().map(|item| nested(&item, deeper)).collect::<Answer<_>>().map(Value::Array);
    }
    entries(&list, deeper).map(Value::Object)
}

pub fn map_from_r(list: &List) -> Answer<Map<String, Value>> {
    entries(list, DEEPEST)
}

fn entries(list: &List, deeper: usize) -> Answer<Map<String, Value>> {
    list.iter().map(|(name, item)| Ok((name.to_owned(), nested(&item, deeper)?))).collect()
}

fn rows_from_r(frame: &List, deeper: usize) -> Answer<Value> {
    let columns: Vec<(String, Vec<Value>)> = frame
        .iter()
        .map(|(name, column)| {
            let cells = match nested(&column, deeper)? {
                Value::Array(cells) => cells,
                one => vec![one],
            };
            Ok((name.to_owned(), cells))
        })
        .collect::<Answer<_>>()?;
    let rows = columns.first().map_or(0, |(_, cells)| cells.len());
    let row = |at: usize| {
        let cells =
            columns.iter().map(|(name, cells)| (name.clone(), cells.get(at).cloned().unwrap_or_default()));
        Value::Object(cells.collect())
    };
    Ok(Value::Array((0..rows).map(row).collect()))
}
