//! `/proc/[pid]/status`: peak resident memory and swap of one process.
//!
//! In:  the text of the file. Out: [`PidStatus`] in KiB; its fields are `None` for zombies and kernel threads.
//! Meaning of the lines: `proc_pid_status(5)`.

use super::text::labelled;
use crate::error::ParseError;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PidStatus {
    /// High-water mark of RSS (`VmHWM`).
    pub peak_rss_kib: Option<u64>,
    pub swap_kib: Option<u64>,
}

pub fn parse_pid_status(text: &[u8]) -> Result<PidStatus, ParseError> {
    Ok(PidStatus { peak_rss_kib: labelled("VmHWM:", text)?, swap_kib: labelled("VmSwap:", text)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_name_cannot_forge_a_line() {
        let text = b"Name:\tVmHWM:\\n9 VmHWM: 9\nVmPeak:\t 10 kB\nVmHWM:\t    2048 kB\nVmSwap:\t 4 kB\n";
        assert_eq!(parse_pid_status(text), Ok(PidStatus { peak_rss_kib: Some(2048), swap_kib: Some(4) }));
    }

    #[test]
    fn zombie_has_no_memory_lines() {
        assert_eq!(parse_pid_status(b"Name:\tsh\nState:\tZ (zombie)\n"), Ok(PidStatus::default()));
    }
}
