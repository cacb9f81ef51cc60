//! System calls, files, paths and the HTTP client, with one file per operating system behind one interface.
//!
//! All `unsafe` code of the crate is here. Each function makes one call; decisions are made by the callers. If a system
//! lacks an interface, its type is empty there or its function returns `None`, so that callers need no `#[cfg]`.

mod clock;
pub mod http;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;
pub mod network;
#[cfg(not(target_os = "linux"))]
mod other;
pub mod output;
pub mod paths;
mod pid_path;
mod process_counter;
mod recognise;
pub mod root;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

pub use clock::Moment;
#[cfg(target_os = "linux")]
pub use linux::*;
#[cfg(target_os = "macos")]
pub use macos::*;
#[cfg(not(target_os = "linux"))]
pub use other::{
    EventFd, FileWatch, Watch, is_on_local_disk, leave_descriptors, reset_peak_rss, wait_for_eventfd,
    without_size_signal,
};
pub use pid_path::pid_path;
pub use process_counter::{ProcessCounter, background_cpu_ns, note_background_cpu};
#[cfg(unix)]
pub use unix::*;
#[cfg(windows)]
pub use windows::*;

/// Resource usage of an ended child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    pub pid: u32,
    pub how: Ending,
    /// User time of the child and of the children it has reaped.
    pub user_us: u64,
    /// System time of the child and of the children it has reaped.
    pub system_us: u64,
    /// Largest resident size of the child or of a child that it reaped; it starts at the size of the forking process.
    pub max_rss_kib: u64,
    /// Page faults that read from storage.
    pub major_faults: u64,
}

/// How a process ended: its exit code, or the signal that ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Code(i32),
    Signal(i32),
}
