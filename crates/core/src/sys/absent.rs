//! What only Linux has: descriptors that ring, and that tell of a process's end. Elsewhere nobody ever holds one, and
//! whoever would waits on a condition, or looks now and then.

use std::io;
use std::time::Duration;

/// No bell.
#[derive(Debug)]
pub enum Bell {}

impl Bell {
    /// None.
    ///
    /// # Errors
    /// None here; Linux may have no descriptor left.
    pub const fn new() -> io::Result<Option<Self>> {
        Ok(None)
    }

    /// Never called.
    pub const fn ring(&self) {
        match *self {}
    }

    /// Never called.
    pub const fn quiet(&self) {
        match *self {}
    }
}

/// No process.
#[derive(Debug)]
pub enum Watch {}

impl Watch {
    /// None.
    #[must_use]
    pub const fn open(_pid: u32) -> Option<Self> {
        None
    }
}

/// Never called.
#[must_use]
pub const fn wait_for_bell(bell: &Bell, _watched: Option<&Watch>, _timeout: Duration) -> bool {
    match *bell {}
}

/// Gives back pages of code; here the system sees to it.
pub const fn release_start_up_code() {}

/// Threads have one table of descriptors together.
#[must_use]
pub const fn leave_descriptors() -> bool {
    false
}
