//! `/proc/[pid]/smaps_rollup`: a process's share of memory, pages shared by n processes counted 1/n each.
//!
//! In:  the file's text. Out: PSS in KiB. The kernel walks every page for it: see `memory` for when we ask.

use super::text::labelled;
use crate::error::ParseError;

/// Parses `/proc/[pid]/smaps_rollup`; `None` for a process without memory of its own.
///
/// # Errors
/// Where the line holds no number.
pub fn parse_pss_kib(text: &[u8]) -> Result<Option<u64>, ParseError> {
    labelled("Pss:", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pss_is_told_from_its_parts() {
        let text = b"5600-7fff ---p 00000000 00:00 0   [rollup]\nRss:    90 kB\nPss:    43 kB\nPss_Dirty:  7 kB\nSwapPss: 3 kB\n";
        assert_eq!(parse_pss_kib(text), Ok(Some(43)));
        assert_eq!(parse_pss_kib(b""), Ok(None));
    }
}
