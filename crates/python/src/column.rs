//! Columns of numbers that become Python lists only when somebody asks for one.

use std::sync::Arc;

use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict as _, PyBytes, PyDict, PyList, PySlice, PyString};
use resource_tracker::csv::{self, CsvError, Field, LastRow, TableRows};
use resource_tracker::decimal;
use resource_tracker::frame::{Column as CoreColumn, Frame};

use crate::error;

/// A function and its arguments, of which pickle makes the object again.
type Reduced<'py> = (Bound<'py, PyAny>, (Bound<'py, PyBytes>, bool));

/// One column of a table; a cell that was not measured is None.
#[pyclass(frozen, module = "resource_tracker._native")]
pub struct Column {
    cells: Arc<Vec<f64>>,
    whole: bool,
}

impl Column {
    pub fn cells(&self) -> &Arc<Vec<f64>> {
        &self.cells
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

    /// One cell; negative numbers count from the end.
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

    /// Holds whole numbers, which files have without a point.
    #[getter]
    fn whole(&self) -> bool {
        self.whole
    }

    /// For pickle and copy.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        Ok((py.get_type::<Self>().getattr("from_bytes")?, (self.to_bytes(py), self.whole)))
    }

    /// The cells as doubles, the least significant byte first; NaN for the missing.
    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let bytes: Vec<u8> = self.cells.iter().flat_map(|cell| cell.to_le_bytes()).collect();
        PyBytes::new(py, &bytes)
    }

    /// The inverse of what pickle stores.
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
        let name = PyString::new(py, column.name());
        let whole = column.is_whole();
        dict.set_item(name, Column { cells: Arc::new(column.into_cells()), whole })?;
    }
    Ok(dict)
}

/// The columns of a CSV text: of numbers as they are, of anything else as lists.
#[pyfunction]
pub fn read_csv<'py>(py: Python<'py>, text: &[u8]) -> PyResult<Bound<'py, PyDict>> {
    match py.detach(|| csv::read(text, None, LastRow::MayLackLineEnd)) {
        Ok(frame) => frame_to_python(py, frame),
        Err(CsvError::NotANumber { .. }) => read_mixed(py, text),
        Err(error) => Err(PyValueError::new_err(error::text(&error))),
    }
}

fn read_mixed<'py>(py: Python<'py>, text: &[u8]) -> PyResult<Bound<'py, PyDict>> {
    let refuse = |error: CsvError| PyValueError::new_err(error::text(&error));
    let (names, mut rows) = TableRows::open(text, LastRow::MayLackLineEnd).map_err(refuse)?;
    let columns: Vec<_> = names.iter().map(|_| PyList::empty(py)).collect();
    let mut fields = Vec::new();
    while rows.read(&mut fields).map_err(refuse)?.is_some() {
        for (list, field) in columns.iter().zip(&fields) {
            list.append(cell_to_python(py, field)?)?;
        }
    }
    names.iter().zip(columns).into_py_dict(py)
}

fn cell_to_python<'py>(py: Python<'py>, field: &Field<'_>) -> PyResult<Bound<'py, PyAny>> {
    if !field.quoted {
        if field.text.is_empty() {
            return Ok(py.None().into_bound(py));
        }
        let not_finite = || match &*field.text {
            b"nan" => Some(f64::NAN),
            b"inf" => Some(f64::INFINITY),
            b"-inf" => Some(f64::NEG_INFINITY),
            _ => None,
        };
        if let Some(number) = decimal::parse(&field.text).or_else(not_finite) {
            return Ok(number.into_pyobject(py)?.into_any());
        }
    }
    Ok(PyString::new(py, &String::from_utf8_lossy(&field.text)).into_any())
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
        csv::write_frame(&mut text, &frame)?;
        String::from_utf8(text).map_err(|error| PyValueError::new_err(error.to_string()))
    })
}
