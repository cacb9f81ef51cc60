//! Functions without a tracker: the metric table, the machine, the cloud, servers and prices.

use std::path::PathBuf;
use std::time::Duration;

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};
use resource_tracker::allocation::CHECKS;
use resource_tracker::catalog::{self, Catalog, Query, Settings};
use resource_tracker::cloud;
use resource_tracker::host;
use resource_tracker::metric::Metric;
use resource_tracker::output;
use resource_tracker::recommend;
use resource_tracker::record::PROGRAM_VERSION;
use resource_tracker::root::Root;
use resource_tracker::source;
use resource_tracker::stats::{self, Stats};
use resource_tracker::step;
use serde_json::{Value, json};

use crate::error;
use crate::value::{Real, from_python, map_from_python, map_to_python, to_python};

/// Version of the package.
#[pyfunction]
pub fn version() -> &'static str {
    PROGRAM_VERSION
}

/// The metric table, without what every GPU has: dicts of table, column, unit, kind, decimals, `human_name`, `byte_factor` and doc.
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

/// The machine, without the guess who uses it.
#[pyfunction]
pub fn server_info(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let info = py.detach(|| Root::host_as_guest().map(|root| host::look(&root, "self").server_info()));
    map_to_python(py, &info.unwrap_or_default())
}

/// The cloud; waits a second at the most, and is found out once a process.
#[pyfunction]
pub fn cloud_info(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let info = py.detach(|| serde_json::to_value(cloud::cloud_info(false)));
    to_python(py, &info.map_err(|error| PyValueError::new_err(error.to_string()))?)
}

/// Several runs' statistics as one.
#[pyfunction]
pub fn aggregate_stats<'py>(py: Python<'py>, runs: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let runs = stats_from_python(runs)?;
    let combined = stats::aggregate_stats(&runs).map_err(|error| error::stats(&error))?;
    stats_to_python(py, &combined)
}

/// The statistics of some runs, one after the other.
pub fn stats_from_python(runs: &Bound<'_, PyAny>) -> PyResult<Vec<Stats>> {
    let py = runs.py();
    let refuse =
        |why| PyValueError::new_err(format!("wanted is a list of dicts as `stats()` gives them: {why}"));
    // A dict gives its keys and a text its letters, which are no runs.
    let is_one = runs.is_instance_of::<PyDict>() || runs.is_instance_of::<PyString>();
    let Some(runs) = Some(runs).filter(|_| !is_one).and_then(|runs| runs.try_iter().ok()) else {
        return Err(refuse(format!("a `{}` is none", runs.get_type().name()?)));
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

/// The statistics of a workflow's step under the names that its artifact has for them.
#[pyfunction]
pub fn step_stats<'py>(py: Python<'py>, stats: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let runs = stats_from_python(&PyList::new(py, [stats])?.into_any())?;
    map_to_python(py, &runs.first().map(step::to_artifact).unwrap_or_default())
}

/// The statistics that a step's artifact holds under `stats`, or None where there are none that we know.
#[pyfunction]
pub fn stats_of_step<'py>(
    py: Python<'py>,
    figures: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Ok(figures) = from_python(figures) else { return Ok(None) };
    step::from_artifact(&figures).map(|stats| stats_to_python(py, &stats)).transpose()
}

/// What earlier runs of a step say together.
#[pyfunction]
pub fn step_history<'py>(py: Python<'py>, runs: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let runs = stats_from_python(runs)?;
    map_to_python(py, &step::history(&runs).map_err(|error| error::stats(&error))?)
}

/// Memory in MB, rounded up as recommendations are.
#[pyfunction]
pub fn round_memory(mb: Real) -> PyResult<u32> {
    let Real(mb) = mb;
    if !mb.is_finite() {
        return Err(PyValueError::new_err(format!("`mb` must be a size that memory can have, not `{mb}`")));
    }
    Ok(recommend::round_memory(mb))
}

/// Whether a block device's name is that of a partition.
#[pyfunction]
pub fn is_partition(name: &str) -> bool {
    source::is_partition(name)
}

/// Size, used and free bytes of each ZFS pool.
#[pyfunction]
pub fn zfs_pools(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let pools = py.detach(|| source::zfs_pools(&Root::host_as_guest()?)).unwrap_or_default();
    let dict = PyDict::new(py);
    for (name, space) in pools {
        let sizes = json!({"total": space.total_bytes, "used": space.used_bytes, "free": space.free_bytes});
        dict.set_item(name, to_python(py, &sizes)?)?;
    }
    Ok(dict)
}

/// The cheapest servers that fit, each with who says so (`source`) and as of when (`as_of`).
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
    let answer = py.detach(|| catalog::servers(&query)).map_err(|error| error::catalog(&error))?;
    let list = PyList::empty(py);
    for fields in answer.rows() {
        list.append(map_to_python(py, &fields)?)?;
    }
    Ok(list)
}

/// USD an hour for an instance type on demand: in that region, else in the vendor's cheapest other one, else None.
#[pyfunction]
pub fn instance_price(
    py: Python<'_>,
    vendor_id: &str,
    region_id: Option<&str>,
    instance_type: &str,
) -> PyResult<Option<f64>> {
    let price = py
        .detach(|| Catalog::new(Settings::from_env()).instance_price(vendor_id, region_id, instance_type))
        .map_err(|error| error::catalog(&error))?;
    Ok(price.map(|price| price.usd_per_hour))
}

/// What the Keeper answers to a path, or None when it does not within the time.
#[pyfunction]
pub fn keeper_request<'py>(py: Python<'py>, path: &str, timeout: Real) -> PyResult<Bound<'py, PyAny>> {
    let deadline = Duration::try_from_secs_f64(timeout.0).map_err(|_| {
        PyValueError::new_err(format!("`timeout` must be seconds that can be waited, not `{}`", timeout.0))
    })?;
    let settings = Settings { deadline, ..Settings::from_env() };
    let answer = py.detach(|| catalog::keeper_request(&settings, path));
    to_python(py, &answer.unwrap_or(Value::Null))
}

/// From when on the machine counts as shared: four dicts of `system_column`, `process_column`, percent and absolute.
#[pyfunction]
pub fn allocation_checks(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let checks = PyList::empty(py);
    for check in CHECKS {
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

/// Writes a text file, whole or not at all.
#[pyfunction]
pub fn save_text(py: Python<'_>, text: &str, path: PathBuf) -> PyResult<()> {
    py.detach(|| output::write_text(&path, text)).map_err(|error| error::file(&error, path))
}
