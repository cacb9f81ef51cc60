//! Errors of server search and prices.
//!
//! Out: [`CatalogError`] for the caller; [`KeeperError`] for a request to the Keeper. If a request fails and a local
//! catalogue can answer the query, the call succeeds, and the answer contains the text of the error as the reason.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why servers or prices cannot be found.
#[derive(Debug, Error)]
pub enum CatalogError {
    #[error("unknown filter `{name}`; valid filters: {valid}")]
    UnknownFilter { name: String, valid: String },
    #[error("unknown value `{value}` for filter `{filter}`; valid values: {valid}")]
    UnknownValue { filter: &'static str, value: String, valid: String },
    /// A region that is not in the catalogue, see `region::closed`.
    #[error("new customers cannot use region `{region}`: {reason}")]
    ClosedRegion { region: String, reason: &'static str },
    /// A value of the wrong type.
    #[error("filter `{filter}` must be {expected}, not `{value}`")]
    BadValue { filter: &'static str, value: String, expected: &'static str },
    /// A size that is negative, infinite or NaN.
    #[error("`{name}` must be a number of 0 or more, not `{value}`")]
    BadNumber { name: &'static str, value: f64 },
    /// Only the Keeper supports this filter.
    #[error("filter `{filter}` needs the Keeper server-search service: {reason}")]
    NeedsKeeper { filter: &'static str, reason: String },
    /// Happens only if the build is faulty.
    #[error("cannot read the embedded catalogue")]
    Embedded { source: DecodeError },
    #[error("cannot update the catalogue from `{url}`")]
    Update { url: String, source: KeeperError },
    #[error("no cache directory for the catalogue")]
    NoCacheDir,
    #[error("cannot write `{path}`")]
    Write { path: PathBuf, source: io::Error },
}

impl CatalogError {
    /// What the user can do about the error.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NeedsKeeper { .. } => Some("remove the filter, or allow network access"),
            Self::Embedded { .. } => {
                Some("please report this: the program was built with a damaged catalogue")
            }
            Self::Update { source, .. } => source.hint(),
            Self::NoCacheDir => Some("set XDG_CACHE_HOME or HOME"),
            Self::UnknownFilter { .. }
            | Self::UnknownValue { .. }
            | Self::ClosedRegion { .. }
            | Self::BadValue { .. }
            | Self::BadNumber { .. }
            | Self::Write { .. } => None,
        }
    }

    /// Whether the query is invalid, as opposed to a failure during the search.
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::UnknownFilter { .. }
                | Self::UnknownValue { .. }
                | Self::ClosedRegion { .. }
                | Self::BadValue { .. }
                | Self::BadNumber { .. }
        )
    }
}

/// Names in backticks, separated by commas.
pub(super) fn quoted<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// A line of the embedded catalogue that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line} of `{file}` is not valid")]
pub struct DecodeError {
    pub file: &'static str,
    pub line: u64,
}

#[derive(Debug, Error)]
pub enum KeeperError {
    #[error("network access is disabled")]
    Offline,
    /// Built without the cargo feature `net`.
    #[error("this build has no network support")]
    NotBuilt,
    #[error("the Keeper did not respond within {seconds} s")]
    Timeout { seconds: f64 },
    /// No connection, no TLS session, or a broken response.
    #[error("cannot reach the Keeper")]
    Transport { source: Box<dyn std::error::Error + Send + Sync> },
    #[error("the Keeper returned status {status}{detail}")]
    Status {
        status: u16,
        /// The message in the response, after `: `. Empty if there is no message.
        detail: String,
    },
    #[error("the response of the Keeper is not valid JSON")]
    Json { source: serde_json::Error },
    /// The structure of the JSON differs from the documentation.
    #[error("the response of the Keeper has no valid `{field}`")]
    Schema { field: &'static str },
    #[error("the response of the Keeper is too large")]
    TooLarge,
    #[error("the Keeper ignored a filter or the sort order, so cheaper servers may be missing")]
    Incomplete,
    #[error("the Keeper accepts at most {max} vCPUs per query")]
    TooManyCpus { max: u32 },
}

impl KeeperError {
    /// What the user can do about the error.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Offline => Some("remove --offline and unset RESOURCE_TRACKER_OFFLINE"),
            Self::NotBuilt => Some("build with the cargo feature `net`"),
            Self::Timeout { .. } | Self::Transport { .. } => {
                Some("check the network, the proxy settings and RESOURCE_TRACKER_KEEPER_URL")
            }
            Self::Status { status: 429, .. } => Some("try again in a minute"),
            Self::Status { .. }
            | Self::Json { .. }
            | Self::Schema { .. }
            | Self::TooLarge
            | Self::Incomplete
            | Self::TooManyCpus { .. } => None,
        }
    }

    /// The error and its causes in one line. It is the reason in an answer.
    pub fn reason(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }
}
