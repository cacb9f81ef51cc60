//! The runs of many machines as a Python object.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use resource_tracker::{Fleet as CoreFleet, FleetBy, History, SessionError};
use serde_json::Value;

use crate::error;
use crate::value::to_python;

/// A store of the runs of many machines.
#[pyclass(frozen, module = "resource_tracker._native")]
pub struct Fleet(CoreFleet);

fn by(name: &str) -> PyResult<FleetBy> {
    FleetBy::from_name(name).ok_or_else(|| {
        PyValueError::new_err(format!("`by` must be job, user, node, day or tag:KEY, not `{name}`"))
    })
}

#[pymethods]
impl Fleet {
    #[new]
    fn new(url: &str) -> PyResult<Self> {
        CoreFleet::open(url).map(Self).map_err(|error| error::fleet(&error))
    }

    /// The address of the store.
    #[getter]
    fn url(&self) -> String {
        self.0.url()
    }

    /// Groups of runs with their sums.
    fn summary<'py>(&self, py: Python<'py>, by: &str, since: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let by = self::by(by)?;
        let lines = py.detach(|| self.0.summary(&by, since)).map_err(|error| error::fleet(&error))?;
        to_python(py, &serde_json::to_value(lines).unwrap_or(Value::Null))
    }

    /// The columns of `runs` or `samples`.
    fn rows<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        since: Option<f64>,
        job: Option<String>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let rows = py.detach(|| self.0.rows(name, since, job)).map_err(|error| error::fleet(&error))?;
        let columns = PyDict::new(py);
        for (name, cells) in rows {
            let list = PyList::empty(py);
            for cell in &cells {
                list.append(to_python(py, cell)?)?;
            }
            columns.set_item(name, list)?;
        }
        Ok(columns)
    }

    /// The table `runs` or `samples` as a Parquet file.
    fn parquet<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        since: Option<f64>,
        job: Option<String>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let content = py.detach(|| self.0.parquet(name, since, job)).map_err(|error| error::fleet(&error))?;
        Ok(PyBytes::new(py, &content))
    }

    /// SQL as pairs of a part and a statement: the views of `runs` and of `samples`, the query of the `summary`, and others.
    fn statements(&self, engine: &str, by: &str) -> PyResult<Vec<(&'static str, String)>> {
        let statements = self.0.statements(engine, &self::by(by)?);
        statements.ok_or_else(|| PyValueError::new_err(format!("`{engine}` is not an engine with SQL")))
    }

    /// A warning about files of the store that could not be read since the last call.
    fn take_warning(&self) -> Option<String> {
        self.0.take_warning()
    }

    /// Stores the runs of the history that the store does not have yet; returns their number, and why others could not be
    /// read.
    fn push(&self, py: Python<'_>) -> PyResult<(usize, Vec<String>)> {
        let history = History::of_user(|name| std::env::var_os(name));
        let history = history.ok_or_else(|| error::session(&SessionError::NoHome))?;
        let mut skipped = Vec::new();
        let stored = py.detach(|| {
            let _ = history.recover();
            let listing =
                history.list().map_err(SessionError::from).map_err(|error| error::session(&error))?;
            let missing: Vec<_> = listing.entries.into_iter().filter(|entry| self.0.lacks(entry)).collect();
            let skip = |error| skipped.push(error::text(&error));
            self.0.push_all(&history, &missing, |_, _| {}, skip).map_err(|error| error::fleet(&error))
        })?;
        Ok((stored, skipped))
    }

    /// Merges the small files of each day; returns days, merged files and written files.
    fn compact(&self, py: Python<'_>) -> PyResult<(usize, usize, usize)> {
        let done = py.detach(|| self.0.compact()).map_err(|error| error::fleet(&error))?;
        Ok((done.days, done.merged_files, done.written_files))
    }
}
