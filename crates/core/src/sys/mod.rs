//! The `unsafe` of this crate, but for old calls of a GPU library (`source::gpu`): system calls that no safe crate in our
//! tree offers, a file a system.
//!
//! Each function is one call with its reason; decisions are made by the callers. What a system does not have is an
//! empty type or `None` there, so that callers read the same everywhere.

#[cfg(not(target_os = "linux"))]
mod absent;
mod handover;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;
mod tally;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(not(target_os = "linux"))]
pub use absent::*;
pub use handover::Handover;
#[cfg(target_os = "linux")]
pub use linux::*;
#[cfg(target_os = "macos")]
pub use macos::*;
pub use tally::Tally;
#[cfg(unix)]
pub use unix::*;
#[cfg(windows)]
pub use windows::*;

/// What an ended child leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Which child.
    pub pid: u32,
    /// Its exit code, or the signal that ended it.
    pub how: Ending,
    /// User time in µs of it and of the children that it waited for.
    pub user_us: u64,
    /// System time in µs, likewise.
    pub system_us: u64,
    /// Largest resident size of any one of them; starts at the size of whoever forked it.
    pub max_rss_kib: u64,
    /// Page faults that had to read from storage.
    pub major_faults: u64,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It left by itself.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
}
