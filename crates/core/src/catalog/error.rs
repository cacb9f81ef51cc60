//! What can go wrong between a question about servers and its answer.
//!
//! Out: [`CatalogError`] for the caller, [`KeeperError`] for what the server-search service did. A
//! failing service is an error of the call only where nothing else can answer; everywhere else its
//! text becomes the reason why the embedded catalogue did.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why a question about servers or prices has no answer.
#[derive(Debug, Error)]
pub enum CatalogError {
    /// No filter has this name.
    #[error("unknown filter `{name}`; known are {known}")]
    UnknownFilter {
        /// As it was given.
        name: String,
        /// All names, joined.
        known: String,
    },
    /// The filter exists, the value does not.
    #[error("filter `{filter}` knows no `{value}`; known are {known}")]
    UnknownValue {
        /// The filter's name.
        filter: &'static str,
        /// As it was given.
        value: String,
        /// All values, joined.
        known: String,
    },
    /// The value has the wrong type.
    #[error("filter `{filter}` takes {expected}, not `{value}`")]
    BadValue {
        /// The filter's name.
        filter: &'static str,
        /// As it was given.
        value: String,
        /// What it takes.
        expected: &'static str,
    },
    /// A size that is negative, infinite or no number at all.
    #[error("`{name}` must be a number of 0 or more, not `{value}`")]
    BadNumber {
        /// The argument's name.
        name: &'static str,
        /// As it was given.
        value: f64,
    },
    /// Only the Keeper knows this filter, and it did not answer.
    #[error("filter `{filter}` needs the Keeper, which gave no answer: {reason}")]
    NeedsKeeper {
        /// The filter's name.
        filter: &'static str,
        /// Why there was no answer.
        reason: String,
    },
    /// The embedded file does not decode; a build fault.
    #[error("cannot decode the embedded catalogue")]
    Embedded {
        /// What is wrong with it.
        #[source]
        source: DecodeError,
    },
    /// `catalog update` got no catalogue.
    #[error("cannot update the catalogue from `{url}`")]
    Update {
        /// What was asked.
        url: String,
        /// What came back.
        #[source]
        source: KeeperError,
    },
    /// No directory to keep anything in.
    #[error("no cache directory to keep the catalogue in")]
    NoCacheDir,
    /// The cache directory takes no file.
    #[error("cannot write `{path}`")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl CatalogError {
    /// What the reader can do about it, if anything.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NeedsKeeper { .. } => Some("leave the filter out, or allow the network"),
            Self::Embedded { .. } => {
                Some("please report this: the program was built with a damaged catalogue")
            }
            Self::Update { source, .. } => source.hint(),
            Self::NoCacheDir => Some("set XDG_CACHE_HOME or HOME"),
            Self::UnknownFilter { .. }
            | Self::UnknownValue { .. }
            | Self::BadValue { .. }
            | Self::BadNumber { .. }
            | Self::Write { .. } => None,
        }
    }

    /// Whether the question was wrong, rather than something on the way to its answer.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::UnknownFilter { .. }
                | Self::UnknownValue { .. }
                | Self::BadValue { .. }
                | Self::BadNumber { .. }
        )
    }
}

/// What is wrong with the bytes of a packed catalogue.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// Not our format, or not this version of it.
    #[error("it does not start with the format's name")]
    Magic,
    /// Cut short.
    #[error("it ends within `{field}`")]
    Ends {
        /// What was being read.
        field: &'static str,
    },
    /// Changed since it was written.
    #[error("the checksum of its `{section}` section does not match")]
    Checksum {
        /// Which part.
        section: &'static str,
    },
    /// A number that points nowhere, or text that is none.
    #[error("`{field}` holds a value out of range")]
    Range {
        /// What was being read.
        field: &'static str,
    },
}

/// What the Keeper, or the way to it, did wrong.
#[derive(Debug, Error)]
pub enum KeeperError {
    /// The network is switched off.
    #[error("the network is switched off")]
    Offline,
    /// Built without the `net` feature.
    #[error("this build has no network client")]
    NotBuilt,
    /// Nothing within the deadline.
    #[error("the Keeper did not answer within {seconds} s")]
    Timeout {
        /// The deadline of the whole call.
        seconds: f64,
    },
    /// No connection, no TLS, or one that broke.
    #[error("the Keeper cannot be reached")]
    Transport {
        /// The client's own error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// An HTTP status that is no success.
    #[error("the Keeper answered with status {status}{detail}")]
    Status {
        /// As sent.
        status: u16,
        /// What it said, after a colon and a space, or nothing.
        detail: String,
    },
    /// A body that is no JSON.
    #[error("the Keeper's answer is no JSON")]
    Json {
        /// Where it stops being JSON.
        #[source]
        source: serde_json::Error,
    },
    /// JSON of another shape.
    #[error("the Keeper's answer has no usable `{field}`")]
    Schema {
        /// What is missing.
        field: &'static str,
    },
    /// The answer cannot be the cheapest servers that fit.
    #[error("the Keeper ignored a filter or the order, so its answer may lack cheaper servers")]
    Incomplete,
    /// The question cannot be put to it.
    #[error("the Keeper takes at most {max} vCPUs in a question")]
    TooManyCpus {
        /// Its limit.
        max: u32,
    },
}

impl KeeperError {
    /// What the reader can do about it, if anything.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Offline => Some("leave out --offline, and unset RESOURCE_TRACKER_OFFLINE"),
            Self::NotBuilt => Some("build with the `net` feature"),
            Self::Timeout { .. } | Self::Transport { .. } => {
                Some("check the network, the proxy settings and RESOURCE_TRACKER_KEEPER_URL")
            }
            Self::Status { status: 429, .. } => Some("try again in a minute"),
            Self::Status { .. }
            | Self::Json { .. }
            | Self::Schema { .. }
            | Self::Incomplete
            | Self::TooManyCpus { .. } => None,
        }
    }

    /// The error and its causes in one line, for an answer that says why it is not the Keeper's.
    #[must_use]
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
