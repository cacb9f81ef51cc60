//! `/proc/[pid]/smaps_rollup`: a process's share of memory, pages shared by n processes counted 1/n each.
//!
//! In:  the file's text. Out: [`SmapsRollup`] in KiB. The kernel walks every page for it: see `memory` for when we ask.

use super::text::labelled;
use crate::error::ParseError;

/// Memory of one process, page by page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmapsRollup {
    /// Resident.
    pub rss_kib: u64,
    /// Resident, shared pages divided by the number of processes that share them.
    pub pss_kib: u64,
}

/// Parses `/proc/[pid]/smaps_rollup`; `None` for a process without memory of its own.
///
/// # Errors
/// Where a line holds no number.
pub fn parse_smaps_rollup(text: &[u8]) -> Result<Option<SmapsRollup>, ParseError> {
    let found = labelled("Rss:", text)?.zip(labelled("Pss:", text)?);
    Ok(found.map(|(rss_kib, pss_kib)| SmapsRollup { rss_kib, pss_kib }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pss_is_told_from_its_parts() {
        let text = b"5600-7fff ---p 00000000 00:00 0   [rollup]\nRss:    90 kB\nPss:    43 kB\nPss_Dirty:  7 kB\nSwapPss: 3 kB\n";
        assert_eq!(parse_smaps_rollup(text), Ok(Some(SmapsRollup { rss_kib: 90, pss_kib: 43 })));
        assert_eq!(parse_smaps_rollup(b""), Ok(None));
    }
}
