//! Converts tables to data frames: numbers, `NA` where nothing was measured, and `POSIXct` timestamps.

use extendr_api::prelude::*;
use resource_tracker::{Column, Frame, Metric};

use crate::failure::{Answer, Failure, Kind};

pub fn frame_to_r(frame: &Frame) -> Answer {
    let columns: Vec<Robj> = frame.columns().iter().map(column_to_r).collect::<Answer<_>>()?;
    let mut list = List::from_names_and_values(frame.columns().iter().map(Column::name), columns)?;
    // R's compact form of row names 1 to n is c(NA, -n).
    let rows = i32::try_from(frame.len()).map_err(|error| Failure::new(Kind::Value, error.to_string()))?;
    list.set_attrib(row_names_symbol(), Integers::from_values([Rint::na(), Rint::from(-rows)]))?;
    list.set_class(["data.frame"])?;
    Ok(list.into())
}

fn column_to_r(column: &Column) -> Answer {
    let cells = column.iter().map(|cell| cell.map_or_else(Rfloat::na, Rfloat::from));
    let mut cells = Doubles::from_values(cells.collect::<Vec<_>>());
    if column.metric() == Some(Metric::Timestamp) {
        cells.set_class(["POSIXct", "POSIXt"])?;
    }
    Ok(cells.into())
}
