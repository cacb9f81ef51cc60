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
    /// What of it is of no file; kernels of before 5.15 do not tell.
    pub anon: Option<AnonPages>,
}

/// Pages of no file, which only copies of a process share with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnonPages {
    /// Resident.
    pub rss_kib: u64,
    /// Resident, shared pages divided.
    pub pss_kib: u64,
    /// Shared with nobody.
    pub own_kib: u64,
}

/// Parses `/proc/[pid]/smaps_rollup`; `None` for a process without memory of its own.
///
/// # Errors
/// Where a line holds no number.
pub fn parse_smaps_rollup(text: &[u8]) -> Result<Option<SmapsRollup>, ParseError> {
    let found = labelled("Rss:", text)?.zip(labelled("Pss:", text)?);
    let Some((rss_kib, pss_kib)) = found else { return Ok(None) };
    let parts = labelled("Anonymous:", text)?.zip(labelled("Pss_Anon:", text)?);
    let own = labelled("Private_Clean:", text)?.zip(labelled("Private_Dirty:", text)?);
    let anon = parts.zip(own).map(|((rss_kib, pss_kib), (clean_kib, dirty_kib))| AnonPages {
        rss_kib,
        pss_kib,
        // Pages of files are mostly shared or clean; no more than all can be its own.
        own_kib: clean_kib.saturating_add(dirty_kib).min(rss_kib),
    });
    Ok(Some(SmapsRollup { rss_kib, pss_kib, anon }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pss_is_told_from_its_parts() {
        let text = b"5600-7fff ---p 00000000 00:00 0   [rollup]\nRss:    90 kB\nPss:    43 kB\nPss_Dirty:  7 kB\nSwapPss: 3 kB\n";
        assert_eq!(parse_smaps_rollup(text), Ok(Some(SmapsRollup { rss_kib: 90, pss_kib: 43, anon: None })));
        let text =
            [&text[..], b"Pss_Anon: 20 kB\nPrivate_Clean: 9 kB\nPrivate_Dirty: 5 kB\nAnonymous: 30 kB\n"]
                .concat();
        let anon = AnonPages { rss_kib: 30, pss_kib: 20, own_kib: 14 };
        assert_eq!(
            parse_smaps_rollup(&text),
            Ok(Some(SmapsRollup { rss_kib: 90, pss_kib: 43, anon: Some(anon) }))
        );
        assert_eq!(parse_smaps_rollup(b""), Ok(None));
    }
}
