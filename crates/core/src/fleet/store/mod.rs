//! Where a dataset is kept: a folder, which may be on a shared file system, or a bucket of an S3-compatible service.
//!
//! In:  keys such as `runs/date=2026-03-12/3f9c1a7b2d40.parquet`. Out: whole objects; an object is never seen in part.
//! Not here: what the objects are (`dataset`), whether `--offline` was given (the command).

mod credentials;
mod environment;
mod folder;
mod profile;
mod s3;

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::Arc;

use thiserror::Error;

pub use environment::{CredentialsError, Environment};

/// Objects that are larger are not read.
const MOST_BYTES: u64 = 4 << 30;

/// Why a store cannot be used. Texts have no credentials and no signed addresses.
#[derive(Debug, Error)]
pub enum StoreError {
    #[error("`{url}` is not a valid store address")]
    Url { url: String },
    #[error("the store `{url}` is not used, because the network is switched off")]
    Offline { url: String },
    #[error("the endpoint of the store `{url}` is not an http or https URL")]
    Endpoint { url: String },
    #[error("no credentials for the store `{url}`")]
    Credentials { url: String, source: CredentialsError },
    #[error("cannot {doing} `{key}` in the store `{url}`")]
    Io { doing: &'static str, key: String, url: String, source: io::Error },
    #[error("cannot {doing} `{key}` in the store `{url}`: status {status} {code}")]
    Status { doing: &'static str, key: String, url: String, status: u16, code: String },
}

impl StoreError {
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Url { .. } => Some("a store is a folder or s3://BUCKET/PREFIX"),
            Self::Offline { .. } => Some("remove --offline and unset RESOURCE_TRACKER_OFFLINE"),
            Self::Endpoint { .. } => {
                Some("check AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, and endpoint_url of the profile")
            }
            Self::Credentials { source, .. } => Some(source.hint()),
            Self::Io { doing: "remove", source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Some("in a folder with the sticky bit, only root can merge the files of other users")
            }
            Self::Io { .. } => None,
            Self::Status { status, code, .. } => status_hint(*status, code),
        }
    }

    /// Whether the object does not exist: another process may have removed it after a listing.
    pub fn is_not_found(&self) -> bool {
        match self {
            // NFS does not find an open file that another machine has removed.
            Self::Io { source, .. } => {
                matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::StaleNetworkFileHandle)
            }
            Self::Status { status, code, .. } => *status == 404 && (code.is_empty() || code == "NoSuchKey"),
            _ => false,
        }
    }

    /// Whether the cause is one object, while others can be read: a file without permission or with a disk error, or an object
    /// that the service has archived.
    pub fn is_of_object(&self) -> bool {
        const DISK_ERROR: i32 = 5;
        match self {
            Self::Io { doing: "read", source, .. } => {
                let kinds = [
                    io::ErrorKind::PermissionDenied,
                    io::ErrorKind::InvalidInput,
                    io::ErrorKind::FileTooLarge,
                ];
                kinds.contains(&source.kind()) || source.raw_os_error() == Some(DISK_ERROR)
            }
            Self::Status { code, .. } => code == "InvalidObjectState",
            _ => false,
        }
    }
}

/// Error codes are those of the Amazon S3 API reference.
fn status_hint(status: u16, code: &str) -> Option<&'static str> {
    match (status, code) {
        (_, "SignatureDoesNotMatch" | "InvalidAccessKeyId" | "InvalidToken" | "NotSignedUp") => Some(
            "check the access key and its secret: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile",
        ),
        (_, "ExpiredToken" | "TokenRefreshRequired") => Some("the credentials have expired: get new ones"),
        (_, "RequestTimeTooSkewed") => Some("set the clock of this machine"),
        (_, "NoSuchBucket") => Some("create the bucket, or check its name and AWS_ENDPOINT_URL"),
        (301 | 307 | 400, _) => Some("set AWS_REGION to the region of the bucket"),
        (401 | 403, _) => Some(
            "the credentials must allow to list the bucket and to read, write and delete its objects, and the clock of this machine must be right",
        ),
        (500.., _) => Some("the service is overloaded or out of order: try again later"),
        _ => None,
    }
}

