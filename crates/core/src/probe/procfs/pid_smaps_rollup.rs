//! `/proc/[pid]/smaps_rollup`: PSS of one process. A page that n processes share adds 1/n of its size to PSS.
//!
//! In:  the text of the file. Out: [`SmapsRollup`] in KiB.
//! Not here: the decision when to read this slow file (`job/memory`).

use super::text::labelled;
use crate::error::ParseError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmapsRollup {
    pub rss_kib: u64,
    pub pss_kib: u64,
    /// `None` on kernels before Linux 5.4.
    pub anon: Option<AnonPages>,
}

/// Anonymous pages. A process shares them only with its parent and with processes that it forked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnonPages {
    pub rss_kib: u64,
    pub pss_kib: u64,
    /// Pages that no other process shares. This is a lower bound.
    pub own_kib: u64,
}

/// `None` for a process without an address space.
pub fn parse_smaps_rollup(text: &[u8]) -> Result<Option<SmapsRollup>, ParseError> {
    let found = labelled("Rss:", text)?.zip(labelled("Pss:", text)?);
    let Some((all_rss_kib, all_pss_kib)) = found else { return Ok(None) };
    let parts = labelled("Anonymous:", text)?.zip(labelled("Pss_Anon:", text)?);
    let own = labelled("Private_Clean:", text)?.zip(labelled("Private_Dirty:", text)?);
    let anon = parts.zip(own).map(|((rss_kib, pss_kib), (clean_kib, dirty_kib))| AnonPages {
        rss_kib,
        pss_kib,
        // Private pages include pages of files, up to the PSS of files. PSS contains at most half of a shared page.
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
    fn pss_is_not_confused_with_pss_dirty() {
        let text = b"5600-7fff ---p 00000000 00:00 0   [rollup]\nRss:    90 kB\nPss:    43 kB\nPss_Dirty:  7 kB\nSwapPss: 3 kB\n";
        let found = parse_smaps_rollup(text);
        assert_eq!(found, Ok(Some(SmapsRollup { rss_kib: 90, pss_kib: 43, anon: None })));
        assert_eq!(parse_smaps_rollup(b""), Ok(None));
    }

    #[test]
    fn private_pages_of_files_are_not_counted_as_anonymous() {
        let own_kib = |rss_kib: u64, pss_kib: u64, private_kib: u64| {
            let text = format!(
                "Rss: 999 kB\nPss: {} kB\nPss_Anon: {pss_kib} kB\nPrivate_Clean: 5 kB\nPrivate_Dirty: {} kB\n\
                 Anonymous: {rss_kib} kB\n",
                pss_kib + 23,
                private_kib - 5
            );
            parse_smaps_rollup(text.as_bytes()).unwrap().unwrap().anon.unwrap().own_kib
        };
        assert_eq!(own_kib(400, 400, 423), 400, "nothing is shared");
        assert_eq!(
            own_kib(400, 200, 23),
            0,
            "two processes share the anonymous pages; the pages of files are private"
        );
        assert_eq!(own_kib(400, 250, 100), 100, "two processes share the other pages");
        assert_eq!(own_kib(400, 130, 123), 100, "many processes share the other pages");
    }
}
