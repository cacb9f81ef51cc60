//! `/proc/[pid]/status`: the peak of a process's resident memory, and what of it is in swap.
//!
//! In:  the file's text. Out: [`PidStatus`] in KiB; the fields are empty for zombies and kernel threads.
//! Meaning of the lines: `proc_pid_status(5)`.

use super::text::labelled;
use crate::error::ParseError;

/// Memory of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PidStatus {
    /// Most memory that was ever resident (`VmHWM`), exact between samples.
    pub peak_rss_kib: Option<u64>,
    /// Memory that was moved to swap (`VmSwap`).
    pub swap_kib: Option<u64>,
}

/// Parses `/proc/[pid]/status`.
///
/// # Errors
/// Where a line is there and holds no number.
pub fn parse_pid_status(text: &[u8]) -> Result<PidStatus, ParseError> {
    Ok(PidStatus { peak_rss_kib: labelled("VmHWM:", text)?, swap_kib: labelled("VmSwap:", text)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_named_like_a_line_does_not_forge_it() {
        let text = b"Name:\tVmHWM:\\n9 VmHWM: 9\nVmPeak:\t 10 kB\nVmHWM:\t    2048 kB\nVmSwap:\t 4 kB\n";
        assert_eq!(parse_pid_status(text), Ok(PidStatus { peak_rss_kib: Some(2048), swap_kib: Some(4) }));
    }

    #[test]
    fn a_zombie_has_no_memory_lines() {
        assert_eq!(parse_pid_status(b"Name:\tsh\nState:\tZ (zombie)\n"), Ok(PidStatus::default()));
    }
}
