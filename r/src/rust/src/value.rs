//! JSON values and R's, both ways.
//!
//! In:  `null`, truth, numbers, text, arrays and objects. Out: `NULL`, vectors of one element, vectors, named lists.
//!
//! R has no scalars, so an array of one element looks like its element. Where the value is to become JSON again (a
//! snapshot) such an array is marked with R's own class for it, `AsIs`.

use extendr_api::prelude::*;
use serde_json::{Map, Number, Value};

use crate::failure::{Answer, Failure, Kind};

/// What becomes of arrays with one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Singles {
    /// They are for people.
    Plain,
    /// They are to be arrays again.
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

/// `NULL` for what there is none of; extendr's own conversion gives `NA`.
pub fn or_null(value: Option<impl Into<Robj>>) -> Robj {
    value.map_or_else(|| NULL.into(), Into::into)
}

/// A named list of the same keys, in their order.
pub fn map_to_r(map: &Map<String, Value>, singles: Singles) -> Answer {
    let values: Vec<Robj> = map.values().map(|value| to_r(value, singles)).collect::<Answer<_>>()?;
    Ok(List::from_names_and_values(map.keys(), values)?.into())
}

/// Whole numbers that R's integers can hold are such.
fn number_to_r(number: &Number) -> Robj {
    match number.as_i64().and_then(|whole| i32::try_from(whole).ok()).filter(|whole| *whole != i32::MIN) {
        Some(whole) => whole.into(),
        None => number.as_f64().into(),
    }
}

/// A vector where all items are of one kind, else a list.
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

/// What we are given lies no deeper than this.
const DEEPEST: usize = 64;

/// The JSON of an R value made of what JSON knows; `NA` and numbers that are not finite are missing.
pub fn from_r(value: &Robj) -> Answer<Value> {
    nested(value, DEEPEST)
}

fn nested(value: &Robj, deeper: usize) -> Answer<Value> {
    if value.is_null() {
        return Ok(Value::Null);
    }
    if value.is_list() {
        let deeper = deeper.checked_sub(1).ok_or_else(|| {
            Failure::new(Kind::Value, format!("cannot use lists more than {DEEPEST} levels deep"))
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
        numbers.iter().map(|number| Number::from_f64(*number).map_or(Value::Null, Value::Number)).collect()
    } else {
        let kind = format!("{:?}", value.rtype()).to_lowercase();
        return Err(Failure::new(Kind::Value, format!("cannot use a value of type `{kind}` here")));
    };
    if items.len() == 1 && !value.inherits("AsIs") {
        return Ok(items.into_iter().next().unwrap_or(Value::Null));
    }
    Ok(Value::Array(items))
}

/// An object by its names, an array without; a data frame is an array of its rows.
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

/// The JSON object of a named list.
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
