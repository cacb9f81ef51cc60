//! What can go wrong between the kernel's files and a row, and what the reader can do about it.
//!
//! Not here: errors of recordings, catalogues and fronts; they live beside what they are about.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why the text of a kernel file could not be understood.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ParseError {
    /// The text ends before the field, or never names it.
    #[error("field `{field}` is missing")]
    Missing {
        /// As the manual page calls it.
        field: &'static str,
    },
    /// The field is there and holds something else.
    #[error("field `{field}` holds `{text}`, not a number")]
    NotANumber {
        /// As the manual page calls it.
        field: &'static str,
        /// What stood there, made printable.
        text: String,
    },
}

/// Why a source gave nothing this tick. Costs that source's cells, never the recording.
#[derive(Debug, Error)]
pub enum SourceError {
    /// The kernel, the container or the machine does not have it.
    #[error("`{path}` is not available on this host")]
    Unsupported {
        /// The file or interface that is missing.
        path: PathBuf,
    },
    /// The process it was about has ended.
    #[error("`{path}` is gone: the process has ended")]
    Gone {
        /// The file that is no more.
        path: PathBuf,
    },
    /// The file is there and is not for us.
    #[error("no permission to read `{path}`")]
    Denied {
        /// The file in question.
        path: PathBuf,
    },
    /// A number there is another process than ours of that number.
    #[error("`/proc` is not of this PID namespace")]
    Foreign,
    /// Reading failed for another reason.
    #[error("cannot read `{path}`")]
    Io {
        /// The file in question.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Reading worked, understanding did not.
    #[error("cannot parse `{path}`")]
    Parse {
        /// The file in question.
        path: PathBuf,
        /// What is wrong with its text.
        source: ParseError,
    },
}

impl SourceError {
    /// What the reader can do about it, if anything.
    #[must_use]
    pub const fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Denied { .. } => Some("run as the job's user, or mount /proc without hidepid"),
            Self::Foreign => Some("mount its own: `mount -t proc proc /proc`, or `unshare --mount-proc`"),
            Self::Parse { .. } => Some("please report this, with the file's text"),
            Self::Unsupported { .. } | Self::Gone { .. } | Self::Io { .. } => None,
        }
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn from_errno(path: &str, errno: rustix::io::Errno) -> Self {
        use rustix::io::Errno;
        let path = PathBuf::from(path);
        match errno {
            // A process that ends between open and read answers ESRCH instead of ENOENT.
            Errno::SRCH => Self::Gone { path },
            Errno::NOENT | Errno::NOTDIR | Errno::OPNOTSUPP | Errno::NODEV => Self::Unsupported { path },
            Errno::ACCESS | Errno::PERM => Self::Denied { path },
            errno => Self::Io { path, source: errno.into() },
        }
    }
}

/// An error with its causes on one line.
#[must_use]
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
