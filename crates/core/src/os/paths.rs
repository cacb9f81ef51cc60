//! Folders for data, settings, cache and temporary files, by the convention of each system.
//!
//! In:  a function that looks up environment variables, so that tests need not set them. Out: paths, which need not
//! exist. An `XDG_…` variable with an absolute path has priority on every system. A relative path is ignored, as the
//! XDG Base Directory Specification requires.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::hash::{BuildHasher as _, RandomState};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::os;

/// The name of the tracker's folder.
const NAME: &str = "resource-tracker";

/// Content of a temporary file that is written to check for free space.
const PROBE: &[u8] = b"probe\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Convention {
    /// Linux: the XDG base directories.
    Xdg,
    /// macOS: `~/Library`.
    Library,
    /// Windows: the user's `AppData`.
    AppData,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Recordings.
    Data,
    /// Settings.
    Config,
    /// Files that can be downloaded again.
    Cache,
}

impl Convention {
    /// The convention of this system.
    pub const HERE: Self = if cfg!(windows) {
        Self::AppData
    } else if cfg!(target_os = "macos") {
        Self::Library
    } else {
        Self::Xdg
    };

    /// The folder of the tracker; `None` if the environment names no home folder.
    pub fn folder(self, purpose: Purpose, variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
        let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let (xdg, below_home, library) = match purpose {
            Purpose::Data => ("XDG_DATA_HOME", ".local/share", "Library/Application Support"),
            Purpose::Config => ("XDG_CONFIG_HOME", ".config", "Library/Application Support"),
            Purpose::Cache => ("XDG_CACHE_HOME", ".cache", "Library/Caches"),
        };
        if let Some(chosen) = absolute(xdg) {
            return Some(chosen.join(NAME));
        }
        match (self, purpose) {
            (Self::Xdg, _) => Some(absolute("HOME")?.join(below_home).join(NAME)),
            (Self::Library, _) => Some(absolute("HOME")?.join(library).join(NAME)),
            // `APPDATA` roams with the user profile; `LOCALAPPDATA` stays on this machine.
            (Self::AppData, Purpose::Config) => Some(absolute("APPDATA")?.join(NAME)),
            (Self::AppData, Purpose::Data) => Some(absolute("LOCALAPPDATA")?.join(NAME).join("runs")),
            (Self::AppData, Purpose::Cache) => Some(absolute("LOCALAPPDATA")?.join(NAME).join("cache")),
        }
    }
}

/// The folder of the tracker on this system, by the environment of this process.
pub fn folder(purpose: Purpose) -> Option<PathBuf> {
    Convention::HERE.folder(purpose, |name| std::env::var_os(name))
}

/// The folder of the settings file. `variable` looks up environment variables.
pub fn config_folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    Convention::HERE.folder(Purpose::Config, variable)
}

/// A folder for temporary files: the first writable folder of `TMPDIR`, `/tmp`, `/var/tmp` and the working folder. The
/// path is absolute, since a host process may change its working folder.
pub fn temporary() -> PathBuf {
    usable_folder(std::env::temp_dir())
}

fn usable_folder(named: PathBuf) -> PathBuf {
    let folders = folders_for_temporary_files(&named);
    let usable = folders.iter().find(|folder| takes_files(folder));
    usable.or(folders.first()).cloned().unwrap_or(named)
}

/// The folders in which [`temporary`] may find room, in this order and without duplicates.
pub(crate) fn folders_for_temporary_files(named: &Path) -> Vec<PathBuf> {
    let usual = ["/tmp", "/var/tmp"].map(PathBuf::from).into_iter().chain(std::env::current_dir().ok());
    let mut folders: Vec<PathBuf> = Vec::new();
    // `absolute` fails for a relative path if the working folder was deleted.
    for folder in std::path::absolute(named).into_iter().chain(usual) {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders
}

/// A part of a file name that no other process can predict: another user could create the file before.
pub(crate) fn writer() -> String {
    format!("{:016x}", random_bits())
}

/// A hash of the time and the pid with random keys of this process.
pub(crate) fn random_bits() -> u64 {
    RandomState::new().hash_one((SystemTime::now(), std::process::id()))
}

/// Whether a file can be created and written in a folder; the write fails on a full disk.
pub(crate) fn takes_files(folder: &Path) -> bool {
    let probe = folder.join(format!("{NAME}-probe-{}", writer()));
    let Ok(mut file) = OpenOptions::new().write(true).create_new(true).open(&probe) else { return false };
    let is_written = os::without_size_signal(|| file.write_all(PROBE)).is_ok();
    std::fs::remove_file(&probe).is_ok() && is_written
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    fn folder(convention: Convention, purpose: Purpose, variables: &[(&str, &str)]) -> Option<String> {
        let value = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        };
        convention.folder(purpose, value).map(|path| path.display().to_string())
    }

    #[test]
    fn folders_follow_the_convention_of_the_system() {
        let variables = [("HOME", "/home/ada"), ("APPDATA", "/roaming"), ("LOCALAPPDATA", "/local")];
        let all = [Convention::Xdg, Convention::Library, Convention::AppData];
        let of = |purpose| all.map(|convention| folder(convention, purpose, &variables).unwrap());
        assert_eq!(
            of(Purpose::Data),
            [
                "/home/ada/.local/share/resource-tracker",
                "/home/ada/Library/Application Support/resource-tracker",
                "/local/resource-tracker/runs"
            ]
        );
        assert_eq!(
            of(Purpose::Config),
            [
                "/home/ada/.config/resource-tracker",
                "/home/ada/Library/Application Support/resource-tracker",
                "/roaming/resource-tracker"
            ]
        );
        assert_eq!(
            of(Purpose::Cache),
            [
                "/home/ada/.cache/resource-tracker",
                "/home/ada/Library/Caches/resource-tracker",
                "/local/resource-tracker/cache"
            ]
        );
    }

    #[test]
    fn absolute_xdg_variable_has_priority() {
        for convention in [Convention::Xdg, Convention::Library, Convention::AppData] {
            let named = folder(convention, Purpose::Cache, &[("XDG_CACHE_HOME", "/fast")]);
            assert_eq!(named.as_deref(), Some("/fast/resource-tracker"));
            assert_eq!(folder(convention, Purpose::Cache, &[("XDG_CACHE_HOME", "fast")]), None);
        }
    }

    #[test]
    fn writable_folder_takes_files_and_stays_empty() {
        let folder = tempfile::tempdir().unwrap();
        assert!(takes_files(folder.path()));
        assert!(!takes_files(&folder.path().join("missing")));
        assert_eq!(folder.path().read_dir().unwrap().count(), 0, "the probe is removed");
        assert!(takes_files(&temporary()));
    }

    #[test]
    fn temporary_folder_is_an_absolute_path() {
        let folder = tempfile::tempdir_in(".").unwrap();
        let relative = PathBuf::from(folder.path().file_name().unwrap());
        assert_eq!(usable_folder(relative.clone()), std::env::current_dir().unwrap().join(relative));
        assert!(usable_folder(PathBuf::from("missing")).is_absolute());
    }
}
