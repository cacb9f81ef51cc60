//! Converts between JSON values and Python objects.

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use serde_json::{Map, Number, Value};

pub fn to_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(truth) => PyBool::new(py, *truth).to_owned().into_any(),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(whole), _) => whole.into_pyobject(py)?.into_any(),
            (None, Some(whole)) => whole.into_pyobject(py)?.into_any(),
            (None, None) => number.as_f64().into_pyobject(py)?,
        },
        Value::String(text) => PyString::new(py, text).into_any(),
        Value::Array(items) => {
            let list = PyList::empty(py);
            for item in items {
                list.append(to_python(py, item)?)?;
            }
            list.into_any()
        }
        Value::Object(map) => map_to_python(py, map)?.into_any(),
    })
}

pub fn map_to_python<'py>(py: Python<'py>, map: &Map<String, Value>) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (key, value) in map {
        dict.set_item(key, to_python(py, value)?)?;
    }
    Ok(dict)
}

/// A number as a Python argument; integers too large for a double become infinite.
#[derive(Clone, Copy)]
pub struct Real(pub f64);

impl FromPyObject<'_, '_> for Real {
    type Error = PyErr;

    fn extract(number: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        match number.extract::<f64>() {
            Err(error) if error.is_instance_of::<PyOverflowError>(number.py()) => {
                Ok(Self(if number.lt(0)? { f64::NEG_INFINITY } else { f64::INFINITY }))
            }
            extracted => extracted.map(Self),
        }
    }
}

/// Limit on nesting, since a list can contain itself.
const DEEPEST: usize = 64;

/// Converts to JSON; non-finite numbers become null.
pub fn from_python(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    nested(object, DEEPEST)
}

fn nested(object: &Bound<'_, PyAny>, deeper: usize) -> PyResult<Value> {
    if object.is_none() {
        return Ok(Value::Null);
    }
    if let Ok(truth) = object.cast::<PyBool>() {
        return Ok(Value::Bool(truth.is_true()));
    }
    if let Ok(number) = object.cast::<PyInt>() {
        if let Ok(whole) = number.extract::<i64>() {
            return Ok(Value::from(whole));
        }
        return Ok(Number::from_f64(number.extract()?).map_or(Value::Null, Value::Number));
    }
    if let Ok(number) = object.cast::<PyFloat>() {
        return Ok(Number::from_f64(number.value()).map_or(Value::Null, Value::Number));
    }
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(Value::String(text.extract()?));
    }
    let below = || {
        deeper.checked_sub(1).ok_or_else(|| {
            PyValueError::new_err(format!("lists and dicts are nested more than {DEEPEST} levels deep"))
        })
    };
    if let Ok(dict) = object.cast::<PyDict>() {
        return Ok(Value::Object(entries(dict, below()?)?));
    }
    if object.cast::<PyList>().is_ok() || object.cast::<PyTuple>().is_ok() {
        let deeper = below()?;
        let items = object.try_iter()?.map(|item| nested(&item?, deeper));
        return items.collect::<PyResult<_>>().map(Value::Array);
    }
    // Number types of other packages, such as numpy.
    match object.extract::<f64>() {
        Ok(number) => Ok(Number::from_f64(number).map_or(Value::Null, Value::Number)),
        Err(_) => Err(PyTypeError::new_err(format!(
            "cannot convert a value of type `{}`",
            object.get_type().name()?
        ))),
    }
}

pub fn map_from_python(dict: &Bound<'_, PyDict>) -> PyResult<Map<String, Value>> {
    entries(dict, DEEPEST)
}

fn entries(dict: &Bound<'_, PyDict>, deeper: usize) -> PyResult<Map<String, Value>> {
    dict.iter().map(|(key, value)| Ok((key.extract::<String>()?, nested(&value, deeper)?))).collect()
}