/// An object of a listing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Object {
    /// Name in its folder.
    pub name: String,
    pub bytes: u64,
}

/// How an object store is reached, without credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    pub region: Option<String>,
    pub endpoint: Option<String>,
    /// Whether the bucket is in the path of an address, and not in its host.
    pub is_path_style: bool,
}

/// A place for objects.
pub trait Store: fmt::Debug + Send + Sync {
    /// The address of the store.
    fn url(&self) -> String;

    /// Whether the store needs the network. A folder does not, also if its file system is on another machine.
    fn is_remote(&self) -> bool;

    /// How other programs reach a store of the network, as far as variables say so.
    fn connection(&self) -> Option<Connection> {
        None
    }

    /// Requests that are made at once.
    fn requests(&self) -> usize;

    /// Names of the folders in a folder, in order.
    fn folders(&self, key: &str) -> Result<Vec<String>, StoreError>;

    /// Objects in a folder whose names start with `start`, in order of their names. An object is listed once it is complete.
    fn objects(&self, key: &str, start: &str) -> Result<Vec<Object>, StoreError>;

    fn get(&self, key: &str) -> Result<Vec<u8>, StoreError>;

    /// A large object, if parts of it can be read without the rest.
    fn file(&self, _key: &str) -> Result<Option<File>, StoreError> {
        Ok(None)
    }

    /// Stores an object; one of the same key is replaced. The object is on disk, so that a power cut loses nothing.
    fn put(&self, key: &str, content: &[u8]) -> Result<(), StoreError>;

    /// Removes an object, if it exists.
    fn remove(&self, key: &str) -> Result<(), StoreError>;

    /// Removes what writers left in a folder that were killed long ago.
    fn remove_leftovers(&self, _key: &str) {}
}

/// A store by its address: a path, also in the home folder by `~/`; `file://` and an absolute path; or `s3://`, a bucket and a
/// prefix. Nothing is read or sent yet.
pub fn open(url: &str, environment: Environment) -> Result<Arc<dyn Store>, StoreError> {
    if let Some(place) = url.strip_prefix("s3://") {
        return Ok(Arc::new(s3::Bucket::open(place, environment)?));
    }
    Ok(Arc::new(folder::Folder::open(url, &environment)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(doing: &'static str, source: impl Into<io::Error>) -> StoreError {
        StoreError::Io { doing, key: "runs/x".to_owned(), url: "/store".to_owned(), source: source.into() }
    }

    #[test]
    fn removed_file_is_told_from_a_file_that_cannot_be_read_and_from_a_store_that_fails() {
        let sides = |error: &StoreError| (error.is_not_found(), error.is_of_object());
        assert_eq!(sides(&failed("read", io::ErrorKind::NotFound)), (true, false));
        assert_eq!(sides(&failed("read", io::ErrorKind::StaleNetworkFileHandle)), (true, false));
        assert_eq!(sides(&failed("read", io::ErrorKind::PermissionDenied)), (false, true));
        assert_eq!(sides(&failed("list", io::ErrorKind::PermissionDenied)), (false, false));
        assert_eq!(sides(&failed("read", io::ErrorKind::TimedOut)), (false, false));
    }

    #[cfg(unix)]
    #[test]
    fn address_of_a_folder_has_one_form() {
        let environment = Environment::of(|name| (name == "HOME").then(|| "/home/ada".to_owned()));
        let address = |url: &str| open(url, environment.clone()).map(|store| store.url()).ok();
        for (url, folder) in [
            ("/shared/runs", "/shared/runs"),
            ("/shared/runs//", "/shared/runs"),
            ("/", "/"),
            ("~/runs/", "/home/ada/runs"),
            ("file:///shared/my%20runs/", "/shared/my runs"),
        ] {
            assert_eq!(address(url).as_deref(), Some(folder), "{url}");
        }
        for url in ["", "file://host/runs", "ftp://host/runs"] {
            assert_eq!(address(url), None, "{url}");
        }
    }
}
