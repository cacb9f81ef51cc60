//! Converts errors of the core to Python exceptions. The message includes the causes.

use std::io;
use std::path::{Path, PathBuf};

use pyo3::exceptions::{
    PyOSError, PyPermissionError, PyProcessLookupError, PyRuntimeError, PyTypeError, PyValueError,
};
use pyo3::prelude::*;
use resource_tracker::{
    CatalogError, ExportError, FleetError, LoadError, RecommendError, SessionError, SidecarError,
    SnapshotError, SourceError, StatsError, TrackerError,
};

pub use resource_tracker::with_causes as text;

pub fn session(error: &SessionError) -> PyErr {
    match error {
        SessionError::Tracker(TrackerError::Target { source, .. }) => match source {
            SourceError::Gone { .. } | SourceError::Unsupported { .. } => {
                PyProcessLookupError::new_err(text(error))
            }
            SourceError::Denied { .. } => PyPermissionError::new_err(text(error)),
            SourceError::Foreign | SourceError::Io { .. } | SourceError::Parse { .. } => {
                PyRuntimeError::new_err(text(error))
            }
        },
        SessionError::Sidecar(SidecarError::Refused { .. }) => PyProcessLookupError::new_err(text(error)),
        SessionError::Write(_) | SessionError::NoHome | SessionError::History(_) => {
            PyOSError::new_err(text(error))
        }
        SessionError::Running
        | SessionError::Stopped
        | SessionError::NotStarted { .. }
        | SessionError::TimedOut { .. }
        | SessionError::TooFew { .. }
        | SessionError::Removed
        | SessionError::Tracker(_)
        | SessionError::Sidecar(_) => PyRuntimeError::new_err(text(error)),
    }
}

/// An `OSError`; Python picks its subclass by the error code.
pub fn file(error: &io::Error, path: PathBuf) -> PyErr {
    let Some(code) = error.raw_os_error() else { return PyOSError::new_err(error.to_string()) };
    let message = io::Error::from_raw_os_error(code).to_string();
    let message = message.split(" (os error").next().unwrap_or_default().to_owned();
    PyOSError::new_err((code, message, path.into_os_string()))
}

/// The error of saving a session to `path`.
pub fn save(error: &SessionError, path: PathBuf) -> PyErr {
    match error {
        SessionError::Write(source) => file(source, path),
        other => session(other),
    }
}

pub fn load(error: LoadError) -> PyErr {
    match error {
        LoadError::Open { path, source }
        | LoadError::Content { path, source: SnapshotError::Io { source } } => file(&source, path),
        content @ LoadError::Content { .. } => PyValueError::new_err(text(&content)),
    }
}

/// The error of an export to `path`.
pub fn export(error: ExportError, path: &Path) -> PyErr {
    match error {
        ExportError::Io { source } => file(&source, path.to_owned()),
        error => {
            let hint = error.hint().map_or_else(String::new, |hint| format!("; {hint}"));
            PyValueError::new_err(format!("cannot export to `{}`: {}{hint}", path.display(), text(&error)))
        }
    }
}

pub fn stats(error: &StatsError) -> PyErr {
    match error {
        StatsError::NoMetrics => PyRuntimeError::new_err(error.to_string()),
        _ => PyValueError::new_err(text(error)),
    }
}

pub fn recommend(error: &RecommendError) -> PyErr {
    match error {
        RecommendError::Stats(error) => stats(error),
        RecommendError::NoProcess | RecommendError::Unmeasured { .. } => PyRuntimeError::new_err(text(error)),
    }
}

pub fn fleet(error: &FleetError) -> PyErr {
    let hint = error.hint().map_or_else(String::new, |hint| format!("; {hint}"));
    let message = text(error) + &hint;
    if error.is_usage() { PyValueError::new_err(message) } else { PyOSError::new_err(message) }
}

pub fn catalog(error: &CatalogError) -> PyErr {
    match error {
        CatalogError::UnknownFilter { .. } => PyTypeError::new_err(text(error)),
        _ if error.is_usage() => PyValueError::new_err(text(error)),
        _ => PyRuntimeError::new_err(text(error)),
    }
}
