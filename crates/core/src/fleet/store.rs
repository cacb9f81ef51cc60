//! Where a dataset is kept: a folder, which may be on a shared file system.
//!
//! In:  keys such as `runs/date=2026-03-12/3f9c1a7b2d40.parquet`. Out: whole objects; an object is never seen in part.
//! Not here: what the objects are (`dataset`).

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::os;
use crate::os::output::create_temporary;

/// Objects that are larger are not read.
const MOST_BYTES: u64 = 4 << 30;

/// Why a store cannot be used.
#[derive(Debug, Error)]
pub enum StoreError {
    #[error("`{url}` is no store")]
    Url { url: String },
    #[error("cannot {doing} `{key}` in the store `{url}`")]
    Io { doing: &'static str, key: String, url: String, source: io::Error },
}

impl StoreError {
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Url { .. } => Some("a store is a folder"),
            Self::Io { .. } => None,
        }
    }

    /// Whether the object does not exist: another process may have removed it after a listing.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// An object of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Name after the prefix of the listing.
    pub name: String,
    pub bytes: u64,
}

/// A place for objects.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// A store by its address: a path, or `file://` and an absolute path.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        let path = url.strip_prefix("file://").unwrap_or(url);
        let is_other = path.is_empty() || url.contains("://") && !url.starts_with("file:///");
        if is_other {
            Err(StoreError::Url { url: url.to_owned() })
        } else {
            // A relative path means another folder elsewhere, and its address is kept in the history.
            Ok(Self { folder: std::path::absolute(path).unwrap_or_else(|_| path.into()) })
        }
    }

    /// The address of the store.
    pub fn url(&self) -> String {
        self.folder.display().to_string()
    }

    /// Names of the folders in a folder, in order.
    pub fn folders(&self, key: &str) -> Result<Vec<String>, StoreError> {
        let entries = self.entries(key)?;
        let mut names: Vec<String> =
            entries.into_iter().filter(|(_, kind)| kind.is_dir()).map(|(name, _)| name).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Objects in a folder, in order of their names. Files that are being written are not listed.
    pub fn objects(&self, key: &str) -> Result<Vec<Object>, StoreError> {
        let mut found = Vec::new();
        for (name, kind) in self.entries(key)? {
            if kind.is_file() && !name.starts_with('.') {
                found.push(Object { bytes: kind.len(), name });
            }
        }
        found.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }

    fn entries(&self, key: &str) -> Result<Vec<(String, fs::Metadata)>, StoreError> {
        let entries = match fs::read_dir(self.folder.join(key)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.error("list", key, error)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| self.error("list", key, error))?;
            // Removed meanwhile, or not readable: like an object that does not exist.
            if let (Ok(name), Ok(kind)) = (entry.file_name().into_string(), entry.metadata()) {
                found.push((name, kind));
            }
        }
        Ok(found)
    }

    pub fn get(&self, key: &str) -> Result<Vec<u8>, StoreError> {
        let read = || {
            let file = os::open_regular(&self.folder.join(key))?;
            let bytes = file.metadata()?.len();
            if bytes > MOST_BYTES {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            let mut content = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
            io::Read::read_to_end(&mut &file, &mut content)?;
            Ok(content)
        };
        read().map_err(|error| self.error("read", key, error))
    }

    /// Stores an object; one of the same key is replaced. Written beside it and renamed. `is_synced` waits for the disk, so
    /// that a power cut loses nothing that is removed afterwards.
    pub fn put(&self, key: &str, content: &[u8], is_synced: bool) -> Result<(), StoreError> {
        let path = self.folder.join(key);
        let write = || {
            fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
            let (mut file, temporary) =
                create_temporary(OpenOptions::new().write(true), &path, &".store-".into())?;
            let written = os::without_size_signal(|| file.write_all(content))
                .and_then(|()| if is_synced { file.sync_all() } else { Ok(()) })
                .and_then(|()| fs::rename(&temporary, &path));
            if written.is_err() {
                let _ = fs::remove_file(&temporary);
            }
            written
        };
        write().map_err(|error| self.error("write", key, error))
    }

    /// Removes an object, if it exists.
    pub fn remove(&self, key: &str) -> Result<(), StoreError> {
        match fs::remove_file(self.folder.join(key)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.error("remove", key, error)),
            _ => Ok(()),
        }
    }

    fn error(&self, doing: &'static str, key: &str, source: io::Error) -> StoreError {
        StoreError::Io { doing, key: key.to_owned(), url: self.url(), source }
    }
}
