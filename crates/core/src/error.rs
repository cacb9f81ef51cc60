//! Errors of reading and parsing kernel files, with hints for the user.
//!
//! Not here: errors of recordings, catalogues and fronts, which are defined beside their functions.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// A kernel file has unexpected text. Fields are named as in the manual page of the file.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ParseError {
    #[error("field `{field}` is missing")]
    Missing { field: &'static str },
    /// `text` is the field, with unprintable characters replaced.
    #[error("field `{field}` holds `{text}`, not a number")]
    NotANumber { field: &'static str, text: String },
}

/// A source has no value in this tick. Its cells stay empty, and the recording continues.
#[derive(Debug, Error)]
pub enum SourceError {
    /// The kernel, the container or the machine does not have this file or interface.
    #[error("`{path}` is not available on this host")]
    Unsupported { path: PathBuf },
    #[error("`{path}` is gone: the process has ended")]
    Gone { path: PathBuf },
    #[error("no permission to read `{path}`")]
    Denied { path: PathBuf },
    /// A process id in `/proc` is not the id in this PID namespace.
    #[error("`/proc` belongs to another PID namespace")]
    Foreign,
    #[error("cannot read `{path}`")]
    Io { path: PathBuf, source: io::Error },
    #[error("cannot parse `{path}`")]
    Parse { path: PathBuf, source: ParseError },
}

impl SourceError {
    /// What the user can do about the error; `None` if nothing.
    pub const fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Denied { .. } => Some("run as the job's user, or mount /proc without hidepid"),
            Self::Foreign => {
                Some("mount a matching `/proc`: `mount -t proc proc /proc` or `unshare --mount-proc`")
            }
            Self::Parse { .. } => Some("please report this, with the file's text"),
            Self::Unsupported { .. } | Self::Gone { .. } | Self::Io { .. } => None,
        }
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn from_errno(path: &str, errno: rustix::io::Errno) -> Self {
        use rustix::io::Errno;
        let path = PathBuf::from(path);
        match errno {
            // If the process ends between open and read, read fails with ESRCH instead of ENOENT.
            Errno::SRCH => Self::Gone { path },
            Errno::NOENT | Errno::NOTDIR | Errno::OPNOTSUPP | Errno::NODEV => Self::Unsupported { path },
            Errno::ACCESS | Errno::PERM => Self::Denied { path },
            errno => Self::Io { path, source: errno.into() },
        }
    }
}

/// The messages of an error and of its causes, on one line.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
