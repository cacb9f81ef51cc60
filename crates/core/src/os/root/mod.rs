//! Access to `/proc`, `/sys` and other files of the host. All other modules read these files through [`Root`].
//!
//! In:  a path on the host (`/proc/stat`).
//! Out: the bytes of the file, from this host or from a recorded tree.
//! Not here: parsers (`probe`), the stub for macOS and Windows (`os::other`).

#[cfg(target_os = "linux")]
mod linux;

use std::fs;

#[cfg(not(target_os = "linux"))]
pub use super::other::{Kept, Root};
#[cfg(target_os = "linux")]
pub use linux::{Kept, Root, Space};

impl Root {
    /// The trimmed text of a small file; `None` if the file cannot be read.
    pub fn text(&self, path: &str) -> Option<String> {
        let mut buffer = Vec::new();
        let bytes = self.read(path, &mut buffer).ok()?;
        Some(String::from_utf8_lossy(bytes).trim().to_owned())
    }

    /// Names of the files in a folder, unsorted; empty if the folder cannot be read.
    pub fn names(&self, path: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.on_disk(path)) else { return Vec::new() };
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    pub fn exists(&self, path: &str) -> bool {
        fs::symlink_metadata(self.on_disk(path)).is_ok()
    }
}
