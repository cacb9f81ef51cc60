//! `/proc/[pid]/statm`: resident pages of one process. The fastest file about memory.
//!
//! In:  the text of the file. Out: its resident anonymous pages. Field order: `proc_pid_statm(5)`.

use super::text::{decimal, fields};

/// Resident pages without those of files and of shared memory; `None` if the text is damaged.
pub fn parse_statm_anon_pages(text: &[u8]) -> Option<u64> {
    let mut fields = fields(text).skip(1).map(decimal);
    let (resident, shared) = (fields.next()??, fields.next()??);
    resident.checked_sub(shared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_pages_are_not_anonymous() {
        assert_eq!(parse_statm_anon_pages(b"9000 500 200 1 0 99 0\n"), Some(300));
        assert_eq!(parse_statm_anon_pages(b"9000 500\n"), None);
        assert_eq!(parse_statm_anon_pages(b"9000 200 500 1 0 99 0\n"), None);
    }
}
