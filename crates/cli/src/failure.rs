//! Why a command did not do what it should.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use resource_tracker::catalog::CatalogError;
use resource_tracker::export::ExportError;
use resource_tracker::history::HistoryError;
use resource_tracker::recommend::RecommendError;
use resource_tracker::recording::LoadError;
use resource_tracker::stats::StatsError;
use resource_tracker::wrap::WrapError;
use thiserror::Error;

/// An error with what to do about it and our exit status for it.
#[derive(Debug)]
pub struct Failure {
    pub error: Box<dyn Error>,
    pub hint: Option<&'static str>,
    pub code: u8,
}

/// Our exit status when we fail before the job starts.
pub const BEFORE_THE_JOB: u8 = 125;

#[derive(Debug, Error)]
#[error("cannot write `{path}`")]
struct Unwritable {
    path: PathBuf,
    source: io::Error,
}

impl Failure {
    /// An output that the user named and that cannot be written: known before the job starts.
    pub fn output(path: &Path, source: io::Error) -> Self {
        Self {
            hint: Some("the job was not started; choose a place that can be written"),
            code: BEFORE_THE_JOB,
            ..Self::unwritable(path, source)
        }
    }

    /// The same where there is no job.
    pub fn unwritable(path: &Path, source: io::Error) -> Self {
        Self::new(Unwritable { path: path.to_owned(), source }, None)
    }

    /// What `run` fails by, for a command that starts no job: its status would mean something else.
    pub fn without_a_job(error: WrapError) -> Self {
        Self { code: 1, ..Self::from(error) }
    }

    /// Any other error.
    pub fn new(error: impl Error + 'static, hint: Option<&'static str>) -> Self {
        Self { error: Box::new(error), hint, code: 1 }
    }
}

impl From<CatalogError> for Failure {
    fn from(error: CatalogError) -> Self {
        Self { hint: error.hint(), code: if error.is_usage() { 2 } else { 1 }, error: Box::new(error) }
    }
}

/// Errors of the core that say what to do about them, and whose status is like any other's.
macro_rules! from_core {
    ($($error:ty),*) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self { hint: error.hint(), code: 1, error: Box::new(error) }
            }
        })*
    };
}

from_core!(ExportError, HistoryError, LoadError, RecommendError, StatsError);

impl From<WrapError> for Failure {
    fn from(error: WrapError) -> Self {
        Self { hint: error.hint(), code: error.exit_code(), error: Box::new(error) }
    }
}
