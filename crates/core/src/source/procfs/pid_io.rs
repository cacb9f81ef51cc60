//! `/proc/[pid]/io`: bytes a process caused to be read from and written to storage.
//!
//! In:  the file's text. Out: [`PidIo`]. The kernel adds the bytes of children that were waited for to their
//! parent's: adding ended children again would count them twice.

use super::text::labelled;
use crate::error::ParseError;

/// Storage bytes of one process and of the children that it waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PidIo {
    /// Fetched from storage.
    pub read_bytes: u64,
    /// Sent to storage.
    pub write_bytes: u64,
}

/// Parses `/proc/[pid]/io`.
///
/// # Errors
/// Where one of the two lines is missing or holds no number.
pub fn parse_pid_io(text: &[u8]) -> Result<PidIo, ParseError> {
    Ok(PidIo {
        read_bytes: labelled("read_bytes:", text)?.ok_or(ParseError::Missing { field: "read_bytes" })?,
        write_bytes: labelled("write_bytes:", text)?.ok_or(ParseError::Missing { field: "write_bytes" })?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_bytes_are_told_from_characters_and_from_cancelled_writes() {
        let text = b"rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\ncancelled_write_bytes: 7\n";
        assert_eq!(parse_pid_io(text), Ok(PidIo { read_bytes: 5, write_bytes: 6 }));
    }
}
