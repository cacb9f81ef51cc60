//! Settings of the process of the command `resource-tracker`, applied first in `main`.

use crate::os;

/// Prepares this process for running a job, and returns the signals that were ignored when the process started: the job
/// must start with the same signals ignored.
///
/// Call it first in `main`. From then on, a write to a closed pipe or past the limit of file sizes returns an error and
/// does not end the process.
pub fn start_up() -> Vec<i32> {
    let ignored = os::ignored_at_start();
    os::fill_standard_streams();
    os::share_one_heap();
    os::ignore_signals_of_writes();
    ignored
}
