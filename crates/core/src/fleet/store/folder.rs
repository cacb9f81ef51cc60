//! A store in a folder.
//!
//! In:  keys. Out: files, written under a temporary name and renamed. Their permissions follow those of the store's folder,
//! whatever the umask, so that several users can share a store.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use url::Url;

use super::{Environment, MOST_BYTES, Object, Store, StoreError};
use crate::os;
use crate::os::output::create_temporary;

/// Files that are read at once.
const MOST_READERS: usize = 8;
/// Files from this size on are read in parts: of smaller ones, more calls cost more than more bytes.
const READ_IN_PARTS: u64 = 1 << 20;
const TEMPORARY: &str = ".store-";
/// A temporary file that is older was left by a killed writer.
const WRITTEN_WITHIN: Duration = Duration::from_hours(24);

#[derive(Debug)]
pub(super) struct Folder {
    folder: PathBuf,
}

impl Folder {
    /// A folder by its path, which may start with `~/`, or by `file://` and an absolute path.
    pub(super) fn open(url: &str, environment: &Environment) -> Result<Self, StoreError> {
        let no_store = || StoreError::Url { url: url.to_owned() };
        let path = if url.starts_with("file:///") {
            Url::parse(url).ok().and_then(|url| url.to_file_path().ok()).ok_or_else(no_store)?
        } else if url.is_empty() || url.contains("://") {
            return Err(no_store());
        } else if let Some(path) = url.strip_prefix("~/") {
            environment.home().ok_or_else(no_store)?.join(path)
        } else {
            url.into()
        };
        // A relative path means another folder elsewhere, and its address is kept in the history. The components have no `/`
        // at the end.
        let path = std::path::absolute(&path).unwrap_or(path);
        Ok(Self { folder: path.components().collect() })
    }

    /// Creates the folders of a file. A new folder has the mode of its parent folder, so that the same users can write to it.
    fn create_folders(&self, key: &str) -> io::Result<PathBuf> {
        let mut folder = self.folder.clone();
        if fs::metadata(&folder).is_err() {
            fs::create_dir_all(&folder)?;
        }
        for part in Path::new(key).parent().into_iter().flat_map(Path::components) {
            let outer = fs::metadata(&folder)?;
            folder.push(part);
            match fs::create_dir(&folder) {
                // Some file systems have no modes.
                Ok(()) => drop(fs::set_permissions(&folder, outer.permissions())),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Ok(folder)
    }

    fn open_file(&self, key: &str) -> io::Result<(File, u64)> {
        let file = os::open_regular(&self.folder.join(key))?;
        let bytes = file.metadata()?.len();
        if bytes > MOST_BYTES { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok((file, bytes)) }
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
            let (file, bytes) = self.open_file(key)?;
            let mut content = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
            io::Read::read_to_end(&mut &file, &mut content)?;
            Ok(content)
        };
        read().map_err(|error| self.error("read", key, error))
    }

    fn file(&self, key: &str) -> Result<Option<File>, StoreError> {
        let (file, bytes) = self.open_file(key).map_err(|error| self.error("read", key, error))?;
        Ok(Some(file).filter(|_| bytes >= READ_IN_PARTS))
    }

    fn put(&self, key: &str, content: &[u8]) -> Result<(), StoreError> {
        let path = self.folder.join(key);
        let write = || {
            let folder = self.create_folders(key)?;
            let (mut file, temporary) =
                create_temporary(OpenOptions::new().write(true), &path, &TEMPORARY.into())?;
            // Some file systems have no modes.
            let _ = fs::metadata(folder).and_then(|folder| os::share_with_folder(&file, &folder));
            let written = os::without_size_signal(|| file.write_all(content))
                .and_then(|()| file.sync_all())
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

    fn remove_leftovers(&self, key: &str) {
        let Ok(files) = self.entries(key, TEMPORARY) else { return };
        let is_old = |found: &fs::Metadata| {
            found.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > WRITTEN_WITHIN))
        };
        for (name, _) in files.iter().filter(|(_, found)| found.is_file() && is_old(found)) {
            let _ = fs::remove_file(self.folder.join(key).join(name));
        }
    }
}
