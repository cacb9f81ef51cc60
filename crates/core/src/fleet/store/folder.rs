//! A store in a folder.
//!
//! In:  keys. Out: files, written beside their place and renamed.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread;

use super::{MOST_BYTES, Object, Store, StoreError};
use crate::os;
use crate::os::output::create_temporary;

/// Files that are read at once.
const MOST_READERS: usize = 8;

#[derive(Debug)]
pub(super) struct Folder {
    folder: PathBuf,
}

impl Folder {
    /// A folder by its path, or by `file://` and an absolute path.
    pub(super) fn open(url: &str) -> Result<Self, StoreError> {
        let path = url.strip_prefix("file://").unwrap_or(url);
        let is_other = path.is_empty() || url.contains("://") && !url.starts_with("file:///");
        if is_other {
            Err(StoreError::Url { url: url.to_owned() })
        } else {
            // A relative path means another folder elsewhere, and its address is kept in the history.
            Ok(Self { folder: std::path::absolute(path).unwrap_or_else(|_| path.into()) })
        }
    }

    /// Entries whose names start with `start`.
    fn entries(&self, key: &str, start: &str) -> Result<Vec<(String, fs::Metadata)>, StoreError> {
        let entries = match fs::read_dir(self.folder.join(key)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.error("list", key, error)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| self.error("list", key, error))?;
            // Removed meanwhile, or not readable: like an object that does not exist.
            let Ok(name) = entry.file_name().into_string() else { continue };
            if name.starts_with(start)
                && let Ok(kind) = entry.metadata()
            {
                found.push((name, kind));
            }
        }
        Ok(found)
    }

    fn error(&self, doing: &'static str, key: &str, source: io::Error) -> StoreError {
        StoreError::Io { doing, key: key.to_owned(), url: self.url(), source }
    }
}

impl Store for Folder {
    fn url(&self) -> String {
        self.folder.display().to_string()
    }

    fn is_remote(&self) -> bool {
        false
    }

    fn requests(&self) -> usize {
        thread::available_parallelism().map_or(1, NonZero::get).min(MOST_READERS)
    }

    fn folders(&self, key: &str) -> Result<Vec<String>, StoreError> {
        let entries = self.entries(key, "")?;
        let mut names: Vec<String> =
            entries.into_iter().filter(|(_, kind)| kind.is_dir()).map(|(name, _)| name).collect();
        names.sort_unstable();
        Ok(names)
    }

    fn objects(&self, key: &str, start: &str) -> Result<Vec<Object>, StoreError> {
        let mut found = Vec::new();
        for (name, kind) in self.entries(key, start)? {
            if kind.is_file() && !name.starts_with('.') {
                found.push(Object { bytes: kind.len(), name });
            }
        }
        found.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }

    fn get(&self, key: &str) -> Result<Vec<u8>, StoreError> {
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

    fn put(&self, key: &str, content: &[u8], is_synced: bool) -> Result<(), StoreError> {
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

    fn remove(&self, key: &str) -> Result<(), StoreError> {
        match fs::remove_file(self.folder.join(key)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.error("remove", key, error)),
            _ => Ok(()),
        }
    }
}
