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
    /// What of it is of no file; kernels of before 5.4 do not tell.
    pub anon: Option<AnonPages>,
}

/// Pages of no file, which only copies of a process share with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnonPages {
    /// Resident.
    pub rss_kib: u64,
    /// Resident, shared pages divided.
    pub pss_kib: u64,
    /// Shared with nobody; so many at least.
    pub own_kib: u64,
}

/// Parses `/proc/[pid]/smaps_rollup`; `None` for a process without memory of its own.
///
/// # Errors
/// Where a line holds no number.
pub fn parse_smaps_rollup(text: &[u8]) -> Result<Option<SmapsRollup>, ParseError> {
    let found = labelled("Rss:", text)?.zip(labelled("Pss:", text)?);
    let Some((all_rss_kib, all_pss_kib)) = found else { return Ok(None) };
    let parts = labelled("Anonymous:", text)?.zip(labelled("Pss_Anon:", text)?);
    let own = labelled("Private_Clean:", text)?.zip(labelled("Private_Dirty:", text)?);
    let anon = parts.zip(own).map(|((rss_kib, pss_kib), (clean_kib, dirty_kib))| AnonPages {
        rss_kib,
        pss_kib,
        // Private pages are of files too, but not more than its part of those; and what is shared counts half at most.
        own_kib: clean_kib
            .saturating_add(dirty_kib)
            .saturating_sub(all_pss_kib.saturating_sub(pss_kib))
            .max(pss_kib.saturating_mul(2).saturating_sub(rss_kib))
            .min(pss_kib),
    });
    Ok(Some(SmapsRollup { rss_kib: all_rss_kib, pss_kib: all_pss_kib, anon }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pss_is_told_from_its_parts() {
        let text = b"5600-7fff ---p 00000000 00:00 0   [rollup]\nRss:    90 kB\nPss:    43 kB\nPss_Dirty:  7 kB\nSwapPss: 3 kB\n";
        let found = parse_smaps_rollup(text);
        assert_eq!(found, Ok(Some(SmapsRollup { rss_kib: 90, pss_kib: 43, anon: None })));
        assert_eq!(parse_smaps_rollup(b""), Ok(None));
    }

    #[test]
    fn private_pages_of_files_are_not_taken_for_others() {
        let own_kib = |rss_kib: u64, pss_kib: u64, private_kib: u64| {
            let text = format!(
                "Rss: 999 kB\nPss: {} kB\nPss_Anon: {pss_kib} kB\nPrivate_Clean: 5 kB\nPrivate_Dirty: {} kB\n\
                 Anonymous: {rss_kib} kB\n",
                pss_kib + 23,
                private_kib - 5
            );
            parse_smaps_rollup(text.as_bytes()).unwrap().unwrap().anon.unwrap().own_kib
        };
        assert_eq!(own_kib(400, 400, 423), 400, "all is its own, files too");
        assert_eq!(own_kib(400, 200, 23), 0, "all is shared by two, files are its own");
        assert_eq!(own_kib(400, 250, 100), 100, "the rest is shared by two");
        assert_eq!(own_kib(400, 130, 123), 100, "the rest is shared by many");
    }
}
