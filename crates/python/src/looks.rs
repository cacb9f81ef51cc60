//! Single looks at a process or the machine, and rows by hand.

use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::{PyOverflowError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use resource_tracker::config::{Backend, Config, Interval};
use resource_tracker::error::SourceError;
use resource_tracker::meter;
use resource_tracker::metric::{Metric, Row, Table};
use resource_tracker::reading;
use resource_tracker::root::Root;
use resource_tracker::sampler::Target;
use resource_tracker::session::SessionError;
use resource_tracker::source::sysinfo;
use resource_tracker::sys::Handover;
use resource_tracker::tracker::TrackerError;

use crate::error;
use crate::value::Real;

/// A guest's root holds nothing open, so that one serves for all looks.
fn host() -> PyResult<&'static Root> {
    static HOST: Handover<Root> = Handover::empty();
    if let Some(root) = HOST.get() {
        return Ok(root);
    }
    let root = Root::host_as_guest().map_err(|error| PyRuntimeError::new_err(error::text(&error)))?;
    Ok(HOST.get_or_make(|| root))
}

/// The backend of that name, or the one that the environment names.
pub fn backend_of(name: Option<&str>) -> PyResult<Backend> {
    let backend = name.map_or_else(Backend::from_env, Backend::from_name);
    backend.map_err(|error| PyValueError::new_err(format!("{error}; {}", error.hint())))
}

/// A process's number as it was given.
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
            PyValueError::new_err(format!("{number} is no process id; those are positive numbers of 32 bits"))
        })
    }
}

/// An interval of so many seconds, if it can be kept.
pub fn interval_of(Real(seconds): Real) -> PyResult<Interval> {
    Interval::from_seconds(seconds)
        .map_err(|error| PyValueError::new_err(format!("{error}; {}", error.hint())))
}

/// Totals of a process, or of it and its descendants, so far.
#[pyfunction]
#[pyo3(signature = (pid, children, backend=None))]
pub fn process_stats<'py>(
    py: Python<'py>,
    pid: Pid,
    children: bool,
    backend: Option<&str>,
) -> PyResult<Bound<'py, PyDict>> {
    let (Pid(pid), root, backend) = (pid, host()?, backend_of(backend)?);
    let read = py.detach(|| match backend {
        Backend::Procfs => reading::process(root, pid, children),
        Backend::Sysinfo => sysinfo::process(root, pid, children),
    });
    let read = read.map_err(|source: SourceError| {
        error::session(&SessionError::Tracker(TrackerError::Target { pid, source }))
    })?;
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
    Ok(dict)
}

/// Totals and levels of the machine.
#[pyfunction]
#[pyo3(signature = (backend=None))]
pub fn system_stats<'py>(py: Python<'py>, backend: Option<&str>) -> PyResult<Bound<'py, PyDict>> {
    let (root, backend) = (host()?, backend_of(backend)?);
    let read = py.detach(|| match backend {
        Backend::Procfs => reading::system(root),
        Backend::Sysinfo => sysinfo::system(root),
    });
    let dict = PyDict::new(py);
    for metric in Table::System.metrics() {
        let name = metric.column();
        match metric {
            Metric::SystemUtime => dict.set_item(name, read.user_s)?,
            Metric::SystemStime => dict.set_item(name, read.system_s)?,
            Metric::NetRecv => dict.set_item(name, read.net_recv_bytes)?,
            Metric::NetSent => dict.set_item(name, read.net_sent_bytes)?,
            // Made of two readings.
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
        let sizes = PyDict::new(py);
        sizes.set_item("total", space.total_bytes)?;
        sizes.set_item("used", space.used_bytes)?;
        sizes.set_item("free", space.free_bytes)?;
        spaces.set_item(name, sizes)?;
    }
    dict.set_item("disk_spaces", spaces)?;
    Ok(dict)
}

/// A whole number is an int, as the column's type says.
fn set_cell(dict: &Bound<'_, PyDict>, metric: Metric, row: &Row) -> PyResult<()> {
    let cell = row.get(metric);
    match cell.filter(|_| metric.decimals() == 0) {
        #[expect(clippy::cast_possible_truncation, reason = "a count that the kernel gave, below 2^53")]
        Some(whole) => dict.set_item(metric.column(), whole as i64),
        None => dict.set_item(metric.column(), cell),
    }
}

/// Rows by hand, from a baseline on.
#[pyclass(frozen, module = "resource_tracker._native")]
pub struct Meter {
    meter: Mutex<meter::Meter>,
    table: Table,
}

#[pymethods]
impl Meter {
    /// Of a process, or of the machine where `pid` is None.
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
        let target = pid.map_or(Target::None, |Pid(pid)| Target::Running(pid));
        let meter = py.detach(|| meter::Meter::start(config, target));
        let meter = meter.map_err(|source| error::session(&SessionError::Tracker(source)))?;
        Ok(Self { meter: Mutex::new(meter), table })
    }

    /// The row from the last look to now.
    fn row<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let row = py.detach(|| self.meter.lock().unwrap_or_else(PoisonError::into_inner).row());
        let dict = PyDict::new(py);
        for metric in self.table.metrics() {
            set_cell(&dict, metric, &row)?;
        }
        Ok(dict)
    }

    /// Reads the baseline once more.
    fn start_anew(&self, py: Python<'_>) {
        py.detach(|| self.meter.lock().unwrap_or_else(PoisonError::into_inner).start_anew());
    }

    /// Whether the process has ended.
    fn has_ended(&self, py: Python<'_>) -> bool {
        py.detach(|| self.meter.lock().unwrap_or_else(PoisonError::into_inner).has_ended())
    }
}
