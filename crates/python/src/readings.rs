//! Single readings of a process or the machine, and rows on demand.

use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::{PyOverflowError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySet};
use resource_tracker::{
    Backend, Config, DiskSpace, Interval, Meter as CoreMeter, Metric, ProcessReading, Row, SessionError,
    SystemReading, Table, TrackerError,
};

use crate::error;
use crate::value::Real;

/// The backend with this name; without a name, the backend that the environment selects.
pub fn backend_of(name: Option<&str>) -> PyResult<Backend> {
    let backend = name.map_or_else(Backend::from_env, Backend::from_name);
    backend.map_err(|error| PyValueError::new_err(format!("{error}; {}", error.hint())))
}

/// A process id as a Python argument.
#[derive(Clone, Copy)]
pub struct Pid(pub u32);

impl FromPyObject<'_, '_> for Pid {
    type Error = PyErr;

    fn extract(number: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        number.extract().map(Self).map_err(|error| {
            if !error.is_instance_of::<PyOverflowError>(number.py()) {
                return error;
            }
            let number = number.to_owned();
            PyValueError::new_err(format!(
                "`{number}` is not a process id; process ids are positive 32-bit integers"
            ))
        })
    }
}

pub fn interval_of(Real(seconds): Real) -> PyResult<Interval> {
    Interval::from_seconds(seconds)
        .map_err(|error| PyValueError::new_err(format!("{error}; {}", error.hint())))
}

/// Totals of a process so far; with `children`, also the totals of its descendants.
#[pyfunction]
#[pyo3(signature = (pid, children, backend=None))]
pub fn process_stats<'py>(
    py: Python<'py>,
    pid: Pid,
    children: bool,
    backend: Option<&str>,
) -> PyResult<Bound<'py, PyDict>> {
    let (Pid(pid), backend) = (pid, backend_of(backend)?);
    let read = py
        .detach(|| ProcessReading::of(backend, pid, children))
        .map_err(|source| error::session(&SessionError::Tracker(TrackerError::Target { pid, source })))?;
    let dict = PyDict::new(py);
    dict.set_item("timestamp", read.timestamp)?;
    dict.set_item("pid", read.pid)?;
    dict.set_item("children", read.children)?;
    dict.set_item("utime", read.user_s)?;
    dict.set_item("stime", read.system_s)?;
    dict.set_item("memory", read.memory_kib)?;
    dict.set_item("read_bytes", read.read_bytes)?;
    dict.set_item("write_bytes", read.write_bytes)?;
    dict.set_item("gpu_usage", read.gpu.usage)?;
    dict.set_item("gpu_vram", read.gpu.vram_mib())?;
    dict.set_item("gpu_utilized", read.gpu.utilized)?;
    dict.set_item("gpu_utilized_indexes", PySet::new(py, read.gpu_numbers)?)?;
    Ok(dict)
}

/// Totals and levels of the machine.
#[pyfunction]
#[pyo3(signature = (backend=None))]
pub fn system_stats<'py>(py: Python<'py>, backend: Option<&str>) -> PyResult<Bound<'py, PyDict>> {
    let backend = backend_of(backend)?;
    let read = py.detach(|| SystemReading::now(backend));
    let read = read.map_err(|error| PyRuntimeError::new_err(error::text(&error)))?;
    let dict = PyDict::new(py);
    for metric in Table::System.metrics() {
        let name = metric.column();
        match metric {
            Metric::SystemUtime => dict.set_item(name, read.user_s)?,
            Metric::SystemStime => dict.set_item(name, read.system_s)?,
            Metric::NetRecv => dict.set_item(name, read.net_recv_bytes)?,
            Metric::NetSent => dict.set_item(name, read.net_sent_bytes)?,
            // These columns are rates, which need two readings.
            Metric::SystemCpu | Metric::DiskRead | Metric::DiskWrite => {}
            _ => set_cell(&dict, metric, &read.levels)?,
        }
    }
    let disks = PyDict::new(py);
    for (name, read_bytes, write_bytes) in &read.disks {
        let disk = PyDict::new(py);
        disk.set_item("read_bytes", read_bytes)?;
        disk.set_item("write_bytes", write_bytes)?;
        disks.set_item(name, disk)?;
    }
    dict.set_item("disk_stats", disks)?;
    let spaces = PyDict::new(py);
    for (name, space) in &read.spaces {
        spaces.set_item(name, space_to_python(py, space)?)?;
    }
    dict.set_item("disk_spaces", spaces)?;
    Ok(dict)
}

/// Total, used and free bytes of a file system or pool.
pub fn space_to_python<'py>(py: Python<'py>, space: &DiskSpace) -> PyResult<Bound<'py, PyDict>> {
    let sizes = PyDict::new(py);
    sizes.set_item("total", space.total_bytes)?;
    sizes.set_item("used", space.used_bytes)?;
    sizes.set_item("free", space.free_bytes)?;
    Ok(sizes)
}

/// Adds the cell of a metric to a dict; a metric without decimals gives an `int`.
fn set_cell(dict: &Bound<'_, PyDict>, metric: Metric, row: &Row) -> PyResult<()> {
    let cell = row.get(metric);
    match cell.filter(|_| metric.decimals() == 0) {
        #[expect(clippy::cast_possible_truncation, reason = "a kernel count below 2^53")]
        Some(whole) => dict.set_item(metric.column(), whole as i64),
        None => dict.set_item(metric.column(), cell),
    }
}

/// Rows on demand, counted from a baseline.
#[pyclass(frozen, module = "resource_tracker._native")]
pub struct Meter {
    meter: Mutex<CoreMeter>,
    table: Table,
}

impl Meter {
    fn with<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&mut CoreMeter) -> T + Send) -> T {
        py.detach(|| work(&mut self.meter.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

#[pymethods]
impl Meter {
    /// Measures a process, or the machine if `pid` is None.
    #[new]
    #[pyo3(signature = (pid, children, interval))]
    fn new(py: Python<'_>, pid: Option<Pid>, children: bool, interval: Real) -> PyResult<Self> {
        let config = Config {
            interval: interval_of(interval)?,
            children,
            track_processes: pid.is_some(),
            track_system: pid.is_none(),
            backend: backend_of(None)?,
            ..Config::default()
        };
        let table = if pid.is_some() { Table::Process } else { Table::System };
        let meter = py.detach(|| CoreMeter::start(config, pid.map(|Pid(pid)| pid)));
        let meter = meter.map_err(|source| error::session(&SessionError::Tracker(source)))?;
        Ok(Self { meter: Mutex::new(meter), table })
    }

    /// The row from the previous sample to now.
    fn row<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let row = self.with(py, CoreMeter::row);
        let dict = PyDict::new(py);
        for metric in self.table.metrics() {
            set_cell(&dict, metric, &row)?;
        }
        Ok(dict)
    }

    /// Reads a new baseline and puts the rows on the grid `start_time + n × interval`.
    fn begin(&self, py: Python<'_>, start_time: f64) {
        self.with(py, |meter| meter.begin(start_time));
    }

    /// Seconds until the next grid point; grid points that have passed are skipped.
    fn seconds_to_next_row(&self, py: Python<'_>) -> f64 {
        self.with(py, CoreMeter::seconds_to_next_row)
    }

    /// Whether the process has ended.
    fn has_ended(&self, py: Python<'_>) -> bool {
        self.with(py, |meter| meter.has_ended())
    }
}
