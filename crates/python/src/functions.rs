//! Functions that need no tracker: metric table, machine, cloud, servers and prices, statistics.

use std::path::PathBuf;
use std::time::Duration;

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};
use resource_tracker::{
    ALLOCATION_CHECKS, Catalog, CatalogSettings, CloudInfo, History, Meter, Metric, Output, Query, Resources,
    Run, SessionError, Stats, human,
};
use serde_json::{Value, json};

use crate::error;
use crate::readings::space_to_python;
use crate::value::{Real, from_python, map_from_python, map_to_python, to_python};

/// Version of the package.
#[pyfunction]
pub fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Starts a phase of the run that this process is part of. Never waits, so the GIL stays held.
#[pyfunction]
pub fn mark(name: &str) {
    Run::mark(name);
}

/// The metric table without the per-GPU columns.
#[pyfunction]
pub fn metrics(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let rows = PyList::empty(py);
    for metric in Metric::ONCE {
        let row = json!({
            "table": metric.table().key(),
            "column": metric.column(),
            "unit": metric.unit().symbol(),
            "decimals": metric.decimals(),
            "human_name": metric.human_name(),
            "byte_factor": metric.unit().byte_factor(),
            "doc": metric.doc(),
        });
        rows.append(to_python(py, &row)?)?;
    }
    Ok(rows)
}

/// Facts about the machine.
#[pyfunction]
pub fn server_info(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    map_to_python(py, &py.detach(resource_tracker::server_info))
}

/// The cloud; waits one second at most. The answer is cached for the life of the process.
#[pyfunction]
pub fn cloud_info(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let info = py.detach(|| serde_json::to_value(CloudInfo::get(false)));
    to_python(py, &info.map_err(|error| PyValueError::new_err(error.to_string()))?)
}

/// Combines the statistics of several runs.
#[pyfunction]
pub fn aggregate_stats<'py>(py: Python<'py>, runs: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let runs = stats_from_python(runs)?;
    let combined = Stats::combine(&runs).map_err(|error| error::stats(&error))?;
    stats_to_python(py, &combined)
}

/// Reads a list of statistics, one per run, or the dict `historical_stats` of a Metaflow artifact.
pub fn stats_from_python(runs: &Bound<'_, PyAny>) -> PyResult<Vec<Stats>> {
    let py = runs.py();
    let refuse =
        |why| PyValueError::new_err(format!("expected a list of dicts as returned by `stats()`: {why}"));
    let summary = runs.is_instance_of::<PyDict>().then(|| from_python(runs).ok()).flatten();
    if let Some(runs) = summary.as_ref().and_then(Stats::from_metaflow_history) {
        return Ok(runs);
    }
    // Iterating over a dict gives keys and over a string letters, neither of which are runs.
    let is_one = runs.is_instance_of::<PyDict>() || runs.is_instance_of::<PyString>();
    let Some(runs) = Some(runs).filter(|_| !is_one).and_then(|runs| runs.try_iter().ok()) else {
        return Err(refuse(format!("got a `{}`", runs.get_type().name()?)));
    };
    let read = |run: PyResult<Bound<'_, PyAny>>| {
        let run = match from_python(&run?) {
            Err(error) if error.is_instance_of::<PyTypeError>(py) => Err(refuse(error.value(py).to_string())),
            run => run,
        };
        serde_json::from_value(run?).map_err(|error| refuse(error.to_string()))
    };
    runs.map(read).collect()
}

pub fn stats_to_python<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyAny>> {
    let value = serde_json::to_value(stats).map_err(|error| PyValueError::new_err(error.to_string()))?;
    to_python(py, &value)
}

/// Statistics of a Metaflow step under the names of the step's artifact.
#[pyfunction]
pub fn step_stats<'py>(py: Python<'py>, stats: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let runs = stats_from_python(&PyList::new(py, [stats])?.into_any())?;
    map_to_python(py, &runs.first().map(Stats::to_metaflow).unwrap_or_default())
}

/// Statistics from the entry `stats` of a step's artifact; None if the format is unknown.
#[pyfunction]
pub fn stats_of_step<'py>(
    py: Python<'py>,
    figures: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Ok(figures) = from_python(figures) else { return Ok(None) };
    Stats::from_metaflow(&figures).map(|stats| stats_to_python(py, &stats)).transpose()
}

/// Statistics of earlier runs of a step, combined for its artifact.
#[pyfunction]
pub fn step_history<'py>(py: Python<'py>, runs: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let runs = stats_from_python(runs)?;
    map_to_python(py, &Stats::metaflow_history(&runs).map_err(|error| error::stats(&error))?)
}

/// Memory in MB, rounded up to a recommended size.
#[pyfunction]
pub fn round_memory(mb: Real) -> PyResult<u32> {
    let Real(mb) = mb;
    if !mb.is_finite() {
        return Err(PyValueError::new_err(format!("`mb` must be a finite number, not `{mb}`")));
    }
    Ok(Resources::round_memory(mb))
}

