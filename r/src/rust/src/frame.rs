//! Converts tables to data frames: numbers and text, `NA` where nothing is known, and `POSIXct` timestamps.

use extendr_api::prelude::*;
use resource_tracker::{Fleet, FleetBy, Frame, History, Metric, SessionError};
use serde_json::{Map, Value};

use crate::failure::{Answer, Failure, Kind};
use crate::value::or_null;

pub fn frame_to_r(frame: &Frame) -> Answer {
    let columns = frame.columns().iter().map(|column| {
        Ok((column.name(), numbers(column.iter(), column.metric() == Some(Metric::Timestamp))?))
    });
    data_frame(frame.len(), columns.collect::<Answer<_>>()?)
}

/// The runs of the history, newest first.
#[extendr]
fn history_table(job: Option<&str>, tag: Option<&str>) -> Answer {
    let history = History::of_user(|name| std::env::var_os(name)).ok_or(SessionError::NoHome)?;
    rows_to_r(&history.table(job, tag).map_err(SessionError::from)?, &History::columns())
}

/// The groups of the summary of a store, and a warning about files that cannot be read.
#[extendr]
fn fleet_groups(store: &str, by: &str, since_s: Option<f64>) -> Answer {
    let by = FleetBy::from_name(by).ok_or_else(|| {
        Failure::new(Kind::Value, format!("`by` must be job, user, node, day or tag:KEY, not `{by}`"))
    })?;
    let store = Fleet::open(store)?;
    let lines = store.summary(&by, since_s)?;
    let lines = lines.iter().map(|line| serde_json::to_value(line).unwrap_or_default());
    let lines = lines.filter_map(|line| line.as_object().cloned()).collect::<Vec<_>>();
    let groups = rows_to_r(&lines, &Fleet::summary_columns())?;
    Ok(list!(groups = groups, warning = or_null(store.take_warning())).into())
}

fn rows_to_r(rows: &[Map<String, Value>], names: &[String]) -> Answer {
    let columns = names.iter().map(|name| {
        let cells: Vec<&Value> = rows.iter().filter_map(|row| row.get(name)).collect();
        Ok((name.as_str(), cells_to_r(&cells, name == "start_time")?))
    });
    data_frame(rows.len(), columns.collect::<Answer<_>>()?)
}

/// Text, truth values or numbers. A column without any value is `NA`, which R combines with all types.
fn cells_to_r(cells: &[&Value], is_time: bool) -> Answer {
    Ok(if cells.iter().any(|cell| cell.is_string()) {
        cells.iter().map(|cell| cell.as_str().map_or_else(Rstr::na, Rstr::from)).collect::<Strings>().into()
    } else if is_time || cells.iter().any(|cell| cell.is_number()) {
        numbers(cells.iter().map(|cell| cell.as_f64()), is_time)?
    } else {
        cells
            .iter()
            .map(|cell| cell.as_bool().map_or_else(Rbool::na, Rbool::from))
            .collect::<Logicals>()
            .into()
    })
}

fn data_frame(rows: usize, columns: Vec<(&str, Robj)>) -> Answer {
    let mut list = List::from_pairs(columns);
    // R's compact form of row names 1 to n is c(NA, -n).
    let rows = i32::try_from(rows).map_err(|error| Failure::new(Kind::Value, error.to_string()))?;
    list.set_attrib(row_names_symbol(), Integers::from_values([Rint::na(), Rint::from(-rows)]))?;
    list.set_class(["data.frame"])?;
    Ok(list.into())
}

fn numbers(cells: impl Iterator<Item = Option<f64>>, is_time: bool) -> Answer {
    let cells = cells.map(|cell| cell.map_or_else(Rfloat::na, Rfloat::from));
    let mut cells = Doubles::from_values(cells.collect::<Vec<_>>());
    if is_time {
        cells.set_class(["POSIXct", "POSIXt"])?;
    }
    Ok(cells.into())
}

extendr_module! {
    mod frame;
    fn history_table;
    fn fleet_groups;
}
