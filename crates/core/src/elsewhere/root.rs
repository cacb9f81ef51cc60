//! The door to files of the host, on systems that have no `/proc`: plain files, opened for each reading.
//!
//! What only Linux's own backend asks for (lists of processes, kept descriptors, recorded trees) is not here.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::SourceError;

/// One reading as it was made; nobody counts them here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// One of our own clocks.
    OwnClock,
}

/// This host.
#[derive(Debug)]
pub struct Root;

/// A file that is read anew at each tick.
#[derive(Debug)]
pub struct Kept(String);

/// How a file comes out of a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// All of it at once.
    Whole,
}

impl Root {
    /// Recorded trees are read on Linux.
    #[must_use]
    pub const fn is_recorded(&self) -> bool {
        false
    }

    /// This host.
    ///
    /// # Errors
    /// None here; Linux may have no `/proc`.
    pub const fn host() -> Result<Self, SourceError> {
        Ok(Self)
    }

    /// This host, seen from inside of somebody else's process.
    ///
    /// # Errors
    /// None here.
    pub const fn host_as_guest() -> Result<Self, SourceError> {
        Ok(Self)
    }

    /// A recorded tree: those are read on Linux.
    ///
    /// # Errors
    /// Always.
    pub fn recorded(tree: &Path) -> Result<Self, SourceError> {
        Err(SourceError::Unsupported { path: tree.to_owned() })
    }

    /// Only Linux can show the processes of others.
    ///
    /// # Errors
    /// None here.
    pub const fn check_processes(&self) -> Result<(), SourceError> {
        Ok(())
    }

    #[expect(clippy::unused_self, reason = "as Linux's")]
    pub(crate) fn note(&self, _access: impl FnOnce() -> Access) {}

    /// Reads a file whole.
    ///
    /// # Errors
    /// [`SourceError`] by what the system says.
    pub fn read<'b>(&self, path: &str, buffer: &'b mut Vec<u8>) -> Result<&'b [u8], SourceError> {
        *buffer = fs::read(path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => SourceError::Unsupported { path: path.into() },
            std::io::ErrorKind::PermissionDenied => SourceError::Denied { path: path.into() },
            _ => SourceError::Io { path: path.into(), source },
        })?;
        Ok(buffer)
    }

    /// A file to be read again and again.
    ///
    /// # Errors
    /// Where there is none.
    pub fn keep(&self, path: &str) -> Result<Kept, SourceError> {
        if self.exists(path) {
            Ok(Kept(path.to_owned()))
        } else {
            Err(SourceError::Unsupported { path: path.into() })
        }
    }

    /// The text of a kept file as it is now.
    ///
    /// # Errors
    /// [`SourceError`] by what the system says.
    pub fn reread<'b>(
        &self,
        kept: &Kept,
        _shape: Shape,
        buffer: &'b mut Vec<u8>,
    ) -> Result<&'b [u8], SourceError> {
        self.read(&kept.0, buffer)
    }

    /// The path on this machine's disk.
    #[must_use]
    pub fn on_disk(&self, path: &str) -> PathBuf {
        PathBuf::from(path)
    }
}
