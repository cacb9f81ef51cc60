//! Columns of numbers, converted to Python lists on demand.

use std::sync::Arc;

use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PySlice, PyString};
use resource_tracker::{AnyColumn, Column as CoreColumn, Frame, OtherCell, write_decimal};

use crate::error;

/// The result of `__reduce__`: a constructor and its arguments.
type Reduced<'py> = (Bound<'py, PyAny>, (Bound<'py, PyBytes>, bool));

/// One column of a table; cells that were not measured are None.
#[pyclass(frozen, module = "resource_tracker._native")]
pub struct Column {
    cells: Arc<Vec<f64>>,
    whole: bool,
}

impl Column {
    pub fn cells(&self) -> &Arc<Vec<f64>> {
        &self.cells
    }

    fn of(column: CoreColumn) -> Self {
        let whole = column.is_whole();
        Self { cells: Arc::new(column.into_cells()), whole }
    }

    fn cell(value: f64) -> Option<f64> {
        Some(value).filter(|value| !value.is_nan())
    }
}

#[pymethods]
impl Column {
    fn __len__(&self) -> usize {
        self.cells.len()
    }

    /// The cells as a list.
    fn to_list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.cells.iter().map(|cell| Self::cell(*cell)))
    }

    /// One cell; negative indices count from the end.
    fn get(&self, index: isize) -> PyResult<Option<f64>> {
        let at = if index < 0 { index + self.cells.len().cast_signed() } else { index };
        let cell = usize::try_from(at).ok().and_then(|at| self.cells.get(at));
        cell.map(|cell| Self::cell(*cell)).ok_or_else(|| PyIndexError::new_err("row index out of range"))
    }

    /// The cells of a slice, as a column.
    fn slice(&self, slice: &Bound<'_, PySlice>) -> PyResult<Self> {
        let indices = slice.indices(self.cells.len().cast_signed())?;
        let mut at = indices.start;
        let mut cells = Vec::with_capacity(indices.slicelength);
        for _ in 0..indices.slicelength {
            cells.extend(usize::try_from(at).ok().and_then(|at| self.cells.get(at)));
            at += indices.step;
        }
        Ok(Self { cells: Arc::new(cells), whole: self.whole })
    }

    /// Whether the column holds whole numbers, which CSV files write without a decimal point.
    #[getter]
    fn whole(&self) -> bool {
        self.whole
    }

    /// Called by pickle and copy.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        Ok((py.get_type::<Self>().getattr("from_bytes")?, (self.to_bytes(py), self.whole)))
    }

    /// The cells as little-endian doubles; NaN for missing cells.
    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let bytes: Vec<u8> = self.cells.iter().flat_map(|cell| cell.to_le_bytes()).collect();
        PyBytes::new(py, &bytes)
    }

    /// The inverse of `to_bytes`.
    #[staticmethod]
    fn from_bytes(bytes: &[u8], whole: bool) -> Self {
        let (cells, _) = bytes.as_chunks::<8>();
        Self { cells: Arc::new(cells.iter().map(|cell| f64::from_le_bytes(*cell)).collect()), whole }
    }
}

/// A frame as a dict of its columns.
pub fn frame_to_python(py: Python<'_>, frame: Frame) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    for column in frame.into_columns() {
        dict.set_item(PyString::new(py, column.name()), Column::of(column))?;
    }
    Ok(dict)
}

/// Columns of a CSV text, and the names of the columns with whole numbers. A column with any cell other than a finite
/// number is a list.
#[pyfunction]
pub fn read_csv<'py>(py: Python<'py>, text: &[u8]) -> PyResult<(Bound<'py, PyDict>, Vec<String>)> {
    let columns = py.detach(|| AnyColumn::read_csv(text));
    let columns = columns.map_err(|error| PyValueError::new_err(error::text(&error)))?;
    let whole = columns.iter().filter(|column| column.numbers.is_whole());
    let whole = whole.map(|column| column.numbers.name().to_owned()).collect();
    let dict = PyDict::new(py);
    for AnyColumn { numbers, others } in columns {
        let name = PyString::new(py, numbers.name());
        let column = Column::of(numbers);
        if others.is_empty() {
            dict.set_item(name, column)?;
            continue;
        }
        let list = column.to_list(py)?;
        for (row, other) in others {
            match other {
                OtherCell::Text(text) => list.set_item(row, text)?,
                OtherCell::NotFinite(number) => list.set_item(row, number)?,
            }
        }
        dict.set_item(name, list)?;
    }
    Ok((dict, whole))
}

/// A finite number as CSV text; without a decimal point if `whole`.
#[pyfunction]
pub fn number_as_text(number: f64, whole: bool) -> String {
    let mut text = Vec::new();
    write_decimal(&mut text, number, whole);
    String::from_utf8_lossy(&text).into_owned()
}

/// Columns as CSV text.
#[pyfunction]
pub fn write_csv(py: Python<'_>, columns: &Bound<'_, PyDict>) -> PyResult<String> {
    let columns: Vec<CoreColumn> = columns
        .iter()
        .map(|(name, column)| {
            let column = column.cast::<Column>()?.get();
            Ok(CoreColumn::new(name.extract::<String>()?, column.cells.to_vec()).with_whole(column.whole))
        })
        .collect::<PyResult<_>>()?;
    py.detach(|| {
        let frame = Frame::from_columns(columns).map_err(|error| PyValueError::new_err(error.to_string()))?;
        let mut text = Vec::new();
        frame.write_csv(&mut text)?;
        String::from_utf8(text).map_err(|error| PyValueError::new_err(error.to_string()))
    })
}
