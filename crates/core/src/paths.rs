//! Where files of ours belong, by each system's own convention.
//!
//! In:  the environment, given as a function so that tests need not change it. Out: folders of ours, which need not
//! exist. An `XDG_…` variable that is set and absolute goes before the convention on every system; one that is relative
//! is ignored, as its specification says.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The name of our folder in a folder for all programs.
const OURS: &str = "resource-tracker";

/// What is written to see whether there is room.
const PROBE: &[u8] = b"is there room?\n";

/// A system's convention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Convention {
    /// Linux: the XDG base directories.
    Xdg,
    /// macOS: `~/Library`.
    Library,
    /// Windows: the user's `AppData`.
    AppData,
}

/// What a folder is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// What the user wants to keep.
    Data,
    /// What the user has chosen.
    Config,
    /// What can be had again.
    Cache,
}

impl Convention {
    /// Of this system.
    pub const HERE: Self = if cfg!(windows) {
        Self::AppData
    } else if cfg!(target_os = "macos") {
        Self::Library
    } else {
        Self::Xdg
    };

    /// Our folder for that purpose; `None` where the environment names no folder of the user's.
    pub fn folder(self, purpose: Purpose, variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
        let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let (xdg, below_home, library) = match purpose {
            Purpose::Data => ("XDG_DATA_HOME", ".local/share", "Library/Application Support"),
            Purpose::Config => ("XDG_CONFIG_HOME", ".config", "Library/Application Support"),
            Purpose::Cache => ("XDG_CACHE_HOME", ".cache", "Library/Caches"),
        };
        if let Some(chosen) = absolute(xdg) {
            return Some(chosen.join(OURS));
        }
        match (self, purpose) {
            (Self::Xdg, _) => Some(absolute("HOME")?.join(below_home).join(OURS)),
            (Self::Library, _) => Some(absolute("HOME")?.join(library).join(OURS)),
            // Settings go where the user goes; the rest stays on this machine.
            (Self::AppData, Purpose::Config) => Some(absolute("APPDATA")?.join(OURS)),
            (Self::AppData, Purpose::Data) => Some(absolute("LOCALAPPDATA")?.join(OURS).join("runs")),
            (Self::AppData, Purpose::Cache) => Some(absolute("LOCALAPPDATA")?.join(OURS).join("cache")),
        }
    }
}

/// Our folder for that purpose on this system, by this process's environment.
#[must_use]
pub fn folder(purpose: Purpose) -> Option<PathBuf> {
    Convention::HERE.folder(purpose, |name| std::env::var_os(name))
}

/// A folder for temporary files: the one that the environment names, or where nothing can be written into it, the first
/// of the usual ones into which something can. A whole path: the program that we are in may go to another folder.
#[must_use]
pub fn temporary() -> PathBuf {
    let named = std::env::temp_dir();
    let usual = ["/tmp", "/var/tmp"].map(PathBuf::from).into_iter().chain(std::env::current_dir().ok());
    let usable = whole(&named).into_iter().chain(usual).find(|folder| takes_files(folder));
    usable.or_else(|| whole(&named)).unwrap_or(named)
}

/// None where a path starts from a folder that is gone.
fn whole(path: &Path) -> Option<PathBuf> {
    std::path::absolute(path).ok()
}

/// A part of a file's name that no other writer on this machine has now: no process, and no thread of this one.
pub(crate) fn writer() -> String {
    static WRITERS: AtomicU32 = AtomicU32::new(0);
    format!("{}-{}", std::process::id(), WRITERS.fetch_add(1, Ordering::Relaxed))
}

/// Whether a file can be made in a folder and something be written into it, for which a full disk has no room.
pub(crate) fn takes_files(folder: &Path) -> bool {
    let probe = folder.join(format!("{OURS}-probe-{}", writer()));
    let Ok(mut file) = OpenOptions::new().write(true).create_new(true).open(&probe) else { return false };
    let is_written = file.write_all(PROBE).is_ok();
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
    fn each_system_has_its_own_folders() {
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
    fn a_variable_goes_before_the_convention_where_it_is_absolute() {
        for convention in [Convention::Xdg, Convention::Library, Convention::AppData] {
            let named = folder(convention, Purpose::Cache, &[("XDG_CACHE_HOME", "/fast")]);
            assert_eq!(named.as_deref(), Some("/fast/resource-tracker"));
            assert_eq!(folder(convention, Purpose::Cache, &[("XDG_CACHE_HOME", "fast")]), None);
        }
    }

    #[test]
    fn a_folder_takes_files_where_it_can_be_written_to() {
        let folder = tempfile::tempdir().unwrap();
        assert!(takes_files(folder.path()));
        assert!(!takes_files(&folder.path().join("missing")));
        assert_eq!(folder.path().read_dir().unwrap().count(), 0, "nothing stays");
        assert!(takes_files(&temporary()));
    }

    #[test]
    fn a_path_stays_where_it_is_when_the_program_goes_elsewhere() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(whole(Path::new("scratch")), Some(here.join("scratch")));
        assert_eq!(whole(Path::new("/tmp")).as_deref(), Some(Path::new("/tmp")));
        assert_eq!(whole(Path::new("")), None);
        assert!(temporary().is_absolute());
    }
}
