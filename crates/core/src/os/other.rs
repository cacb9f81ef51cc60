//! Stubs for macOS and Windows of interfaces that only Linux has, with the signatures of the Linux versions.
//!
//! An empty enum has no value, so its methods cannot be called. Callers use a condition variable or poll instead.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::SourceError;

#[derive(Debug)]
pub enum EventFd {}

impl EventFd {
    pub const fn new() -> io::Result<Option<Self>> {
        Ok(None)
    }

    pub const fn notify(&self) {
        match *self {}
    }

    pub const fn clear(&self) {
        match *self {}
    }
}

pub const fn reset_peak_rss() {}

#[derive(Debug)]
pub enum Watch {}

impl Watch {
    pub const fn open(_pid: u32) -> Option<Self> {
        None
    }
}

#[derive(Debug)]
pub enum FileWatch {}

impl FileWatch {
    pub const fn open(_path: &Path) -> Option<Self> {
        None
    }
}

pub const fn wait_for_eventfd(
    eventfd: &EventFd,
    _watched: Option<&Watch>,
    _file: Option<&FileWatch>,
    _timeout: Duration,
) -> bool {
    match *eventfd {}
}

/// Always true: only Linux asks, after a reboot.
pub const fn is_on_local_disk(_file: &fs::File) -> bool {
    true
}

pub const fn leave_descriptors() -> bool {
    false
}

/// Runs `write`. On macOS, SIGXFSZ is sent to the process, so a thread cannot block it for its own writes.
pub fn without_size_signal<T>(write: impl FnOnce() -> T) -> T {
    write()
}

/// The files of this host, which are opened for each read.
#[derive(Debug)]
pub struct Root;

#[derive(Debug)]
pub struct Kept(String);

impl Root {
    pub const fn is_recorded(&self) -> bool {
        false
    }

    pub const fn shared() -> Result<&'static Self, SourceError> {
        Ok(&Self)
    }

    pub const fn host() -> Result<Self, SourceError> {
        Ok(Self)
    }

    pub const fn host_in_process() -> Result<Self, SourceError> {
        Ok(Self)
    }

    pub fn recorded(tree: &Path) -> Result<Self, SourceError> {
        Err(SourceError::Unsupported { path: tree.to_owned() })
    }

    pub const fn check_processes(&self) -> Result<(), SourceError> {
        Ok(())
    }

    pub fn read<'b>(&self, path: &str, buffer: &'b mut Vec<u8>) -> Result<&'b [u8], SourceError> {
        *buffer = fs::read(path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => SourceError::Unsupported { path: path.into() },
            io::ErrorKind::PermissionDenied => SourceError::Denied { path: path.into() },
            _ => SourceError::Io { path: path.into(), source },
        })?;
        Ok(buffer)
    }

    pub fn keep(&self, path: &str) -> Result<Kept, SourceError> {
        if self.exists(path) {
            Ok(Kept(path.to_owned()))
        } else {
            Err(SourceError::Unsupported { path: path.into() })
        }
    }

    pub fn reread<'b>(&self, kept: &Kept, buffer: &'b mut Vec<u8>) -> Result<&'b [u8], SourceError> {
        self.read(&kept.0, buffer)
    }

    pub fn on_disk(&self, path: &str) -> PathBuf {
        PathBuf::from(path)
    }
}
