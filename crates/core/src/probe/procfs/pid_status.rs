//! `/proc/[pid]/status`: resident memory by kind, its peak, and swap of one process.
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
    /// Resident anonymous pages; `None` on kernels before Linux 4.5.
    pub anon_kib: Option<u64>,
    /// Resident pages of mapped files and of shared memory.
    pub mapped_kib: Option<u64>,
}

pub fn parse_pid_status(text: &[u8]) -> Result<PidStatus, ParseError> {
    let mapped = labelled("RssFile:", text)?.zip(labelled("RssShmem:", text)?);
    Ok(PidStatus {
        peak_rss_kib: labelled("VmHWM:", text)?,
        swap_kib: labelled("VmSwap:", text)?,
        anon_kib: labelled("RssAnon:", text)?,
        mapped_kib: mapped.and_then(|(file_kib, shmem_kib)| file_kib.checked_add(shmem_kib)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_name_cannot_forge_a_line() {
        let text = b"Name:\tVmHWM:\\n9 VmHWM: 9\nVmPeak:\t 10 kB\nVmHWM:\t    2048 kB\nRssAnon:\t 70 kB\nRssFile:\t 20 kB\nRssShmem:\t 3 kB\nVmSwap:\t 4 kB\n";
        let found = parse_pid_status(text).unwrap();
        assert_eq!((found.peak_rss_kib, found.swap_kib), (Some(2048), Some(4)));
        assert_eq!((found.anon_kib, found.mapped_kib), (Some(70), Some(23)));
    }

    #[test]
    fn zombie_has_no_memory_lines() {
        assert_eq!(parse_pid_status(b"Name:\tsh\nState:\tZ (zombie)\n"), Ok(PidStatus::default()));
    }
}
