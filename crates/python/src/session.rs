//! A recording as a Python object.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use resource_tracker::{
    AdviceOptions, Budget, Catalog, CatalogSettings, Check, CombinedOptions, Config, ExportFormat, Fleet,
    Inputs, Output, Plan, Recording, ReportContext, ReportOptions, Selection, Session as CoreSession,
    SessionNote, Shared, State, Table,
};
use serde_json::{Value, json};

use crate::column::frame_to_python;
use crate::error;
use crate::functions::{stats_from_python, stats_to_python};
use crate::readings::{Pid, backend_of, interval_of};
use crate::value::{Real, map_from_python, map_to_python, to_python};

/// One recording, running or loaded.
#[pyclass(frozen, weakref, module = "resource_tracker._native")]
pub struct Session(Shared);

impl Session {
    fn of(session: CoreSession) -> Self {
        Self(Shared::new(session))
    }

    /// Runs `work` on the session with the GIL released.
    fn with<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&mut CoreSession) -> T + Send) -> T {
        py.detach(|| self.0.with(work))
    }
}

fn table(name: &str) -> PyResult<Table> {
    Table::from_key(name).ok_or_else(|| PyValueError::new_err(format!("no table named `{name}`")))
}

#[pymethods]
impl Session {
    #[new]
    #[expect(
        clippy::too_many_arguments,
        clippy::fn_params_excessive_bools,
        reason = "arguments of the public Python API"
    )]
    #[pyo3(signature = (*, pid, children, interval, method, autostart, track_processes, track_system, discover_server, discover_cloud, sidecar=None, job=None, tags=None, inputs=None, resets_peak=false, store=None, asked=None))]
    fn new(
        pid: Pid,
        children: bool,
        interval: Real,
        method: Option<String>,
        autostart: bool,
        track_processes: bool,
        track_system: bool,
        discover_server: bool,
        discover_cloud: bool,
        sidecar: Option<PathBuf>,
        job: Option<String>,
        tags: Option<BTreeMap<String, String>>,
        inputs: Option<Vec<PathBuf>>,
        resets_peak: bool,
        store: Option<String>,
        asked: Option<[Option<f64>; 3]>,
    ) -> PyResult<Self> {
        let interval = interval_of(interval)?;
        let backend = backend_of(None)?;
        let config = Config {
            interval,
            children,
            track_processes,
            track_system,
            backend,
            resets_peak,
            ..Config::from_env()
        };
        Ok(Self::of(CoreSession::new(Plan {
            config,
            pid: pid.0,
            method,
            autostart,
            discover_server,
            discover_cloud,
            sidecar,
            job,
            tags: tags.unwrap_or_default(),
            inputs: inputs.unwrap_or_default(),
            store,
            asked: asked.unwrap_or_default(),
        })))
    }

    /// Loads a recording from a file, gzipped or plain JSON.
    #[staticmethod]
    #[expect(clippy::needless_pass_by_value, reason = "converted from a Python path")]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let recording = py.detach(|| Recording::load(&path)).map_err(error::load)?;
        Ok(Self::of(CoreSession::from_recording(recording)))
    }

    /// Starts the sampler and waits for its baseline.
    fn start(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.start()).map_err(|error| error::session(&error))
    }

    /// Takes the last sample. Has no effect after the first call or in a forked child.
    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.0.stop());
    }

    /// Starts a phase; returns the phase that this process marked before. Never waits, so the GIL stays held.
    fn mark(&self, name: &str) -> String {
        self.0.mark(name)
    }

    /// What each phase used so far.
    fn phases<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &json!(self.with(py, |session| session.phases()).0))
    }

    /// Marks the run as failed, by an error such as `ValueError: no data`.
    fn set_error(&self, py: Python<'_>, error: String) {
        self.with(py, |session| session.set_error(error));
    }

    /// Saves the recording so far in the history; returns its id.
    fn save(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, CoreSession::save).map_err(|error| error::session(&error))
    }

    /// Stops, and removes the temporary files.
    fn remove_files(&self, py: Python<'_>) {
        py.detach(|| self.0.remove_files());
    }

    #[getter]
    fn running(&self, py: Python<'_>) -> bool {
        self.with(py, |session| session.is_running())
    }

    /// `running`, `exited` or `stopped`; None before the start.
    #[getter]
    fn state(&self, py: Python<'_>) -> Option<&'static str> {
        self.with(py, |session| session.state()).map(State::name)
    }

    #[getter]
    fn rows(&self, py: Python<'_>) -> u64 {
        self.with(py, |session| session.rows())
    }

    /// One step of a wait for `wanted` rows: seconds to sleep before the next call; None once the rows are there.
    fn wait_on(&self, py: Python<'_>, wanted: i64, waited: f64, timeout: f64) -> PyResult<Option<f64>> {
        let wanted = u64::try_from(wanted).unwrap_or(0);
        self.with(py, |session| session.poll_rows(wanted, waited, timeout))
            .map_err(|error| error::session(&error))
    }

    /// Unix time of the baseline.
    #[getter]
    fn start_time(&self, py: Python<'_>) -> Option<f64> {
        self.with(py, |session| session.start_time())
    }

    /// Unix time of the stop.
    #[getter]
    fn stop_time(&self, py: Python<'_>) -> Option<f64> {
        self.with(py, |session| session.stop_time())
    }

    /// The settings, by the argument names of the constructor.
    #[getter]
    fn settings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let Plan {
            config,
            pid,
            method,
            autostart,
            discover_server,
            discover_cloud,
            job,
            tags,
            inputs,
            store,
            asked,
            ..
        } = self.0.plan();
        let interval = self.with(py, |session| session.interval_s());
        // `interval=1` reads back as the int 1.
        #[expect(clippy::cast_possible_truncation, reason = "whole, and below 2^53")]
        let interval = if interval.fract() == 0.0 && interval.abs() < 2_f64.powi(53) {
            json!(interval as i64)
        } else {
            json!(interval)
        };
        let settings = json!({
            "pid": pid,
            "children": config.children,
            "interval": interval,
            "method": method,
            "autostart": autostart,
            "track_processes": config.track_processes,
            "track_system": config.track_system,
            "discover_server": discover_server,
            "discover_cloud": discover_cloud,
            "job": job,
            "tags": tags,
            "store": store,
            "asked": asked,
        });
        let settings = to_python(py, &settings)?;
        // A path need not be Unicode.
        settings.set_item("inputs", inputs.iter().map(|path| path.as_os_str()).collect::<Vec<_>>())?;
        Ok(settings)
    }

    /// New notes since the last call, each as logging level and text.
    fn take_notes(&self, py: Python<'_>) -> Vec<(&'static str, String)> {
        let notes = self.with(py, CoreSession::take_notes).into_iter();
        notes
            .map(|note| match note {
                SessionNote::Info(text) => ("info", text),
                SessionNote::Warning(text) => ("warning", text),
            })
            .collect()
    }

    /// Source of the CPU time: `perf`, `cgroup` or `procfs`.
    #[getter]
    fn cpu_source(&self, py: Python<'_>) -> Option<String> {
        self.with(py, |session| session.cpu_source())
    }

    /// The columns of a table so far; empty if the table is off.
    fn table<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyDict>> {
        let table = table(name)?;
        let frame = self.with(py, |session| session.frame(table)).unwrap_or_default();
        frame_to_python(py, frame)
    }

    /// The columns of the process and system tables, joined by sample.
    #[pyo3(signature = (bytes, human_names, system_prefix, process_prefix))]
    fn combined<'py>(
        &self,
        py: Python<'py>,
        bytes: bool,
        human_names: bool,
        system_prefix: Option<String>,
        process_prefix: Option<String>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let options = CombinedOptions { bytes, human_names, system_prefix, process_prefix, extra: false };
        let frame = self.with(py, |session| session.combined(&options));
        frame_to_python(py, frame.map_err(|error| PyValueError::new_err(error.to_string()))?)
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let stats = self.with(py, |session| session.stats()).map_err(|error| error::stats(&error))?;
        stats_to_python(py, &stats)
    }

    /// Recommended cpu, memory, gpu and vram.
    fn recommend<'py>(&self, py: Python<'py>, history: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let history = stats_from_python(history)?;
        let resources =
            self.with(py, |session| session.recommend(&history)).map_err(|error| error::recommend(&error))?;
        to_python(py, &serde_json::to_value(resources).unwrap_or(Value::Null))
    }

    /// The size to request for the next run, as `recommend --json` prints it. `store` has runs of other machines.
    #[expect(clippy::needless_pass_by_value, reason = "converted from a Python list")]
    #[pyo3(signature = (slowdown, earlier_runs, inputs, filters, store=None))]
    fn advise<'py>(
        &self,
        py: Python<'py>,
        slowdown: Real,
        earlier_runs: usize,
        inputs: Vec<PathBuf>,
        filters: &Bound<'py, PyDict>,
        store: Option<String>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Real(percent) = slowdown;
        if !(0.0..=1000.0).contains(&percent) {
            let refused = format!("`slowdown` must be a number of percent from 0 to 1000, not `{percent}`");
            return Err(PyValueError::new_err(refused));
        }
        let mut options =
            AdviceOptions { earlier_runs, slowdown: percent / 100.0, ..AdviceOptions::default() };
        for (name, value) in map_from_python(filters)? {
            options.filters.set(&name, &value).map_err(|error| error::catalog(&error))?;
        }
        options.input_bytes = py.detach(|| Inputs::total_bytes(&inputs))?;
        let (head, summary) = self.with(py, |session| (session.head(), session.summary()));
        if let Some(store) = store {
            let store = Fleet::open(&store).map_err(|error| error::fleet(&error))?;
            let earlier = py.detach(|| store.earlier(&head, options.earlier_runs));
            options.other_runs = earlier.map_err(|error| error::fleet(&error))?;
            self.with(py, |session| session.add_warning(store.take_warning()));
        }
        let advice = py.detach(|| ReportContext::advise(&head, summary, &options));
        to_python(py, &advice.map_err(|error| error::recommend(&error))?)
    }

    /// The run, as the command prints it with `--json`.
    fn run_object<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        map_to_python(py, &self.with(py, CoreSession::run_object))
    }

    /// What explains the run so far.
    fn explain<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        map_to_python(py, &self.with(py, CoreSession::explain))
    }

    /// The figures so far, and the outcomes of budgets such as `memory=4GiB`.
    #[expect(clippy::needless_pass_by_value, reason = "converted from a Python list")]
    fn check<'py>(&self, py: Python<'py>, budgets: Vec<String>) -> PyResult<Bound<'py, PyAny>> {
        let budgets: Vec<Budget> = budgets
            .iter()
            .map(|text| Budget::from_str(text).map_err(|error| PyValueError::new_err(error.to_string())))
            .collect::<PyResult<_>>()?;
        let recording = self.with(py, CoreSession::recording).map_err(|error| error::session(&error))?;
        let run = Selection::Run { name: String::new(), recording: Box::new(recording) };
        let check = py.detach(|| {
            let mut catalog = Catalog::new(CatalogSettings::offline());
            Check::of(&run, &budgets, None, None, 0, &mut catalog)
        });
        to_python(py, &json!({ "figures": check.figures(), "checks": check.json()["checks"] }))
    }

    /// Facts about the machine, and whether other jobs seem to share it; None if discovery is off.
    fn server_info<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.with(py, CoreSession::server_info).map(|info| map_to_python(py, &info)).transpose()
    }

    /// The cloud; None if discovery is off or unfinished.
    fn cloud_info<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.with(py, CoreSession::cloud_info).map(|info| map_to_python(py, &info)).transpose()
    }

    /// The report as HTML text.
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of `report`")]
    #[pyo3(signature = (integration, history, failed, integration_version=None, title=None, names=None, requested=None))]
    fn report(
        &self,
        py: Python<'_>,
        integration: String,
        history: &Bound<'_, PyAny>,
        failed: bool,
        integration_version: Option<String>,
        title: Option<String>,
        names: Option<Vec<(String, String)>>,
        requested: Option<String>,
    ) -> PyResult<String> {
        let history = stats_from_python(history)?;
        let recording = self.with(py, CoreSession::recording).map_err(|error| error::session(&error))?;
        let names = names.unwrap_or_default();
        let options = ReportOptions { integration, integration_version, title, names, requested, failed };
        py.detach(|| options.report(&recording, history)).map_err(|error| error::stats(&error))
    }

    /// The snapshot as gzipped JSON.
    fn packed<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let packed = self.with(py, |session| {
            let mut packed = Vec::new();
            session.write_snapshot(&mut packed, true).map(|()| packed)
        });
        Ok(PyBytes::new(py, &packed.map_err(|error| error::session(&error))?))
    }

    /// Writes the combined table, or the whole recording as JSON, atomically. Without a format the extension decides.
    #[expect(clippy::needless_pass_by_value, reason = "converted from a Python path")]
    #[pyo3(signature = (path, format, bytes, human_names))]
    fn export(
        &self,
        py: Python<'_>,
        path: PathBuf,
        format: Option<&str>,
        bytes: bool,
        human_names: bool,
    ) -> PyResult<()> {
        let format = format.map_or_else(|| ExportFormat::of_path(&path), str::parse);
        let format = format.map_err(|error| error::export(error, &path))?;
        let options = CombinedOptions { bytes, human_names, ..CombinedOptions::default() };
        let recording = self.with(py, CoreSession::recording).map_err(|error| error::session(&error))?;
        let written = py.detach(|| {
            let mut output = Output::open(&path)?;
            resource_tracker::export(&mut output, &recording, format, &options)?;
            Ok(output.commit()?)
        });
        written.map_err(|error| error::export(error, &path))
    }

    /// Loads a recording from JSON bytes, gzipped or plain.
    #[staticmethod]
    fn unpack(py: Python<'_>, packed: &[u8]) -> PyResult<Self> {
        let recording = py.detach(|| Recording::read(packed));
        let recording = recording
            .map_err(|source| PyValueError::new_err(format!("cannot load: {}", error::text(&source))))?;
        Ok(Self::of(CoreSession::from_recording(recording)))
    }

    /// The snapshot as JSON text.
    fn dumps(&self, py: Python<'_>) -> PyResult<String> {
        let text = self.with(py, |session| {
            let mut text = Vec::new();
            session.write_snapshot(&mut text, false).map(|()| text)
        });
        String::from_utf8(text.map_err(|error| error::session(&error))?)
            .map_err(|error| PyRuntimeError::new_err(error.to_string()))
    }

    /// Writes the snapshot atomically as gzipped JSON.
    fn dump(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.with(py, |session| session.dump(&path)).map_err(|error| error::save(&error, path))
    }
}
