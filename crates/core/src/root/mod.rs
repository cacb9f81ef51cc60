//! The only door to `/proc`, `/sys` and the like.
//!
//! In:  a path as it is on a host (`/proc/stat`).
//! Out: the bytes behind it, of this host or of a recorded tree that stands in for one.
//! Not here: what the bytes mean (`source`), how a system opens its files (`linux`, and `elsewhere` without `/proc`).

#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "../elsewhere/root.rs")]
mod system;

use std::fs;

pub use system::*;

impl Root {
    /// As text, for small files off the hot path; `None` where there is none, or none that can be read.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<String> {
        let mut buffer = Vec::new();
        let bytes = self.read(path, &mut buffer).ok()?;
        Some(String::from_utf8_lossy(bytes).trim().to_owned())
    }

    /// Names in a directory, unsorted; empty where it does not exist.
    #[must_use]
    pub fn names(&self, path: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.on_disk(path)) else { return Vec::new() };
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    /// Whether a path exists.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        fs::symlink_metadata(self.on_disk(path)).is_ok()
    }
}
