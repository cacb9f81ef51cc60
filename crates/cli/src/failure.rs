//! Errors of the command, each with a hint and an exit status.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use resource_tracker::{
    CatalogError, ExportError, HistoryError, LoadError, RecommendError, StatsError, WrapError,
};
use thiserror::Error;

#[derive(Debug)]
pub struct Failure {
    pub error: Box<dyn Error>,
    pub hint: Option<&'static str>,
    /// Exit status.
    pub code: u8,
}

/// Exit status if the tracker fails before the job starts.
pub const BEFORE_THE_JOB: u8 = 125;

#[derive(Debug, Error)]
#[error("cannot write `{path}`")]
struct Unwritable {
    path: PathBuf,
    source: io::Error,
}

impl Failure {
    /// An output of `run` or `attach` that cannot be opened, found before the job starts.
    pub fn output(path: &Path, source: io::Error) -> Self {
        let hint = match source.kind() {
            io::ErrorKind::AlreadyExists => "the job was not started; `--force` replaces the file",
            _ => "the job was not started; choose a writable path",
        };
        Self { hint: Some(hint), code: BEFORE_THE_JOB, ..Self::unwritable(path, source) }
    }

    pub fn unwritable(path: &Path, source: io::Error) -> Self {
        let exists = source.kind() == io::ErrorKind::AlreadyExists;
        let hint = exists.then_some("choose another path, or replace the file with `--force`");
        Self::new(Unwritable { path: path.to_owned(), source }, hint)
    }

    /// An error of `attach`, `process` or `system`. They start no job, so the exit statuses 125 to 127 do not apply.
    pub fn without_a_job(error: WrapError) -> Self {
        Self { code: 1, ..Self::from(error) }
    }

    pub fn new(error: impl Error + 'static, hint: Option<&'static str>) -> Self {
        Self { error: Box::new(error), hint, code: 1 }
    }
}

impl From<CatalogError> for Failure {
    fn from(error: CatalogError) -> Self {
        Self { hint: error.hint(), code: if error.is_usage() { 2 } else { 1 }, error: Box::new(error) }
    }
}

/// Converts errors of the core and their hints to failures with exit status 1.
macro_rules! from_core {
    ($($error:ty),*) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                let hint = error.hint();
                Self::new(error, hint)
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
