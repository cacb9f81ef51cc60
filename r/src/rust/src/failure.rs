//! Converts errors of the core to values that R raises: a class for `tryCatch`, a message with causes, a hint.

use extendr_api::prelude::*;
use resource_tracker::{
    CatalogError, ConfigError, ExportError, FleetError, FrameError, LoadError, RecommendError, SessionError,
    SnapshotError, SourceError, StatsError, TrackerError, with_causes,
};

use crate::value::or_null;

pub type Answer<T = Robj> = Result<T, Failure>;

/// The kind of an error; R raises it as class `resource_tracker_<kind>_error`.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// An invalid argument.
    Value,
    /// The tracker is in the wrong state for the call.
    State,
    /// The target process does not exist or is not readable.
    Process,
    /// A file cannot be read or written.
    Io,
    /// A file or text is not a recording.
    Format,
    /// This host or the server-search service cannot provide the requested data.
    Unavailable,
}

#[derive(Debug)]
pub struct Failure {
    kind: Kind,
    message: String,
    hint: Option<String>,
}

impl Failure {
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None }
    }

    fn of(kind: Kind, error: &(dyn std::error::Error + 'static), hint: Option<&str>) -> Self {
        Self { kind, message: with_causes(error), hint: hint.map(str::to_owned) }
    }

    pub fn save(path: &str, error: SessionError) -> Self {
        match error {
            SessionError::Write(source) => Self::write(path, &source),
            other => other.into(),
        }
    }

    pub fn export(path: &str, error: &ExportError) -> Self {
        let kind = match error {
            ExportError::Io { source } => return Self::write(path, source),
            ExportError::NotBuilt => Kind::Unavailable,
            _ => Kind::Value,
        };
        let message = format!("cannot export to `{path}`: {}", with_causes(error));
        Self { kind, message, hint: error.hint().map(str::to_owned) }
    }

    pub fn write(path: &str, error: &std::io::Error) -> Self {
        Self::new(Kind::Io, format!("cannot write `{path}`: {error}"))
    }
}

impl From<Failure> for Robj {
    fn from(failure: Failure) -> Self {
        let kind = match failure.kind {
            Kind::Value => "value",
            Kind::State => "state",
            Kind::Process => "process",
            Kind::Io => "io",
            Kind::Format => "format",
            Kind::Unavailable => "unavailable",
        };
        list!(kind = kind, message = failure.message, hint = or_null(failure.hint)).into()
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(Kind::Value, error.to_string())
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::of(Kind::Value, &error, Some(error.hint()))
    }
}

impl From<FrameError> for Failure {
    fn from(error: FrameError) -> Self {
        Self::of(Kind::Value, &error, None)
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        let (kind, hint) = match &error {
            SessionError::Running
            | SessionError::Stopped
            | SessionError::NotStarted { .. }
            | SessionError::TimedOut { .. }
            | SessionError::TooFew { .. }
            | SessionError::Removed => (Kind::State, None),
            SessionError::Write(_) | SessionError::NoHome => (Kind::Io, None),
            SessionError::History(history) => (Kind::Io, history.hint()),
            SessionError::Tracker(tracker) => {
                let kind = match tracker {
                    TrackerError::Target {
                        source:
                            SourceError::Gone { .. }
                            | SourceError::Unsupported { .. }
                            | SourceError::Denied { .. },
                        ..
                    } => Kind::Process,
                    TrackerError::Target { .. } | TrackerError::Host(_) | TrackerError::Resources(_) => {
                        Kind::Unavailable
                    }
                };
                (kind, tracker.hint())
            }
            SessionError::Sidecar(_) => (Kind::Unavailable, None),
        };
        Self::of(kind, &error, hint)
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        let kind = match error {
            LoadError::Open { .. } => Kind::Io,
            LoadError::Content { .. } => Kind::Format,
        };
        Self::of(kind, &error, error.hint())
    }
}

impl From<SnapshotError> for Failure {
    fn from(error: SnapshotError) -> Self {
        let message = format!("cannot load: {}", with_causes(&error));
        Self { kind: Kind::Format, message, hint: error.hint().map(str::to_owned) }
    }
}

impl From<StatsError> for Failure {
    fn from(error: StatsError) -> Self {
        let kind = if matches!(error, StatsError::NoMetrics) { Kind::State } else { Kind::Value };
        Self::of(kind, &error, error.hint())
    }
}

impl From<RecommendError> for Failure {
    fn from(error: RecommendError) -> Self {
        match error {
            RecommendError::Stats(error) => error.into(),
            RecommendError::NoProcess | RecommendError::Unmeasured { .. } => {
                Self::of(Kind::State, &error, error.hint())
            }
        }
    }
}

impl From<FleetError> for Failure {
    fn from(error: FleetError) -> Self {
        Self::of(if error.is_usage() { Kind::Value } else { Kind::Io }, &error, error.hint())
    }
}

impl From<CatalogError> for Failure {
    fn from(error: CatalogError) -> Self {
        let kind = if error.is_usage() { Kind::Value } else { Kind::Unavailable };
        Self::of(kind, &error, None)
    }
}
