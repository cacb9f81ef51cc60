//! Tables as data frames: numbers, `NA` where nothing was measured, and moments that R knows as such.

use extendr_api::prelude::*;
use resource_tracker::frame::{Column, Frame};
use resource_tracker::metric::Metric;

use crate::failure::{Answer, Failure, Kind};

/// A `data.frame` of the same columns.
pub fn frame_to_r(frame: &Frame) -> Answer {
    let columns: Vec<Robj> = frame.columns().iter().map(column_to_r).collect::<Answer<_>>()?;
    let mut list = List::from_names_and_values(frame.columns().iter().map(Column::name), columns)?;
    // Row names as R stores those that only count: NA, and how many there are.
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
