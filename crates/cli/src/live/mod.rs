//! The status line of `--live`: current usage of the job on the last line of the terminal.
//!
//! One `Live` per operating system: `start` draws until it is dropped and returns the sink that takes the rows,
//! `pause` removes the line before the process is stopped, `resume` draws it again.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use unix::Live;
#[cfg(windows)]
pub use windows::Live;
