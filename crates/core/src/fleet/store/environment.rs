//! The variables that say how an object store is reached, and why there are no credentials.
//!
//! In:  the environment of the process. Out: [`Environment`], which has the listed variables only.
//! Not here: what they mean (`credentials`, `profile`, `s3`).

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;

use jiff::Timestamp;
use thiserror::Error;

/// The variables that are read.
const VARIABLES: [&str; 21] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_CONFIG_FILE",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_DEFAULT_REGION",
    "AWS_EC2_METADATA_DISABLED",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_PROFILE",
    "AWS_REGION",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "HOME",
    "RESOURCE_TRACKER_S3_PATH_STYLE",
    "RESOURCE_TRACKER_STORE_TIMEOUT",
    "USERPROFILE",
];

/// Why there are no credentials.
#[derive(Debug, Error)]
pub enum CredentialsError {
    #[error("neither the variables, nor the profile, nor the metadata service of this machine has any")]
    Missing,
    #[error("found a web identity only, which is not supported")]
    WebIdentity,
    #[error("`{set}` is set, and `{missing}` is not")]
    Incomplete { set: &'static str, missing: &'static str },
    #[error("cannot read `{path}`")]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("no profile named `{name}`")]
    NoProfile { name: String },
    #[error("the profile `{name}` has no access key")]
    ProfileWithoutKeys { name: String },
    #[error("`AWS_CONTAINER_CREDENTIALS_FULL_URI` is neither a service of this machine nor https")]
    ContainerAddress,
    #[error("the credentials service of the container returned no credentials")]
    Container,
    #[error("expired at {at}")]
    Expired { at: Timestamp },
}

impl CredentialsError {
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Missing | Self::Incomplete { .. } => {
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
            }
            Self::Unreadable { .. } => "fix the file's permissions, or name another file",
            Self::NoProfile { .. } => "set AWS_PROFILE to a profile of ~/.aws/config or ~/.aws/credentials",
            Self::WebIdentity => {
                "`aws configure export-credentials --format env` prints variables for the role of a web identity"
            }
            Self::ProfileWithoutKeys { .. } => {
                "`aws configure export-credentials --format env` prints variables for a profile that signs in elsewhere"
            }
            Self::ContainerAddress | Self::Container => "check the role of the container",
            Self::Expired { .. } => "get new credentials",
        }
    }
}

/// The listed variables, as they were when the store was opened. Empty ones count as not set.
#[derive(Clone)]
pub struct Environment(BTreeMap<&'static str, String>);

impl Environment {
    /// The variables of this process.
    pub fn of_process() -> Self {
        Self::of(|name| std::env::var(name).ok())
    }

    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name| Some((name, variable(name).filter(|value| !value.trim().is_empty())?));
        Self(VARIABLES.into_iter().filter_map(set).collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        debug_assert!(VARIABLES.contains(&name), "{name} is not listed");
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn home(&self) -> Option<PathBuf> {
        self.get("HOME").or_else(|| self.get("USERPROFILE")).map(PathBuf::from)
    }
}

/// Names only.
impl fmt::Debug for Environment {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_set().entries(self.0.keys()).finish()
    }
}