/// A duration as text, such as `4 min 10 s`.
#[pyfunction]
pub fn human_duration(seconds: f64) -> String {
    human::duration(seconds)
}

/// An amount of memory in KiB as text, such as `1.2 GiB`.
#[pyfunction]
pub fn human_memory(kib: f64) -> String {
    human::megabytes(kib / 1024.0)
}

/// Whether the block device is a partition.
#[pyfunction]
pub fn is_partition(name: &str) -> bool {
    Meter::is_partition(name)
}

/// Total, used and free bytes of each ZFS pool.
#[pyfunction]
pub fn zfs_pools(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let pools = py.detach(Meter::zfs_pools);
    let dict = PyDict::new(py);
    for (name, space) in pools {
        dict.set_item(name, space_to_python(py, &space)?)?;
    }
    Ok(dict)
}

/// The cheapest servers that fit, each with the source and the date of its price (`source`, `as_of`).
#[pyfunction]
#[pyo3(signature = (cpu, memory, gpu, vram, n, filters))]
pub fn recommended_servers<'py>(
    py: Python<'py>,
    cpu: f64,
    memory: f64,
    gpu: Option<f64>,
    vram: Option<f64>,
    n: &Bound<'py, PyAny>,
    filters: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyList>> {
    let top = match n.extract::<usize>() {
        Err(error) if error.is_instance_of::<PyOverflowError>(py) => Err(PyValueError::new_err(format!(
            "`n` must be a number of servers from 0 to {}, not `{n}`",
            usize::MAX
        ))),
        top => top,
    };
    let mut query = Query { gpu, vram_mb: vram, ..Query::new(cpu, memory).top(top?) };
    for (name, value) in map_from_python(filters)? {
        query.filters.set(&name, &value).map_err(|error| error::catalog(&error))?;
    }
    let answer = py
        .detach(|| Catalog::new(CatalogSettings::from_env()).servers(&query))
        .map_err(|error| error::catalog(&error))?;
    let list = PyList::empty(py);
    for fields in answer.rows() {
        list.append(map_to_python(py, &fields)?)?;
    }
    Ok(list)
}

/// The runs of the history, newest first.
#[pyfunction]
#[pyo3(signature = (job, tag))]
pub fn history<'py>(py: Python<'py>, job: Option<&str>, tag: Option<&str>) -> PyResult<Bound<'py, PyList>> {
    let rows = py.detach(|| {
        let history = History::of_user(|name| std::env::var_os(name)).ok_or(SessionError::NoHome)?;
        Ok(history.table(job, tag)?)
    });
    let list = PyList::empty(py);
    for row in rows.map_err(|error| error::session(&error))? {
        list.append(map_to_python(py, &row)?)?;
    }
    Ok(list)
}

/// On-demand price in USD per hour: in the region, else in the vendor's cheapest region, else None.
#[pyfunction]
pub fn instance_price(
    py: Python<'_>,
    vendor_id: &str,
    region_id: Option<&str>,
    instance_type: &str,
) -> PyResult<Option<f64>> {
    let price = py
        .detach(|| {
            Catalog::new(CatalogSettings::from_env()).instance_price(vendor_id, region_id, instance_type)
        })
        .map_err(|error| error::catalog(&error))?;
    Ok(price.map(|price| price.usd_per_hour))
}

/// The answer of the Keeper, or of the server at `endpoint`, to a path; None if there is no answer within the timeout.
#[pyfunction]
#[pyo3(signature = (path, timeout, endpoint=None))]
pub fn keeper_request<'py>(
    py: Python<'py>,
    path: &str,
    timeout: Real,
    endpoint: Option<String>,
) -> PyResult<Bound<'py, PyAny>> {
    let deadline = Duration::try_from_secs_f64(timeout.0).map_err(|_| {
        PyValueError::new_err(format!(
            "`timeout` must be a finite number of seconds, 0 or more, not `{}`",
            timeout.0
        ))
    })?;
    let mut settings = CatalogSettings { deadline, ..CatalogSettings::from_env() };
    if let Some(endpoint) = endpoint {
        settings.keeper_url = endpoint;
    }
    let answer = py.detach(|| settings.keeper_request(path));
    to_python(py, &answer.unwrap_or(Value::Null))
}

/// Thresholds above which the machine counts as shared with other jobs.
#[pyfunction]
pub fn allocation_checks(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let checks = PyList::empty(py);
    for check in ALLOCATION_CHECKS {
        let row = json!({
            "system_column": check.system.column(),
            "process_column": check.process.column(),
            "percent": 1.0 + check.share,
            "absolute": check.amount,
        });
        checks.append(to_python(py, &row)?)?;
    }
    Ok(checks)
}

/// Writes a text file atomically.
#[pyfunction]
pub fn save_text(py: Python<'_>, text: &str, path: PathBuf) -> PyResult<()> {
    py.detach(|| Output::write_text(&path, text)).map_err(|error| error::file(&error, path))
}
